"""Runs the jobs of a phase: in this process, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from focus_eval.errors import unknown_name
from focus_eval.matrix.config import MatrixConfig, Resources
from focus_eval.matrix.devices import best_device
from focus_eval.matrix.phases import Phase
from focus_eval.matrix.worker_share import local_share
from focus_eval.pipeline.timing import device_name


class Engine(Protocol):
    """Does jobs somewhere; the rows lie in the run's folder when it returns."""

    name: str

    @property
    def device(self) -> str:
        """What the work runs on, as a readable name."""
        ...

    def run(self, phase: Phase[Any, Any], jobs: list[Any], done: Callable[[int, int], None]) -> None:
        """Do all `jobs` of `phase`; call `done(rows, errors)` as rows are written.

        Rows are not passed back: they lie in the run's folder, where a kill cannot take them.
        """
        ...


class LocalEngine:
    """This process: one encoder, then one model after another."""

    name = "local"

    def __init__(self, *, store: Path | None, resources: Resources | None = None) -> None:
        self._store = store
        self._resources = resources or Resources()

    @property
    def device(self) -> str:
        """The first GPU where there is one, else the processor."""
        return device_name(best_device())

    def run(self, phase: Phase[Any, Any], jobs: list[Any], done: Callable[[int, int], None]) -> None:
        """Do the jobs with one worker."""
        worker = phase.worker(name="local", store=self._store, share=local_share(self._resources))
        try:
            worker.run_all(jobs, on_row=lambda row: done(1, int(row.error is not None)))
        finally:
            # Also after an error: the rows written so far go to the disk, and the encoders free the device for models.
            worker.close()


def make_engine(name: str, *, store: Path | None, matrix: MatrixConfig, address: str | None = None) -> Engine:
    """Return the engine "local" or "ray".

    Raises:
        UnknownName: another name.
        MissingDependency: Ray is not installed.
    """
    if name == "local":
        return LocalEngine(store=store, resources=matrix.select_resources)
    if name == "ray":
        # Imported here: most runs are on one machine, without Ray.
        from focus_eval.matrix.ray_engine import RayEngine

        return RayEngine(address=address, store=store, select=matrix.select_resources, answer=matrix.answer_resources)
    raise unknown_name("engine", name, ["local", "ray"])
