"""Runs a matrix on a Ray cluster, and replaces lost workers and nodes."""

from __future__ import annotations

import os
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from focus_eval.core.errors import MissingDependency, RunError
from focus_eval.core.extras import install_command
from focus_eval.core.plugins import file_modules
from focus_eval.matrix.config import Resources
from focus_eval.matrix.folder import RunFolder
from focus_eval.matrix.machine import WorkerResources, cluster_resources
from focus_eval.matrix.running import AnswerPhase, Phase, SelectPhase

# A node or two may be lost in a long run; more often than this it is the job that kills its workers.
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
        _use_token_of_cluster(address)
        try:
            import ray
        except ImportError as error:
            raise MissingDependency(f"the ray engine needs Ray: {install_command('ray')}") from error
        # Absolute, here and in `run`: workers have another working directory.
        self._store = store.resolve() if store else None
        self._takes = {SelectPhase.name: select, AnswerPhase.name: answer}
        if not ray.is_initialized():
            # Without an address Ray would join whatever cluster was last started here, though it may be gone.
            is_own_cluster = address is None
            ray.init(
                address=address or "local", log_to_driver=True, include_dashboard=False if is_own_cluster else None
            )

    @property
    def device(self) -> str:
        """The cluster's nodes, GPUs and CPUs as text."""
        import ray

        resources, nodes = _resources(), ray.nodes()  # type: ignore[no-untyped-call]
        return f"ray: {len(nodes)} nodes, {resources.get('GPU', 0):g} GPUs, {resources.get('CPU', 0):g} CPUs"

    def run(self, phase: Phase[Any, Any], jobs: list[Any], on_done: Callable[[int, int], None]) -> None:
        """Run the jobs on as many workers as the cluster has room for."""
        phase = replace(phase, run=RunFolder(phase.run.path.resolve()))
        for demand, group in phase.groups(jobs, self._takes[phase.name]):
            _WorkerPool(phase, self._store, demand).run(group, on_done)


class _WorkerPool:
    """The workers of one phase; each runs one or more jobs at a time, in threads."""

    def __init__(self, phase: Phase[Any, Any], store: Path | None, resources: Resources) -> None:
        """Compute how many workers fit; raise RunError if the cluster has no room for one."""
        import ray

        available = _resources()
        # Whole workers only: Ray would keep one more waiting.
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
        # Once into the cluster's object store, instead of with every actor.
        self._shared = ray.put(phase)
        self._jobs_at_once = phase.jobs_at_once(self._share)
        # One thread per job: a worker decodes several videos while one batch is on its GPU.
        self._actor: Any = ray.remote(_PhaseActor).options(
            num_cpus=resources.cpus, num_gpus=resources.gpus, max_concurrency=self._jobs_at_once
        )

    def run(self, jobs: list[Any], on_done: Callable[[int, int], None]) -> None:
        """Run all jobs; lost workers are replaced.

        A worker gets its first job once it runs, since a cluster that lost a node may have no room for it.

        Raises:
            RunError: workers lost more often than `MAX_LOSSES`, none that could be started, or a model that cannot
                be loaded.
        """
        import ray

        waiting = deque(jobs)
        free: list[Any] = []  # a worker stands here once for each job it can take
        busy: dict[Any, tuple[Any, Any]] = {}
        starting: dict[Any, Any] = dict(self._hire() for _ in range(min(self._size, len(jobs))))
        workers: list[Any] = []
        losses = 0
        while waiting or busy:
            while waiting and free:
                worker, job = free.pop(0), waiting.popleft()
                busy[worker.run.remote(job)] = (worker, job)
            # With work under way there is no limit: a video may take an hour. A worker that only starts may not.
            ready, _ = ray.wait([*busy, *starting], num_returns=1, timeout=None if busy else START_SECONDS)
            if not ready:
                raise RunError(f"no worker could be started within {START_SECONDS} seconds: is the cluster full?")
            unfinished: Any = None
            try:
                if ready[0] in starting:
                    worker = starting.pop(ready[0])
                    ray.get(ready[0])
                    # One place less: the line below adds the last one, as after every job.
                    free += [worker] * (self._jobs_at_once - 1)
                    workers.append(worker)
                else:
                    worker, unfinished = busy.pop(ready[0])
                    # Counts only; the rows are on the shared folder by now.
                    on_done(*ray.get(ready[0]))
                free.append(worker)
            except ray.exceptions.RayTaskError as error:
                # Our own code failed, or a model cannot be loaded: it would fail on the next worker too.
                raise RunError(f"a worker failed: {error.cause}") from error
            except ray.exceptions.RayActorError as error:
                losses += 1
                if losses > MAX_LOSSES:
                    raise RunError(f"{losses} workers were lost, the last: {error}") from error
                # All its jobs are lost at once, though only one of them reported it.
                lost = [unfinished] if unfinished is not None else []
                lost += [busy.pop(task)[1] for task in [task for task, (of, _) in busy.items() if of is worker]]
                waiting += [remaining for job in lost if (remaining := self._phase.left(job)).n_rows]
                free = [idle for idle in free if idle is not worker]
                workers = [idle for idle in workers if idle is not worker]
                # Its rows are on the shared folder, so only questions without one are done again.
                starting.update([self._hire()])
        for closing in [worker.close.remote() for worker in workers]:
            # A worker that is lost now has done its jobs: their rows are on the shared folder.
            with suppress(ray.exceptions.RayActorError):
                ray.get(closing)
        # Actors outlive this driver's interest in them: left alive they keep their GPUs from the next phase.
        for worker in [*workers, *starting.values()]:
            ray.kill(worker)

    def _hire(self) -> tuple[Any, Any]:
        """Start a worker; return (reference that is ready once it runs, worker)."""
        # A new name for each: a replacement must not append to the file of a worker that may still live.
        worker = self._actor.remote(self._shared, f"ray-{uuid.uuid4().hex[:12]}", self._store, self._share)
        return worker.started.remote(), worker


class _PhaseActor:
    """Ray actor that runs one worker and counts its rows."""

    def __init__(self, phase: Phase[Any, Any], name: str, store: Path | None, share: WorkerResources) -> None:
        self._worker = phase.worker(name=name, store=store, share=share)

    def started(self) -> bool:
        """Return True: Ray answers this call once the worker runs."""
        return True

    def run(self, job: Any) -> tuple[int, int]:
        """Run `job`; return the numbers of rows and of errors written."""
        errors: list[bool] = []
        self._worker.run(job, on_row=lambda row: errors.append(row.error is not None))
        return len(errors), sum(errors)

    def close(self) -> None:
        """Close the files; release encoders or model."""
        self._worker.close()


def _use_token_of_cluster(address: str | None) -> None:
    """Use this account's cluster token, as `ray start` does.

    Newer versions of `ray start` require the account's token once there is one (a local cluster makes one), but
    `ray.init` with an address sends it only in this mode, and is refused without it.
    """
    has_token = any(os.environ.get(name) for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    if address and (has_token or (Path.home() / ".ray" / "auth_token").is_file()):
        os.environ.setdefault("RAY_AUTH_MODE", "token")


def _resources() -> dict[str, float]:
    """Return the cluster's resources by name, such as "CPU" and "GPU"."""
    import ray

    return dict(ray.cluster_resources())  # type: ignore[no-untyped-call]
