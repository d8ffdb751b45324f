"""Loads the rows of a run into data frames."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from focus_eval.errors import InvalidInput
from focus_eval.report.recall import DISTANCES_SECONDS, recall_within
from focus_eval.rows.records import BESIDE_STAGES, HELD_STAGES, AnswerRow, RowT, SelectionRow
from focus_eval.rows.storage import load_rows
from focus_eval.types import frozen_floats

# Questions of each benchmark's split, for runs that do not state it (protocol, "Benchmarks").
KNOWN_SIZES = {"longvideobench": 1337, "videomme": 2700, "mlvu": 2174}
_ORDER = ("uniform", "uniform_1fps", "random", "topk", "aks", "aks_dense", "qframe", "focus", "focus_released")
# Options that say the same thing in FOCUS's public code and in ours.
_ALPHA, _CLIP_SECONDS = ("alpha", "zoom_ratio"), ("clip_seconds", "coarse_every_sec")
# Options that a table has a column for do not stand beside the sampler's name too; by the column's key.
_SHOWN_IN: Mapping[str, tuple[str, ...]] = {"": (), "alpha": _ALPHA, "clip_seconds": _CLIP_SECONDS}


@dataclass(frozen=True)
class Run:
    """All rows of one run's folder.

    Args:
        name: of the matrix, else of the folder.
        provenance: `run.json`, empty where there is none.
        made_with: versions and exact weights by cell, as far as they were written down.
    """

    name: str
    selections: list[SelectionRow]
    answers: list[AnswerRow]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    made_with: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @cached_property
    def mixed_versions(self) -> tuple[str, ...]:
        """Sentences about rows of several versions or weights in this run; none where all are of one."""
        by_versions: dict[str, set[str]] = {}
        by_model: dict[str, set[str]] = {}
        for model, cell in {(row.model, row.cell) for row in self.answers}:
            made = self.made_with.get(cell, {})
            versions = ", ".join(f"{name} {version}" for name, version in sorted(made.get("versions", {}).items()))
            if versions:
                by_versions.setdefault(versions, set()).add(model)
            if made.get("weights"):
                by_model.setdefault(model, set()).add(str(made["weights"]))
        parts = [f"{', '.join(sorted(models))} with {versions}" for versions, models in sorted(by_versions.items())]
        mixed = ["Answers of several versions: " + "; ".join(parts) + "."] if len(parts) > 1 else []
        mixed += [
            f"Answers of several weights of {model}: {', '.join(sorted(weights))}."
            for model, weights in sorted(by_model.items())
            if len(weights) > 1
        ]
        return tuple(mixed)

    @property
    def anchors(self) -> str:
        """Name of the published table that this run stands beside; "" where there is none."""
        return str(self.provenance.get("matrix", {}).get("anchors", ""))

    @cached_property
    def expected_questions(self) -> dict[str, int]:
        """Questions of each benchmark's whole split, where known."""
        stated = {
            item["benchmark"]: item["questions"]
            for item in self.provenance.get("matrix", {}).get("benchmarks", [])
            if item.get("questions")
        }
        return {**KNOWN_SIZES, **stated}

    @cached_property
    def cut_queries(self) -> dict[str, tuple[int, int]]:
        """Questions of which an encoder read only the start, and all it was asked; by encoder, where any was cut."""
        asked: dict[str, dict[tuple[str, str], bool]] = {}
        for row in self.selections:
            if row.encoder and row.error is None:
                is_cut = bool(row.facts.get("query_cut"))
                asked.setdefault(row.encoder, {})[row.benchmark, row.question_id] = is_cut
        return {encoder: (sum(cut.values()), len(cut)) for encoder, cut in asked.items() if any(cut.values())}

    @cached_property
    def pays_its_own(self) -> dict[tuple[str, str], bool]:
        """Whether each selection made all the forwards that it needed, so that its hours are its own.

        By benchmark and selection id. Every question needs each of its frames once, as the published hours count:
        where the questions of a video shared theirs, the hours are another figure.
        """
        needed: Counter[tuple[str, str]] = Counter()
        made: Counter[tuple[str, str]] = Counter()
        for row in self.selections:
            key = (row.benchmark, row.selection_id)
            needed[key] += len(set(row.pulled_frames))
            made[key] += row.forwards
        return {key: made[key] >= frames for key, frames in needed.items()}

    @cached_property
    def selection_frame(self) -> pd.DataFrame:
        """One line per selection: who chose, what it cost, and what of the evidence it shows."""
        labels = labels_of(self.selections)
        frame: pd.DataFrame = pd.DataFrame([_selection_line(row, labels) for row in self.selections])
        return frame

    @cached_property
    def answer_frame(self) -> pd.DataFrame:
        """One line per answer with its selection's columns, joined on benchmark, question and selection."""
        _refuse_two_cells(self.name, self.answers)
        lines: pd.DataFrame = pd.DataFrame([_answer_line(row) for row in self.answers])
        if lines.empty or self.selection_frame.empty:
            return lines
        keys = ["benchmark", "question_id", "selection_id"]
        chosen = self.selection_frame.drop(columns=["video", "bucket", "error"])
        joined: pd.DataFrame = lines.merge(chosen, on=keys, how="left", validate="many_to_one")
        missing = joined[joined["label"].isna()]
        if len(missing):
            first = missing.iloc[0]
            raise InvalidInput(
                f"{self.name}: {len(missing)} answers without their selection, the first is {first['question_id']!r}"
            )
        return joined


def load_run(folder: str | Path) -> Run:
    """Return the rows of `selections/` and `answers/` in a run's folder: JSON lines and Parquet, one part or many.

    Raises:
        InvalidInput: no such folder, no rows, or a damaged file; names it.
    """
    path = Path(folder)
    if not path.is_dir():
        raise InvalidInput(f"{path}: no such folder; a run is a folder with selections/ and answers/")
    file = path / "run.json"
    try:
        provenance = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    except ValueError as error:
        raise InvalidInput(f"{file}: not JSON ({error})") from error
    asked = {name: set(ids) for name, ids in provenance.get("asked", {}).items()}
    selections = [row for row in _rows(path / "selections", SelectionRow) if _is_asked(row, asked)]
    answers = [row for row in _rows(path / "answers", AnswerRow) if _is_asked(row, asked)]
    if not selections and not answers:
        raise InvalidInput(f"{path}: no rows under selections/ or answers/; has the run begun?")
    name = str(provenance.get("name") or path.resolve().name)
    return Run(name, selections, answers, provenance, made_with=_made_with(path))


def labels_of(rows: Iterable[SelectionRow]) -> dict[str, str]:
    """Return a short name per selection id: the sampler, its options that are not default, what tells variants apart.

    "focus" alone; "aks max_depth=3"; "focus alpha=0.25" and "focus alpha=0.5" where both are there; "focus (clip)"
    among encoders; "oracle [ceiling]" for what is not a sampler that could be used.
    """
    variants: dict[str, SelectionRow] = {}
    for row in rows:
        if row.sampler or row.selection_id not in variants:  # a failed row may not say who was to choose
            variants[row.selection_id] = row
    by_sampler: dict[str, list[SelectionRow]] = {}
    for row in variants.values():
        by_sampler.setdefault(row.sampler, []).append(row)
    labels = {}
    for same in by_sampler.values():
        every = [{**row.options, **row.changed_options} for row in same]
        names = dict.fromkeys(name for options in every for name in options)
        differing = {name for name in names if len({str(options.get(name)) for options in every}) > 1}
        several_encoders = len({row.encoder for row in same}) > 1
        for row in same:
            text = _with_options(row, differing, ())
            text += f" ({row.encoder})" if several_encoders and row.encoder else ""
            labels[row.selection_id] = text + _mark(row)
    return _told_apart(labels, variants)


def _with_options(row: SelectionRow, differing: Iterable[str], hidden: Iterable[str]) -> str:
    """Return the sampler's name with its options that are not default or in `differing`, without the `hidden` ones."""
    options = {**row.options, **row.changed_options}
    shown = [name for name in options if name in row.changed_options or name in set(differing)]
    return " ".join([row.sampler, *(f"{name}={options[name]}" for name in shown if name not in hidden)])


def _mark(row: SelectionRow) -> str:
    return "" if row.role == "sampler" else f" [{row.role}]"


def _told_apart(labels: dict[str, str], variants: Mapping[str, SelectionRow]) -> dict[str, str]:
    """Mark selections that a table would take for one: the same label, k and seed, but chosen in another way.

    A folder holds such rows when a matrix was changed and run there again (another `coarse_seed`, a sampler's
    newer version). Pooled, they would pass for seeds of one configuration.
    """
    alike = Counter((labels[key], row.k, row.seed) for key, row in variants.items())
    return {
        key: f"{labels[key]} #{key[:4]}" if alike[labels[key], row.k, row.seed] > 1 else labels[key]
        for key, row in variants.items()
    }


def sampler_order(label: str) -> tuple[int, str]:
    """Return a sorting key of sampler labels: baselines first, then as the paper lists them, then by name."""
    sampler = label.split(" ")[0]
    return (_ORDER.index(sampler) if sampler in _ORDER else len(_ORDER), label)


def _refuse_two_cells(name: str, rows: Iterable[AnswerRow]) -> None:
    """Refuse answers of one model to one question from one selection from other settings."""
    cells: dict[tuple[str, str, str, str], str] = {}
    for row in rows:
        key = (row.benchmark, row.question_id, row.model, row.selection_id)
        if cells.setdefault(key, row.cell_id) != row.cell_id:
            raise InvalidInput(
                f"{name}: {row.model} answered {row.question_id!r} in two cells from the same frames "
                f"({row.cell} is one): the matrix was changed between runs; give the newer one its own folder (--out)"
            )


def _made_with(folder: Path) -> dict[str, Mapping[str, Any]]:
    """Return the identity of each cell by its name: of a run's parts, or of the one cell that `folder` is."""
    found = {}
    for file in [folder / "cell.json", *sorted((folder / "answers").glob("*/cell.json"))]:
        if file.is_file():
            document = json.loads(file.read_text(encoding="utf-8"))
            found[str(document.get("name") or file.parent.resolve().name)] = document.get("identity", {})
    return found


def _rows(folder: Path, kind: type[RowT]) -> Iterator[RowT]:
    for part in _parts(folder):
        yield from load_rows(part, kind)


def _is_asked(row: SelectionRow | AnswerRow, asked: Mapping[str, set[str]]) -> bool:
    """Return False for a row of a question that only another run beside this one has asked."""
    return row.benchmark not in asked or row.question_id in asked[row.benchmark]


def _parts(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]


def _selection_line(row: SelectionRow, labels: Mapping[str, str]) -> dict[str, Any]:
    evidence = frozen_floats(row.evidence_seconds)
    has_recall = evidence.size > 0 and row.error is None
    recalls = recall_within(evidence, row.times_seconds, DISTANCES_SECONDS) if has_recall else [None] * 3
    return {
        "benchmark": row.benchmark,
        "question_id": row.question_id,
        "video": row.video,
        "bucket": row.bucket,
        "selection_id": row.selection_id,
        "label": labels[row.selection_id],
        "sampler": row.sampler,
        "sampler_text": {column: _with_options(row, (), hidden) + _mark(row) for column, hidden in _SHOWN_IN.items()},
        "encoder": row.encoder,
        "k": row.k,
        "seed": row.seed,
        "alpha": _option(row, _ALPHA),
        "clip_seconds": _option(row, _CLIP_SECONDS),
        "n_keyframes": len(row.keyframes),
        "n_frames": row.n_frames,
        "n_pulls": row.frames_scored,
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


def _option(row: SelectionRow, names: Iterable[str]) -> Any:
    return next((row.options[name] for name in names if name in row.options), None)
