"""Ties processes that this package starts to the one that started them."""

from __future__ import annotations

import multiprocessing
import os
import threading


def end_with_parent() -> None:
    """End this process, which multiprocessing started, as soon as its parent has ended, also if that was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        """Wait for the parent's end, then leave at once."""
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, name="end-with-parent", daemon=True).start()
