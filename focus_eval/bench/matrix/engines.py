"""The engines that run the jobs of a matrix, and the two phases that the jobs belong to: selecting and answering."""

from __future__ import annotations

import os
import threading
import uuid
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from focus_eval.bench.matrix.cells import AnswerSpec, SelectionSpec
from focus_eval.bench.matrix.config import MatrixConfig, Resources, worker_resources
from focus_eval.bench.matrix.folder import RunFolder
from focus_eval.bench.matrix.machine import (
    WorkerResources,
    best_device,
    check_engine,
    cluster_resources,
    local_resources,
)
from focus_eval.bench.matrix.questions import QuestionSet
from focus_eval.bench.matrix.selecting import SelectJob, SelectWorker, select_jobs
from focus_eval.core.errors import MissingDependency, RunError
from focus_eval.core.extras import install_command
from focus_eval.core.plugins import file_modules
from focus_eval.keyframes.encoders.cache import using_feature_folder
from focus_eval.keyframes.pipeline.timing import device_name
from focus_eval.keyframes.rows.records import AnswerRow, SelectionRow
from focus_eval.keyframes.video.crashes import noting_reads, record_crashes

if TYPE_CHECKING:
    from ray import ObjectRef
    from ray.actor import ActorHandle

    from focus_eval.bench.matrix.answering import AnswerJob, AnswerWorker

    # Reference to the start of a worker, or to the counts of a finished job.
    _Reference = ObjectRef[Any]

# Cost of a row in addition to its video (thread, texts, writing), expressed in seconds of scored video.
ROW_SECONDS = 0.1
# Called with (number of rows written, number of errors among these rows, work), each since the last call.
OnDone = Callable[[int, int, float], None]
JobT = TypeVar("JobT", bound="Job")


class Job(Protocol):
    """Questions of one phase that have no row yet."""

    @property
    def n_rows(self) -> int:
        """Number of rows that this job will write."""


class Worker(Protocol[JobT]):
    """Runs the jobs of one phase; holds encoders or a model."""

    def run(
        self,
        job: JobT,
        *,
        on_row: Callable[[SelectionRow | AnswerRow], None] | None = None,
        on_work: Callable[[float], None] | None = None,
    ) -> None:
        """Do one job; call `on_row` with each written row, and `on_work` with shares of the job that add up to 1."""

    def run_all(
        self,
        jobs: list[JobT],
        *,
        on_row: Callable[[SelectionRow | AnswerRow], None] | None = None,
        on_work: Callable[[JobT, float], None] | None = None,
    ) -> None:
        """Do all jobs, several at once if that is faster; `on_work` gets the job and the share of it."""

    def close(self) -> None:
        """Close the files; release encoders or model."""


@dataclass(frozen=True)
class Phase(ABC, Generic[JobT]):
    """One half of a run, as an engine sees it.

    Args:
        parts: the selections or cells that rows are written for.
        sets: questions by benchmark name.
        run: folder that the rows go to.
    """

    name: ClassVar[str]
    parts: list[SelectionSpec] | list[AnswerSpec]
    sets: dict[str, QuestionSet]
    run: RunFolder

    @abstractmethod
    def jobs(self) -> list[JobT]:
        """Return the jobs of the questions that have no row yet."""

    @abstractmethod
    def left(self, job: JobT) -> JobT:
        """Return `job` with only the questions that still have no row, after its worker was lost."""

    @abstractmethod
    def worker(self, *, name: str, store: Path | None, share: WorkerResources) -> Worker[JobT]:
        """Return a worker with `name` in its files of rows; `store` is the file of embeddings, None for none."""

    def groups(self, jobs: list[JobT], resources: Resources) -> Iterator[tuple[Resources, list[JobT]]]:
        """Yield (resources of one worker, jobs that may run side by side)."""
        yield resources, jobs

    def jobs_at_once(self, share: WorkerResources) -> int:
        """Return how many jobs one worker does at a time."""
        return 1

    @abstractmethod
    def work(self, job: JobT) -> float:
        """Return the cost of a job, in units that are about equal within the phase."""


class SelectPhase(Phase[SelectJob]):
    """Selects frames, video by video."""

    name = "select"
    parts: list[SelectionSpec]

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

    def work(self, job: SelectJob) -> float:
        """Return the seconds of video that are decoded and encoded, and a little for each row.

        Samplers pull by seconds of video. If the length of a video is not stated, only its rows count.
        """
        questions = self.sets[job.benchmark]
        scores_frames = any(spec.encoders for spec in self.parts if spec.name in job.missing)
        seconds = questions.by_video[job.video][0].duration_seconds if scores_frames and questions.config.videos else 0
        return (seconds or 0.0) + ROW_SECONDS * job.n_rows

    def jobs_at_once(self, share: WorkerResources) -> int:
        """Return how many videos one worker has in work at a time."""
        return share.videos_at_once


class AnswerPhase(Phase["AnswerJob"]):
    """Answers questions; each model is loaded once."""

    name = "answer"
    parts: list[AnswerSpec]

    @cached_property
    def _cell_by_name(self) -> dict[str, AnswerSpec]:
        return {cell.name: cell for cell in self.parts}

    def jobs(self) -> list[AnswerJob]:
        """Return the jobs of the questions that have no answer row yet, by cell."""
        if not self.parts:
            return []
        # Import here, since a matrix without models must run without lmms-eval.
        from focus_eval.bench.matrix.answering import answer_jobs

        return answer_jobs(self.parts, self.sets, self.run)

    def work(self, job: AnswerJob) -> float:
        """Return the number of frames that the model is shown."""
        return float(self._cell_by_name[job.cell].selection.k * job.n_rows)

    def left(self, job: AnswerJob) -> AnswerJob:
        """Return `job` with only the questions that still have no answer row."""
        return job.without(self.run.finished(self._cell_by_name[job.cell]).ids())

    def worker(self, *, name: str, store: Path | None, share: WorkerResources) -> AnswerWorker:
        """Return a worker that answers questions; its model loads when needed."""
        from focus_eval.bench.matrix.answering import AnswerWorker

        return AnswerWorker(self.parts, self.sets, self.run, name=name, store=store, cores=share.cores)

    def groups(self, jobs: list[AnswerJob], resources: Resources) -> Iterator[tuple[Resources, list[AnswerJob]]]:
        """Yield (resources of one worker, jobs) for one model after another."""
        # One model after another, since workers of several models would compete for GPUs, and a 72B worker takes
        # several.
        for _, group in groupby(jobs, lambda job: self._cell_by_name[job.cell].model.name):
            model_jobs = list(group)
            yield worker_resources(self._cell_by_name[model_jobs[0].cell].model, resources), model_jobs


class Engine(Protocol):
    """Runs the jobs of a phase on some machine and writes their rows to the run's folder."""

    name: str

    @property
    def device(self) -> str:
        """Readable name of the device."""

    def run(self, phase: Phase[JobT], jobs: list[JobT], on_done: OnDone) -> None:
        """Run all `jobs` of `phase`; call `on_done` with counts since the last call.

        Rows are not passed back, since workers write them to the run's folder.
        """


class LocalEngine:
    """Runs all jobs in this process: the encoders, then one model after another.

    Args:
        store: file of embeddings and relevance; None keeps none.
        resources: cores and memory of the worker.
        features: folder that keeps features of pictures for later runs (see `encoders.cache`); None keeps none.
    """

    name = "local"

    def __init__(self, *, store: Path | None, resources: Resources | None = None, features: Path | None = None) -> None:
        self._store = store
        self._resources = resources or Resources()
        self._features = features

    @property
    def device(self) -> str:
        """The first GPU if there is one, else the processor."""
        return device_name(best_device())

    def run(self, phase: Phase[JobT], jobs: list[JobT], on_done: OnDone) -> None:
        """Run the jobs with one worker."""
        with using_feature_folder(self._features), noting_reads(phase.run.path, self.name):
            worker = phase.worker(name="local", store=self._store, share=local_resources(self._resources))
            try:
                worker.run_all(
                    jobs,
                    on_row=lambda row: on_done(1, int(row.error is not None), 0.0),
                    on_work=lambda job, share: on_done(0, 0, share * phase.work(job)),
                )
            finally:
                # Close after an error too: this writes the rows to the disk and frees the device for models.
                worker.close()


def make_engine(name: str, *, store: Path | None, matrix: MatrixConfig, address: str | None = None) -> Engine:
    """Return the engine "local" or "ray".

    Raises:
        InvalidInput, UnknownName: another name.
        MissingDependency: Ray is not installed.
    """
    check_engine(name)
    if name == "ray":
        return RayEngine(address=address, store=store, select=matrix.select_resources, answer=matrix.answer_resources)
    return LocalEngine(store=store, resources=matrix.select_resources)


# Limit of lost workers: a long run may lose a few nodes, but after more losses assume that a job kills its workers.
MAX_LOSSES = 5
START_SECONDS = 600


class RayEngine:
    """Runs jobs on Ray actors, as many as the cluster has room for; each holds one encoder or model.

    The run's folder and the videos must be on storage shared by all nodes. A worker that is lost is replaced, and its
    questions without a row are done again.

    Args:
        address: "auto", a cluster's address, or None for a cluster of its own on this machine.
        store: path of the store on each node (SQLite files are not shared between machines); None keeps none.
        select, answer: resources of one worker of that phase.

    Raises:
        MissingDependency: Ray is not installed.
    """

    name = "ray"

    def __init__(self, *, address: str | None, store: Path | None, select: Resources, answer: Resources) -> None:
        """Connect to the cluster at `address`, or start one on this machine; raise MissingDependency without Ray."""
        # Newer versions of `ray start` require the account's token once there is one (a local cluster makes one), but
        # `ray.init` with an address sends it only in this mode, and is refused without it.
        has_token = any(os.environ.get(name) for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
        if address and (has_token or (Path.home() / ".ray" / "auth_token").is_file()):
            os.environ.setdefault("RAY_AUTH_MODE", "token")
        try:
            import ray
        except ImportError as error:
            raise MissingDependency(f"the ray engine needs Ray: {install_command('ray')}") from error
        # Make paths absolute, here and in `run`, since workers have another working directory.
        self._store = store.resolve() if store else None
        self._takes = {SelectPhase.name: select, AnswerPhase.name: answer}
        if not ray.is_initialized():
            # Without an address Ray would join whatever cluster was last started here, though it may be gone.
            is_own_cluster = address is None
            try:
                ray.init(
                    address=address or "local", log_to_driver=True, include_dashboard=False if is_own_cluster else None
                )
            except ConnectionError as error:
                reason = str(error).strip().partition("\n")[0]
                raise RunError(f"--address {address}: no Ray cluster answers there ({reason})") from error

    @property
    def device(self) -> str:
        """The cluster's nodes, GPUs and CPUs as text."""
        import ray

        resources, nodes = _resources(), ray.nodes()  # type: ignore[no-untyped-call]
        return f"ray: {len(nodes)} nodes, {resources.get('GPU', 0):g} GPUs, {resources.get('CPU', 0):g} CPUs"

    def run(self, phase: Phase[JobT], jobs: list[JobT], on_done: OnDone) -> None:
        """Run the jobs on as many workers as the cluster has room for."""
        phase = replace(phase, run=RunFolder(phase.run.path.resolve()))
        for demand, group in phase.groups(jobs, self._takes[phase.name]):
            _WorkerPool(phase, self._store, demand).run(group, on_done)


class _WorkerPool(Generic[JobT]):
    """The workers of one phase; each runs one or more jobs at a time, in threads."""

    # Ray's ActorPool with max_restarts and max_task_retries does not fit. If the cluster has no room for a new actor,
    # the job of a lost actor waits for ever or, with a limit, fails in seconds. A restarted actor would reuse the name
    # of its file of rows and repeat the whole job, with the video that crashed. ActorPool also gives an actor one job
    # at a time.

    def __init__(self, phase: Phase[JobT], store: Path | None, resources: Resources) -> None:
        """Compute how many workers fit; raise RunError if the cluster has no room for one."""
        import ray

        available = _resources()
        # Count only workers that fit completely, since Ray would keep a further worker waiting.
        fits = [int(available.get("CPU", 0) // resources.cpus)]
        if resources.gpus:
            fits.append(int(available.get("GPU", 0) // resources.gpus))
        if min(fits) < 1:
            raise RunError(
                f"the Ray cluster has {available.get('GPU', 0):g} GPUs and {available.get('CPU', 0):g} CPUs; one "
                f"worker takes {resources.gpus:g} and {resources.cpus:g}: change select_resources or answer_resources"
            )
        self._size = min(fits)
        self._phase = phase
        self._store = store
        self._share = cluster_resources(resources)
        for module in file_modules():
            ray.cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
        # Store the phase once in the cluster, instead of sending it with every actor.
        self._shared = ray.put(phase)
        self._jobs_at_once = phase.jobs_at_once(self._share)
        # One thread per job: a worker decodes several videos while one batch is on its GPU.
        self._actor = ray.remote(_PhaseActor).options(
            num_cpus=resources.cpus, num_gpus=resources.gpus, max_concurrency=self._jobs_at_once
        )

    def run(self, jobs: list[JobT], on_done: OnDone) -> None:
        """Run all jobs; lost workers are replaced.

        A worker gets its first job once it runs, since a cluster that lost a node may have no room for it.

        Raises:
            RunError: more than `MAX_LOSSES` workers were lost, no worker could be started, or a model cannot be loaded.
        """
        import ray

        waiting = deque(jobs)
        free: list[ActorHandle[_PhaseActor[JobT]]] = []  # one entry per free slot of a worker
        busy: dict[_Reference, tuple[ActorHandle[_PhaseActor[JobT]], JobT]] = {}
        starting = dict(self._hire() for _ in range(min(self._size, len(jobs))))
        losses = 0
        while waiting or busy:
            while waiting and free:
                worker, job = free.pop(0), waiting.popleft()
                busy[worker.run.remote(job)] = (worker, job)
            # No time limit while jobs run, since a video may take an hour; a limit while workers only start.
            ready, _ = ray.wait([*busy, *starting], num_returns=1, timeout=None if busy else START_SECONDS)
            if not ready:
                raise RunError(f"no worker could be started within {START_SECONDS} seconds: is the cluster full?")
            unfinished: JobT | None = None
            try:
                if ready[0] in starting:
                    worker = starting.pop(ready[0])
                    ray.get(ready[0])
                    # Add one slot fewer than the worker has, because the line below adds one slot, as after every job.
                    free += [worker] * (self._jobs_at_once - 1)
                else:
                    worker, unfinished = busy.pop(ready[0])
                    n_rows, n_errors = ray.get(ready[0])  # its rows are already in the shared folder
                    on_done(n_rows, n_errors, self._phase.work(unfinished))
                free.append(worker)
            except ray.exceptions.RayTaskError as error:
                # End the run: our code failed or a model cannot be loaded, which would fail on any worker.
                raise RunError(f"a worker failed: {error.cause}") from error
            except ray.exceptions.RayActorError as error:
                losses += 1
                if losses > MAX_LOSSES:
                    raise RunError(f"{losses} workers were lost, the last: {error}") from error
                # Other workers then refuse the videos that the lost worker was decoding.
                record_crashes(self._phase.run.path, worker="ray-*")
                # All jobs of the worker are lost, although only one of them reported the loss.
                lost = [unfinished] if unfinished is not None else []
                lost += [busy.pop(task)[1] for task in [task for task, (of, _) in busy.items() if of is worker]]
                waiting += [remaining for job in lost if (remaining := self._phase.left(job)).n_rows]
                free = [idle for idle in free if idle is not worker]
                starting.update([self._hire()])
        workers = list(dict.fromkeys(free))  # all remaining workers are idle
        for closing in [worker.close.remote() for worker in workers]:
            # Ignore a worker that is lost now: its jobs are finished, and their rows are in the shared folder.
            with suppress(ray.exceptions.RayActorError):
                ray.get(closing)
        # Kill the actors: while they live, the next phase cannot use their GPUs.
        for worker in [*workers, *starting.values()]:
            ray.kill(worker)

    def _hire(self) -> tuple[_Reference, ActorHandle[_PhaseActor[JobT]]]:
        """Start a worker; return (reference that is ready once it runs, worker)."""
        from ray.actor import ActorHandle

        # Give each worker a new name: a replacement must not append to the file of a lost worker that may still write.
        worker = self._actor.remote(self._shared, f"ray-{uuid.uuid4().hex[:12]}", self._store, self._share)
        assert isinstance(worker, ActorHandle)
        return worker.__ray_ready__.remote(), worker


class _PhaseActor(Generic[JobT]):
    """Ray actor that runs one worker and counts its rows."""

    def __init__(self, phase: Phase[JobT], name: str, store: Path | None, share: WorkerResources) -> None:
        self._worker = phase.worker(name=name, store=store, share=share)
        self._notes = noting_reads(phase.run.path, name)
        # Open the notes with the first job, since a worker killed while starting would leave them behind.
        self._has_notes, self._lock = False, threading.Lock()

    def run(self, job: JobT) -> tuple[int, int]:
        """Run `job`; return the numbers of rows and of errors written."""
        with self._lock:
            if not self._has_notes:
                self._notes.__enter__()
                self._has_notes = True
        errors: list[bool] = []
        self._worker.run(job, on_row=lambda row: errors.append(row.error is not None))
        return len(errors), sum(errors)

    def close(self) -> None:
        """Close the files; release encoders or model."""
        self._worker.close()
        if self._has_notes:
            self._notes.__exit__(None, None, None)


def _resources() -> dict[str, float]:
    """The cluster's resources by name, such as "CPU" and "GPU"."""
    import ray

    return dict(ray.cluster_resources())  # type: ignore[no-untyped-call]
