"""Counts how far a run is, for `focus-eval status`; what is done is decided in `folder`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from focus_eval.errors import InvalidInput
from focus_eval.matrix.cells import Cell, SelectionSpec, cells, selection_specs
from focus_eval.matrix.config import MatrixConfig
from focus_eval.matrix.folder import RunFolder
from focus_eval.matrix.planning import load_sets
from focus_eval.resources import read_json


@dataclass(frozen=True, kw_only=True)
class PartStatus:
    """How many of a part's rows are written.

    `rows_per_second` is over the part's life so far; None before the second row and once it is done.
    """

    name: str
    kind: str
    rows: int
    questions: int
    errors: int
    rows_per_second: float | None

    @property
    def seconds_left(self) -> float | None:
        """Estimate from the rate so far; None where there is none."""
        return (self.questions - self.rows) / self.rows_per_second if self.rows_per_second else None


def _matrix_of(run_file: Path) -> MatrixConfig:
    try:
        return MatrixConfig.model_validate(read_json(run_file)["matrix"])
    except (KeyError, TypeError, ValidationError) as error:
        raise InvalidInput(f"{run_file}: does not describe a run of this version ({type(error).__name__})") from error


def run_status(folder: str | Path) -> list[PartStatus]:
    """Return one status per selection and cell of the run in `folder`, read while it goes on.

    Raises:
        InvalidInput: no run there.
    """
    path = Path(folder)
    run_file = path / "run.json"
    if not run_file.is_file():
        raise InvalidInput(f"{path}: no run here (no run.json); start one with focus-eval run")
    matrix = _matrix_of(run_file)
    run, sets = RunFolder(path), load_sets(matrix)
    statuses = []
    parts: list[SelectionSpec | Cell] = [*selection_specs(matrix), *cells(matrix)]
    for part in parts:
        asked = {question.id for question in sets[part.benchmark.name].questions}
        # Other runs may have put rows of more questions into the pool.
        errors = [error for question_id, error in run.errors(part).items() if question_id in asked]
        statuses.append(
            PartStatus(
                name=part.name,
                kind="answers" if isinstance(part, Cell) else "selections",
                rows=len(errors),
                questions=len(asked),
                errors=sum(error is not None for error in errors),
                rows_per_second=_rate(run.part(part), len(errors)),
            )
        )
    return statuses


def _rate(folder: Path, rows: int) -> float | None:
    lines = list(folder.glob("*.jsonl"))
    # A finished part is Parquet, without lines; one row gives no rate.
    if not lines or rows < 2:
        return None
    # The part's description is written just before its first row.
    started = min(path.stat().st_mtime for path in folder.glob("*.json"))
    seconds = time.time() - started
    return rows / seconds if seconds > 0 else None
