"""Where is the work of a matrix done?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from focus_eval.errors import unknown_name
from focus_eval.matrix.answering import AnswerJob, AnswerWorker
from focus_eval.matrix.cells import Cell, SelectionSpec
from focus_eval.matrix.config import MatrixConfig
from focus_eval.matrix.devices import best_device
from focus_eval.matrix.folder import RunFolder
from focus_eval.matrix.questions import QuestionSet
from focus_eval.matrix.selecting import SelectJob, SelectWorker
from focus_eval.pipeline.timing import device_name

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


def make_engine(name: str, *, store: Path | None, matrix: MatrixConfig, address: str | None = None) -> Engine:
    """Return the engine "local" or "ray".

    Raises:
        UnknownName: another name.
        MissingDependency: Ray is not installed.
    """
    if name == "local":
        return LocalEngine(store=store)
    if name == "ray":
        from focus_eval.matrix.ray_engine import RayEngine

        return RayEngine(address=address, store=store, select=matrix.select_resources, answer=matrix.answer_resources)
    raise unknown_name("engine", name, ["local", "ray"])
