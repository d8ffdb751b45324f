"""Public answers as data frames, and the rates of Video-MME's videos, for scripts and tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from focus_eval.bench.benchmarks.registry import VideoRate, read_annotations, read_rates
from focus_eval.bench.report.comparisons import question_keys
from focus_eval.bench.report.recall import read_scenes, recall_within, row_measures, with_scenes
from focus_eval.bench.report.run import Run, joined_run
from focus_eval.core.types import Question
from focus_eval.external.imports.lmms_logs import LmmsLog, find_logs, verdict_of
from focus_eval.external.imports.loading import load_selections, rows_of_selections
from focus_eval.external.imports.log_import import LogOptions
from focus_eval.external.reading import run_of_logs
from focus_eval.external.within import within_answers
from focus_eval.keyframes.rows.identity import match_questions

TABLE = "field/lmms_logs/lvb_qwen2_5_vl_7b_32_frames_22_runs.parquet"
FAMILIES = {"qwen2_5_vl": "uniform", "qwen2_5_vl_AKS": "AKS"}


@cache
def longvideobench(folder: Path) -> tuple[dict[str, Question], dict[str, VideoRate]]:
    """Return the questions of LongVideoBench val and the length and rate of their videos, by id."""
    questions = {question.id: question for question in read_annotations("longvideobench", folder / "lvb_val.json")}
    return questions, read_rates(folder / "lvb_val_fps.csv")


def measures_of(question: Question, rate: VideoRate, times: Sequence[float] | np.ndarray) -> dict[str, float | None]:
    """Return what the rows of a run are measured by, and recall within 10 s."""
    evidence = np.asarray(question.evidence_seconds)
    measures = row_measures(evidence, times, duration_seconds=rate.duration_seconds)
    return {**measures, "recall@10": float(recall_within(evidence, times, (10,))[0])}


@cache
def answers(folder: Path) -> pd.DataFrame:
    """Return the answers of Qwen2.5-VL-7B under 22 selections of 32 frames, a line per question and run.

    The run with stock sampling does not say its frames: evenly spaced ones are assumed.
    """
    return pd.concat([log_lines(folder, log, "frames") for log in find_logs(folder / TABLE)], ignore_index=True)


@cache
def public_answers(folder: Path, name: str) -> pd.DataFrame:
    """Return the answers of a log below `public/lmms_logs` with the columns text and is_recorded (its frames)."""
    path = folder / "public/lmms_logs" / name
    facts = [(record.response, record.frames("indices") is not None) for record in find_logs(path)[0].records()]
    texts, is_recorded = zip(*facts, strict=True)
    return run_of_logs(path, LogOptions()).answer_frame.assign(text=texts, is_recorded=is_recorded)


def public_pair(folder: Path, a: str, b: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the answers of two logs to the same questions, in one order."""
    lines_a, lines_b = (public_answers(folder, name) for name in (a, b))
    matches = match_questions(*([*question_keys(lines).values()] for lines in (lines_a, lines_b)))
    at, to = ([*places] for places in zip(*matches.pairs, strict=True))
    return lines_a.iloc[at], lines_b.iloc[to]


def log_lines(folder: Path, log: LmmsLog, field: str) -> pd.DataFrame:
    """Return the answers of one log; frames from `field`, evenly spaced ones where it is empty."""
    questions, rates = longvideobench(folder)
    lines = []
    for record in log.records():
        key = str((record.doc or {})["id"])
        question, rate = questions[key], rates[key]
        fed_frames = record.frames(field)
        frames = (
            np.linspace(0, rate.n_frames - 1, 32) if fed_frames is None else np.asarray(fed_frames, dtype=np.float64)
        )
        verdict = next(candidate for candidate in map(verdict_of, record.metrics.values()) if candidate is not None)
        lines.append(
            {
                "run": log.run,
                "family": FAMILIES.get(log.run, "scenes"),
                "k": 32,
                "question_id": key,
                "video": question.video,
                "seconds": question.duration_seconds,
                "fps": float(rate.fps),
                "moments": len(question.evidence_seconds),
                "distinct": len(set(frames.tolist())),
                "text": record.response,
                "score": verdict.score,
                **measures_of(question, rate, frames / float(rate.fps)),
            }
        )
    return pd.DataFrame(lines)


@cache
def videomme(folder: Path) -> tuple[list[Question], dict[str, VideoRate]]:
    """Return Video-MME's questions with KFS-Bench's scenes as their evidence, and length and rate of their videos."""
    questions = read_annotations("videomme", folder / "videomme.json")
    rates = videomme_rates(folder, questions)
    with_lengths = [replace(question, duration_seconds=rates[question.id].duration_seconds) for question in questions]
    scenes = read_scenes(folder / "public/evidence/kfs_videomme_anno.csv")
    return with_scenes(with_lengths, scenes), rates


# Models whose answers ToolMerge publishes -> benchmark -> file of its 8 and of its 32 frames.
TOOLMERGE = {
    "Qwen3-VL-8B": {"longvideobench": "toolmerge_qwen3_lvb_{}.json", "videomme": "toolmerge_qwen3_videomme_{}.json"},
    "GPT-4o": {"videomme": "toolmerge_gpt4o_videomme_{}.json"},
}


@cache
def toolmerge_answers(folder: Path, model: str, benchmark: str) -> pd.DataFrame:
    """Return a model's answers to ToolMerge's 8 and 32 frames with their measures; of LongVideoBench from 180 s."""
    questions, rates = videomme(folder) if benchmark == "videomme" else longvideobench(folder)
    listed = [*questions.values()] if isinstance(questions, dict) else questions
    runs = []
    for k in (8, 32):
        path = find_public(folder, TOOLMERGE[model][benchmark].format(k))
        assert path is not None
        loaded = load_selections(path, questions=listed, allow_missing=True)
        runs.append(Run(model, *rows_of_selections(loaded, listed, rates, name="ToolMerge", model=model)))
    return within_answers(joined_run(runs, model), min_seconds=180.0 if benchmark == "longvideobench" else 0.0)


def find_public(folder: Path, name: str) -> Path | None:
    """Return the file of that name in `folder` or below it, plain or as .gz; None if there is none."""
    return next(iter(sorted(folder.rglob(name)) or sorted(folder.rglob(f"{name}.gz"))), None)


RATE_FILES = ("videomme_fps_4_64.csv", "aks_videomme_blip_64_yunseok.json", "kfs_ascs_videomme_64.json")


def videomme_rates(folder: Path, questions: Sequence[Question]) -> dict[str, VideoRate]:
    """Derive length and rate of Video-MME's videos, which its annotation does not state, from published selections.

    In the first of `RATE_FILES`, of evenly spaced frames, the last frame is the video's last. In the second, of one
    frame a second, frame numbers are multiples of the rate cut to an integer. The third states the time of a frame
    about every second: the least difference is a whole number of frames, which the integer tells.

    Returns:
        By question id; {} if a file is missing.
    """
    paths = [path for name in RATE_FILES if (path := find_public(folder, name)) is not None]
    if len(paths) < len(RATE_FILES):
        return {}
    even, grid, timed = (load_selections(path, questions=questions) for path in paths)
    strides: dict[str, int] = {}
    times: dict[str, set[float]] = {}
    for question in questions:
        strides[question.video] = math.gcd(strides.get(question.video, 0), *grid[question.id].selection.keyframes or ())
        times.setdefault(question.video, set()).update(timed[question.id].selection.times_seconds or ())
    rates = {}
    for question in questions:
        step = float(np.diff(sorted(times[question.video])).min())
        rate = Fraction(math.ceil(strides[question.video] * step - 1e-6) / step).limit_denominator(2000)
        n_frames = max(even[question.id].selection.keyframes or [-1]) + 1
        rates[question.id] = VideoRate(float(n_frames / rate) + 1e-6, rate)
    return rates
