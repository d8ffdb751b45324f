"""Where one sampler overtakes another in simulation: `lab_boundaries.py PART [--videos N] [--out DIR]`.

Parts: `stretch` (the pulls of FOCUS against as many even ones, focus_cover less even_cover, by how long the stretch is
that holds a question's events and by how much it is raised), `lengths` (even_cover less even_topk at the pulls of
focus, by the length of the events), `realistic` (both differences, and even_cover at its default less even_topk, with
evidence of real lengths). Each video has one question, so equal pulls are equal forwards. Writes a CSV, and for
`stretch` a picture; prints Markdown tables. docs/simulation.md quotes all three, and the corner of the map (as
research/results/stretch_corner.csv) from `stretch --seed 20261123 --videos 500 --span 30 --span 60 --span 120 --span
60-180 --height 2 --height 3 --height 4`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from focus_eval.bench.benchmarks.question import NEAR_SECONDS
from focus_eval.bench.report.figures import figure_style, save_figure
from focus_eval.bench.report.recall import recall_within
from focus_eval.bench.report.statistics import difference_estimate
from focus_eval.keyframes.samplers.registry import make_sampler
from focus_eval.lab.simulation import SimulationConfig, select_on, trace_sources

MINUTES = (3.0, 60.0)
SPANS, HEIGHTS = ("15", "30", "60", "120", "300", "900"), (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
LENGTHS = ((1, 2), (2, 4), (4, 8), (8, 15), (15, 30), (30, 60), (60, 120), (120, 300))
EVEN_COVER = make_sampler("even_cover", budget_of="focus")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("stretch", "lengths", "realistic"))
    parser.add_argument("--videos", type=int, default=120, help="of each world")
    parser.add_argument("--out", type=Path, default=Path("results/boundaries"))
    parser.add_argument("-k", type=int, action="append", help="repeatable; 16 and 32 by default")
    parser.add_argument("--seed", type=int, default=20261122)
    parser.add_argument("--span", action="append", help='of `stretch`: seconds, "60" or "60-180"; repeatable')
    parser.add_argument("--height", type=float, action="append", help="of `stretch`; repeatable")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    ks = arguments.k or [16, 32]
    if arguments.part == "lengths":
        lengths(arguments.videos, ks, arguments.out, arguments.seed)
    elif arguments.part == "realistic":
        realistic(arguments.videos, ks, arguments.out, arguments.seed)
    else:
        grid = [(span, height) for span in arguments.span or SPANS for height in arguments.height or HEIGHTS]
        stretch(grid, arguments.videos, ks, arguments.out, arguments.seed)


def stretch(grid, videos, ks, out, seed):
    """Write the table and picture of FOCUS's pulls against even ones, by length and height of stretches."""
    rows = []
    for span, height in grid:
        low, _, high = span.partition("-")
        world = {"world": "clustered", "name": f"{span} s at {height}", "related_height": height}
        world |= {"cluster_seconds": [float(low), float(high or low)]}
        estimate = differences(world, make_sampler("focus_cover"), EVEN_COVER, videos, ks, seed)
        rows += [{"span_seconds": span, "height": height, **row} for row in estimate]
    frame = pd.DataFrame(rows)
    frame["span_seconds"] = pd.Categorical(frame["span_seconds"], categories=list(dict.fromkeys(frame["span_seconds"])))
    frame.to_csv(out / "stretch_map.csv", index=False, float_format="%.4f")
    save_figure(draw(frame), out / "stretch_map.svg")
    for k, part in frame.groupby("k", observed=True):
        print_table(f"K = {k}", part.pivot(index="span_seconds", columns="height", values="moments"))


def lengths(videos, ks, out, seed):
    """Write the table of even_cover against even_topk by the length of events."""
    rows = []
    for base in ("smooth", "calibrated"):
        for low, high in LENGTHS:
            world = {"world": base, "name": f"{base} {low} to {high} s", "event_seconds": [low, high]}
            world |= {"event_is_shot": False, "evidence_at": "anywhere"}
            estimate = differences(world, EVEN_COVER, make_sampler("even_topk"), videos, ks, seed)
            rows += [{"world": base, "event_seconds": f"{low} to {high}", **row} for row in estimate]
    frame = pd.DataFrame(rows)
    frame.to_csv(out / "event_lengths.csv", index=False, float_format="%.4f")
    print(frame.to_string(index=False, float_format="%+.1f"))


def realistic(videos, ks, out, seed):
    """Write the table of three pairs of samplers with evidence of real lengths."""
    pairs = {
        "focus_cover less even_cover": (make_sampler("focus_cover"), EVEN_COVER),
        "even_cover less even_topk": (EVEN_COVER, make_sampler("even_topk")),
        "even_cover by default less even_topk": (make_sampler("even_cover"), make_sampler("even_topk")),
    }
    rows = []
    for name, pair in pairs.items():
        rows += [{"pair": name, **row} for row in differences("realistic", *pair, videos, ks, seed)]
    frame = pd.DataFrame(rows)
    frame.to_csv(out / "realistic.csv", index=False, float_format="%.4f")
    print(frame.to_string(index=False, float_format="%+.1f"))


def differences(world, first, second, videos, ks, seed):
    """Return the differences of the first sampler less the second, in points with 95 % intervals, a row for each K.

    The measures are the recall of moments and the share of events with a frame inside.
    """
    config = SimulationConfig(seed=seed, minutes=MINUTES, worlds=[world], samplers=["focus"], k=ks)
    [source] = trace_sources(config)
    traces = [source.trace(number, config) for number in range(videos)]
    estimates = []
    for k in ks:
        scores = np.array(
            [[measured(select_on(source, config, sampler, k, number), trace) for sampler in (first, second)]
             for number, trace in enumerate(traces)]
        )  # fmt: skip
        line = {"k": k}
        for at, name in enumerate(("moments", "events")):
            estimate = difference_estimate(scores[:, 0, at] - scores[:, 1, at], [str(n) for n in range(videos)])
            line |= {f"{name}_first": 100 * scores[:, 0, at].mean(), f"{name}_second": 100 * scores[:, 1, at].mean()}
            low, high = (np.nan if end is None else 100 * end for end in (estimate.low, estimate.high))
            line |= {name: 100 * estimate.value, f"{name}_low": low, f"{name}_high": high}
        estimates.append(line)
    return estimates


def measured(row, trace):
    moments = recall_within(np.array(row.evidence_seconds), row.times_seconds, [NEAR_SECONDS])[0]
    return moments, recall_within(trace.events, row.times_seconds, [0.0])[0]


def print_table(title, table):
    """Print a table of differences by stretch length (rows) and height (columns) in Markdown."""
    print(f"\n{title}\n\n| seconds | {' | '.join(f'{height:g}' for height in table.columns)} |")
    print("|---:" * (1 + table.shape[1]) + "|")
    for span, values in zip(table.index, table.to_numpy(), strict=True):
        print(f"| {span} | {' | '.join(f'{value:+.1f}' for value in values)} |")


def draw(frame):
    """Return a figure with one map of differences per K."""
    from matplotlib.figure import Figure

    ks = sorted(set(frame["k"]))
    with figure_style():
        figure = Figure(figsize=(3.4 * len(ks), 3.1), layout="constrained")
        panels = figure.subplots(1, len(ks), squeeze=False, sharey=True)[0]
        limit = frame["moments"].abs().max()
        for axes, k in zip(panels, ks, strict=True):
            part = frame[frame["k"] == k]
            table = part.pivot(index="height", columns="span_seconds", values="moments")
            low, high = (
                part.pivot(index="height", columns="span_seconds", values=f"moments_{end}") for end in ("low", "high")
            )
            image = axes.imshow(table, cmap="RdBu", vmin=-limit, vmax=limit, origin="lower", aspect="auto")
            sure = (low.to_numpy() > 0) | (high.to_numpy() < 0)
            for (y, x), value in np.ndenumerate(table.to_numpy()):
                weight = "bold" if sure[y, x] else "normal"
                color = "white" if abs(value) > 0.65 * limit else "black"
                axes.text(x, y, f"{value:+.0f}", ha="center", va="center", fontsize=7, weight=weight, color=color)
            axes.set(title=f"K = {k}", xlabel="Stretch that holds the events (s)")
            axes.set_xticks(range(table.shape[1]), table.columns)
            axes.set_yticks(range(table.shape[0]), [f"{height:g}" for height in table.index])
        panels[0].set_ylabel("How far it is raised (s.d.)")
        figure.colorbar(image, ax=list(panels), label="focus_cover less even_cover (points)")
        return figure


if __name__ == "__main__":
    main()
