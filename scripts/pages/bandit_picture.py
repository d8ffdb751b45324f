"""Draw one run of `focus` over a simulated video, step by step: the picture of docs/concepts.md.

python -m scripts.pages.bandit_picture [--out docs/images/bandit_run.png] [--number 18]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np

from focus_eval.core.types import Selection
from focus_eval.keyframes.figures import EVIDENCE, FAINT, INK, STYLES
from focus_eval.keyframes.samplers.base import derived_rng
from focus_eval.keyframes.samplers.registry import make_sampler
from focus_eval.lab.traces import SimulatedTrace, make_trace
from focus_eval.lab.worlds import WORLDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MINUTES, K = (3.8, 4.2), 8
COLOUR = STYLES[0].light


def draw(trace: SimulatedTrace, out: Path) -> None:
    """Draw the run on `trace` in four panels that share a time axis."""
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    rng = derived_rng(0, "bandit picture")
    selection = make_sampler("focus").select(trace.info, k=K, pull=trace.relevance, rng=rng)
    figure, panels = plt.subplots(4, 1, sharex=True, figsize=(9, 7.2), layout="constrained")
    coarse = len(selection.clips) * selection.options["pulls_per_arm"]
    draw_pulls(panels[0], trace, selection, slice(0, coarse))
    panels[0].set_title(f"1. Every clip is an arm; {coarse} frames are scored, a few of every clip", loc="left")
    draw_optimism(panels[1], trace, selection, coarse)
    panels[1].set_title("2. Mean plus radius: the optimistic best are promising (blue)", loc="left")
    draw_pulls(panels[2], trace, selection, slice(coarse, None))
    panels[2].set_title(f"3. {selection.n_pulls - coarse} more frames are scored, in the promising clips", loc="left")
    draw_keyframes(panels[3], trace, selection)
    panels[3].set_title(f"4. {K} keyframes are drawn in the clips of highest mean (blue)", loc="left")
    for axes in panels:
        axes.set(ylim=(-0.02, 1.02), xlim=(0, trace.info.duration_seconds), yticks=[0, 1], ylabel="relevance")
        axes.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xlabel("seconds")
    figure.savefig(out, dpi=140)


def draw_truth(axes: Axes, trace: SimulatedTrace) -> None:
    """Draw the relevance of every frame, which no sampler sees, and the moments of the evidence."""
    frames = np.arange(0, trace.info.n_frames, 5)
    axes.plot(frames / trace.info.fps, trace.relevance(frames), color=FAINT, lw=0.6, alpha=0.6)
    for moment in trace.evidence_seconds:
        axes.axvline(moment, color=EVIDENCE, lw=1.2, ls="--")


def draw_pulls(axes: Axes, trace: SimulatedTrace, selection: Selection, pulls: slice) -> None:
    """Draw the borders of the clips and the scored frames of one stage."""
    draw_truth(axes, trace)
    for clip in selection.clips:
        axes.axvline(clip.start / trace.info.fps, color=FAINT, lw=0.4)
    times = selection.pulled_frames[pulls] / trace.info.fps
    axes.vlines(times, 0, selection.pulled_relevance[pulls], color=COLOUR, lw=1.0)
    axes.plot(times, selection.pulled_relevance[pulls], "o", color=COLOUR, ms=3)


def draw_optimism(axes: Axes, trace: SimulatedTrace, selection: Selection, coarse: int) -> None:
    """Draw every clip's mean relevance after the coarse stage, promising clips in colour.

    With so few pulls, the confidence radius is larger than the axis. Only its part that differs between clips orders
    them, so each bar reaches from the mean to the mean plus one standard deviation of the clip's pulls.
    """
    draw_truth(axes, trace)
    frames, relevance = selection.pulled_frames[:coarse], selection.pulled_relevance[:coarse]
    promising = set(selection.facts["promising_arms"])
    for number, clip in enumerate(selection.clips):
        inside = relevance[(frames >= clip.start) & (frames < clip.stop)]
        span = [clip.start / trace.info.fps, clip.stop / trace.info.fps]
        colour = COLOUR if number in promising else INK
        axes.plot(span, [inside.mean()] * 2, color=colour, lw=2)
        axes.fill_between(span, inside.mean(), inside.mean() + inside.std(), color=colour, alpha=0.18, lw=0)


def draw_keyframes(axes: Axes, trace: SimulatedTrace, selection: Selection) -> None:
    """Draw the final clips as bands, and the keyframes."""
    draw_truth(axes, trace)
    for clip in selection.clips:
        if clip.is_final:
            axes.axvspan(clip.start / trace.info.fps, clip.stop / trace.info.fps, color=COLOUR, alpha=0.15, lw=0)
    keyframes = np.array(selection.keyframes)
    axes.plot(keyframes / trace.info.fps, trace.relevance(keyframes), "^", color=COLOUR, ms=7, mec="white")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/images/bandit_run.png"))
    parser.add_argument("--number", type=int, default=18, help="which simulated video")
    parser.add_argument("--world", default="calibrated", choices=sorted(WORLDS))
    options = parser.parse_args()
    draw(make_trace(WORLDS[options.world], options.number, seed=0, minutes=MINUTES), options.out)


if __name__ == "__main__":
    main()
