"""The two phases of a run, selecting and answering: their jobs, and the workers that do them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from focus_eval.matrix.cells import AnswerSpec, SelectionSpec
from focus_eval.matrix.config import Resources, worker_resources
from focus_eval.matrix.folder import RunFolder
from focus_eval.matrix.machine import WorkerResources
from focus_eval.matrix.questions import QuestionSet
from focus_eval.matrix.selecting import SelectJob, SelectWorker, select_jobs

if TYPE_CHECKING:
    from focus_eval.matrix.answering import AnswerJob, AnswerWorker

PartT = TypeVar("PartT", SelectionSpec, AnswerSpec)
# A matrix without models runs where lmms-eval is not installed: answering is imported by the answer phase alone.
JobT = TypeVar("JobT", SelectJob, "AnswerJob")


class Worker(Protocol):
    """Runs the jobs of one phase; holds encoders or a model."""

    def run(self, job: Any, *, on_row: Callable[[Any], None] | None = None) -> None:
        """Do one job; call `on_row` with each row that is written."""

    def run_all(self, jobs: list[Any], *, on_row: Callable[[Any], None] | None = None) -> None:
        """Do all jobs, several at once if that is faster."""

    def close(self) -> None:
        """Close the files; release encoders or model."""


@dataclass(frozen=True)
class Phase(ABC, Generic[PartT, JobT]):
    """One half of a run, as an engine sees it.

    Args:
        parts: the selections or cells that rows are written for.
        sets: questions by benchmark name.
        run: folder that the rows go to.
    """

    name: ClassVar[str]
    parts: list[PartT]
    sets: dict[str, QuestionSet]
    run: RunFolder

    @abstractmethod
    def jobs(self) -> list[JobT]:
        """Return the jobs of the questions that have no row yet."""

    @abstractmethod
    def left(self, job: JobT) -> JobT:
        """Return `job` with only the questions that still have no row, after its worker was lost."""

    @abstractmethod
    def worker(self, *, name: str, store: Path | None, share: WorkerResources) -> Worker:
        """Return a worker with `name` in its files of rows; `store` is the file of embeddings, None for none."""

    def groups(self, jobs: list[JobT], resources: Resources) -> Iterator[tuple[Resources, list[JobT]]]:
        """Yield (resources of one worker, jobs that may run side by side)."""
        yield resources, jobs

    def jobs_at_once(self, share: WorkerResources) -> int:
        """Return how many jobs one worker does at a time."""
        return 1


class SelectPhase(Phase[SelectionSpec, SelectJob]):
    """Selects frames, video by video."""

    name = "select"

    def jobs(self) -> list[SelectJob]:
        """Return the jobs of the questions that have no selection row yet, by video."""
        return select_jobs(self.parts, self.sets, self.run)

    def left(self, job: SelectJob) -> SelectJob:
        """Return `job` with only the questions that still have no selection row."""
        return job.without(
            {spec.name: self.run.finished(spec).ids() for spec in self.parts if spec.name in job.missing}
        )

    def worker(self, *, name: str, store: Path | None, share: WorkerResources) -> SelectWorker:
        """Return a worker that selects frames; its encoders load when needed."""
        return SelectWorker(self.parts, self.sets, self.run, name=name, store=store, share=share)

    def jobs_at_once(self, share: WorkerResources) -> int:
        """Return how many videos one worker has in work at a time."""
        return share.videos_at_once


class AnswerPhase(Phase[AnswerSpec, "AnswerJob"]):
    """Answers questions; each model is loaded once."""

    name = "answer"

    def jobs(self) -> list[AnswerJob]:
        """Return the jobs of the questions that have no answer row yet, by cell."""
        if not self.parts:
            return []
        from focus_eval.matrix.answering import answer_jobs

        return answer_jobs(self.parts, self.sets, self.run)

    def left(self, job: AnswerJob) -> AnswerJob:
        """Return `job` with only the questions that still have no answer row."""
        (cell,) = [cell for cell in self.parts if cell.name == job.cell]
        return job.without(self.run.finished(cell).ids())

    def worker(self, *, name: str, store: Path | None, share: WorkerResources) -> AnswerWorker:
        """Return a worker that answers questions; its model loads when needed."""
        from focus_eval.matrix.answering import AnswerWorker

        return AnswerWorker(self.parts, self.sets, self.run, name=name, store=store, cores=share.cores)

    def groups(self, jobs: list[AnswerJob], resources: Resources) -> Iterator[tuple[Resources, list[AnswerJob]]]:
        """Yield (resources of one worker, jobs) for one model after another."""
        model_of = {cell.name: cell.model for cell in self.parts}
        # One model after another: workers of several would compete for the same GPUs, and a 72B worker takes a few.
        for _, group in groupby(jobs, lambda job: model_of[job.cell].name):
            model_jobs = list(group)
            yield worker_resources(model_of[model_jobs[0].cell], resources), model_jobs
