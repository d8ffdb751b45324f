"""The processor and GPUs of this machine, and their memory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# The drivers' files on Linux: of NVIDIA, of a Jetson, of AMD, of Windows' subsystem.
_DRIVER_FILES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvhost-gpu", "/dev/nvmap", "/dev/kfd", "/dev/dxg")


def best_device() -> str:
    """Return "cuda" where torch finds a GPU, else "cpu"."""
    # Loading torch takes seconds and hundreds of megabytes: a run that needs none should not load it to hear "cpu".
    if "torch" not in sys.modules and not _may_have_gpu():
        return "cpu"
    try:
        import torch
    except ImportError:
        # A run of replayed or cheap samplers needs no torch.
        return "cpu"
    return "cuda" if torch.cuda.is_available() else "cpu"


def _may_have_gpu() -> bool:
    """Return False where no driver of a GPU can be there, without loading anything."""
    return not sys.platform.startswith("linux") or any(Path(file).exists() for file in _DRIVER_FILES)


def gpu_gigabytes() -> list[float]:
    """Return the memory of each GPU that torch finds, in gigabytes."""
    if best_device() == "cpu":
        return []
    import torch

    return [torch.cuda.get_device_properties(index).total_memory / 1e9 for index in range(torch.cuda.device_count())]


def host_gigabytes() -> float | None:
    """Return this machine's memory in gigabytes; None where the system does not say."""
    # Windows has none.
    if not hasattr(os, "sysconf"):
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
