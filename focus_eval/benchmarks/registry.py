"""Lists the benchmarks, built in, declared in YAML or from packages, and finds the one of an lmms-eval task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from focus_eval.benchmarks.buckets import LengthEdges
from focus_eval.benchmarks.declared import DeclaredBenchmark, fields_from
from focus_eval.benchmarks.longvideobench import LongVideoBench
from focus_eval.benchmarks.mlvu import MLVU
from focus_eval.benchmarks.question import Benchmark
from focus_eval.benchmarks.videomme import VideoMME
from focus_eval.benchmarks.vsibench import VSIBench
from focus_eval.errors import InvalidInput, unknown_name
from focus_eval.resources import read_yaml, resource_path

# A package registers a benchmark here: a function that takes `edges=` and returns it, or the path of a YAML file.
ENTRY_POINT_GROUP = "focus_eval.benchmarks"
BenchmarkMaker = Callable[..., Benchmark]


class PhotoEvents(LongVideoBench):
    """The demo benchmark, in LongVideoBench's schema and folder layout under its own name."""

    tasks: tuple[str, ...] = ("photo_events",)
    video_folders: Mapping[str, str] = {"photo_events": "datasets/longvideobench/videos"}

    def __init__(self, *, edges: LengthEdges | None = None) -> None:
        super().__init__(name="photo_events", edges=edges)


_BUILT_IN: dict[str, BenchmarkMaker] = {
    "longvideobench": LongVideoBench,
    "videomme": VideoMME,
    "mlvu": MLVU,
    "vsibench": VSIBench,
    "photo_events": PhotoEvents,
}
# A task of ours is the official name, or the benchmark's, behind this prefix.
TASK_PREFIX = "focus_"


def make_benchmark(name: str, *, edges_seconds: tuple[float, float] | None = None) -> Benchmark:
    """Return the benchmark `name`; `edges_seconds` are the bounds of its length buckets (default 180 and 1200).

    Args:
        name: a registered name, or a YAML file that declares one (see `docs/benchmarks.md`).

    Raises:
        UnknownName: no such benchmark; the message has the nearest name.
        InvalidInput: edges that do not ascend, or a file that declares no benchmark.
    """
    edges = LengthEdges(*edges_seconds) if edges_seconds else None
    if name.endswith((".yaml", ".yml")):
        return declared_in(Path(name), edges=edges)
    makers = _makers()
    if name not in makers:
        raise unknown_name("benchmark", name, makers)
    return makers[name](edges=edges)


def benchmark_of_task(task_name: str) -> Benchmark:
    """Return the benchmark whose documents the lmms-eval task `task_name` gives.

    Known are the official names (`longvideobench_val_v`, `videomme`, `mlvu_dev`, ..) and ours: either an official
    name or a benchmark's behind "focus_".

    Raises:
        UnknownName: a task of no benchmark here; the message has the nearest name.
    """
    by_task = _names_by_task()
    if task_name not in by_task:
        raise unknown_name("task", task_name, by_task)
    return make_benchmark(by_task[task_name])


def declared_in(path: Path, *, edges: LengthEdges | None = None) -> DeclaredBenchmark:
    """Return the benchmark that a YAML file declares: `benchmark`, `task`, `fields`, perhaps `tasks`, `edges_seconds`.

    Raises:
        InvalidInput: a file that cannot be read, or without `fields`.
    """
    given = read_yaml(path)
    if not isinstance(given, dict) or not isinstance(given.get("fields"), dict):
        raise InvalidInput(f"{path}: not a benchmark: the key `fields`, which names the document's fields, is missing")
    return declared(given, name=str(given.get("benchmark") or path.stem), where=str(path), edges=edges)


def declared(given: Mapping[str, Any], *, name: str, where: str, edges: LengthEdges | None = None) -> DeclaredBenchmark:
    """Return the benchmark `name` from the keys of a YAML file (see `declared_in`)."""
    own_edges = given.get("edges_seconds")
    return DeclaredBenchmark(
        name=name,
        tasks=tuple(map(str, [*([given["task"]] if given.get("task") else []), *(given.get("tasks") or [])])),
        fields=fields_from(given["fields"], where=where),
        edges=edges or (LengthEdges(*own_edges) if own_edges else LengthEdges()),
    )


@cache
def _makers() -> dict[str, BenchmarkMaker]:
    makers = dict(_BUILT_IN)
    for path in sorted((resource_path("configs") / "benchmarks").glob("*.yaml")):
        if path.stem not in makers and "\nfields:" in path.read_text(encoding="utf-8"):
            makers[path.stem] = _maker_of(path)
    for point in entry_points(group=ENTRY_POINT_GROUP):
        if point.name in makers:
            raise InvalidInput(f"benchmark {point.name!r} of {point.value} is registered already")
        makers[point.name] = _loaded(point)
    return makers


def _maker_of(path: Path) -> BenchmarkMaker:
    return lambda *, edges=None: declared_in(path, edges=edges)


def _loaded(point: Any) -> BenchmarkMaker:
    def make(*, edges: LengthEdges | None = None) -> Benchmark:
        found = point.load()
        if isinstance(found, (str, Path)):
            return declared_in(Path(found), edges=edges)
        benchmark: Benchmark = found(edges=edges)
        return benchmark

    return make


@cache
def _names_by_task() -> dict[str, str]:
    by_task: dict[str, str] = {}
    for name in _makers():
        for task in (*make_benchmark(name).tasks, name):
            by_task[f"{TASK_PREFIX}{task}"] = name
        by_task.update(dict.fromkeys(make_benchmark(name).tasks, name))
    return by_task
