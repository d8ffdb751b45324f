"""Draw one run of `scan_cover` over a simulated video, step by step: the picture of research/docs/scan_cover.md.

python research/scripts/scan_picture.py [--out research/docs/images/scan_cover.png] [--number 27]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np

from focus_eval.core.types import FloatArray
from focus_eval.keyframes.figures import EVIDENCE, FAINT, STYLES
from focus_eval.keyframes.samplers.base import derived_rng
from focus_eval.keyframes.samplers.coverage import grid_frames
from focus_eval.keyframes.samplers.fusion import Prior, density_of
from focus_eval.keyframes.samplers.ledger import log_odds
from focus_eval.keyframes.samplers.registry import make_sampler
from focus_eval.keyframes.samplers.scan_cover import Pulls, ScanView
from focus_eval.lab.traces import SimulatedTrace, make_trace
from focus_eval.lab.worlds import CHANNELS, WORLDS

MINUTES, K = (7.5, 8.5), 8
BLUE = STYLES[0].light


def draw(main: SimulatedTrace, scan: SimulatedTrace, out: Path) -> None:
    """Draw scan, pulls and fused density in three panels that share a time axis."""
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    selection = make_sampler("scan_cover").select(
        main.info,
        k=K,
        pull=main.relevance,
        rng=derived_rng(0, "scan picture"),
        scan=lambda frames: log_odds(scan.relevance(frames)),
        scan_cost=CHANNELS["fair"].cost,
    )
    fps, grid = main.info.fps, grid_frames(main.info)
    scanned, pulled = selection.scanned_frames, np.sort(selection.pulled_frames)
    scan_odds, logits = log_odds(scan.relevance(scanned)), log_odds(main.relevance(pulled))
    figure, panels = plt.subplots(3, 1, sharex=True, figsize=(9, 5.6), layout="constrained")
    panels[0].plot(scanned / fps, scan_odds, color=BLUE, lw=0.8)
    panels[0].set_title(f"1. The cheap encoder scans {scanned.size} frames", loc="left")
    panels[1].plot(grid / fps, log_odds(main.relevance(grid)), color=FAINT, lw=0.7)
    panels[1].plot(pulled / fps, logits, "o", color=BLUE, ms=3.5)
    panels[1].set_title(f"2. The dear encoder sees {pulled.size} (grey: what it would give everywhere)", loc="left")
    view, prior = ScanView.of(main.info, scanned, scan_odds), Prior()
    fit = view.regression(Pulls(pulled, main.relevance(pulled), logits), prior)
    density: FloatArray = density_of(view.times, view.scan, pulled / fps, fit, prior)
    panels[2].fill_between(grid / fps, density / density.max(), color=BLUE, lw=0)
    panels[2].plot(np.array(selection.keyframes) / fps, np.full(K, 1.08), "v", color="black", ms=6)
    panels[2].set(ylim=(0, 1.18), yticks=[0, 1])
    panels[2].set_title(f"3. Density of evidence given both, and {K} keyframes that cover it", loc="left")
    for axes, label in zip(panels, ("logit", "logit", "density"), strict=True):
        axes.set(xlim=(0, main.info.duration_seconds), ylabel=label)
        axes.spines[["top", "right"]].set_visible(False)
        for moment in main.evidence_seconds:
            axes.axvline(moment, color=EVIDENCE, lw=1.2, ls="--")
    panels[-1].set_xlabel("seconds")
    figure.align_ylabels()
    figure.savefig(out, dpi=140, bbox_inches="tight")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("research/docs/images/scan_cover.png"))
    parser.add_argument("--number", type=int, default=27, help="which simulated video")
    arguments = parser.parse_args()
    views = [
        make_trace(WORLDS["smooth"], arguments.number, seed=1, minutes=MINUTES, channel=channel)
        for channel in (None, CHANNELS["fair"])
    ]
    draw(*views, arguments.out)


if __name__ == "__main__":
    main()
