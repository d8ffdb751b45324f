"""Counts the cores of this process, and ties processes that it starts to itself."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading


def n_cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def follow_parent() -> None:
    """End this process, which multiprocessing started, with its parent, also if that is killed; leave Ctrl-C to it."""
    # Ctrl-C reaches every process of a terminal; the first one then ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        """Wait for the parent's end, then leave at once."""
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, name="follow-parent", daemon=True).start()
