"""Which benchmarks are there, and which one does an lmms-eval task belong to?"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from focus_eval.benchmarks.buckets import LengthEdges
from focus_eval.benchmarks.longvideobench import LongVideoBench
from focus_eval.benchmarks.mlvu import MLVU
from focus_eval.benchmarks.question import Benchmark
from focus_eval.benchmarks.videomme import VideoMME
from focus_eval.benchmarks.vsibench import VSIBench
from focus_eval.errors import unknown_name


class PhotoEvents(LongVideoBench):
    """The demo benchmark, in LongVideoBench's schema and folder layout under its own name."""

    tasks: tuple[str, ...] = ("photo_events",)
    video_folders: Mapping[str, str] = {"photo_events": "datasets/longvideobench/videos"}

    def __init__(self, *, edges: LengthEdges | None = None) -> None:
        super().__init__(name="photo_events", edges=edges)


_MAKERS: dict[str, Callable[..., Benchmark]] = {
    "longvideobench": LongVideoBench,
    "videomme": VideoMME,
    "mlvu": MLVU,
    "vsibench": VSIBench,
    "photo_events": PhotoEvents,
}
# A task of ours is the official name, or the benchmark's, behind this prefix.
TASK_PREFIX = "focus_"


def benchmark_names() -> list[str]:
    """Return the names of the benchmarks."""
    return list(_MAKERS)


def make_benchmark(name: str, *, edges_seconds: tuple[float, float] | None = None) -> Benchmark:
    """Return the benchmark `name`; `edges_seconds` are the bounds of its length buckets (default 180 and 1200).

    Raises:
        UnknownName: no such benchmark; the message has the nearest name.
        InvalidInput: edges that do not ascend.
    """
    if name not in _MAKERS:
        raise unknown_name("benchmark", name, _MAKERS)
    return _MAKERS[name](edges=LengthEdges(*edges_seconds) if edges_seconds else None)


def benchmark_of_task(task_name: str) -> Benchmark:
    """Return the benchmark whose documents the lmms-eval task `task_name` gives.

    Known are the official names (`longvideobench_val_v`, `videomme`, `mlvu_dev`, ..) and ours: either an official
    name or a benchmark's behind "focus_".

    Raises:
        UnknownName: a task of no benchmark here; the message has the nearest name.
    """
    by_task: dict[str, str] = {}
    for name in _MAKERS:
        for task in (*make_benchmark(name).tasks, name):
            by_task[f"{TASK_PREFIX}{task}"] = name
        by_task.update(dict.fromkeys(make_benchmark(name).tasks, name))
    if task_name not in by_task:
        raise unknown_name("task", task_name, by_task)
    return make_benchmark(by_task[task_name])
