"""What does the option `distinct` change: recall of the evidence, and different scenes among the keyframes?

    focus-eval demo && focus-eval run research/configs/demo_distinct.yaml
    python research/scripts/measure_distinct.py --run results/runs/demo_distinct --csv FILE [--videos 150]

Every sampler chooses eight frames without and with the option: in simulated videos of two worlds, on the demo's videos
(the finished run of `--run`) and in ten videos that are made of photographs, where each picture is one scene and the
one asked for comes twice.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from focus_eval import make_encoder, make_sampler, select_keyframes
from focus_eval.bench.report.recall import recall_within
from focus_eval.bench.report.recall_layouts import lab_frame
from focus_eval.bench.report.run import load_run
from focus_eval.bench.report.statistics import difference_estimate
from focus_eval.keyframes.samplers.base import derived_rng
from focus_eval.lab.features import TraceFeatures
from focus_eval.lab.traces import make_trace
from focus_eval.lab.worlds import world_of

WORLDS = ("realistic", "measured")
# Options by sampler. At its published depth AKS would choose no frame of K = 8.
SAMPLERS = {"uniform": {}, "topk": {}, "even_topk": {}, "even_diverse": {}, "even_cover": {}, "aks": {"max_depth": 3},
            "focus": {}}  # fmt: skip
K, SEED = 8, 20261124
RECALL, SCENES = "recall within 2 s", "scenes"
# Photographs of scikit-image that the offline encoder knows, by query.
QUERIES = {"a cat": "chelsea", "a cup of coffee": "coffee", "an astronaut": "astronaut", "a rocket": "rocket",
           "a clock": "clock"}  # fmt: skip
OTHERS = ("retina", "camera", "coins", "page", "moon", "brick", "grass", "gravel", "horse", "cell", "colorwheel")


def main() -> None:
    """Measure all three kinds of videos; print the table and write it as CSV."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--csv", type=Path, required=True)
    parser.add_argument("--videos", type=int, default=150)
    arguments = parser.parse_args()
    rows = [row for world in WORLDS for row in world_rows(world, arguments.videos)]
    rows += run_rows(arguments.run) if arguments.run else []
    rows += photograph_rows()
    for row in rows:
        print(" | ".join(str(value) for value in row.values()), flush=True)
    with arguments.csv.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def world_rows(world: str, n_videos: int) -> Iterator[dict[str, object]]:
    """Yield a row for each sampler on the first videos of a world."""
    for name, options in SAMPLERS.items():
        pairs = np.array([[simulated_recall(world, number, name, {**options, "distinct": is_distinct})
                           for is_distinct in (False, True)] for number in range(n_videos)])  # fmt: skip
        numbers = [str(number) for number in range(n_videos)]
        yield table_row(f"world {world}", name, RECALL, pairs[:, :, 0], numbers, pairs[:, 1, 1])


def simulated_recall(world: str, number: int, name: str, options: dict) -> tuple[float, int]:
    """Return recall within 2 s of one sampler on one simulated video, and the number of replaced twins."""
    trace = make_trace(world_of(world), number, seed=SEED)
    features = TraceFeatures(trace)
    selection = make_sampler(name, **options).select(
        trace.info, k=K, pull=features, rng=derived_rng(number, name), look=lambda frames, _: features.pictures(frames)
    )
    times = np.array(selection.keyframes) / trace.info.fps
    evidence = np.array(trace.evidence_seconds)
    return float(recall_within(evidence, times, (2.0,))[0]), int(selection.facts.get("twins_replaced", 0))


def run_rows(folder: Path) -> Iterator[dict[str, object]]:
    """Yield a row for each sampler of a finished run of research/configs/demo_distinct.yaml."""
    run = load_run(folder)
    replaced = {(row.question_id, row.selection_id): row.facts.get("twins_replaced", 0) for row in run.selections}
    frame = lab_frame(run).set_index("question_id")
    for name in SAMPLERS:
        of_name = frame[frame["sampler"] == name]
        is_distinct = of_name["label"].str.contains("distinct=True")
        without, distinct = of_name[~is_distinct], of_name[is_distinct]
        without = without.loc[distinct.index]
        pairs = np.column_stack([without["recall@2"], distinct["recall@2"]]).astype(float)
        n_replaced = [replaced[key] for key in zip(distinct.index, distinct["selection_id"], strict=True)]
        yield table_row("demo", name, RECALL, pairs, distinct["video"].tolist(), n_replaced)


def photograph_rows() -> Iterator[dict[str, object]]:
    """Yield rows of the number of scenes among the keyframes in ten videos made of photographs."""
    encoder = make_encoder("offline")
    videos = [photograph_video(number) for number in range(10)]
    for name, options in SAMPLERS.items():
        pairs, n_replaced = np.zeros((len(videos), 2)), []
        for number, (frames, scenes, query) in enumerate(videos):
            for at, is_distinct in enumerate((False, True)):
                selection = select_keyframes(
                    frames, query=query, k=K, fps=5, encoder=encoder, sampler=name,
                    sampler_options={**options, "distinct": is_distinct},
                )  # fmt: skip
                pairs[number, at] = len({scenes[frame] for frame in selection.keyframes})
            n_replaced.append(int(selection.facts.get("twins_replaced", 0)))
        numbers = [str(number) for number in range(len(videos))]
        yield table_row("ten videos of photographs", name, SCENES, pairs, numbers, n_replaced)


def photograph_video(number: int) -> tuple[np.ndarray, list[str], str]:
    """Return the pictures of a video, the scene of each and the query, whose picture comes twice among ten others."""
    from skimage import data

    rng = np.random.default_rng(number)
    query = list(QUERIES)[number % len(QUERIES)]
    others = [name for name in (*QUERIES.values(), *OTHERS) if name != QUERIES[query]]
    order = [*rng.permutation(others)[:9].tolist(), QUERIES[query], QUERIES[query]]
    order = rng.permutation(order).tolist()
    frames: list[np.ndarray] = []
    scenes: list[str] = []
    for name in order:
        array = getattr(data, name)()
        array = (array * 255).astype(np.uint8) if array.dtype == bool else array
        picture = np.asarray(Image.fromarray(array).convert("RGB").resize((256, 192)))
        for at in range(int(rng.integers(15, 60))):
            noise = rng.integers(-6, 7, (192, 256, 1))
            frames.append(np.clip(np.roll(picture, at // 4, axis=1).astype(int) + noise, 0, 255).astype(np.uint8))
            scenes.append(name)
    return np.stack(frames), scenes, query


def table_row(
    data: str, sampler: str, measure: str, pairs: np.ndarray, videos: Sequence[str], n_replaced: Sequence[float]
) -> dict[str, object]:
    """Return a row of the table: means without and with the option, their difference, and what was replaced.

    Args:
        pairs: the measure without and with the option, `(n, 2)`; recalls in [0, 1].
        videos: of each line.
        n_replaced: twins that the option replaced, `(n,)`.
    """
    means = pairs.mean(axis=0) * (100 if measure == RECALL else 1)
    row: dict[str, object] = {"data": data, "sampler": sampler, "measure": measure, "questions": len(pairs)}
    row |= {"without": round(float(means[0]), 2), "with": round(float(means[1]), 2)}
    # The interval is one of values in [0, 1].
    gap = difference_estimate(pairs[:, 1] - pairs[:, 0], videos) if measure == RECALL else None
    ends = {"difference": gap and gap.value, "low": gap and gap.low, "high": gap and gap.high}
    row |= {name: "" if end is None else round(100 * float(end), 2) for name, end in ends.items()}
    return {**row, "replaced": round(float(np.mean(n_replaced)), 2)}


if __name__ == "__main__":
    main()
