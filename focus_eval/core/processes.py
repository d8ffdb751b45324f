"""Counts the cores of this process, and ties processes that it starts to itself."""

from __future__ import annotations

import multiprocessing
import os
import threading


def n_cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def end_with_parent() -> None:
    """End this process, which multiprocessing started, as soon as its parent has ended, also if that was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        """Wait for the parent's end, then leave at once."""
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, name="end-with-parent", daemon=True).start()
