"""Where did the seconds go?"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

STAGES = ("open", "decode", "preprocess", "encode", "select", "idle", "generate")


class Meter:
    """Wall-clock seconds by stage. A stage entered inside another stops the outer clock, so stages never overlap.

    Work of other threads (decoding ahead) is booked with `add` and does overlap; what the main thread waits for
    it is `idle`.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._open: list[str] = []
        self._since = 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Book the time inside the block on `name`."""
        self._book()
        self._open.append(name)
        try:
            yield
        finally:
            self._book()
            self._open.pop()

    def add(self, name: str, seconds: float) -> None:
        """Book `seconds` of another thread, or of a scorer's own clock, on `name`."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def move(self, source: str, target: str, seconds: float) -> None:
        """Rebook `seconds` from one stage to another, for a part that only the callee could time."""
        self.add(source, -seconds)
        self.add(target, seconds)

    def rounded(self) -> dict[str, float]:
        """Return seconds by stage, to the microsecond, in the order of `STAGES`."""
        known = [stage for stage in STAGES if stage in self.seconds]
        return {stage: round(self.seconds[stage], 6) for stage in known + sorted(set(self.seconds) - set(known))}

    def _book(self) -> None:
        now = time.perf_counter()
        if self._open:
            self.add(self._open[-1], now - self._since)
        self._since = now


@cache
def cpu_name() -> str:
    """Return the processor's name, e.g. "AMD EPYC"."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def device_name(device: str) -> str:
    """Return a readable name of a torch device string ("cpu", "cuda:0"), e.g. "cuda: NVIDIA H200"."""
    torch = sys.modules.get("torch")
    if device.startswith("cuda") and torch is not None:
        return f"cuda: {torch.cuda.get_device_name(device)}"
    return f"{device}: {cpu_name()}"
