"""What the matrix runner needs of an engine: jobs go in, rows lie in the run's folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from focus_eval.matrix.answering import AnswerJob
from focus_eval.matrix.cells import Cell, SelectionSpec
from focus_eval.matrix.folder import RunFolder
from focus_eval.matrix.questions import QuestionSet
from focus_eval.matrix.selecting import SelectJob

Done = Callable[[int, int], None]


class Engine(Protocol):
    """Does jobs somewhere; the rows lie in the run's folder when it returns."""

    name: str

    @property
    def device(self) -> str:
        """What the work runs on, as a readable name."""
        ...

    def select(
        self,
        jobs: list[SelectJob],
        specs: list[SelectionSpec],
        sets: dict[str, QuestionSet],
        run: RunFolder,
        done: Done,
    ) -> None:
        """Do all jobs; call `done(rows, errors)` as rows are written."""
        ...

    def answer(
        self, jobs: list[AnswerJob], cells: list[Cell], sets: dict[str, QuestionSet], run: RunFolder, done: Done
    ) -> None:
        """Do all jobs; call `done(rows, errors)` as rows are written."""
        ...
