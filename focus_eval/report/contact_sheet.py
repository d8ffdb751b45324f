"""What does one selection look like: keyframes over the timeline of what was pulled?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from focus_eval.rows.records import SelectionRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colour-blind safe palette.
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#8A8A8A"


def draw_sheet(row: SelectionRow, thumbnails: list[NDArray[np.uint8]]) -> Figure:
    """Return a contact sheet: one thumbnail per keyframe (RGB uint8, any size) over `draw_timeline`."""
    from matplotlib.figure import Figure

    columns = min(8, max(1, len(thumbnails)))
    lines = math.ceil(len(thumbnails) / columns)
    aspect = max(image.shape[0] / image.shape[1] for image in thumbnails)
    width = 12.0
    cell = width / columns * min(aspect, 1.4) + 0.22
    figure = Figure(figsize=(width, cell * lines + 3.2), layout="constrained")
    grid = figure.add_gridspec(lines + 1, columns, height_ratios=[cell] * lines + [2.4])
    for number, image in enumerate(thumbnails):
        axes = figure.add_subplot(grid[number // columns, number % columns])
        axes.imshow(image)
        axes.set_axis_off()
        axes.set_title(_caption(row, number), fontsize=7, pad=2)
    draw_timeline(figure.add_subplot(grid[lines, :]), row)
    figure.suptitle(_headline(row), fontsize=10, wrap=True)
    return figure


def draw_timeline(axes: Axes, row: SelectionRow) -> None:
    """Draw pulled relevance, clips with mean and radius, keyframes and evidence over seconds."""
    fps = row.fps
    for start, stop, _, mean, radius, is_final in row.clips:
        if mean is None:
            continue
        color = BLUE if is_final else GREY
        if radius is not None:
            top = min(1.0, mean + radius)
            axes.fill_between([start / fps, stop / fps], max(0.0, mean - radius), top, color=color, alpha=0.12, lw=0)
        axes.plot([start / fps, stop / fps], [mean, mean], color=color, lw=1.6)
    known = [(f, r) for f, r in zip(row.pulled_frames, row.pulled_relevance, strict=True) if r is not None]
    if known:
        frames, relevance = zip(*known, strict=True)
        axes.plot(np.array(frames) / fps, relevance, ".", color=GREY, ms=2.5, label=f"pulled ({len(known)})")
        axes.set_ylim(*_limits(np.array(relevance)))
    for time in row.evidence_seconds:
        axes.axvline(time, color=GREEN, lw=1, ls="--")
    marks = axes.get_xaxis_transform()
    axes.plot(row.times_seconds, [0.03] * len(row.times_seconds), "^", color=ORANGE, ms=6, transform=marks)
    axes.set_xlim(0, row.n_frames / fps)
    axes.set_xlabel("seconds")
    axes.set_ylabel("relevance")
    axes.spines[["top", "right"]].set_visible(False)
    _legend(axes, row)


def _legend(axes: Axes, row: SelectionRow) -> None:
    from matplotlib.lines import Line2D

    entries = [Line2D([], [], marker="^", color=ORANGE, ls="", label=f"keyframes ({len(row.keyframes)})")]
    if row.pulled_frames:
        entries.append(Line2D([], [], marker=".", color=GREY, ls="", label=f"pulled ({len(row.pulled_frames)})"))
    if row.clips:
        entries.append(Line2D([], [], color=BLUE, label="final clip: mean and radius"))
        entries.append(Line2D([], [], color=GREY, label="other clip"))
    if row.evidence_seconds:
        entries.append(Line2D([], [], color=GREEN, ls="--", label="evidence"))
    axes.legend(handles=entries, fontsize=7, ncols=len(entries), loc="lower left", bbox_to_anchor=(0, 1), frameon=False)


def _limits(relevance: NDArray[np.float64]) -> tuple[float, float]:
    low, high = float(relevance.min()), float(relevance.max())
    margin = max(0.02, (high - low) * 0.15)
    return max(-0.02, low - 2 * margin), min(1.02, high + margin)


def _caption(row: SelectionRow, number: int) -> str:
    minutes, seconds = divmod(row.times_seconds[number], 60)
    return f"{int(minutes)}:{seconds:05.2f}  #{row.keyframes[number]}"


def _headline(row: SelectionRow) -> str:
    seen = f"{len(row.pulled_frames)} of {row.n_frames} frames scored ({len(row.pulled_frames) / row.n_frames:.2%})"
    query = row.query if len(row.query) <= 90 else row.query[:87] + "..."
    # A dollar sign would start mathematics.
    return f"{query!r}   {row.sampler}, k = {row.k}, {seen}".replace("$", r"\$")
