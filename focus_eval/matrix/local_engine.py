"""Runs the jobs of a matrix in this process."""

from __future__ import annotations

from pathlib import Path

from focus_eval.matrix.answering import AnswerJob, AnswerWorker
from focus_eval.matrix.cells import Cell, SelectionSpec
from focus_eval.matrix.devices import best_device
from focus_eval.matrix.engine import Done
from focus_eval.matrix.folder import RunFolder
from focus_eval.matrix.questions import QuestionSet
from focus_eval.matrix.selecting import SelectJob, SelectWorker
from focus_eval.pipeline.timing import device_name


class LocalEngine:
    """This process: one encoder, then one model after another."""

    name = "local"

    def __init__(self, *, store: Path | None) -> None:
        self._store = store

    @property
    def device(self) -> str:
        """The first GPU where there is one, else the processor."""
        return device_name(best_device())

    def select(
        self,
        jobs: list[SelectJob],
        specs: list[SelectionSpec],
        sets: dict[str, QuestionSet],
        run: RunFolder,
        done: Done,
    ) -> None:
        """Do the jobs, a few videos at once."""
        worker = SelectWorker(specs, sets, run, name="local", store=self._store)
        try:
            worker.run_all(jobs, on_row=lambda row: done(1, int(row.error is not None)))
        finally:
            worker.close()

    def answer(
        self, jobs: list[AnswerJob], cells: list[Cell], sets: dict[str, QuestionSet], run: RunFolder, done: Done
    ) -> None:
        """Do the jobs model by model, each loaded once."""
        worker = AnswerWorker(cells, sets, run, name="local", store=self._store)
        try:
            for job in jobs:
                worker.run(job, on_row=lambda row: done(1, int(row.error is not None)))
        finally:
            worker.close()
