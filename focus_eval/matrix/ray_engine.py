"""Runs a matrix on a Ray cluster, whose workers and nodes may be lost."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from focus_eval.errors import MissingDependency, RunError
from focus_eval.matrix.answering import AnswerJob, AnswerWorker, answer_jobs
from focus_eval.matrix.cells import Cell, SelectionSpec
from focus_eval.matrix.config import Resources, worker_resources
from focus_eval.matrix.engine import Done
from focus_eval.matrix.folder import RunFolder
from focus_eval.matrix.questions import QuestionSet
from focus_eval.matrix.selecting import SelectJob, SelectWorker

JobT = TypeVar("JobT", SelectJob, AnswerJob)
MAX_LOSSES = 5
START_SECONDS = 600


class RayEngine:
    """Actors on a Ray cluster, as many as its resources hold; one encoder or model each.

    The run's folder and the videos must be on storage every node sees. `store` is a path on each node (a file of
    SQLite is not shared between machines); None keeps no store. A worker that is lost is replaced, and only
    those of its questions that have no row yet are done again.

    Args:
        address: "auto", a cluster's address, or None for a cluster of its own on this machine.
        select, answer: what one worker of either phase takes.

    Raises:
        MissingDependency: Ray is not installed.
    """

    name = "ray"

    def __init__(self, *, address: str | None, store: Path | None, select: Resources, answer: Resources) -> None:
        try:
            import ray
        except ImportError as error:
            raise MissingDependency('the ray engine needs Ray: pip install "focus-eval[ray]"') from error
        self._store = store.resolve() if store else None
        self._select = select
        self._answer = answer
        if not ray.is_initialized():
            ray.init(address=address, log_to_driver=False, include_dashboard=False if address is None else None)

    @property
    def device(self) -> str:
        """What the cluster holds in all."""
        import ray

        held, nodes = _resources(), ray.nodes()  # type: ignore[no-untyped-call]
        return f"ray: {len(nodes)} nodes, {held.get('GPU', 0):g} GPUs, {held.get('CPU', 0):g} CPUs"

    def select(
        self,
        jobs: list[SelectJob],
        specs: list[SelectionSpec],
        sets: dict[str, QuestionSet],
        run: RunFolder,
        done: Done,
    ) -> None:
        """Do the jobs on as many workers as the cluster holds."""

        def still_missing(job: SelectJob) -> SelectJob | None:
            left = job.without({spec.name: _absolute(run).finished(spec) for spec in specs if spec.name in job.missing})
            return left if left.n_rows else None

        pool = _Pool(SelectWorker, (specs, sets, _absolute(run)), self._store, self._select, still_missing)
        pool.run(jobs, done)

    def answer(
        self, jobs: list[AnswerJob], cells: list[Cell], sets: dict[str, QuestionSet], run: RunFolder, done: Done
    ) -> None:
        """Do the jobs model by model, each on as many workers as the cluster holds: a 72B worker takes several GPUs."""
        model_of = {cell.name: cell.model for cell in cells}

        def still_missing(job: AnswerJob) -> AnswerJob | None:
            left = {item for part in answer_jobs(cells, sets, _absolute(run)) for item in part.keys}
            ids = tuple(question_id for question_id in job.question_ids if (job.cell, question_id) in left)
            return AnswerJob(job.cell, ids) if ids else None

        for model in dict.fromkeys(model_of[job.cell].name for job in jobs):
            mine = [job for job in jobs if model_of[job.cell].name == model]
            takes = worker_resources(model_of[mine[0].cell], self._answer)
            pool = _Pool(AnswerWorker, (cells, sets, _absolute(run)), self._store, takes, still_missing)
            pool.run(mine, done)


class _Pool(Generic[JobT]):
    """Workers of one kind, each with one job at a time."""

    def __init__(
        self,
        kind: type[Any],
        arguments: tuple[Any, ...],
        store: Path | None,
        resources: Resources,
        still_missing: Callable[[JobT], JobT | None],
    ) -> None:
        import ray

        held = _resources()
        fits = [int(held.get("CPU", 0) // resources.cpus)]
        if resources.gpus:
            fits.append(int(held.get("GPU", 0) // resources.gpus))
        if min(fits) < 1:
            raise RunError(
                f"the Ray cluster has {held.get('GPU', 0):g} GPUs and {held.get('CPU', 0):g} CPUs; one worker takes "
                f"{resources.gpus:g} and {resources.cpus:g}: change select_resources or answer_resources"
            )
        self._size = min(fits)
        self._still_missing: Callable[[JobT], JobT | None] = still_missing
        self._store = store
        self._shared = ray.put(arguments)
        self._actor: Any = ray.remote(_Worker).options(num_cpus=resources.cpus, num_gpus=resources.gpus)
        self._kind = kind

    def run(self, jobs: list[JobT], done: Done) -> None:
        """Do all jobs; replace workers that are lost.

        A worker gets its first job once it runs: after a node is lost, the cluster may not hold as many as before.

        Raises:
            RunError: workers lost more often than `MAX_LOSSES`, none that could be started, or a model that cannot
                be loaded.
        """
        import ray

        waiting = deque(jobs)
        idle: list[Any] = []
        busy: dict[Any, tuple[Any, JobT]] = {}
        starting: dict[Any, Any] = dict(self._hire() for _ in range(min(self._size, len(jobs))))
        losses = 0
        while waiting or busy:
            while waiting and idle:
                worker, job = idle.pop(), waiting.popleft()
                busy[worker.run.remote(job)] = (worker, job)
            ready, _ = ray.wait([*busy, *starting], num_returns=1, timeout=None if busy else START_SECONDS)
            if not ready:
                raise RunError(f"no worker could be started within {START_SECONDS} seconds: is the cluster full?")
            unfinished: JobT | None = None
            try:
                if ready[0] in starting:
                    worker = starting.pop(ready[0])
                    ray.get(ready[0])
                else:
                    worker, unfinished = busy.pop(ready[0])
                    done(*ray.get(ready[0]))
                idle.append(worker)
            except ray.exceptions.RayTaskError as error:
                raise RunError(f"a worker failed: {error.cause}") from error
            except ray.exceptions.RayActorError as error:
                losses += 1
                if losses > MAX_LOSSES:
                    raise RunError(f"{losses} workers were lost, the last: {error}") from error
                left = self._still_missing(unfinished) if unfinished is not None else None
                if left is not None:
                    waiting.append(left)
                starting.update([self._hire()])
        ray.get([worker.close.remote() for worker in idle])
        for worker in [*idle, *starting.values()]:
            ray.kill(worker)

    def _hire(self) -> tuple[Any, Any]:
        """Return what is there once the new worker runs, and the worker."""
        worker = self._actor.remote(self._kind, self._shared, f"ray-{uuid.uuid4().hex[:12]}", self._store)
        return worker.started.remote(), worker


class _Worker:
    """What runs in an actor: one worker of a phase, and the count of what it wrote."""

    def __init__(self, kind: type[Any], arguments: tuple[Any, ...], name: str, store: Path | None) -> None:
        self._worker = kind(*arguments, name=name, store=store)

    def started(self) -> bool:
        """Return True: the worker runs."""
        return True

    def run(self, job: Any) -> tuple[int, int]:
        """Do `job`; return rows written and errors among them."""
        errors: list[bool] = []
        self._worker.run(job, on_row=lambda row: errors.append(row.error is not None))
        return len(errors), sum(errors)

    def close(self) -> None:
        """Close files, release encoder or model."""
        self._worker.close()


def _resources() -> dict[str, float]:
    import ray

    return dict(ray.cluster_resources())  # type: ignore[no-untyped-call]


def _absolute(run: RunFolder) -> RunFolder:
    return RunFolder(run.path.resolve())
