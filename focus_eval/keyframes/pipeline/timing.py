"""Measures seconds by stage, and divides them among questions that are processed together."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from threading import Lock

from focus_eval.keyframes.rows.records import BLOCKING_STAGES, SelectionRow

STAGES = ("open", "decode", "decode_cpu", "preprocess", "scan", "encode", "ask", "select", "idle", "generate", "device")


class Meter:
    """Wall-clock seconds by stage. A stage entered inside another stops the outer clock, so stages never overlap.

    Work of other threads (decoding ahead) is booked with `add` and does overlap; the main thread's wait for it is
    `idle`. The algorithm itself, `select`, is booked in processor seconds of its thread: when many questions are served
    together it mostly waits for its turn.

    Attributes:
        seconds: by stage.
        decoded: number of frames that decoders gave out, by decoding mode: "all", "reference", "sync".
        asked: "requests" and "dollars" of an encoder that asks a service, without its tokens, which count as forwards.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.decoded: dict[str, int] = {}
        self.asked: dict[str, float] = {}
        # A stack of open stages. Time is booked on the innermost one, so that all stages add up to the wall clock.
        self._open: list[str] = []
        self._since = self._cpu_since = 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time inside the block to stage `name`, except the time of stages inside it."""
        self._book()
        self._open.append(name)
        try:
            yield
        finally:
            self._book()
            self._open.pop()

    def add(self, name: str, seconds: float) -> None:
        """Add `seconds` measured by another thread or an encoder's own clock to stage `name`."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def move(self, source: str, target: str, seconds: float) -> None:
        """Move `seconds` from one stage to another, for time that only the callee can measure."""
        self.add(source, -seconds)
        self.add(target, seconds)

    def count_decoded(self, mode: str, n_frames: int) -> None:
        """Add `n_frames` to the frames decoded in `mode`."""
        self.decoded[mode] = self.decoded.get(mode, 0) + n_frames

    def spend(self, usage: Mapping[str, float]) -> None:
        """Add "requests", "dollars" and counts of refused settings in the usage of a reply to `asked`."""
        for name in usage.keys() & {"requests", "dollars", "without_temperature", "without_seed"}:
            self.asked[name] = self.asked.get(name, 0) + usage[name]

    def rounded(self) -> dict[str, float]:
        """Return seconds by stage, to the microsecond, in the order of `STAGES`."""
        ordered = [stage for stage in STAGES if stage in self.seconds]
        return {stage: round(self.seconds[stage], 6) for stage in ordered + sorted(set(self.seconds) - set(ordered))}

    def _book(self) -> None:
        """Add the time since the last call to the innermost open stage: CPU time for "select", else wall-clock."""
        now, cpu = time.perf_counter(), time.thread_time()
        if self._open:
            name = self._open[-1]
            # Book processor time for "select": most of its wall-clock time is spent waiting for other questions.
            self.add(name, cpu - self._cpu_since if name == "select" else now - self._since)
        self._since, self._cpu_since = now, cpu


class SharedClock:
    """Divides wall-clock time among concurrent jobs: while n run, each is charged 1/n of it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._charged: dict[object, float] = {}
        self._since = 0.0

    @contextmanager
    def job(self) -> Iterator[Callable[[], float]]:
        """Charge time to the block; yield a function that returns the seconds charged so far."""
        job = object()

        def charged() -> float:
            """Return the seconds charged to the job so far."""
            with self._lock:
                self._charge()
                return self._charged[job]

        with self._lock:
            self._charge()
            self._charged[job] = 0.0
        try:
            yield charged
        finally:
            with self._lock:
                self._charge()
                del self._charged[job]

    def _charge(self) -> None:
        """Divide the seconds since the last call evenly among the running jobs."""
        now = time.perf_counter()
        # Charge only the jobs that have shared the time since the last call.
        for job in self._charged:
            self._charged[job] += (now - self._since) / len(self._charged)
        self._since = now


def charged_rows(
    rows: Sequence[SelectionRow], device_seconds: float, *, loading: float = 0.0, gpus: float = 1.0
) -> list[SelectionRow]:
    """Return rows of questions processed together, with seconds that add up to the time the device was held.

    The measured times overlap, because the questions' threads wait for one another. They are scaled, which keeps their
    proportions.

    Args:
        device_seconds: wall-clock seconds for which the device was held for all rows.
        loading: seconds that the encoder took to load before, booked as `open` on the rows that use an encoder.
        gpus: number of GPUs held, by which the seconds are multiplied: half a GPU costs half. Without a GPU, 0 counts
            as 1.
    """
    device_seconds, loading = device_seconds * (gpus or 1.0), loading * (gpus or 1.0)
    measured = sum(row.seconds.get(stage, 0.0) for row in rows for stage in BLOCKING_STAGES)
    users = sum(bool(row.encoder and row.seconds) for row in rows)
    # The measured seconds of threads overlap, so their sum exceeds the time held: scale them to it.
    factor = device_seconds / measured if measured else 0.0

    def charged(row: SelectionRow) -> SelectionRow:
        """Return the row with its seconds scaled to the device's time, and its part of the loading time."""
        seconds = {stage: value * (factor if stage in BLOCKING_STAGES else 1.0) for stage, value in row.seconds.items()}
        if row.encoder and row.seconds:
            # Only rows that use the encoder pay for loading it: a baseline without an encoder costs nothing.
            seconds["open"] = seconds.get("open", 0.0) + loading / users
        return replace(row, seconds={stage: round(value, 6) for stage, value in seconds.items()})

    return [charged(row) for row in rows]


@cache
def cpu_name() -> str:
    """Return the processor's name, e.g. "AMD EPYC", or what the platform calls it."""
    info = Path("/proc/cpuinfo")
    # On Linux `platform.processor()` is often empty or names only the architecture.
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def device_name(device: str) -> str:
    """Return a readable name of a torch device string ("cpu", "cuda:0"), e.g. "cuda: NVIDIA H200"."""
    # Do not import torch just for the name: if torch is not loaded, no CUDA device is in use.
    torch = sys.modules.get("torch")
    if device.startswith("cuda") and torch is not None:
        return f"cuda: {torch.cuda.get_device_name(device)}"
    return f"{device}: {cpu_name()}"
