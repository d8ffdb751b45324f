"""How does a model answer the questions of its cells from the selected frames?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from focus_eval.matrix.cells import Cell
from focus_eval.matrix.folder import RunFolder
from focus_eval.matrix.questions import QuestionSet
from focus_eval.records import AnswerRow

# Questions per job: small enough to spread over workers, large enough to make a batch.
QUESTIONS_PER_JOB = 64


@dataclass(frozen=True)
class AnswerJob:
    """Some questions of one cell that still lack a row."""

    cell: str
    question_ids: tuple[str, ...]

    @property
    def keys(self) -> list[tuple[str, str]]:
        """(cell, question id) of every row this job will write."""
        return [(self.cell, one) for one in self.question_ids]


def answer_jobs(cells: list[Cell], sets: dict[str, QuestionSet], folder: RunFolder) -> list[AnswerJob]:
    """Return the jobs that are left, model by model."""
    jobs = []
    for cell in cells:
        done = folder.answers(cell).keys()
        missing = [one.id for one in sets[cell.selection.benchmark.name].questions if one.id not in done]
        for start in range(0, len(missing), QUESTIONS_PER_JOB):
            jobs.append(AnswerJob(cell.name, tuple(missing[start : start + QUESTIONS_PER_JOB])))
    return jobs


class AnswerWorker:
    """Answers through lmms-eval's own tasks and wrappers; one model loaded at a time."""

    def __init__(
        self, cells: list[Cell], sets: dict[str, QuestionSet], folder: RunFolder, *, name: str, store: Path | None
    ) -> None:
        self._cells = {cell.name: cell for cell in cells}
        self._sets = sets
        self._folder = folder
        self._name = name

    def run(self, job: AnswerJob, *, on_row: Callable[[AnswerRow], None] | None = None) -> int:
        raise NotImplementedError

    def close(self) -> None:
        """Close the files and release the model."""
