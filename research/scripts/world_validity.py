"""How right are simulated worlds? Compares published selections with the same algorithms in each world.

    python research/scripts/world_validity.py FOLDER [--json FILE] [--csv FILE] [--picture FILE]

FOLDER holds, at any depth, the public files that docs/simulation.md names. Each method runs in each world on the real
videos' lengths and the real evidence, at one frame a second; its recall is compared with that of the published file.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from focus_eval_research.field_data import find_public, videomme_rates

from focus_eval.bench.benchmarks.registry import read_annotations, read_rates
from focus_eval.bench.report.figures import add_shared_legend, figure_style, save_figure
from focus_eval.bench.report.recall import read_scenes, recall_within
from focus_eval.core.types import FloatArray, Question, VideoInfo
from focus_eval.external.imports.loading import load_selections
from focus_eval.keyframes.samplers.base import derived_rng
from focus_eval.keyframes.samplers.registry import make_sampler
from focus_eval.lab.traces import RealQuestion, make_trace
from focus_eval.lab.worlds import CHANNELS, world_of

TOLERANCES = (1.0, 2.0, 5.0)
LONG_SECONDS = 180
DEFAULT = {"t1": 0.8, "max_depth": 5}
# How the authors' files of LongVideoBench were made, by K (`focus-eval import aks` infers it).
AUTHORS = {32: {"t1": 0.37, "max_depth": 5}, 64: {"t1": 0.37, "max_depth": 3}}
# Method -> the encoder of its relevance, None for the main one.
ENCODERS = {"AKS": None, "AKS others BLIP": None, "AKS others CLIP": "clip_b32", "WFS": "wfs_sb", "uniform": None}
SIZES = {"WFS": (8, 16, 32), "uniform": (8, 16, 32, 64)}
# Benchmark -> file of each published selection by method and K.
FILES = {
    "longvideobench": {
        ("AKS", 32): "aks_lvb_32.json", ("AKS", 64): "aks_longvideobench_blip_64.json",
        **{(f"AKS others {name}", k): f"aks_lvb_{name.lower()}_{k}_yunseok.json"
           for name in ("BLIP", "CLIP") for k in (32, 64)},
        ("WFS", 8): "wfs_lvb_8.json", ("WFS", 16): "wfs_longvideobench_16.json", ("WFS", 32): "wfs_lvb_32.json",
    },
    "videomme": {
        **{(f"AKS others {name}", k): f"aks_videomme_{name.lower()}_{k}_yunseok.json"
           for name in ("BLIP", "CLIP") for k in (32, 64)},
        **{("WFS", k): f"wfs_videomme_{k}.json" for k in (8, 16, 32)},
    },
}  # fmt: skip
# Benchmark, world and seed; True where the world was fitted to these files.
RUNS = {
    ("longvideobench", "realistic", 0): False,
    ("longvideobench", "measured", 0): True,
    ("longvideobench", "calibrated", 0): False,
    ("videomme", "realistic", 0): False,
    ("videomme", "realistic:blind=0.65", 0): False,
    ("videomme", "measured", 0): False,
    ("videomme", "measured:blind=0.65", 0): False,
    ("longvideobench", "realistic:blind=0.65", 0): False,
    ("longvideobench", "measured:blind=0.65", 0): False,
    ("longvideobench", "measured", 1): True,
}
DRAWS = 1000


Recalls = FloatArray  # (n_questions, n_methods, n_tolerances)


@dataclass(frozen=True, kw_only=True)
class Ground:
    """Questions of one benchmark with their videos, and the seconds of the published frames by method and K."""

    benchmark: str
    questions: Sequence[RealQuestion]
    videos: Sequence[str]
    times: Mapping[tuple[str, int], Sequence[FloatArray]]


@dataclass(frozen=True, kw_only=True)
class Validity:
    """Comparison of one world with the published selections of a benchmark.

    Args:
        aks: how the authors' AKS was run, "at its defaults" or "as its files".
        is_fit: True if the world was fitted to these selections.
        pairs: pairs of methods of one K and tolerance whose real difference is significant.
        share: of these, the pairs that the world orders alike, with its interval over videos.
        error: mean absolute error of recall in points, with its interval over videos.
        recall: (simulated, real) at each tolerance, in percent, by method and K.
        roots: share of the questions for which AKS does not split the video, by method and K.
    """

    benchmark: str
    world: str
    seed: int
    aks: str
    is_fit: bool
    questions: int
    pairs: int
    share: tuple[float, float, float]
    error: tuple[float, float, float]
    recall: dict[str, list[tuple[float, float]]]
    roots: dict[str, float]


def main() -> None:
    """Measure every world and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--json", type=Path, help="write every figure, with recall by method; worlds that it holds are not run again"
    )
    parser.add_argument("--csv", type=Path, help="write the table as CSV")
    parser.add_argument("--picture", type=Path, help="draw simulated against real recall")
    parser.add_argument("--every", type=int, default=1, help="take every so-many-th question only")
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    grounds = read_grounds(arguments.folder)
    results = (
        json.loads(arguments.json.read_text(encoding="utf-8")) if arguments.json and arguments.json.exists() else []
    )
    finished = {(item["benchmark"], item["world"], item["seed"]) for item in results}
    with ProcessPoolExecutor(arguments.workers) as pool:
        for benchmark, world, seed in (run for run in RUNS if run[0] in grounds and run not in finished):
            ground = grounds[benchmark]
            # The share of blind questions was chosen on the even questions of Video-MME: the odd ones judge it.
            is_tuned = benchmark == "videomme" and "blind" in world
            places = range(len(ground.questions))[is_tuned :: 2 if is_tuned else arguments.every]
            simulate_one = partial(simulate, world, seed, list(ground.times))
            questions = [ground.questions[at] for at in places]
            simulated = list(pool.map(simulate_one, questions, places, chunksize=20))
            results += [asdict(item) for item in judge(ground, places, simulated, world, seed)]
            if arguments.json:  # after every world: the same command continues a stopped run
                arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            print(f"{benchmark}, {world}, seed {seed}: done", flush=True)
    lines = [cells_of(Validity(**item)) for item in results]
    print("\n".join(["| " + " | ".join(HEADS) + " |", "|---" * len(HEADS) + "|"]))
    print("\n".join("| " + " | ".join(line.values()) + " |" for line in lines))
    if arguments.csv:
        with arguments.csv.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, HEADS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)
    if arguments.picture:
        save_figure(draw([Validity(**item) for item in results]), arguments.picture)


def read_grounds(folder: Path) -> dict[str, Ground]:
    """Return the benchmarks whose files are all in `folder`; print what the others miss."""
    rates_file = find_public(folder, "lvb_val_fps.csv")
    if rates_file is None:
        raise SystemExit(f"{folder}: no lvb_val_fps.csv: published frames become seconds only with rates")
    grounds = {}
    annotations = find_public(folder, "lvb_val.json")
    if annotations is None:
        print("longvideobench left out: no lvb_val.json")
    else:
        rates = read_rates(rates_file)
        questions = read_annotations("longvideobench", annotations)
        infos = {key: rate.info for key, rate in rates.items() if rate.duration_seconds >= LONG_SECONDS}
        evidence = {question.id: np.array(question.evidence_seconds) for question in questions}
        grounds["longvideobench"] = ground_of("longvideobench", folder, questions, infos, evidence)
    scenes_file, annotations = find_public(folder, "kfs_videomme_anno.csv"), find_public(folder, "videomme.json")
    if scenes_file is not None and annotations is None:
        print("videomme left out: scenes without their benchmark's questions (videomme.json)")
    elif scenes_file is not None and annotations is not None:
        questions = read_annotations("videomme", annotations)
        evidence = {key: np.array([interval for scene in scenes for interval in scene])
                    for key, scenes in read_scenes(scenes_file).items()}  # fmt: skip
        buckets = {question.id: question.bucket for question in questions}
        rates = videomme_rates(folder, questions)
        infos = {key: rate.info for key, rate in rates.items() if buckets[key] != "short"}
        grounds["videomme"] = ground_of("videomme", folder, questions, infos, evidence)
    return {key: ground for key, ground in grounds.items() if ground is not None}


def ground_of(
    benchmark: str,
    folder: Path,
    questions: Sequence[Question],
    infos: Mapping[str, VideoInfo],
    evidence: Mapping[str, FloatArray],
) -> Ground | None:
    """Return one benchmark's questions with known video and evidence; None if a published file is missing."""
    paths = {method: find_public(folder, name) for method, name in FILES[benchmark].items()}
    if missing := [name for method, name in FILES[benchmark].items() if paths[method] is None]:
        print(f"{benchmark} left out: no {', '.join(missing)}")
        return None
    judged = [question for question in questions if question.id in infos and len(evidence.get(question.id, ()))]
    fps = {question.id: infos[question.id].fps for question in judged}
    times = {}
    for method, path in paths.items():
        selections = load_selections(path, questions=questions, allow_outside=True)
        times[method] = [np.array(selections[question.id].times_at(fps[question.id])) for question in judged]
    for k in SIZES["uniform"]:
        times["uniform", k] = [np.linspace(0, infos[q.id].n_frames - 1, k) / fps[q.id] for q in judged]
    return Ground(
        benchmark=benchmark,
        questions=[RealQuestion(q.id, infos[q.id], evidence[q.id]) for q in judged],
        videos=[question.video for question in judged],
        times=times,
    )


def mixtures(methods: Sequence[tuple[str, int]]) -> dict[tuple[str, int], list[tuple[tuple[str, int], int]]]:
    """Return the parts of every compared method: published selections, each with the step at which frames are kept."""
    parts = {method: [(method, 1)] for method in methods}
    for name in {name for name, _ in methods} - {"WFS", "uniform"}:
        parts[f"{name} 32 thinned", 16] = [((name, 32), 2)]
        parts[f"{name} + WFS", 16] = [((name, 32), 4), (("WFS", 8), 1)]
        parts[f"{name} + WFS", 32] = [((name, 32), 2), (("WFS", 16), 1)]
        parts[f"{name} + uniform", 32] = [((name, 32), 2), (("uniform", 16), 1)]
        if (name, 64) in methods:
            parts[f"{name} 64 thinned", 32] = [((name, 64), 2)]
    if ("AKS", 32) in methods:
        parts["AKS + WFS", 64] = [(("AKS", 32), 1), (("WFS", 32), 1)]
    parts["WFS + uniform", 32] = [(("WFS", 16), 1), (("uniform", 16), 1)]
    return dict(sorted(parts.items()))


def recalls(times: Mapping[tuple[str, int], FloatArray], evidence: FloatArray) -> FloatArray:
    """Return the recall of every compared method at each tolerance, `(n_methods, n_tolerances)`."""
    parts = mixtures(list(times)).values()
    shown = [np.concatenate([times[method][::step] for method, step in of_method]) for of_method in parts]
    return np.array([recall_within(evidence, seconds, TOLERANCES) for seconds in shown])


def simulate(
    world: str, seed: int, methods: Sequence[tuple[str, int]], question: RealQuestion, place: int
) -> tuple[dict[tuple[str, int], FloatArray], dict[tuple[str, int], bool]]:
    """Simulate one question in a world.

    Returns:
        The seconds of each method's selection, and for each AKS whether it did not split the video.
    """
    traces = {
        encoder: make_trace(world_of(world), place, seed=seed, real=question, channel=CHANNELS.get(encoder or ""))
        for encoder in set(ENCODERS.values())
    }
    times, is_whole = {}, {}
    for name, k in methods:
        options = {} if name in ("WFS", "uniform") else AUTHORS[k] if name == "AKS" else DEFAULT
        sampler = make_sampler({"WFS": "wfs_sb", "uniform": "uniform"}.get(name, "aks"), **options)
        pull = traces[ENCODERS[name]].relevance
        selection = sampler.select(question.info, k=k, pull=pull, rng=derived_rng(seed))
        times[name, k] = np.array(selection.keyframes) / question.info.fps
        if options:
            is_whole[name, k] = selection.facts["segments"] == 1
    return times, is_whole


def judge(ground: Ground, places: Sequence[int], simulated: list, world: str, seed: int) -> Iterator[Validity]:
    """Yield the comparison with real recall: with the authors' AKS as its files were made, then at its defaults.

    AKS at its defaults reuses the simulated selections that stand for the third party's BLIP files.
    """
    evidence = [ground.questions[at].evidence for at in places]
    published = [{method: seconds[at] for method, seconds in ground.times.items()} for at in places]
    real = np.array([recalls(times, moments) for times, moments in zip(published, evidence, strict=True)])
    has_authors = ("AKS", 32) in ground.times
    for aks in ("as its files", "at its defaults") if has_authors and not world_of(world).blind else ("as its files",):
        made = []
        for (times, _), own_evidence in zip(simulated, evidence, strict=True):
            at_defaults = {("AKS", k): times["AKS others BLIP", k] for k in (32, 64)} if "defaults" in aks else {}
            made.append(recalls({**times, **at_defaults}, own_evidence))
        roots = {
            f"{name}, K = {k}": float(np.mean([is_whole[name, k] for _, is_whole in simulated]))
            for name, k in simulated[0][1]
        }
        yield compared(ground, places, real, np.array(made), world, seed, aks=aks if has_authors else "", roots=roots)


def compared(
    ground: Ground, places: Sequence[int], real: Recalls, made: Recalls, world: str, seed: int, **fields: Any
) -> Validity:
    """Compare simulated with real recall, with bias-corrected intervals over draws of videos."""
    methods = list(mixtures(list(ground.times)))
    pairs = [(a, b) for (a, one), (b, other) in itertools.combinations(enumerate(methods), 2) if one[1] == other[1]]
    first, second = (list(side) for side in zip(*pairs, strict=True))
    drawn_real, drawn_made = drawn_means(real, made, [ground.videos[at] for at in places], seed)
    low, high = np.quantile(drawn_real[:, first] - drawn_real[:, second], [0.025, 0.975], axis=0)
    is_clear = (low > 0) | (high < 0)
    mean_real, mean_made = real.mean(axis=0), made.mean(axis=0)
    orders = np.sign(mean_real[first] - mean_real[second])
    shares = (np.sign(drawn_made[:, first] - drawn_made[:, second]) == orders)[:, is_clear].mean(axis=1)
    share = (np.sign(mean_made[first] - mean_made[second]) == orders)[is_clear].mean()
    errors = 100 * np.abs(drawn_made - drawn_real).mean(axis=(1, 2))
    both = (100 * np.stack([mean_made, mean_real], axis=-1)).round(2).tolist()
    return Validity(
        benchmark=ground.benchmark,
        world=world,
        seed=seed,
        is_fit=RUNS[ground.benchmark, world, seed],
        questions=len(places),
        pairs=int(is_clear.sum()),
        share=with_interval(share, shares),
        error=with_interval(100 * np.abs(mean_made - mean_real).mean(), errors),
        recall={f"{name}, K = {k}": values for (name, k), values in zip(methods, both, strict=True)},
        **fields,
    )


def drawn_means(real: Recalls, made: Recalls, videos: Sequence[str], seed: int) -> tuple[FloatArray, FloatArray]:
    """Return mean real and simulated recall over draws of videos with replacement, `(n_draws, n_methods, 3)`."""
    _, video_of = np.unique(videos, return_inverse=True)
    n_videos = int(video_of.max()) + 1
    weights = derived_rng(seed, "videos").multinomial(n_videos, np.full(n_videos, 1 / n_videos), DRAWS)[:, video_of]
    total = weights.sum(axis=1)[:, None, None]
    return tuple(np.tensordot(weights, values, axes=1) / total for values in (real, made))


def with_interval(value: float, drawn: FloatArray) -> tuple[float, float, float]:
    """Return the value with its 95 % basic bootstrap interval, whose lower end is at least 0."""
    high, low = 2 * value - np.quantile(drawn, [0.025, 0.975])
    return float(value), max(0.0, float(low)), float(high)


HEADS = ("benchmark", "world", "AKS", "questions", "pairs", "agree (%)", "error (points)")


def cells_of(item: Validity) -> dict[str, str]:
    """Return the table cells of one comparison, by column."""
    world = f"{item.world}{' (fitted to these)' if item.is_fit else ''}{f', seed {item.seed}' if item.seed else ''}"
    share, low, high = (min(100.0, 100 * value) for value in item.share)
    pairs = f"{round(item.share[0] * item.pairs)} of {item.pairs}"
    error = "{:.1f} [{:.1f}, {:.1f}]".format(*item.error)
    cells = (item.benchmark, world, item.aks, str(item.questions), pairs, f"{share:.0f} [{low:.0f}, {high:.0f}]", error)
    return dict(zip(HEADS, cells, strict=True))


def draw(results: Sequence[Validity]):
    """Draw simulated against real recall, a panel for each world, a point for each method and tolerance."""
    from matplotlib.figure import Figure

    panels = [item for item in results if item.aks != "at its defaults" and item.seed == 0]
    benchmarks = list(dict.fromkeys(item.benchmark for item in panels))
    columns = max(sum(item.benchmark == name for item in panels) for name in benchmarks)
    with figure_style():
        figure = Figure(figsize=(2.3 * columns, 2.5 * len(benchmarks)), layout="constrained")
        grid = figure.subplots(len(benchmarks), columns, squeeze=False, sharex=True, sharey=True)
        for row, benchmark in zip(grid, benchmarks, strict=True):
            of_benchmark = [item for item in panels if item.benchmark == benchmark]
            for axes, item in itertools.zip_longest(row, of_benchmark):
                if item is None:
                    axes.set_axis_off()
                    continue
                axes.axline((0, 0), slope=1, color="grey", linewidth=0.6)
                points = np.array(list(item.recall.values()))
                for at, (tolerance, marker) in enumerate(zip(TOLERANCES, "osD", strict=True)):
                    axes.scatter(
                        points[:, at, 1], points[:, at, 0], s=9, marker=marker, label=f"within {tolerance:g} s"
                    )
                axes.set_title(f"{item.world}\n{item.benchmark}", fontsize=7)
            row[0].set_ylabel("simulated recall (%)")
        for axes in grid[-1]:
            axes.set_xlabel("real recall (%)")
        add_shared_legend(figure)
        return figure


if __name__ == "__main__":
    main()
