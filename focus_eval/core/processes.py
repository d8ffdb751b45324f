"""Counts the cores and bytes that this process may use, starts processes that it outlives, and ties them to itself."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TypeVar

R = TypeVar("R")
P = TypeVar("P")
# Limits of control groups, of the container or of one within it.
_CGROUP = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")


def n_cores() -> int:
    """Return the number of processor cores that this process may use, within the quotas of its control groups."""
    n = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # No limit is written "max 100000" in cgroup v2 and -1 in v1.
    for group in _groups("cpu"):
        with suppress(OSError, ValueError):
            quota, period = map(float, (group / "cpu.max").read_text().split())
            n = min(n, math.ceil(quota / period))
        with suppress(OSError, ValueError):
            quota, period = (float((group / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
            n = min(n, math.ceil(quota / period)) if quota > 0 else n
    return n


def memory_bytes() -> int | None:
    """Return the bytes of memory that this process may use, within its control groups' limits; None if not known."""
    if not hasattr(os, "sysconf"):  # Windows
        return None
    n_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for group in _groups("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with suppress(OSError, ValueError):  # "max" is no limit
                n_bytes = min(n_bytes, int((group / name).read_text()))
    return n_bytes


def _groups(controller: str) -> set[Path]:
    """Folders of the groups that this process is in and of those above them, in cgroup v2 and in `controller`'s v1."""
    groups = {_CGROUP, _CGROUP / controller}
    with suppress(OSError):
        for line in _OWN_GROUPS.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers or controller in controllers.split(","):
                # A container sees its own group at the root, whatever path the machine outside gives it.
                parts = Path(path).parts[1:]
                root = _CGROUP / controller if controllers else _CGROUP
                groups |= {root.joinpath(*parts[:n]) for n in range(len(parts) + 1)}
    return groups


def follow_parent() -> None:
    """End this process, which multiprocessing started, with its parent, also if that is killed; leave Ctrl-C to it."""
    # The terminal sends Ctrl-C to every process; the parent handles it and ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        """Wait for the parent's end, then leave at once."""
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, name="follow-parent", daemon=True).start()


class ProcessDied(Exception):
    """Raised when a function ended its process.

    Args:
        exit_code: of the process; negative for a signal.
    """

    def __init__(self, exit_code: int) -> None:
        self.exit_code = exit_code
        super().__init__(f"the process ended with exit code {exit_code}")

    @property
    def signal_number(self) -> int | None:
        """The signal that ended the process; None if it left by itself."""
        return -self.exit_code if self.exit_code < 0 else None


class DisposableProcess:
    """A process of its own for functions that may end their process, such as a decoder of a damaged file.

    It is started by the first call, and again by the one after its end. One thread at a time may call it.
    """

    def __init__(self) -> None:
        self._process: BaseProcess | None = None
        self._line: Connection | None = None

    def call(self, function: Callable[..., R], *arguments: object, progress: Callable[[P], None] | None = None) -> R:
        """Return `function(*arguments)`, computed there, or raise what it raises; all of it is pickled.

        Args:
            progress: called here with what the function passes to its own argument `progress`; None: it gets none.

        Raises:
            ProcessDied: the process ended before it replied.
        """
        if self._line is None:
            self._line, line = multiprocessing.Pipe()
            # Not a fork: threads of this process may hold locks.
            self._process = multiprocessing.get_context("spawn").Process(target=_serve, args=(line,), daemon=True)
            self._process.start()
            line.close()  # so that end of file is seen here when the child exits
        try:
            self._line.send((function, arguments, progress is not None))
            while True:
                kind, value = self._line.recv()
                if kind != "progress":
                    break
                if progress is not None:
                    progress(value)
        except (EOFError, ConnectionError):
            assert self._process is not None
            self._process.join()
            exit_code = self._process.exitcode or 0
            self.close()
            raise ProcessDied(exit_code) from None
        if kind == "error":
            raise value
        result: R = value
        return result

    def close(self) -> None:
        """End the process."""
        if self._process is not None and self._line is not None:
            self._line.close()
            self._process.kill()
            self._process.join()
            self._process = self._line = None

    def __enter__(self) -> DisposableProcess:
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        self.close()


def _serve(line: Connection) -> None:
    """Call the functions that come from `line`, and send back what they pass to `progress` and return or raise."""
    follow_parent()
    with suppress(EOFError):
        while True:
            function, arguments, has_progress = line.recv()
            options = {"progress": lambda value: line.send(("progress", value))} if has_progress else {}
            try:
                reply = ("result", function(*arguments, **options))
            except Exception as error:  # noqa: BLE001 (raised again in the process that asked)
                reply = ("error", error)
            line.send(reply)
