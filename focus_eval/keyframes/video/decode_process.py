"""The process that decodes: takes messages over a socket and writes frames into shared memory.

It imports neither torch nor a plugin, has one thread that decodes, and ends with the process that started it.
"""

from __future__ import annotations

import errno
import mmap
import os
import select
import signal
import socket
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from focus_eval.core.errors import RunError, VideoError
from focus_eval.core.types import IntArray, Pixels
from focus_eval.keyframes.video.manifest import FileState, file_state
from focus_eval.keyframes.video.pyav import PyAVReader
from focus_eval.keyframes.video.scan import Scan, recent_scan, remember_scan, scan_file

# Largest number of readers that a process keeps open, since each holds a decoder and its pictures.
OPEN_READERS = 3
_PARENT_SECONDS = 2.0
# Advice in messages about a limit of the machine: settings that decode without extra processes.
IN_ONE_PROCESS = "decode_cores: 1 in the matrix's select_resources and answer_resources, or one core (`taskset -c 0`)"
# Messages that get no reply.
_NOTES = ("ring", "forget", "drop")


class VideoState(NamedTuple):
    """A file in one state, and the options that it is read with."""

    path: Path
    state: FileState
    options: tuple[tuple[str, Any], ...]


class TaskCounts(NamedTuple):
    """Work of processes: frames handed over, frames decoded, seconds by the clock, processor seconds."""

    n_frames: int = 0
    n_decoded: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    def plus(self, other: TaskCounts) -> TaskCounts:
        """Return the sums of both."""
        return TaskCounts(
            self.n_frames + other.n_frames,
            self.n_decoded + other.n_decoded,
            self.seconds + other.seconds,
            self.cpu_seconds + other.cpu_seconds,
        )


def serve(descriptor: int) -> None:
    """Serve decoding requests from a socket until its other end closes; the main function of a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow_parent, args=(descriptor, os.getppid()), daemon=True).start()
    with suppress(EOFError, ConnectionError):
        _Decoding(descriptor).run()


def _follow_parent(descriptor: int, parent: int) -> None:
    """End this process when its parent's end of the socket closes, or another process has become its parent."""
    poll = select.poll()
    poll.register(descriptor, 0)  # report hang-ups only
    while not poll.poll(1000 * _PARENT_SECONDS) and os.getppid() == parent:
        pass
    os._exit(0)


@dataclass
class _Begun:
    """A task that a process has begun."""

    source: VideoState
    reader: PyAVReader
    stream: Iterator[tuple[int, Pixels]]
    n_left: int


class _Decoding:
    """State of a process: rings, open readers, and requests that it has begun."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._line = Connection(os.dup(descriptor))
        self._rings: dict[int, mmap.mmap | OSError] = {}
        self._readers: OrderedDict[VideoState, PyAVReader] = OrderedDict()  # open, and not in use
        self._begun: dict[int, _Begun] = {}

    def run(self) -> None:
        while True:
            message = self._line.recv()
            kind, *arguments = message
            if kind in _NOTES:
                self._take_note(message)
            elif kind == "frames":
                self._line.send(("result", *self._frames(*arguments)))
            else:
                try:
                    reply: tuple[Any, ...] = (getattr(self, f"_{kind}")(*arguments), None)
                except Exception as error:  # noqa: BLE001 (raised again in the process that asked)
                    reply = (None, _portable(error))
                self._line.send(("result", *reply))

    def _take_note(self, message: tuple[Any, ...]) -> None:
        """Carry out a message that gets no reply."""
        kind, *arguments = message
        if kind == "ring":
            self._take_ring(*arguments)
        elif kind == "forget":
            self._rings.pop(arguments[0], None)
        else:
            self._end(arguments[0])

    def _take_ring(self, number: int, n_bytes: int) -> None:
        _, descriptors, _, _ = socket.recv_fds(self._socket, 1, 1)
        if not descriptors:  # this process may open no further file
            self._rings[number] = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return
        try:
            self._rings[number] = mmap.mmap(descriptors[0], n_bytes)
        except OSError as error:
            self._rings[number] = error
        finally:
            os.close(descriptors[0])

    def _scan(self, source: VideoState) -> Scan:
        scan = scan_file(source.path)
        remember_scan(source.path, source.state, scan, most=OPEN_READERS)
        return scan

    def _reference_frames(self, source: VideoState) -> IntArray | None:
        reader = self._reader(source)
        self._readers[source] = reader
        return reader.reference_frames

    def _damaged_frames(self, source: VideoState) -> IntArray:
        reader = self._reader(source)
        self._readers[source] = reader
        return reader.damaged_frames()

    def _frames(
        self,
        number: int,
        source: VideoState,
        frames: IntArray | None,
        ring: int,
        shape: tuple[int, ...],
        slot: int,
        n: int,
    ) -> tuple[TaskCounts, BaseException | None]:
        """Decode the next `n` frames into the ring; return counts, and the error that ended them early.

        `frames` holds all frames of a new task; None continues a task that was begun.
        """
        n_done, started, error = 0, time.perf_counter(), None
        before = (0, 0.0)
        try:
            memory = self._rings[ring]
            if isinstance(memory, OSError):
                raise no_shared_memory(source.path, int(np.prod(shape)), memory)
            pixels: Pixels = np.ndarray(shape, np.uint8, buffer=memory)
            if frames is not None:
                reader = self._reader(source)
                self._begun[number] = _Begun(source, reader, reader.stream(frames), frames.size)
            task = self._begun[number]
            before = task.reader.n_decoded, task.reader.decode_cpu_seconds
            for at in range(slot, slot + n):
                pixels[at] = next(task.stream)[1]
                n_done += 1
        except Exception as failure:  # noqa: BLE001 (raised again in the process that asked)
            error = _portable(failure)
        counts = TaskCounts(n_done, 0, time.perf_counter() - started, 0.0)
        if number in self._begun:
            task = self._begun[number]
            task.n_left -= n_done
            n_decoded, cpu_seconds = task.reader.n_decoded - before[0], task.reader.decode_cpu_seconds - before[1]
            counts = counts._replace(n_decoded=n_decoded, cpu_seconds=cpu_seconds)
            if error is not None or not task.n_left:
                self._end(number)
        return counts, error

    def _end(self, number: int) -> None:
        """End a task; keep its reader for the next task on the same video."""
        if number in self._begun:
            task = self._begun.pop(number)
            if task.source in self._readers:
                task.reader.close()
            else:
                self._readers[task.source] = task.reader

    def _reader(self, source: VideoState) -> PyAVReader:
        """A reader that no task uses, opened here if there is none."""
        if source in self._readers:
            return self._readers.pop(source)
        while len(self._readers) >= OPEN_READERS:
            self._readers.popitem(last=False)[1].close()
        if file_state(source.path) != source.state:
            raise VideoError(
                f"{source.path}: replaced or changed after it was opened; open it again when it is complete"
            )
        scan = recent_scan(source.path, source.state)
        if scan is None:
            self._line.send(("scan?",))
            # Notes about other videos' requests may arrive before the scan.
            while not isinstance(scan := self._line.recv(), Scan):
                self._take_note(scan)
        remember_scan(source.path, source.state, scan, most=OPEN_READERS)
        return PyAVReader(source.path, n_threads=1, **dict(source.options))


def no_shared_memory(path: Path, n_bytes: int, error: OSError) -> RunError:
    """Return the error of a machine that gives no memory for the frames of a video."""
    return RunError(
        f"{path}: no shared memory of {n_bytes / 1e6:.0f} MB for its frames: {error}; raise this limit of the machine "
        f"(see `ulimit -a`), or decode in one process, which needs none: {IN_ONE_PROCESS}"
    )


def _portable(error: BaseException) -> BaseException:
    """An error in a form that can be sent to another process, with our traceback as a note."""
    if isinstance(error, VideoError | RunError):
        return type(error)(str(error))
    return RuntimeError(f"{error!r} in a process that decodes:\n{''.join(traceback.format_exception(error))}")
