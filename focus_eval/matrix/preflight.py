"""Checks everything a run needs before its first second of work, and names all that is missing at once."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from focus_eval.matrix.benchmark_checks import (
    documents_problems,
    folder_problems,
    place_problems,
    questions_or_problems,
    video_problems,
)
from focus_eval.matrix.config import MatrixConfig, ModelConfig
from focus_eval.matrix.disk import disk_estimate
from focus_eval.matrix.model_checks import argument_problems, encoder_problems, key_problems, memory_problems
from focus_eval.matrix.model_checks import weights_problems as model_problems
from focus_eval.matrix.questions import QuestionSet
from focus_eval.matrix.requirement import Missing

EntryT = TypeVar("EntryT")


@dataclass(frozen=True)
class Preflight:
    """What was found.

    Args:
        missing: all without which a run would stop or record errors.
        notes: what is worth knowing and stops nothing.
        sets: the questions by "matrix/benchmark", as far as they are on this machine.
    """

    missing: tuple[Missing, ...]
    notes: tuple[str, ...]
    sets: dict[str, QuestionSet]


def check_all(
    matrices: Sequence[tuple[MatrixConfig, Path]], *, engine: str = "local", store: Path | None = None
) -> Preflight:
    """Check the matrices that are to be run, each with its folder: packages, arguments, weights, questions, videos,
    keys, devices and disk. Fetches nothing, loads no weights, writes nothing.

    Args:
        store: file of embeddings, where it does not lie beside the runs.
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
                # Without questions it is not known which videos are needed, but the folder can be checked.
                missing += folder_problems(benchmark)
                continue
            sets[f"{matrix.name}/{benchmark.name}"] = found
            missing += video_problems(found, answered=bool(matrix.models))
            # Only models ask the task's documents; samplers do with the annotations.
            missing += documents_problems(found) if matrix.models and benchmark.annotations else []
    for encoder in _distinct(item for matrix, _ in matrices for item in matrix.encoders):
        missing += encoder_problems(encoder)
    for model in _distinct(item for matrix, _ in matrices for item in matrix.models):
        missing += _of_model(model, [matrix for matrix, _ in matrices if model in matrix.models], engine, notes)
    missing += _disk(matrices, sets, missing, store)
    return Preflight(tuple(_distinct(missing)), tuple(_distinct(notes)), sets)


def _of_model(model: ModelConfig, matrices: list[MatrixConfig], engine: str, notes: list[str]) -> Iterator[Missing]:
    frames = max(max(matrix.k, default=model.frames) for matrix in matrices)
    # Checked first, so that the constructor's own complaint about them is no second line.
    weights = list(model_problems(model))
    yield from weights
    keys = list(key_problems(model, notes))
    yield from keys
    if importlib.util.find_spec("lmms_eval") is not None:
        yield from argument_problems(model, frames, without_weights=bool(weights), without_key=bool(keys))
    # A cluster's GPUs are not those of this machine.
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
    matrices: Sequence[tuple[MatrixConfig, Path]],
    sets: dict[str, QuestionSet],
    missing: Sequence[Missing],
    store: Path | None,
) -> Iterator[Missing]:
    """Compare what will be written, and what is still to be fetched, with what is free."""
    needed: list[tuple[Path, float]] = []
    for matrix, folder in matrices:
        where = store or folder.parent / "store.sqlite"
        estimate = disk_estimate(matrix, sets, folder, store=where)
        needed += [(folder, estimate.rows / 1e9), (where, estimate.store / 1e9)]
    to_fetch = sum(item.gigabytes for item in _distinct(missing))
    if to_fetch:
        needed.append((Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser(), to_fetch))
    # Summed by disk: several runs, the store, and what is fetched, may share one.
    disks: dict[int, tuple[Path, float]] = {}
    for path, gigabytes in needed:
        there = _existing(path)
        first, so_far = disks.get(there.stat().st_dev, (there, 0.0))
        disks[there.stat().st_dev] = (first, so_far + gigabytes)
    for there, gigabytes in disks.values():
        free = shutil.disk_usage(there).free / 1e9
        if gigabytes > free:
            yield Missing(
                f"disk: {gigabytes:.3g} GB needed, {free:.3g} GB free on {there}",
                "free some, or name another disk: --out and --store for what is written, HF_HOME for what is fetched",
            )


def _existing(folder: Path) -> Path:
    # A run's folder need not exist yet: the first folder above it that does tells disk and permissions.
    return next(path for path in [folder.resolve(), *folder.resolve().parents] if path.exists())


def _distinct(entries: Iterable[EntryT]) -> list[EntryT]:
    kept: list[EntryT] = []
    for entry in entries:
        # A list, since configurations hold lists and dicts and cannot be put into a set.
        if entry not in kept:
            kept.append(entry)
    return kept
