"""Checks everything a run needs before its first second of work, and names all that is missing at once."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from focus_eval.errors import FocusEvalError
from focus_eval.matrix.benchmark_checks import (
    documents_problems,
    folder_problems,
    place_problems,
    questions_or_problems,
    video_problems,
)
from focus_eval.matrix.cells import SelectionSpec, selection_specs
from focus_eval.matrix.config import MatrixConfig, ModelConfig
from focus_eval.matrix.missing import Missing
from focus_eval.matrix.model_checks import argument_problems, encoder_problems, key_problems, memory_problems
from focus_eval.matrix.model_checks import weights_problems as model_problems
from focus_eval.matrix.questions import QuestionSet
from focus_eval.types import VideoInfo

EntryT = TypeVar("EntryT")
# Bytes written: per row, per pull in a row, and per embedded frame in the store (the largest embeddings we keep).
ROW_BYTES, PULL_BYTES, FRAME_BYTES = 3_000, 40, 5_000
# Where neither rates nor the documents say how long a video is.
_USUAL_VIDEO = VideoInfo(n_frames=30 * 900, fps=30.0)


@dataclass(frozen=True)
class Preflight:
    """What was found.

    Args:
        missing: all without which a run would stop or record errors.
        notes: what is worth knowing and stops nothing.
        sets: the questions by benchmark name, as far as they are on this machine.
    """

    missing: tuple[Missing, ...]
    notes: tuple[str, ...]
    sets: dict[str, QuestionSet]


def check_all(matrices: Sequence[tuple[MatrixConfig, Path]], *, engine: str = "local") -> Preflight:
    """Check the matrices that are to be run, each with its folder: packages, arguments, weights, questions, videos,
    keys, devices and disk. Fetches nothing, loads no weights, writes nothing.
    """
    notes: list[str] = []
    missing = [*_packages([matrix for matrix, _ in matrices], engine)]
    sets: dict[str, QuestionSet] = {}
    for matrix, folder in matrices:
        missing += _of_folder(folder)
        for benchmark in matrix.benchmarks:
            missing += place_problems(benchmark)
            found, problems = questions_or_problems(benchmark, matrix.limit)
            missing += problems
            if found is None:
                missing += folder_problems(benchmark)
                continue
            sets[f"{matrix.name}/{benchmark.name}"] = found
            missing += video_problems(found, answered=bool(matrix.models))
            missing += documents_problems(found) if matrix.models and benchmark.annotations else []
    for encoder in _distinct(item for matrix, _ in matrices for item in matrix.encoders):
        missing += encoder_problems(encoder)
    for model in _distinct(item for matrix, _ in matrices for item in matrix.models):
        missing += _of_model(model, [matrix for matrix, _ in matrices if model in matrix.models], engine, notes)
    missing += _disk(matrices, sets, missing)
    return Preflight(tuple(_distinct(missing)), tuple(_distinct(notes)), sets)


def _of_model(model: ModelConfig, matrices: list[MatrixConfig], engine: str, notes: list[str]) -> Iterator[Missing]:
    frames = max(max(matrix.k, default=model.frames) for matrix in matrices)
    weights = list(model_problems(model))
    yield from weights
    keys = list(key_problems(model, notes))
    yield from keys
    if importlib.util.find_spec("lmms_eval") is not None:
        yield from argument_problems(model, frames, without_weights=bool(weights), without_key=bool(keys))
    if engine == "local" and not weights:
        yield from memory_problems(model, notes)


def _packages(matrices: list[MatrixConfig], engine: str) -> Iterator[Missing]:
    needed = [("lmms_eval", "lmms", any(matrix.models for matrix in matrices))]
    needed += [("torch", "encoders", any(matrix.encoders for matrix in matrices)), ("ray", "ray", engine == "ray")]
    for package, extra, is_needed in needed:
        if is_needed and importlib.util.find_spec(package) is None:
            yield Missing(f"the package {package.replace('_', '-')}", f'pip install "focus-eval[{extra}]"')


def _of_folder(folder: Path) -> Iterator[Missing]:
    there = _existing(folder)
    if not os.access(there, os.W_OK):
        yield Missing(f"{there}: cannot be written", "name another folder with --out, or change its permissions")


def _disk(
    matrices: Sequence[tuple[MatrixConfig, Path]], sets: dict[str, QuestionSet], missing: Sequence[Missing]
) -> Iterator[Missing]:
    """Compare what will be written, and what is still to be fetched, with what is free."""
    needed: dict[Path, float] = {}
    for matrix, folder in matrices:
        there = _existing(folder)
        needed[there] = needed.get(there, 0.0) + gigabytes_written(matrix, sets)
    to_fetch = sum(item.gigabytes for item in _distinct(missing))
    if to_fetch:
        home = _existing(Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser())
        needed[home] = needed.get(home, 0.0) + to_fetch
    for there, gigabytes in needed.items():
        free = shutil.disk_usage(there).free / 1e9
        if gigabytes > free:
            yield Missing(
                f"disk: {gigabytes:.3g} GB needed, {free:.3g} GB free on {there}", "free some, or name another place"
            )


def gigabytes_written(matrix: MatrixConfig, sets: dict[str, QuestionSet]) -> float:
    """Return an upper estimate of what a run of `matrix` writes: rows, and embeddings in the store."""
    total = 0.0
    try:
        specs = selection_specs(matrix)
    except FocusEvalError:
        return 0.0  # reported where the plan is made
    for spec in specs:
        questions = sets.get(f"{matrix.name}/{spec.benchmark.name}")
        if questions is None:
            continue
        pulls = _pulls(spec, questions) if spec.encoder else 0
        stored = FRAME_BYTES * pulls if spec.share_frames else 0
        n_rows = len(questions.questions) * (1 + len(matrix.models))
        total += n_rows * ROW_BYTES + pulls * PULL_BYTES + stored
    return total / 1e9


def _pulls(spec: SelectionSpec, questions: QuestionSet) -> int:
    counts: dict[tuple[int, float], int] = {}
    total = 0
    for question in questions.questions:
        info = questions.known_info(question) or _stated(question.duration_seconds)
        key = (info.n_frames, info.fps)
        if key not in counts:
            try:
                counts[key] = spec.sampler.count_pulls(info, k=spec.k)
            except FocusEvalError:  # such questions will be error rows; the plan names them
                counts[key] = 0
        total += counts[key]
    return total


def _stated(seconds: float | None) -> VideoInfo:
    return _USUAL_VIDEO if seconds is None else VideoInfo(n_frames=max(1, int(30 * seconds)), fps=30.0)


def _existing(folder: Path) -> Path:
    return next(path for path in [folder.resolve(), *folder.resolve().parents] if path.exists())


def _distinct(entries: Iterable[EntryT]) -> list[EntryT]:
    kept: list[EntryT] = []
    for entry in entries:
        if entry not in kept:
            kept.append(entry)
    return kept
