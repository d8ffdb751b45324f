"""Which sampler is ahead, at equal total cost, in worlds with and without blind questions?

    python scripts/sampler_frontier.py --json FILE [--videos 300] [--seed N] [--csv FILE]

Every sampler chooses in the same simulated videos. Prints recall within 1, 2 and 5 s, cost and near twins of each, and
the paired differences of the sampler of `--new`. The same command continues a stopped run.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
from pathlib import Path

import numpy as np

from focus_eval.core.types import FloatArray
from focus_eval.report.recall import nearness, recall_within
from focus_eval.report.statistics import difference_estimate
from focus_eval.samplers.base import derived_rng
from focus_eval.samplers.ledger import log_odds
from focus_eval.samplers.registry import make_sampler
from focus_eval.simulation.channels import CHANNELS, CLIP_B32_OVER_BLIP_L
from focus_eval.simulation.features import TraceFeatures
from focus_eval.simulation.running import NOMINAL_FPS
from focus_eval.simulation.traces import SimulatedTrace, make_trace
from focus_eval.simulation.worlds import world_of

# Share of the frames at 25 a second that all may cost; FOCUS at its defaults costs as much.
SHARE = 0.0178
WORLDS = ("realistic", "realistic:blind=0.65", "measured", "measured:blind=0.65")
MINUTES, K = (3.0, 60.0), (8, 16, 32)
EVERY_SECONDS = round(1 / (SHARE * NOMINAL_FPS), 4)
SAMPLERS = {
    "scan_cover, density=events": ("scan_cover", {"share": SHARE, "density": "events"}),
    "scan_cover": ("scan_cover", {"share": SHARE}),
    "event_cover": ("event_cover", {"share": SHARE}),
    "even_cover": ("even_cover", {"share": SHARE}),
    "even_diverse": ("even_diverse", {"every_seconds": EVERY_SECONDS}),
    "topk": ("topk", {"every_seconds": EVERY_SECONDS}),
    "aks, t1 .8": ("aks", {"every_seconds": EVERY_SECONDS, "max_depth": 3}),
    "aks, t1 .37": ("aks", {"every_seconds": EVERY_SECONDS, "max_depth": 3, "t1": 0.37}),
    "focus_cover": ("focus_cover", {}),
    "focus": ("focus", {}),
}
MEASURES = ("1 s", "2 s", "5 s", "nearness", "cost", "twins")
# Cosine of the pictures of two frames that show the same.
TWIN_COSINE = 0.8


def main() -> None:
    """Simulate the videos that the JSON file does not hold yet, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--videos", type=int, default=300)
    parser.add_argument("--seed", type=int, default=20261124)
    parser.add_argument("--new", default="scan_cover, density=events")
    arguments = parser.parse_args()
    lines: dict[str, dict[str, list[list[float]]]] = {}
    if arguments.json.exists():
        lines = json.loads(arguments.json.read_text(encoding="utf-8"))
    for number in range(arguments.videos):  # all worlds grow together, so that a stopped run has as many of each
        for world in WORLDS:
            if str(number) not in lines.setdefault(world, {}):
                lines[world][str(number)] = measured_video(world, number, arguments.seed)
        if number % 10 == 9 or number == arguments.videos - 1:
            arguments.json.write_text(json.dumps(lines), encoding="utf-8")
    rows = table_rows(lines, arguments.new)
    for row in rows:
        print(" | ".join(str(value) for value in row.values()))
    if arguments.csv:
        with arguments.csv.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def measured_video(world: str, number: int, seed: int) -> list[list[float]]:
    """Return a list of `MEASURES` for every sampler and K on one video."""
    make = [make_trace(world_of(world), number, seed=seed, minutes=MINUTES, channel=channel)
            for channel in (None, CHANNELS["clip_b32"])]  # fmt: skip
    trace, scan = make
    features = TraceFeatures(trace)
    return [measured(trace, scan, features, name, options, k, number) for name, options in SAMPLERS.values() for k in K]


def measured(
    trace: SimulatedTrace, scan: SimulatedTrace, features: TraceFeatures, name: str, options: dict, k: int, number: int
) -> list[float]:
    """Return `MEASURES` of one sampler at one K on one video."""
    sampler, info = make_sampler(name, **options), trace.info
    second = {"scan": lambda frames: log_odds(scan.relevance(frames)), "scan_cost": CLIP_B32_OVER_BLIP_L}
    more = second if sampler.needs_scan else {}
    selection = sampler.select(info, k=k, pull=trace.relevance, rng=derived_rng(number, name), **more)
    frames, evidence = np.array(selection.keyframes), np.array(trace.evidence_seconds)
    times = frames / info.fps
    cost = selection.pulled_frames.size + CLIP_B32_OVER_BLIP_L * selection.scanned_frames.size
    percent = 100 * cost / (NOMINAL_FPS * info.duration_seconds)
    values = [*recall_within(evidence, times, (1, 2, 5)), nearness(evidence, times), percent, twins(features, frames)]
    return [round(float(value), 5) for value in values]


def twins(features: TraceFeatures, frames: FloatArray) -> float:
    """Count the frames that look nearly the same as an earlier one of `frames`."""
    pictures = features.embeddings(frames)[0][:, 1:]
    pictures /= np.linalg.norm(pictures, axis=1, keepdims=True)
    return float((np.tril(pictures @ pictures.T, -1) > TWIN_COSINE).any(axis=1).sum())


def table_rows(lines: dict[str, dict[str, list[list[float]]]], new: str) -> list[dict[str, object]]:
    """Return a row for each world, K and sampler, and pooled rows, each with the difference of `new` less it."""
    places = [(name, k) for name in SAMPLERS for k in K]
    values = {world: np.array(list(by_number.values())) for world, by_number in lines.items()}
    videos = {world: [f"{world} {number}" for number in by_number] for world, by_number in lines.items()}
    rows: list[dict[str, object]] = []
    for world in [*values, "all"]:
        of_world = np.concatenate(list(values.values())) if world == "all" else values[world]
        for k in [*K, "all"]:
            for name in SAMPLERS:
                own, of_new = (
                    of_world[:, [at for at, place in enumerate(places) if place[0] == label and k in (place[1], "all")]]
                    .mean(axis=1) for label in (name, new)
                )  # fmt: skip
                row: dict[str, object] = {"world": world, "K": k, "sampler": name, "videos": len(own)}
                for at, measure in enumerate(MEASURES):
                    row[measure] = round(float(own[:, at].mean()) * (100 if at < 4 else 1), 2)
                for at, measure in enumerate(MEASURES[:4]) if name != new else ():
                    keys = [*itertools.chain(*videos.values())] if world == "all" else videos[world]
                    gap = difference_estimate(of_new[:, at] - own[:, at], keys)
                    row[f"{new} less it, {measure}"] = interval(gap)
                rows.append(row)
    heads = list(max(rows, key=len))
    return [{head: row.get(head, "") for head in heads} for row in rows]


def interval(gap) -> str:
    """Return a difference in points with its interval."""
    ends = "" if gap.low is None else f" [{100 * gap.low:.1f}, {100 * gap.high:.1f}]"
    return f"{100 * gap.value:+.1f}{ends}"


if __name__ == "__main__":
    main()
