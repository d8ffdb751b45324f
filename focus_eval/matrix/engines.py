"""Makes the engine of a name: this process, or a Ray cluster."""

from __future__ import annotations

from pathlib import Path

from focus_eval.errors import unknown_name
from focus_eval.matrix.config import MatrixConfig
from focus_eval.matrix.engine import Engine
from focus_eval.matrix.local_engine import LocalEngine


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
