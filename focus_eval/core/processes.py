"""Counts the cores and bytes that this process may use, and runs functions in child processes that end with it."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TypeVar

R = TypeVar("R")
P = TypeVar("P")
# Folder of the control groups, which hold the limits of the container, and the file that names the groups of this
# process, which may lie within the container.
_CGROUP = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")


@cache  # every request of a video reader asks for it, and the quotas are read from a dozen files
def n_cores() -> int:
    """Return the number of processor cores that this process may use, within the quotas of its control groups."""
    n = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # Without a limit, cgroup v2 has "max 100000", which is no number (suppressed here), and v1 has -1.
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
    """Folders of the control groups of this process and of their parents, for cgroup v2 and v1 of `controller`."""
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
    """Make this child process end when its parent ends, even if the parent is killed, and ignore Ctrl-C.

    Only for processes that multiprocessing started.
    """
    # The terminal sends Ctrl-C to every process; the parent handles it and ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        """Wait until the parent ends, then end this process at once."""
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, name="follow-parent", daemon=True).start()


class ProcessDied(Exception):
    """The process of a `DisposableProcess` ended before the function returned.

    Args:
        exit_code: exit code of the process; minus the signal's number if a signal ended it.
    """

    def __init__(self, exit_code: int) -> None:
        self.exit_code = exit_code
        super().__init__(f"the process ended with exit code {exit_code}")

    @property
    def signal_number(self) -> int | None:
        """Number of the signal that ended the process; None if the process exited by itself."""
        return -self.exit_code if self.exit_code < 0 else None


class DisposableProcess:
    """A child process for functions that may crash, such as the decoder of a damaged file.

    The first `call` starts the process; if the process has died, the next `call` starts a new one. Only one thread at
    a time may use the object.
    """

    def __init__(self) -> None:
        self._process: BaseProcess | None = None
        self._line: Connection | None = None

    def call(self, function: Callable[..., R], *arguments: object, progress: Callable[[P], None] | None = None) -> R:
        """Return `function(*arguments)`, computed in the child process, or raise the function's error.

        Function, arguments, result and error are pickled.

        Args:
            progress: called in this process with each value that the function passes to its own argument `progress`.
                None: the function gets no such argument.

        Raises:
            ProcessDied: the process ended before it replied.
        """
        if self._line is None:
            self._line, line = multiprocessing.Pipe()
            # "spawn", because a forked child would inherit locks that other threads of this process hold.
            self._process = multiprocessing.get_context("spawn").Process(target=_serve, args=(line,), daemon=True)
            self._process.start()
            line.close()  # the child alone holds its end, so that reading here ends when the child exits
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
    """Call each function that arrives on `line`; send back its progress values, then its result or its error."""
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
