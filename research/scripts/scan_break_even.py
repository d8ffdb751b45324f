"""From which scan encoder on does `scan_cover` pay over `even_cover` at equal forwards? Draws a map and writes its CSV.

The map shows the paired difference in evidence recall within 2 seconds on simulated videos, with a 95 % interval
clustered by video. Its dimensions are the correlation of the two encoders' backgrounds, the cost of a scanned frame,
the budget and K. Events are `min(1, 2 * correlation)` times as high for the scan encoder as for the main one.
Run: python research/scripts/scan_break_even.py --out results/runs/scan_break_even [--videos 10] [--seed 1]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd

from focus_eval.bench.report.recall import recall
from focus_eval.bench.report.statistics import difference_estimate
from focus_eval.core.types import FloatArray
from focus_eval.keyframes.samplers.base import FrameSampler, derived_rng
from focus_eval.keyframes.samplers.ledger import log_odds
from focus_eval.keyframes.samplers.registry import make_sampler
from focus_eval.lab.traces import SimulatedTrace, make_trace
from focus_eval.lab.worlds import WORLDS, Channel

matplotlib.use("Agg")
BUDGETS = (0.25, 0.5, 1.0, 2.0, 4.0)
KS = (8, 32)
RHOS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
COSTS = (1 / 43, 1 / 24, 1 / 12, 1 / 6, 1 / 3)
MINUTES = (1.0, 180.0)
KEYS = ("percent", "k", "rho", "cost")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--videos", type=int, default=10, help="of each world")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    videos = [(world, number, arguments.seed) for world in WORLDS for number in range(arguments.videos)]
    with ProcessPoolExecutor(arguments.workers) as pool:
        rows = pd.DataFrame([row for video_rows in pool.map(differences, videos) for row in video_rows])
    table = break_even(rows)
    table.to_csv(arguments.out / "break_even.csv", index=False, float_format="%.5g")
    draw(table, arguments.out / "break_even.png")
    for sentence in sentences(table):
        print(sentence)


def differences(video: tuple[str, int, int]) -> list[dict[str, Any]]:
    """Return one video's recall of `scan_cover` and `even_cover`, a row for each budget, K, channel and cost."""
    world, number, seed = video
    make = partial(make_trace, WORLDS[world], number, seed=seed, minutes=MINUTES)
    trace = make()
    rows: list[dict[str, Any]] = []
    for percent, k in product(BUDGETS, KS):
        even = recall_of(make_sampler("even_cover", share=percent / 100), trace, k=k)
        rows += [
            {"video": trace.question_id, "percent": percent, "k": k, "rho": rho, "cost": cost, "even": even}
            for rho, cost in product(RHOS, COSTS)
        ]
    scans = {rho: make(channel=Channel(rho=rho, q=q_of(rho))) for rho in RHOS}
    for row in rows:
        sampler = make_sampler("scan_cover", share=row["percent"] / 100, relative_cost=row["cost"])
        row["scan"] = recall_of(sampler, trace, k=row["k"], scan=scans[row["rho"]])
    return rows


def q_of(rho: float) -> float:
    """Return the height of an event for a scan encoder whose background correlates by `rho`."""
    return min(1.0, 2.0 * rho)


def recall_of(sampler: FrameSampler, trace: SimulatedTrace, *, k: int, scan: SimulatedTrace | None = None) -> float:
    """Return the evidence recall within 2 seconds of what `sampler` selects."""
    selection = sampler.select(
        trace.info,
        k=k,
        pull=trace.relevance,
        rng=derived_rng(0, trace.question_id, sampler.name),
        scan=None if scan is None else lambda frames: log_odds(scan.relevance(frames)),
    )
    return recall(np.array(selection.keyframes) / trace.info.fps, trace.evidence_seconds)


def break_even(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the difference `scan_cover` less `even_cover` in points with its interval, by percent, K, rho and cost."""
    lines = []
    for keys, part in rows.groupby(list(KEYS)):
        estimate = difference_estimate(part["scan"] - part["even"], part["video"])
        figures = {"difference": estimate.value, "low": estimate.low, "high": estimate.high}
        points = {name: None if value is None else 100 * value for name, value in figures.items()}
        lines.append({**dict(zip(KEYS, keys, strict=True)), **points, "videos": len(part)})
    return pd.DataFrame(lines).astype({"low": float, "high": float})


def sentences(table: pd.DataFrame) -> Iterator[str]:
    """Yield, for each budget and K, the least correlation that pays at each cost: its interval is above 0."""
    for (percent, k), part in table.groupby(["percent", "k"]):
        lines = []
        for cost, cost_rows in part.groupby("cost"):
            sure = cost_rows.loc[cost_rows["low"] > 0, "rho"]
            lines.append(f"1/{1 / cost:.0f} " + (f"from rho {sure.min():g}" if sure.size else "never"))
        yield f"{percent:g} % of the frames, K = {k}, by cost: {', '.join(lines)}"


def draw(table: pd.DataFrame, path: Path) -> None:
    """Draw one map per budget and K: the colour shows the difference, the line where it is 0."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        len(KS), len(BUDGETS), figsize=(12, 5.2), sharex=True, sharey=True, layout="constrained", squeeze=False
    )
    largest = float(table["difference"].abs().max())
    for row, k in zip(axes, KS, strict=True):
        for panel, percent in zip(row, BUDGETS, strict=True):
            part = table[(table["k"] == k) & (table["percent"] == percent)]
            grid: FloatArray = part.pivot(index="cost", columns="rho", values="difference").to_numpy()
            at = np.arange(len(RHOS)), np.arange(len(COSTS))
            image = panel.pcolormesh(*at, grid, cmap="RdBu", vmin=-largest, vmax=largest)
            if grid.min() < 0 < grid.max():
                panel.contour(*at, grid, levels=[0.0], colors="black")
            panel.set(title=f"{percent:g} %, K = {k}")
            ticks(panel, at)
    figure.supxlabel("Correlation of the scan encoder with the main one")
    figure.supylabel("Cost of a scanned frame")
    figure.colorbar(image, ax=axes, label="scan_cover less even_cover (points)")
    figure.savefig(path, dpi=150)


def ticks(panel: matplotlib.axes.Axes, at: Sequence[FloatArray]) -> None:
    """Label the axes of a map with the correlations and costs."""
    panel.set_xticks(at[0], [f"{rho:g}" for rho in RHOS])
    panel.set_yticks(at[1], [f"1/{1 / cost:.0f}" for cost in sorted(COSTS)])


if __name__ == "__main__":
    main()
