"""The processor and GPUs of this machine, and their memory."""

from __future__ import annotations

import os


def best_device() -> str:
    """Return "cuda" where torch finds a GPU, else "cpu"."""
    try:
        import torch
    except ImportError:
        return "cpu"
    return "cuda" if torch.cuda.is_available() else "cpu"


def gpu_gigabytes() -> list[float]:
    """Return the memory of each GPU that torch finds, in gigabytes."""
    if best_device() == "cpu":
        return []
    import torch

    return [torch.cuda.get_device_properties(index).total_memory / 1e9 for index in range(torch.cuda.device_count())]


def host_gigabytes() -> float | None:
    """Return this machine's memory in gigabytes; None where the system does not say."""
    if not hasattr(os, "sysconf"):
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
