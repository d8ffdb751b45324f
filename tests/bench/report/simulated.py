"""Rows like a real run's, made in moments: videos, relevance with peaks at the evidence, samplers, answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from focus_eval.core.types import Question
from focus_eval.keyframes.rows.json_lines import RowWriter
from focus_eval.keyframes.rows.records import AnswerRow, KnownSelection, Origin, SelectionRow, selection_row

SECONDS = {"short": (40, 150), "medium": (240, 900), "long": (1300, 3000)}
CPU = "cpu: a processor"
OPTIONS = ["A horse", "A dog", "A cat", "No animal"]


@dataclass(frozen=True)
class Simulation:
    """What to simulate: questions come three to a video, buckets in turn."""

    n_questions: int = 36
    samplers: tuple[str, ...] = ("uniform", "topk", "focus")
    models: tuple[str, ...] = ("zero_shot",)
    benchmark: str = "longvideobench"
    k: int = 8
    encoder: str = "offline"
    seeds: tuple[int, ...] = (0,)
    fps: float = 24.0
    device: str = CPU
    n_pulls: int = 160
    hostile: bool = False


# What the paper's tables about LLaVA-Video-7B were measured with: only then do its figures stand beside ours.
PAPERS = {"models": ("llava_video_7b",), "k": 64, "encoder": "blip"}


def simulate_run(folder: Path, simulation: Simulation | None = None, *, anchors: str = "", name: str = "") -> Path:
    """Write a run's folder with `what` in it, and return it."""
    simulation = simulation or Simulation()
    for part, rows, answers in simulated_parts(simulation):
        _write(folder / "selections" / part / "rows-0.jsonl", rows)
        for model, answer in answers.items():
            _write(folder / "answers" / f"{model}-{part}" / "rows-0.jsonl", answer)
    provenance = {
        "name": name or folder.name,
        "matrix": {
            "anchors": anchors,
            "benchmarks": [{"benchmark": simulation.benchmark, "questions": simulation.n_questions}],
        },
        "starts": [
            {"time": "2026-01-02T03:04:05+00:00", "engine": "local", "device": simulation.device, "git": "abc1234"}
        ],
    }
    (folder / "run.json").write_text(json.dumps(provenance))
    return folder


def simulated_parts(simulation: Simulation) -> Iterator[tuple[str, list[SelectionRow], dict[str, list[AnswerRow]]]]:
    """Yield name, selections, and answers by model of every part of a run."""
    for seed in simulation.seeds:
        for sampler in simulation.samplers:
            rows = [_selection(simulation, number, sampler, seed) for number in range(simulation.n_questions)]
            answers = {
                model: [_answer(simulation, row, number, model) for number, row in enumerate(rows)]
                for model in simulation.models
            }
            yield f"{simulation.benchmark}-{sampler}-k{simulation.k}-seed{seed}", rows, answers


def _selection(simulation: Simulation, number: int, sampler: str, seed: int) -> SelectionRow:
    """Return a made-up selection that depends on the question's number, the sampler and the seed alone."""
    world = np.random.default_rng([7, number])
    video = number // 3
    bucket = ("short", "medium", "long")[video % 3]
    low, high = SECONDS[bucket]
    duration = float(np.random.default_rng([8, video]).uniform(low, high))
    n_frames = int(duration * simulation.fps)
    evidence = np.sort(world.uniform(0, duration, size=1 + number % 3))
    rng = np.random.default_rng([9, number, seed, len(sampler)])
    pulled = np.array([], dtype=int) if sampler == "uniform" else _pulled(sampler, n_frames, rng, simulation)
    relevance = _relevance(pulled / simulation.fps, evidence, rng)
    keyframes = _keyframes(sampler, simulation.k, n_frames, pulled, relevance)
    clips = _clips(n_frames, pulled, relevance) if sampler.startswith("focus") else []
    is_broken = number % 97 == 96
    question = f"Which animal appears after the red car passes scene {number}?"
    if simulation.hostile:
        question = f'</script><script>alert("{number}")</script> <img src=x onerror=alert(1)> & "quoted" {number}'
    return SelectionRow(
        benchmark=simulation.benchmark,
        question_id=f"q{number:05d}",
        video=f"videos/v{video:04d}.mp4",
        query=question,
        selection_id=f"{sampler}-{simulation.k}-{seed}",
        sampler=sampler,
        options={"alpha": 0.25, "clip_seconds": 16.0} if sampler.startswith("focus") else {},
        encoder="" if sampler == "uniform" else simulation.encoder,
        encoder_revision="" if sampler == "uniform" else "1",
        k=simulation.k,
        seed=seed,
        bucket=bucket,
        duration_seconds=duration,
        n_frames=None if is_broken else n_frames,
        fps=None if is_broken else simulation.fps,
        keyframes=[] if is_broken else keyframes.tolist(),
        times_seconds=[] if is_broken else [round(float(frame / simulation.fps), 6) for frame in keyframes],
        pulled_frames=[] if is_broken else pulled.tolist(),
        pulled_relevance=[] if is_broken else [float(value) for value in relevance],
        clips=[] if is_broken else clips,
        forwards=0 if is_broken else int(pulled.size),
        seconds={"open": 0.01, "decode": 0.004 * pulled.size, "encode": 0.02 * pulled.size, "select": 0.002},
        device=simulation.device,
        evidence_seconds=[float(time) for time in evidence],
        option_texts=OPTIONS,
        error=f"v{video:04d}.mp4: cannot be read" if is_broken else None,
    )


def _pulled(sampler: str, n_frames: int, rng: np.random.Generator, simulation: Simulation) -> np.ndarray:
    if not sampler.startswith("focus"):
        return np.arange(0, n_frames, int(simulation.fps))
    return rng.choice(n_frames, size=min(simulation.n_pulls, n_frames), replace=False)


def _relevance(times: np.ndarray, evidence: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    peaks = np.exp(-np.abs(times[:, None] - evidence) / 6.0).max(axis=1) if times.size else np.zeros(0)
    return np.round(np.clip(0.15 + 0.7 * peaks + rng.normal(0, 0.05, times.size), 0, 1), 4)


def _keyframes(sampler: str, k: int, n_frames: int, pulled: np.ndarray, relevance: np.ndarray) -> np.ndarray:
    if sampler == "uniform":
        return np.linspace(0, n_frames - 1, k).astype(int)
    return np.sort(pulled[np.argsort(-relevance, kind="stable")[:k]])


def _clips(n_frames: int, pulled: np.ndarray, relevance: np.ndarray) -> list[list[object]]:
    """Return FOCUS's clips of a video as rows have them, from the frames pulled and their relevance."""
    n_arms = max(8, n_frames // 400)
    edges = np.linspace(0, n_frames, n_arms + 1).astype(int)
    arm = np.searchsorted(edges, pulled, side="right") - 1
    arm_means = [float(relevance[arm == i].mean()) if (arm == i).any() else None for i in range(n_arms)]
    best = sorted(range(n_arms), key=lambda i: -(arm_means[i] or 0.0))[: max(4, n_arms // 4)]
    return [
        [
            int(edges[i]),
            int(edges[i + 1]),
            int((arm == i).sum()),
            arm_means[i],
            None if arm_means[i] is None else 0.1,
            i in best,
        ]
        for i in range(n_arms)
    ]


def _answer(simulation: Simulation, row: SelectionRow, number: int, model: str) -> AnswerRow:
    """Return a made-up answer; it is right more often the more of the evidence the frames show."""
    rng = np.random.default_rng([11, number, len(row.sampler), row.seed, len(model)])
    is_seen = [any(abs(time - evidence) < 2 for time in row.times_seconds) for evidence in row.evidence_seconds]
    right = bool(rng.random() < 0.28 + 0.6 * float(np.mean(is_seen)))
    unparsed = row.error is None and number % 41 == 40
    fallback = "fewer than k frames" if number % 29 == 28 else None
    parsed = None if unparsed or row.error else ("B" if right else "C")
    return AnswerRow(
        benchmark=row.benchmark,
        question_id=row.question_id,
        video=row.video,
        selection_id=row.selection_id,
        cell_id=f"{model}-{row.selection_id}",
        cell=f"{model} {row.sampler}",
        model=model,
        bucket=row.bucket,
        frames_asked=row.k,
        frames_chosen=len(row.keyframes),
        frames_fed=0 if row.error else (row.k - 1 if fallback else row.k),
        fallback=None if row.error else fallback,
        answer=None if row.error else ("I cannot tell." if unparsed else f"{parsed}. {OPTIONS['ABCD'.index(parsed)]}"),
        parsed=parsed,
        correct_answer="B",
        score=float(parsed == "B"),
        seconds={"generate": 0.3},
        device=simulation.device,
        error=row.error,
    )


def _write(path: Path, rows: list[SelectionRow] | list[AnswerRow]) -> None:
    writer = RowWriter(path)
    for row in rows:
        writer.write(row)
    writer.close()


def selection_row_at(question_id: str, times: list[float], *, scales: list[float] | None = None) -> SelectionRow:
    """Return the row of a selection of which only the times of its keyframes (and their scales) are known."""
    question = Question(benchmark="b", id=question_id, query="q?", options=(), video="v.mp4", answer=None)
    origin = Origin(selection_id="x", sampler="x", k=len(times))
    return selection_row(question, origin, KnownSelection(keyframes=None, times_seconds=times, scales=scales))
