"""Loads the rows of a run into data frames."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from focus_eval.errors import InvalidInput
from focus_eval.report.labels import labels_of
from focus_eval.report.run_columns import AnswersRead, SelectionsRead
from focus_eval.report.run_rows import RunRows
from focus_eval.resources import read_json_object
from focus_eval.rows.records import AnswerRow, SelectionRow

# Questions of each benchmark's split, for runs that do not state it (protocol, "Benchmarks").
KNOWN_SIZES = {"longvideobench": 1337, "videomme": 2700, "mlvu": 2174}


@dataclass(frozen=True)
class Run:
    """All rows of one run's folder.

    Args:
        name: of the matrix, else of the folder.
        selections, answers: rows; those of a folder are read again at every iteration.
        provenance: `run.json`, empty where there is none.
        made_with: versions and exact weights by cell, as far as they were written down.
    """

    name: str
    selections: Collection[SelectionRow]
    answers: Collection[AnswerRow]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    made_with: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @cached_property
    def mixed_versions(self) -> tuple[str, ...]:
        """Sentences about rows of several versions or weights in this run; none where all are of one."""
        by_versions: dict[str, set[str]] = {}
        by_model: dict[str, set[str]] = {}
        for model, cell in {(model, cell) for *_, cell, model in self.cells}:
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

    @property
    def cut_queries(self) -> dict[str, tuple[int, int]]:
        """Questions of which an encoder read only the start, and all it was asked; by encoder, where any was cut."""
        asked: dict[str, dict[tuple[str, str], bool]] = self._read_selections.cut
        return {encoder: (sum(cut.values()), len(cut)) for encoder, cut in asked.items() if any(cut.values())}

    @property
    def pays_its_own(self) -> dict[tuple[str, str], bool]:
        """Whether each selection made all the forwards that it needed, so that its hours are its own.

        By benchmark and selection id. Every question needs each of its frames once, as the published hours count:
        where the questions of a video shared theirs, the hours are another figure.
        """
        needed, made = self._read_selections.needed, self._read_selections.made
        return {key: made[key] >= frames for key, frames in needed.items()}

    @property
    def variants(self) -> tuple[SelectionRow, ...]:
        """One row of each selection id, without what was scored: who chose, and how."""
        return tuple(self._read_selections.variants.values())

    @cached_property
    def labels(self) -> dict[str, str]:
        """The short name of each selection id (see `labels_of`)."""
        return labels_of(self.variants)

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(model for *_, model in self.cells))

    @property
    def cells(self) -> tuple[tuple[str, str, str, str, str], ...]:
        """Benchmark, selection id, cell id, cell and model of the answers, each once."""
        return tuple(self._read_answers.cells)

    @cached_property
    def selection_frame(self) -> pd.DataFrame:
        """One line per selection: who chose, what it cost, and what of the evidence it shows."""
        frame: pd.DataFrame = pd.DataFrame(self._read_selections.columns)
        return frame if frame.empty else frame.assign(label=frame["selection_id"].map(self.labels))

    @cached_property
    def answer_frame(self) -> pd.DataFrame:
        """One line per answer with its selection's columns, joined on benchmark, question and selection."""
        lines: pd.DataFrame = pd.DataFrame(self._read_answers.columns)
        _refuse_two_cells(self.name, lines)
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

    @cached_property
    def _read_selections(self) -> SelectionsRead:
        read = SelectionsRead()
        # Tables count what was pulled and show none of it: these two are most of a row.
        shown = self.selections
        for row in shown.without("pulled_relevance", "clips") if isinstance(shown, RunRows) else shown:
            read.add(row)
        return read

    @cached_property
    def _read_answers(self) -> AnswersRead:
        read = AnswersRead()
        for row in self.answers:
            read.add(row)
        return read


def load_run(folder: str | Path) -> Run:
    """Return the rows of `selections/` and `answers/` in a run's folder: JSON lines and Parquet, one part or many.

    Raises:
        InvalidInput: no such folder, no rows, or a damaged file; names it.
    """
    path = Path(folder)
    if not path.is_dir():
        raise InvalidInput(f"{path}: no such folder; a run is a folder with selections/ and answers/")
    file = path / "run.json"
    provenance = read_json_object(file) if file.exists() else {}
    asked = {name: set(ids) for name, ids in provenance.get("asked", {}).items()}
    selections = RunRows(_parts(path / "selections"), SelectionRow, asked)
    answers = RunRows(_parts(path / "answers"), AnswerRow, asked)
    if not selections and not answers:
        raise InvalidInput(f"{path}: no rows under selections/ or answers/; {_where_rows_may_be(path)}")
    name = str(provenance.get("name") or path.resolve().name)
    return Run(name, selections, answers, provenance, made_with=_made_with(path))


def _where_rows_may_be(folder: Path) -> str:
    """Runs of lmms-eval, and a folder of several runs, have the rows one folder below."""
    below = sorted({found.parent.name for kind in ("answers", "selections") for found in folder.glob(f"*/{kind}")})
    return f"its folders hold runs, name one: {', '.join(below)}" if below else "has the run begun?"


def _refuse_two_cells(name: str, answers: pd.DataFrame) -> None:
    """Refuse answers of one model to one question from one selection from other settings."""
    if answers.empty or answers["cell_id"].nunique() < 2:
        return
    keys = ["benchmark", "question_id", "model", "selection_id"]
    first = answers.groupby(keys, sort=False)["cell_id"].transform("first")
    for row in answers[answers["cell_id"] != first].itertuples():
        raise InvalidInput(
            f"{name}: {row.model} answered {row.question_id!r} in two cells from the same frames "
            f"({row.cell} is one): the matrix was changed between runs; give the newer one its own folder (--out)"
        )


def _made_with(folder: Path) -> dict[str, Mapping[str, Any]]:
    """Return the identity of each cell by its name: of a run's parts, or of the one cell that `folder` is."""
    found = {}
    for file in [folder / "cell.json", *sorted((folder / "answers").glob("*/cell.json"))]:
        if file.is_file():
            document = read_json_object(file)
            found[str(document.get("name") or file.parent.resolve().name)] = document.get("identity", {})
    return found


def _parts(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]
