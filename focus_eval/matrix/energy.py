"""Measures the energy that the GPUs use.

NVML's own counter is read before and after: what the boards of this machine drew in between, other processes
included. GPUs older than Volta have no such counter.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


def gpu_joules() -> float | None:
    """Return joules drawn by all GPUs of this machine since their driver was loaded; None if no GPU reports them.

    Needs the package `nvidia-ml-py` (extra `energy`) and NVIDIA's driver.
    """
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # no driver, or no GPU
        return None
    try:
        boards = [pynvml.nvmlDeviceGetHandleByIndex(at) for at in range(pynvml.nvmlDeviceGetCount())]
        millijoules = [pynvml.nvmlDeviceGetTotalEnergyConsumption(board) for board in boards]
    except pynvml.NVMLError:  # one board without a counter would make the sum a wrong number
        return None
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()
    return sum(millijoules) / 1000 if millijoules else None


@contextmanager
def measured_energy(into: dict[str, Any], part: str) -> Iterator[None]:
    """Write the joules that the block took to `into[part]`; nothing if no GPU reports them."""
    # The counter runs since the driver was loaded: only a difference means something.
    before = gpu_joules()
    try:
        yield
    finally:
        after = gpu_joules()
        # Nothing is noted rather than a guess: 0 would read as a measured nothing.
        if before is not None and after is not None:
            into[part] = round(after - before, 1)
