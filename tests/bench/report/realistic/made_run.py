"""A run in the shape of a real one: everything a report may mix up is there twice, and every figure differs.

Two benchmarks (one of them the mean over task types, with partial credit), two models, two encoders, three seeds, two
K, options that are not default, failed and unparsed rows, questions of one video, equal names on both benchmarks.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from focus_eval.keyframes.rows.identity import identity_hash
from focus_eval.keyframes.rows.json_lines import RowWriter
from focus_eval.keyframes.rows.records import AnswerRow, SelectionRow

BENCHMARKS = ("longvideobench", "vsibench")
MODELS = ("small_vl", "large_vl")
ENCODERS = ("blip", "clip")
SEEDS = (0, 1, 2)
FRAMES = (4, 16)
N_VIDEOS, PER_VIDEO = 8, 3
CATEGORIES = ("object_counting", "object_rel_direction_easy", "object_rel_direction_hard", "route_planning")
BUCKETS = ("short", "medium", "long")
DEVICE = "cuda: NVIDIA x"


@dataclass(frozen=True)
class Configuration:
    """One way of choosing frames."""

    sampler: str
    encoder: str
    changed: tuple[tuple[str, object], ...] = ()
    role: str = "sampler"
    n_pulls: int = 0
    quality: float = 0.0


CONFIGURATIONS = (
    Configuration("uniform", ""),
    Configuration("random", "", role="control"),
    Configuration("aks", "blip", (("max_depth", 3),), n_pulls=40, quality=0.1),
    Configuration("focus", "blip", n_pulls=25, quality=0.5),
    Configuration("focus", "clip", n_pulls=30, quality=0.3),
)
DEFAULTS = {"aks": {"max_depth": 5, "t1": 0.8}, "focus": {"alpha": 0.25, "clip_seconds": 16.0}}


def write_run(folder: Path) -> Path:
    """Write the run to `folder` and return it."""
    writers = {kind: RowWriter(folder / kind / "all" / "rows-0.jsonl") for kind in ("selections", "answers")}
    for selection in selections():
        writers["selections"].write(selection)
        for model in MODELS:
            writers["answers"].write(answer(selection, model))
    for writer in writers.values():
        writer.close()
    benchmarks = [{"benchmark": name, "questions": N_VIDEOS * PER_VIDEO} for name in BENCHMARKS]
    provenance = {"name": "realistic", "matrix": {"anchors": "", "benchmarks": benchmarks}, "starts": []}
    (folder / "run.json").write_text(json.dumps(provenance))
    return folder


def selections():
    """Yield the selection rows, benchmark by benchmark."""
    for place, benchmark in enumerate(BENCHMARKS):
        for number in range(N_VIDEOS * PER_VIDEO):
            for k in FRAMES:
                for seed in SEEDS:
                    for item in CONFIGURATIONS:
                        yield _selection(place, benchmark, number, k, seed, item)


def _selection(place, benchmark, number, k, seed, item):
    """Return a made-up selection; better samplers have a frame at the evidence more often.

    Some seeds fail on question 5.
    """
    rng = np.random.default_rng([1, place, number, k, seed, *map(ord, item.sampler + item.encoder)])
    video = number // PER_VIDEO
    n_frames = (900, 7000)[place] + 100 * video
    evidence = np.sort(np.random.default_rng([2, place, number]).uniform(0, n_frames / 25, 2))
    keyframes = np.sort(rng.choice(n_frames, k, replace=False))
    if rng.random() < item.quality:
        keyframes[0] = int(evidence[0] * 25)
    keyframes = np.unique(keyframes)
    is_broken = number == 5 and seed > 0
    n_pulls = 0 if is_broken else item.n_pulls + k * (item.n_pulls > 0)
    pulled = rng.choice(n_frames, n_pulls, replace=False) if n_pulls else np.zeros(0, dtype=int)
    speed = {"blip": 0.9, "clip": 0.02}.get(item.encoder, 0.0) * (1 + place)
    options = {**DEFAULTS.get(item.sampler, {}), **dict(item.changed)}
    identity = [item.sampler, options, item.encoder, k, seed]
    return SelectionRow(
        benchmark=benchmark,
        question_id=f"q{number:03d}",  # the same names on both benchmarks
        video=f"v{video}.mp4",
        query=f"What is counted in scene {number}?",
        selection_id=identity_hash({"selection": identity}),
        sampler=item.sampler,
        options=options,
        encoder=item.encoder,
        encoder_revision="1" if item.encoder else "",
        k=k,
        seed=seed,
        bucket=BUCKETS[video % 3],
        duration_seconds=n_frames / 25,
        n_frames=0 if is_broken else n_frames,
        fps=25.0,
        keyframes=[] if is_broken else keyframes.tolist(),
        times_seconds=[] if is_broken else (keyframes / 25).round(6).tolist(),
        pulled_frames=pulled.tolist(),
        pulled_relevance=[0.5] * n_pulls,
        forwards=n_pulls,
        seconds={} if is_broken else {"open": 0.5, "encode": speed * n_pulls, "select": 0.25, "decode": 3.0 * n_pulls},
        device=DEVICE,
        evidence_seconds=[] if place else evidence.round(6).tolist(),
        option_texts=[] if place else ["one", "two", "three", "four"],
        changed_options=dict(item.changed),
        role=item.role,
        error="v1.mp4: cannot be read" if is_broken else None,
    )


def answer(row: SelectionRow, model: str) -> AnswerRow:
    """Return what `model` answered from the frames of `row`."""
    place = BENCHMARKS.index(row.benchmark)
    number = int(row.question_id[1:])
    rng = np.random.default_rng([3, place, number, row.k, row.seed, *map(ord, row.sampler + row.encoder + model)])
    chance = 0.25 + 0.2 * MODELS.index(model) + 0.15 * place + 0.4 * (row.sampler == "focus") * (row.encoder == "blip")
    score = float(rng.random() < chance)
    if place and number % 4 == 0:  # partial credit of the counting questions
        score = round(float(rng.integers(0, 11)) / 10, 1)
    is_unparsed = row.error is None and number == 7 and row.seed == 2
    failed = row.error or ("the server did not answer" if number == 9 and model == "large_vl" else None)
    n_fed = len(row.keyframes)
    return AnswerRow(
        benchmark=row.benchmark,
        question_id=row.question_id,
        video=row.video,
        selection_id=row.selection_id,
        cell_id=identity_hash({"task": row.benchmark, "model": model, "selection": row.selection_id}),
        cell=f"{row.benchmark}-{model}-{row.sampler}",
        model=model,
        bucket=row.bucket,
        frames_asked=row.k,
        frames_chosen=n_fed,
        frames_fed=0 if failed else n_fed,
        fallback="fewer than k frames" if number == 11 and row.seed == 1 and not failed else None,
        answer=None if failed else "B",
        parsed=None if failed or is_unparsed else "B",
        correct_answer="B",
        score=0.0 if failed or is_unparsed else score,
        category=CATEGORIES[number % 4] if place else "",
        seconds={} if failed else {"generate": 0.3},
        device=DEVICE,
        error=failed,
    )
