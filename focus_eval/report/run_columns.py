"""Turns rows into the columns of data frames, one row at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from focus_eval.report.labels import series_text
from focus_eval.report.recall import DISTANCES_SECONDS, recall_within
from focus_eval.rows.records import BESIDE_STAGES, HELD_STAGES, AnswerRow, SelectionRow
from focus_eval.types import frozen_floats

# Options that say the same thing in FOCUS's public code and in ours.
_ALPHA, _CLIP_SECONDS = ("alpha", "zoom_ratio"), ("clip_seconds", "coarse_every_sec")
# Options that a table has a column for do not stand beside the sampler's name too; by the column's key.
_SHOWN_IN: Mapping[str, tuple[str, ...]] = {"": (), "alpha": _ALPHA, "clip_seconds": _CLIP_SECONDS}


class SelectionsRead:
    """What the tables need of all selections, gathered in one pass: reading them again takes long."""

    def __init__(self) -> None:
        self.variants: dict[str, SelectionRow] = {}
        self.columns: dict[str, list[Any]] = {}
        self.cut: dict[str, dict[tuple[str, str], bool]] = {}
        self.needed: Counter[tuple[str, str]] = Counter()
        self.made: Counter[tuple[str, str]] = Counter()
        self._shared = _Shared()

    def add(self, row: SelectionRow) -> None:
        if row.sampler or row.selection_id not in self.variants:  # a failed row may not say who was to choose
            self.variants[row.selection_id] = row.without_pulls()
        if row.encoder and row.error is None:
            self.cut.setdefault(row.encoder, {})[row.benchmark, row.question_id] = bool(row.facts.get("query_cut"))
        self.needed[row.benchmark, row.selection_id] += len(set(row.pulled_frames))
        self.made[row.benchmark, row.selection_id] += row.forwards
        for name, value in _selection_line(row).items():
            self.columns.setdefault(name, []).append(self._shared.of(value))


class AnswersRead:
    """What the tables need of all answers, gathered in one pass."""

    def __init__(self) -> None:
        self.cells: dict[tuple[str, str, str, str, str], None] = {}  # in the order of the rows
        self.columns: dict[str, list[Any]] = {}
        self._shared = _Shared()

    def add(self, row: AnswerRow) -> None:
        self.cells[row.benchmark, row.selection_id, row.cell_id, row.cell, row.model] = None
        for name, value in _answer_line(row).items():
            self.columns.setdefault(name, []).append(self._shared.of(value))


class _Shared:
    """Gives equal texts as one object: of a hundred thousand rows, most texts are the same few."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._of_variants: dict[str, dict[str, str]] = {}

    def of(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._texts.setdefault(value, value)
        if isinstance(value, dict):
            return self._of_variants.setdefault(str(value), value)
        return value


def _selection_line(row: SelectionRow) -> dict[str, Any]:
    evidence = frozen_floats(row.evidence_seconds)
    has_recall = evidence.size > 0 and row.error is None
    recalls = recall_within(evidence, row.times_seconds, DISTANCES_SECONDS) if has_recall else [None] * 3
    return {
        "benchmark": row.benchmark,
        "question_id": row.question_id,
        "video": row.video,
        "bucket": row.bucket,
        "selection_id": row.selection_id,
        "label": "",  # known once all variants are
        "sampler": row.sampler,
        "sampler_text": {column: series_text(row, hidden=hidden) for column, hidden in _SHOWN_IN.items()},
        "encoder": row.encoder,
        "k": row.k,
        "seed": row.seed,
        "alpha": _option(row, _ALPHA),
        "clip_seconds": _option(row, _CLIP_SECONDS),
        "n_keyframes": len(row.keyframes),
        "n_frames": row.n_frames,
        "duration_seconds": row.duration_seconds,
        "n_pulls": row.frames_scored,
        "has_cost": _has_cost(row),
        "forwards": row.forwards,
        "select_device": row.device,
        "select_seconds": sum(row.seconds.get(stage, 0.0) for stage in HELD_STAGES),
        **{f"seconds_{stage}": row.seconds.get(stage, 0.0) for stage in (*HELD_STAGES, *BESIDE_STAGES)},
        **{f"recall@{d:g}": value for d, value in zip(DISTANCES_SECONDS, recalls, strict=True)},
        "error": row.error,
    }


def _answer_line(row: AnswerRow) -> dict[str, Any]:
    return {
        "benchmark": row.benchmark,
        "question_id": row.question_id,
        "video": row.video,
        "bucket": row.bucket,
        "selection_id": row.selection_id,
        "cell_id": row.cell_id,
        "cell": row.cell,
        "model": row.model,
        "score": float("nan") if row.score is None or row.error is not None else row.score,
        "category": row.category,
        "is_answered": row.error is None,
        "is_unparsed": row.is_unparsed,
        "error": row.error,
        "fallback": row.fallback,
        "frames_asked": row.frames_asked,
        "frames_fed": row.frames_fed,
        "is_below_k": row.error is None and row.frames_fed < row.frames_asked,
        "generate_seconds": row.seconds.get("generate", 0.0),
        "answer_device": row.device,
    }


def _has_cost(row: SelectionRow) -> bool:
    """Whether the row knows what choosing cost: a file of frames alone, read from elsewhere, does not say."""
    came_as_a_file = row.facts.get("published") or row.facts.get("replayed_from")
    return row.frames_scored > 0 or not came_as_a_file


def _option(row: SelectionRow, names: Iterable[str]) -> Any:
    return next((row.options[name] for name in names if name in row.options), None)
