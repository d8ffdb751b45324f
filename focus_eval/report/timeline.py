"""Draws one selection over its timeline: relevance, clips, evidence and keyframes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from focus_eval.report.palette import EVIDENCE, FAINT
from focus_eval.rows.records import SelectionRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_timeline(axes: Axes, row: SelectionRow, *, colour: str) -> None:
    """Draw `row` over seconds.

    Pulled relevance is drawn as thin bars, final clips as bands, evidence as dashed lines, keyframes as triangles below
    the axis.

    Args:
        colour: of bands and triangles.
    """
    fps = row.fps or 1.0
    for start, stop, *_, is_final in row.clips:
        if is_final:
            axes.axvspan(start / fps, stop / fps, color=colour, alpha=0.13, lw=0)
    pulled = [(f / fps, r) for f, r in zip(row.pulled_frames, row.pulled_relevance, strict=True) if r is not None]
    if pulled:
        times, relevance = np.array(sorted(pulled)).T
        axes.vlines(times, 0, relevance, color=FAINT, lw=0.5)
    for time in row.evidence_seconds:
        axes.axvline(time, color=EVIDENCE, lw=1.0, ls=(0, (2, 1.5)))
    if row.times_seconds:  # marks that nothing clips: without any, the layout would make room for nowhere
        axes.plot(row.times_seconds, [-0.16] * len(row.times_seconds), "^", color=colour, ms=3.2, mew=0, clip_on=False)
    axes.set(ylim=(-0.3, 1.05), xlim=(0, row.duration_seconds), yticks=[0, 1])
    axes.tick_params(axis="y", length=0, labelsize=5)


def draw_clip_means(axes: Axes, row: SelectionRow, *, colour: str) -> None:
    """Draw mean relevance and radius of every clip, the final ones in `colour`."""
    fps = row.fps or 1.0
    for start, stop, _, mean, radius, is_final in row.clips:
        if mean is None:
            continue
        shade = colour if is_final else FAINT
        if radius is not None:
            low, high = max(0.0, mean - radius), min(1.0, mean + radius)
            axes.fill_between([start / fps, stop / fps], low, high, color=shade, alpha=0.12, lw=0)
        axes.plot([start / fps, stop / fps], [mean, mean], color=shade, lw=1.6)


def add_legend(axes: Axes, row: SelectionRow, *, colour: str) -> None:
    """Name above the axis what `draw_timeline` and `draw_clip_means` drew."""
    from matplotlib.lines import Line2D

    entries = [Line2D([], [], marker="^", color=colour, ls="", label=f"keyframes ({len(row.keyframes)})")]
    if row.pulled_frames:
        entries.append(Line2D([], [], marker="|", color=FAINT, ls="", label=f"pulled ({len(row.pulled_frames)})"))
    if row.clips:
        entries.append(Line2D([], [], color=colour, label="final clip: mean and radius"))
        entries.append(Line2D([], [], color=FAINT, label="other clip"))
    if row.evidence_seconds:
        entries.append(Line2D([], [], color=EVIDENCE, ls="--", label="evidence"))
    axes.legend(handles=entries, fontsize=7, ncols=len(entries), loc="lower left", bbox_to_anchor=(0, 1), frameon=False)
