"""Which sampler is ahead, at equal total cost, in worlds with and without blind questions?

    python research/scripts/sampler_frontier.py --json FILE [--videos 300] [--seed N] [--csv FILE]
    python research/scripts/sampler_frontier.py --json FILE --pulls 600 --minutes 1 180 --new even_cover
    python research/scripts/sampler_frontier.py --json FILE --mixtures --new "mixture, aks t1 .37" [--csv FILE]
    python research/scripts/sampler_frontier.py --run results/runs/demo_frontier [--csv FILE]

Every sampler chooses in the same simulated videos. Prints recall within 1, 2 and 5 s, cost and near twins of each, and
the paired differences of the sampler of `--new`, by world, K and length of the video. The same command continues a
stopped run. `--share` and `--pulls` set another budget; FOCUS, whose budget is its own, is then left out. `--run` makes
the table of a finished run of research/configs/demo_frontier.yaml instead.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from focus_eval.bench.report.recall import distances, nearness_of, recall_within
from focus_eval.bench.report.recall_layouts import lab_frame
from focus_eval.bench.report.run import load_run
from focus_eval.bench.report.statistics import difference_estimate
from focus_eval.core.types import FloatArray
from focus_eval.keyframes.samplers.base import derived_rng
from focus_eval.keyframes.samplers.ledger import log_odds
from focus_eval.keyframes.samplers.registry import make_sampler
from focus_eval.lab.features import TraceFeatures
from focus_eval.lab.simulation import NOMINAL_FPS
from focus_eval.lab.traces import SimulatedTrace, make_trace, trace_video
from focus_eval.lab.worlds import CHANNELS, CLIP_B32_OVER_BLIP_L, world_of

# Share of the frames at 25 a second that all may cost; FOCUS at its defaults costs as much.
SHARE = 0.0178
WORLDS = ("realistic", "realistic:blind=0.65", "measured", "measured:blind=0.65")
K = (8, 16, 32)
MEASURES = ("1 s", "2 s", "5 s", "nearness", "cost", "twins")
# Cosine of the pictures of two frames that show the same.
TWIN_COSINE = 0.8


def main() -> None:
    """Simulate the videos that the JSON file does not hold yet, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--json", type=Path)
    source.add_argument("--run", type=Path)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--videos", type=int, default=300)
    parser.add_argument("--seed", type=int, default=20261124)
    parser.add_argument("--new", default="scan_cover, density=events")
    parser.add_argument("--mixtures", action="store_true", help="mixtures and their parts instead")
    parser.add_argument("--share", type=float, default=SHARE)
    parser.add_argument("--pulls", type=int, help="forwards of the main encoder a video, instead of a share")
    parser.add_argument("--minutes", type=float, nargs=2, default=(3.0, 60.0))
    arguments = parser.parse_args()
    rows = rows_of_run(arguments.run) if arguments.run else simulated_rows(arguments)
    for row in rows:
        print(" | ".join(str(value) for value in row.values()))
    if arguments.csv:
        with arguments.csv.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def simulated_rows(arguments: argparse.Namespace) -> list[dict[str, object]]:
    """Simulate the videos that the JSON file does not hold yet; return the table's rows."""
    seed, minutes = arguments.seed, tuple(arguments.minutes)
    lines: dict[str, dict[str, list[list[float]]]] = {}
    if arguments.json.exists():
        lines = json.loads(arguments.json.read_text(encoding="utf-8"))
    lengths = [trace_video(world_of(WORLDS[0]), number, seed=seed, minutes=minutes).duration_seconds / 60
               for number in range(arguments.videos)]  # fmt: skip
    shares = [min(1.0, (arguments.pulls or math.inf) / (NOMINAL_FPS * 60 * length)) for length in lengths]
    shares = shares if arguments.pulls else [arguments.share] * len(lengths)
    samplers_of = mixtures_at if arguments.mixtures else samplers_at
    for number, share in enumerate(shares):  # all worlds grow together, so that a stopped run has as many of each
        for world in WORLDS:
            if str(number) not in lines.setdefault(world, {}):
                lines[world][str(number)] = measured_video(world, number, seed, minutes, samplers_of(share))
        if number % 10 == 9 or number == arguments.videos - 1:
            arguments.json.write_text(json.dumps(lines), encoding="utf-8")
    return table_rows(lines, list(samplers_of(SHARE)), arguments.new, lengths)


def rows_of_run(folder: Path) -> list[dict[str, object]]:
    """Return recall of each sampler of a run, and what `event_cover` and `scan_cover` with events gain on it."""
    frame = lab_frame(load_run(folder))
    labels = {"event_cover": "event_cover", "density=events": "density=events"}
    rows: list[dict[str, object]] = []
    for k in [*sorted(frame["k"].unique()), "all"]:
        of_k = frame if k == "all" else frame[frame["k"] == k]
        mean_recalls = of_k.groupby(["label", "video", "question_id"])[
            ["recall@1", "recall@2", "recall@5", "nearness"]
        ].mean()
        by_label = {label: mean_recalls.loc[label] for label in of_k["label"].unique()}
        for label, sampler_values in by_label.items():
            row: dict[str, object] = {"K": k, "sampler": label, "questions": len(sampler_values)}
            row |= {name: round(100 * float(mean), 2) for name, mean in sampler_values.mean().items()}
            for new, part in labels.items():
                new_values = next(values for name, values in by_label.items() if part in name).loc[sampler_values.index]
                videos = sampler_values.index.get_level_values("video").tolist()
                for name in sampler_values.columns:
                    gap = difference_estimate((new_values[name] - sampler_values[name]).to_numpy(), videos)
                    row[f"{new} less it, {name}"] = "" if part in label else interval(gap)
            rows.append(row)
    return rows


def samplers_at(share: float) -> dict[str, tuple[str, dict]]:
    """Return the samplers and their options at a budget of `share` of the frames at 25 a second, by label."""
    even = {"every_seconds": 1 / (share * NOMINAL_FPS)}
    samplers = {
        "scan_cover, density=events": ("scan_cover", {"share": share, "density": "events"}),
        "scan_cover": ("scan_cover", {"share": share}),
        "event_cover": ("event_cover", {"share": share}),
        "even_cover": ("even_cover", {"share": share}),
        "even_diverse": ("even_diverse", even),
        "topk": ("topk", even),
        "aks, t1 .8": ("aks", {**even, "max_depth": 3}),
        "aks, t1 .37": ("aks", {**even, "max_depth": 3, "t1": 0.37}),
    }
    return samplers if share != SHARE else {**samplers, "focus_cover": ("focus_cover", {}), "focus": ("focus", {})}


def mixtures_at(share: float) -> dict[str, tuple[str, dict]]:
    """Return mixtures that spend half of the budget on each of their two samplers, and these at the whole budget."""
    half = {"every_seconds": 2 / (share * NOMINAL_FPS), "max_depth": 3}
    mixtures = {}
    for label, t1 in (("aks t1 .8", 0.8), ("aks t1 .37", 0.37)):
        options = ",".join(f"{name}={value}" for name, value in {**half, "t1": t1}.items())
        parts = {"first": f"aks:{options}", "second": f"event_cover:share={share / 2}"}
        mixtures[f"mixture, {label}"] = ("mixture", parts)
    samplers = samplers_at(share)
    return mixtures | {name: samplers[name] for name in ("aks, t1 .8", "aks, t1 .37", "event_cover", "even_cover")}


def measured_video(
    world: str, number: int, seed: int, minutes: tuple[float, float], samplers: dict[str, tuple[str, dict]]
) -> list[list[float]]:
    """Return a list of `MEASURES` for every sampler and K on one video."""
    make = [make_trace(world_of(world), number, seed=seed, minutes=minutes, channel=channel)
            for channel in (None, CHANNELS["clip_b32"])]  # fmt: skip
    trace, scan = make
    features = TraceFeatures(trace)
    return [measured(trace, scan, features, name, options, k, number) for name, options in samplers.values() for k in K]


def measured(
    trace: SimulatedTrace, scan: SimulatedTrace, features: TraceFeatures, name: str, options: dict, k: int, number: int
) -> list[float]:
    """Return `MEASURES` of one sampler at one K on one video."""
    sampler, info = make_sampler(name, **options), trace.info
    second = {"scan": lambda frames: log_odds(scan.relevance(frames)), "scan_cost": CLIP_B32_OVER_BLIP_L}
    scan_arguments = second if sampler.needs_scan else {}
    selection = sampler.select(info, k=k, pull=trace.relevance, rng=derived_rng(number, name), **scan_arguments)
    frames, evidence = np.array(selection.keyframes), np.array(trace.evidence_seconds)
    times = frames / info.fps
    cost = selection.pulled_frames.size + CLIP_B32_OVER_BLIP_L * selection.scanned_frames.size
    percent = 100 * cost / (NOMINAL_FPS * info.duration_seconds)
    closeness = nearness_of(distances(evidence, times))
    values = [*recall_within(evidence, times, (1, 2, 5)), closeness, percent, twins(features, frames)]
    return [round(float(value), 5) for value in values]


def twins(features: TraceFeatures, frames: FloatArray) -> float:
    """Count the frames that look nearly the same as an earlier one of `frames`."""
    pictures = features.embeddings(frames)[0][:, 1:]
    pictures /= np.linalg.norm(pictures, axis=1, keepdims=True)
    return float((np.tril(pictures @ pictures.T, -1) > TWIN_COSINE).any(axis=1).sum())


def table_rows(
    lines: dict[str, dict[str, list[list[float]]]], names: list[str], new: str, lengths: Sequence[float]
) -> list[dict[str, object]]:
    """Return a row for each world, each third of the lengths and all videos, K and sampler.

    A row has the means of `MEASURES`, and the differences of `new` less its sampler. `names` are those of the samplers,
    in the order of a video's values; without FOCUS if its budget is not that of the others.
    """
    videos = [(world, int(number)) for world, by_number in lines.items() for number in by_number]
    values = np.array([lines[world][str(number)] for world, number in videos])
    names = names[: values.shape[1] // len(K)]
    values = values.reshape(len(videos), len(names), len(K), len(MEASURES))
    ends = np.quantile(lengths, [0, 1 / 3, 2 / 3, 1])
    third = np.searchsorted(ends[1:3], [lengths[number] for _, number in videos])
    groups = {world: np.array([video[0] == world for video in videos]) for world in lines}
    groups |= {f"all, {ends[at]:.0f} to {ends[at + 1]:.0f} min": third == at for at in range(3)}
    groups["all"] = np.full(len(videos), True)
    rows: list[dict[str, object]] = []
    for (group, is_in), k in itertools.product(groups.items(), [*K, "all"]):
        keys = [f"{world} {number}" for (world, number), inside in zip(videos, is_in, strict=True) if inside]
        mean_recalls = values[is_in][:, :, [k in (size, "all") for size in K]].mean(axis=2)
        of_new = mean_recalls[:, names.index(new)]
        for name, sampler_values in zip(names, mean_recalls.swapaxes(0, 1), strict=True):
            row: dict[str, object] = {"world": group, "K": k, "sampler": name, "videos": len(sampler_values)}
            for measure, mean in zip(MEASURES, sampler_values.mean(axis=0), strict=True):
                row[measure] = round(float(mean) * (1 if measure in ("cost", "twins") else 100), 2)
            for at, measure in enumerate(MEASURES[:4]):
                gap = "" if name == new else interval(difference_estimate((of_new - sampler_values)[:, at], keys))
                row[f"{new} less it, {measure}"] = gap
            rows.append(row)
    return rows


def interval(gap) -> str:
    """Return a difference in points with its interval."""
    ends = "" if gap.low is None else f" [{100 * gap.low:.1f}, {100 * gap.high:.1f}]"
    return f"{100 * gap.value:+.1f}{ends}"


if __name__ == "__main__":
    main()
