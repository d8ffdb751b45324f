"""Decodes videos in processes of their own, which hand frames over in shared memory.

A decoder gives Python's lock up several times a packet, an encoder at each operation that it launches: threads of both
in one process wait for one another. Here the decoders have a lock of their own each, and a batch of frames costs the
process that asks for it a few messages:

    with DecodeProcesses(n_cores()) as processes, processes.open_video("talk.mp4") as video:
        for frames, pixels in video.batches(range(0, 3000, 30), size=32):
            features = encoder.embed(pixels)  # `pixels` is a view, valid until the next batch

Whoever selects or answers in a run owns the processes and closes them. They start when they are needed, have no main
guard to run into, import neither torch nor a plugin, and end with the process that started them, however that ends.
"""

from __future__ import annotations

import mmap
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from focus_eval.core.errors import RunError, VideoError
from focus_eval.core.types import IntArray, Pixels, usable_path
from focus_eval.keyframes.video import open_video, reader_options
from focus_eval.keyframes.video.manifest import FileState, checked_file, file_state
from focus_eval.keyframes.video.pyav import PyAVReader
from focus_eval.keyframes.video.reader import VideoReader
from focus_eval.keyframes.video.scan import KeptScans, Scan, recent_scan, remember_scan, scan_file, scan_video

# Batches of a ring: one is with the reader's user, two are being filled.
N_BATCHES = 3
# Readers that a process keeps open, each with a decoder and its pictures.
OPEN_READERS = 3
# Fewer are not worth a message, though a video's first frames then come later.
_FRAMES_A_TASK = 4
# Frames of `stream`, which are copied one by one.
_STREAM_BATCH = 8
# Videos of fewer bytes in all are decoded sooner than a process starts.
TINY_BYTES = 8_000_000
# Signals that a decoder raises itself; any other came from outside, and is not the video's fault.
_FAULTS = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE}
_MAX_KILLS = 2
# Memory that is freed is kept for the next frame: pages that the system has to clear take as long as decoding. 32 MB is
# the most that glibc takes as the first of these; a larger number leaves it at 128 KB.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
}
_START = (
    "import sys; sys.path[:] = sys.argv[2:]; from focus_eval.keyframes.video.feed import serve; serve(int(sys.argv[1]))"
)
_PARENT_SECONDS = 2.0
# Messages to a process that get no reply.
_NOTES = ("ring", "forget", "drop")


class VideoState(NamedTuple):
    """A file in one state, and the options that it is read with."""

    path: Path
    state: FileState
    options: tuple[tuple[str, Any], ...]


class TaskCounts(NamedTuple):
    """What processes have done: frames handed over, frames decoded, seconds by the clock, processor seconds."""

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


def n_processes_for(paths: Iterable[Path], n_cores: int) -> int:
    """Return how many processes should decode `paths`: one a core; 0 on one core, or if all videos are tiny."""
    if n_cores < 2 or not hasattr(os, "memfd_create"):
        return 0
    n_bytes = 0
    for path in paths:
        with suppress(OSError):
            n_bytes += path.stat().st_size
        if n_bytes >= TINY_BYTES:
            return n_cores
    return 0


class FedReader(PyAVReader):
    """Reads a video that other processes decode; see `VideoReader` for the contract.

    Frames, times, errors and counts are those of `PyAVReader`. One request runs at a time: the next ends it.

    Args:
        processes: that decode; must stay open while the reader is.
        options: of `PyAVReader`, apart from its threads.
        kept: as in `open_video`.

    Attributes:
        counts: what the processes have done for this reader so far.
    """

    def __init__(
        self,
        path: Path,
        processes: DecodeProcesses,
        *,
        options: Mapping[str, Any] | None = None,
        kept: KeptScans | None = None,
    ) -> None:
        """Scan the file in a process, unless its scan is known; raise VideoError if it is damaged."""
        self._processes = processes
        processes.check(path)
        scan_video(path, store=kept, scan_new=processes.scan)
        super().__init__(path, **(options or {}))
        self.source = VideoState(path, self._state, tuple((options or {}).items()))
        self.counts = TaskCounts()
        self._request: _FrameRequest | None = None

    @property
    def n_decoded(self) -> int:
        """Number of frames that the processes decoded, requested or not."""
        return self.counts.n_decoded

    @property
    def decode_cpu_seconds(self) -> float:
        """Processor seconds of decoding and converting frames."""
        return self.counts.cpu_seconds

    def batches(self, frames: ArrayLike, size: int) -> Iterator[tuple[IntArray, Pixels]]:
        """Yield (frames, pixels `(n, height, width, 3)` RGB), ascending, each frame once, `size` at a time.

        The pixels are a view of shared memory, valid until the next batch, and until the reader is asked again or
        closed. Of a batch that cannot be read, the frames before the first failure are yielded; then it is raised.

        Raises:
            VideoError: as `PyAVReader.stream`; also if decoding the file ended a process.
        """
        return self._begin_request(frames, size)

    def stream(self, frames: ArrayLike) -> Iterator[tuple[int, Pixels]]:
        """Yield `(frame, pixels (height, width, 3) RGB)` once per distinct frame, ascending, decoding forward once."""
        return _SingleFrames(self._begin_request(frames, _STREAM_BATCH), self._lock)

    def read(self, frames: ArrayLike) -> Pixels:
        """As `VideoReader.read`; concurrent calls run one after the other."""
        with self._lock:
            numbers = self._checked(frames)
            pixels = np.empty((numbers.size, self.height, self.width, 3), dtype=np.uint8)
            for batch_frames, batch in self.batches(numbers, _STREAM_BATCH):
                for number, picture in zip(batch_frames, batch, strict=True):
                    pixels[numbers == number] = picture
            return pixels

    @cached_property
    def reference_frames(self) -> IntArray | None:
        """As in `VideoReader`."""
        frames: IntArray | None = self._processes.call("reference_frames", self.source, self._scan)
        return frames

    def close(self) -> None:
        """End the request that runs; the processes stay."""
        with self._lock:
            self._end_request()
            self._is_closed = True

    def _begin_request(self, frames: ArrayLike, size: int) -> _FrameRequest:
        distinct = self._readable(frames)
        with self._lock:
            self._check_open()
            self._end_request()
            self._request = _FrameRequest(self, self._processes, distinct, size)
            return self._request

    def _end_request(self) -> None:
        if self._request is not None:
            self._request.close()
            self._request = None

    def runs(self, frames: IntArray) -> list[IntArray]:
        """Split ascending `frames` into parts that are decoded apart; one for a file whose frames must be counted."""
        if self._scan.index is None:
            return [frames] if frames.size else []
        return [run.frames for run in self._scan.index.runs(frames)]

    @property
    def scan(self) -> Scan:
        """The file's scan, for the processes."""
        return self._scan


class _SingleFrames(Iterator[tuple[int, Pixels]]):
    """The frames of a request one by one, each with memory of its own. Several threads may share it.

    Args:
        lock: of the reader, so that none of its requests begins while a frame is copied.
    """

    def __init__(self, request: _FrameRequest, lock: threading.RLock) -> None:
        self._request, self._lock = request, lock
        self._frames: deque[tuple[int, Pixels]] = deque()

    def __next__(self) -> tuple[int, Pixels]:
        """Return the next frame and its pixels."""
        with self._lock:
            if self._frames:
                self._request.check_open()
            else:
                frames, pixels = next(self._request)
                self._frames.extend(zip(frames.tolist(), pixels, strict=True))
            number, picture = self._frames.popleft()
            return number, picture.copy()


class _Ring:
    """Shared memory for the frames of one request."""

    _numbers = count()

    def __init__(self, n_bytes: int) -> None:
        self.number, self.n_bytes = next(self._numbers), n_bytes
        self.descriptor = os.memfd_create("focus-eval frames")
        os.ftruncate(self.descriptor, n_bytes)
        self.memory = mmap.mmap(self.descriptor, n_bytes)

    def close(self) -> None:
        # The memory goes with the last array that shows it.
        os.close(self.descriptor)


class _FileCall:
    """A function of a process that is called once: a scan, or the reference frames."""

    def __init__(self, message: tuple[Any, ...], path: Path, scan: Scan | None, changed: threading.Condition) -> None:
        self.message, self.path, self.scan, self.changed = message, path, scan, changed
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_done = False
        self.n_kills = 0

    def finish(self, result: object, error: BaseException | None) -> None:
        self.result, self.error, self.is_done = result, error, True

    def fail(self, error: BaseException) -> None:
        self.finish(None, error)


@dataclass(eq=False)
class _Task:
    """Frames `[start, stop)` of a request that one process decodes in one go, up to the end of a batch at a time.

    Attributes:
        at: the first that is not decoded yet.
        process: the process that has begun, and must go on; None if none has.
    """

    request: _FrameRequest
    number: int
    at: int
    stop: int
    process: _Process | None = None
    n_kills: int = 0

    @property
    def path(self) -> Path:
        return self.request.reader.path

    @property
    def scan(self) -> Scan:
        return self.request.reader.scan

    @property
    def end(self) -> int:
        """End of the frames that come next, which are all of one batch."""
        size = self.request.size
        return min(self.stop, (self.at // size + 1) * size)

    @property
    def message(self) -> tuple[Any, ...]:
        request, (start, end) = self.request, (self.at, self.end)
        slot = start % (N_BATCHES * request.size)
        frames = None if self.process is not None else request.frames[start : self.stop]
        shape = (N_BATCHES * request.size, request.reader.height, request.reader.width, 3)
        assert request.ring is not None
        return "frames", self.number, request.reader.source, frames, request.ring.number, shape, slot, end - start

    def finish(self, result: Any, error: BaseException | None) -> None:
        counts, request = TaskCounts(*result), self.request
        request.reader.counts = request.reader.counts.plus(counts)
        request.is_ready[self.at : self.at + counts.n_frames] = True
        self.at += counts.n_frames
        if error is not None:
            self.fail(error)
        elif self.at < self.stop:
            request.parked.append(self)

    def fail(self, error: BaseException) -> None:
        self.request.errors[self.at] = error


class _FrameRequest(Iterator[tuple[IntArray, Pixels]]):
    """Ascending frames of one video, decoded a few batches ahead of its user."""

    _numbers = count()

    def __init__(self, reader: FedReader, processes: DecodeProcesses, frames: IntArray, size: int) -> None:
        self.reader, self.frames, self.size = reader, frames, size
        self._processes = processes
        self.changed = threading.Condition(processes.lock)
        self.is_ready = np.zeros(frames.size, dtype=bool)
        self.errors: dict[int, BaseException] = {}
        self.waiting: deque[_Task] = deque()
        self.parked: list[_Task] = []
        self.n_underway = 0
        self.ring: _Ring | None = None
        self.n_taken = self.n_released = 0  # frames that were handed out, and those given back
        self.is_closed = self._has_begun = False

    def __next__(self) -> tuple[IntArray, Pixels]:
        """Return the next batch, and give back the memory of the one before."""
        processes = self._processes
        with processes.lock:
            start = self.n_released = self.n_taken
            stop = min(start + self.size, self.frames.size)
            if start == stop:
                processes.end(self)
                raise StopIteration
            self.check_open()
            if not self._has_begun:
                self._begin()
            processes.dispatch()
            while True:
                failures = [(at, error) for at, error in self.errors.items() if at < stop]
                end, failure = min(failures, default=(stop, None), key=lambda pair: pair[0])
                if self.is_ready[start:end].all():
                    break
                self.changed.wait()
                self.check_open()
            if failure is not None and start == end:
                processes.end(self)
                raise failure
            self.n_taken = end
            assert self.ring is not None
            shape = (N_BATCHES * self.size, self.reader.height, self.reader.width, 3)
            pixels: Pixels = np.ndarray(shape, np.uint8, buffer=self.ring.memory)
            slot = start % (N_BATCHES * self.size)
            return self.frames[start:end], pixels[slot : slot + end - start]

    def check_open(self) -> None:
        self._processes.check_open(self.reader.path)
        if self.is_closed:
            raise VideoError(
                f"{self.reader.path}: the reader was closed, or another stream was started, before this one ended"
            )

    def _begin(self) -> None:
        """Split the frames into tasks and take a ring for them."""
        self._processes.begin(self)
        self._has_begun = True
        start = stop = 0
        for run in self.reader.runs(self.frames):
            # Whole runs, so that no frame is decoded twice; short ones of a batch share a message.
            joins = stop - start < _FRAMES_A_TASK and start // self.size == stop // self.size
            if stop > start and not joins:
                self.waiting.append(_Task(self, next(self._numbers), start, stop))
                start = stop
            stop += run.size
        if stop > start:
            self.waiting.append(_Task(self, next(self._numbers), start, stop))

    @property
    def window_end(self) -> int:
        """End of the frames that the ring has room for: all but the batch that the user has, and what follows it."""
        return (self.n_released // self.size + N_BATCHES) * self.size

    def next_task(self) -> _Task | None:
        """Return the first task that any process may begin, if there is room for its frames."""
        return self.waiting[0] if self.waiting and self.waiting[0].at < self.window_end else None

    def close(self) -> None:
        """End the request; its memory serves others once no process writes to it."""
        with self._processes.lock:
            self._processes.end(self)


@dataclass(eq=False)
class _Process:
    """A process that decodes, and what it does now."""

    popen: subprocess.Popen[bytes]
    line: Connection
    socket: socket.socket
    job: _FileCall | _Task | None = None
    has_spoken: bool = False
    rings: set[int] = field(default_factory=set)
    paths: deque[Path] = field(default_factory=lambda: deque(maxlen=OPEN_READERS))

    def send(self, message: object) -> None:
        with suppress(OSError):  # its end is read next
            self.line.send(message)

    def send_ring(self, ring: _Ring) -> None:
        """Hand over the descriptor of a ring, once."""
        if ring.number not in self.rings:
            self.rings.add(ring.number)
            self.send(("ring", ring.number, ring.n_bytes))
            with suppress(OSError):
                socket.send_fds(self.socket, [b"r"], [ring.descriptor])


class DecodeProcesses:
    """Processes that decode the videos of one owner, one a core, each with a single thread.

    They start as they are needed, and are shared by all readers that `open_video` returns, from any thread. A process
    that a video ends is replaced: that video's readers raise VideoError from then on, no other notices.

    Args:
        n_processes: number of them; 0: `open_video` decodes in this process. See `n_processes_for`.
    """

    def __init__(self, n_processes: int) -> None:
        self.n_processes = n_processes
        self.lock = threading.RLock()
        self._processes: list[_Process] = []
        self._calls: deque[_FileCall] = deque()
        self._requests: list[_FrameRequest] = []
        self._free_rings: list[_Ring] = []
        self._faults: dict[tuple[Path, FileState], str] = {}
        self._wake: tuple[Connection, Connection] | None = None
        self._listener: threading.Thread | None = None
        self._is_closed = False

    def open_video(
        self, path: str | Path, *, backend: str = "pyav", n_threads: int | None = None, kept: KeptScans | None = None
    ) -> VideoReader:
        """Open a video as `focus_eval.open_video` does; it is decoded in the processes.

        Other backends than "pyav" decode in this process, as all do without processes.

        Args:
            n_threads: for decoding in this process.
        """
        kind, options = reader_options(backend, n_threads) if self.n_processes else (None, {})
        if kind is not PyAVReader:
            return open_video(path, backend=backend, n_threads=n_threads, kept=kept)
        options.pop("n_threads", None)
        return FedReader(usable_path(path, "video"), self, options=options, kept=kept)

    def scan(self, path: Path) -> Scan:
        """Return `scan_file(path)`, computed in a process."""
        scan: Scan = self.call("scan", VideoState(path, file_state(checked_file(path)), ()), None)
        return scan

    def call(self, name: str, source: VideoState, scan: Scan | None) -> Any:
        """Return what a process answers to a message about a file, or raise its error."""
        call = _FileCall((name, source), source.path, scan, threading.Condition(self.lock))
        with self.lock:
            self._calls.append(call)
            self.dispatch()
            while not call.is_done:
                self.check_open(source.path)
                call.changed.wait()
        if call.error is not None:
            raise call.error
        return call.result

    def check(self, path: Path) -> None:
        """Raise VideoError for a file that ended a process."""
        if self._faults and (fault := self._faults.get((path, file_state(checked_file(path))))):
            raise VideoError(fault)

    def check_open(self, path: Path) -> None:
        """Raise RunError if the processes are closed; `path` is being read."""
        if self._is_closed:
            raise RunError(f"{path}: the processes that decode it were closed before it was read")

    def begin(self, request: _FrameRequest) -> None:
        """Take on a request, with `lock` held; raise VideoError if its file ended a process."""
        self.check(request.reader.path)
        request.ring = self._ring(3 * request.reader.width * request.reader.height * N_BATCHES * request.size)
        self._requests.append(request)

    def end(self, request: _FrameRequest) -> None:
        """Forget a request, with `lock` held."""
        if not request.is_closed:
            request.is_closed = True
            request.waiting.clear()
            if request in self._requests:
                self._requests.remove(request)
            for task in request.parked:
                if task.process is not None:
                    task.process.send(("drop", task.number))
            request.parked.clear()
            self._recycle(request)
            request.changed.notify_all()

    def _recycle(self, request: _FrameRequest) -> None:
        """Keep the ring of a request that has ended for the next, once no process writes to it."""
        if request.is_closed and not request.n_underway and request.ring is not None:
            self._free_rings.append(request.ring)
            request.ring = None

    def _ring(self, n_bytes: int) -> _Ring:
        """Memory for a request: that of an earlier one if it fits, since fresh pages cost time."""
        for ring in self._free_rings:
            if n_bytes <= ring.n_bytes <= 2 * n_bytes:
                self._free_rings.remove(ring)
                return ring
        if self._free_rings:
            self._forget(self._free_rings.pop(0))
        return _Ring(n_bytes)

    def _forget(self, ring: _Ring) -> None:
        for process in self._processes:
            if ring.number in process.rings:
                process.rings.discard(ring.number)
                process.send(("forget", ring.number))
        ring.close()

    def dispatch(self) -> None:
        """Give work to processes that have none, with `lock` held."""
        while not self._is_closed:
            idle = [process for process in self._processes if process.job is None]
            job, process = self._next_job(idle)
            if job is None:
                return
            if process is None:
                if len(self._processes) == self.n_processes:
                    return
                process = self._start()
            if isinstance(job, _Task):
                request = job.request
                request.n_underway += 1
                assert request.ring is not None
                process.send_ring(request.ring)
                if job.path not in process.paths:
                    process.paths.append(job.path)
                message = job.message
                if job.process is None:
                    request.waiting.popleft()
                else:
                    request.parked.remove(job)
                job.process = process
            else:
                message = job.message
                self._calls.popleft()
            process.job = job
            process.send(message)

    def _next_job(self, idle: list[_Process]) -> tuple[_FileCall | _Task | None, _Process | None]:
        """The job that should begin next, and the process for it; None for a new or any process."""
        if self._calls:
            return self._calls[0], idle[0] if idle else None
        parked = [task for request in self._requests for task in request.parked]
        ready = [task for task in parked if task.process in idle and task.at < task.request.window_end]
        fresh = [task for request in self._requests if (task := request.next_task()) is not None]
        if not ready and not fresh:
            return None, None
        # First what is needed soonest.
        job = min([*ready, *fresh], key=lambda task: task.at - task.request.n_taken)
        if job.process is not None:
            return job, job.process
        # A process that has the video open need not open it again.
        return job, next((process for process in idle if job.path in process.paths), idle[0] if idle else None)

    def _start(self) -> _Process:
        """Start a process, and the thread that listens to all of them with the first."""
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-c", _START, str(theirs.fileno()), *sys.path]
        with theirs:
            # Of a session of its own: Ctrl-C reaches this process, which ends the others.
            popen = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
                start_new_session=True, env={**os.environ, **_ENVIRONMENT},
            )  # fmt: skip
        process = _Process(popen, Connection(os.dup(ours.fileno())), ours)
        self._processes.append(process)
        if self._wake is None:
            reading, writing = os.pipe()
            self._wake = Connection(reading, writable=False), Connection(writing, readable=False)
            self._listener = threading.Thread(target=self._listen, name="feed", daemon=True)
            self._listener.start()
        self._wake[1].send(None)
        return process

    def _listen(self) -> None:
        """Take what the processes send, and give them their next work; runs in a thread."""
        assert self._wake is not None
        while not self._is_closed:
            with self.lock:
                by_line = {process.line: process for process in self._processes}
            for line in wait([self._wake[0], *by_line]):
                if line is self._wake[0]:
                    self._wake[0].recv()
                    continue
                process = by_line[line]  # type: ignore[index]
                try:
                    message = process.line.recv()
                except (EOFError, OSError):
                    message = None
                with self.lock:
                    if self._is_closed:
                        return
                    if message is None:
                        self._replace(process)
                    else:
                        self._take(process, *message)
                    self.dispatch()

    def _take(self, process: _Process, kind: str, result: object = None, error: BaseException | None = None) -> None:
        """Take a message of a process, with `lock` held."""
        process.has_spoken = True
        job = process.job
        if kind == "scan?":
            process.send(job.scan if job is not None else None)
        elif kind == "result" and job is not None:
            process.job = None
            job.finish(result, error)
            self._settle(process, job)

    def _settle(self, process: _Process, job: _FileCall | _Task) -> None:
        """Wake who waits for a job; forget a task whose request has ended."""
        if isinstance(job, _FileCall):
            job.changed.notify_all()
            return
        request = job.request
        request.n_underway -= 1
        request.changed.notify_all()
        if request.is_closed:
            process.send(("drop", job.number))
            request.parked.clear()
            self._recycle(request)

    def _replace(self, process: _Process) -> None:
        """Take note of a process that has ended, with `lock` held: its video fails, or is tried again."""
        self._processes.remove(process)
        process.line.close()
        process.socket.close()
        code = process.popen.wait()
        # What it had begun and left for later is begun again by another.
        for request in self._requests:
            for task in [task for task in request.parked if task.process is process]:
                request.parked.remove(task)
                self._begin_again(task)
        job = process.job
        if job is None:
            return
        if isinstance(job, _Task):
            job.process = None
        if code > 0 and not process.has_spoken:
            job.fail(RunError(f"a process that decodes could not start (exit code {code}); its error stands above"))
        elif -code in _FAULTS or code >= 0:
            cause = f"signal {-code}" if code < 0 else f"exit code {code}"
            what_ended = f"{job.path}: reading this file ended the process ({cause})"
            fault = f"{what_ended}; re-encode it, or run again with --retry-errors"
            # Several processes may decode one video, and each ends at its fault: say it once.
            if fault not in self._faults.values():
                print(what_ended, file=sys.stderr, flush=True)
            with suppress(VideoError):
                self._faults[job.path, file_state(job.path)] = fault
            job.fail(VideoError(fault))
        else:
            job.n_kills += 1
            if job.n_kills < _MAX_KILLS:
                self._begin_again(job)
            else:
                job.fail(
                    VideoError(
                        f"{job.path}: the process that decodes it was killed {job.n_kills} times (signal {-code}); if "
                        "the machine is short of memory, free some, then run again with --retry-errors"
                    )
                )
        self._settle(process, job)

    def _begin_again(self, job: _FileCall | _Task) -> None:
        """Put work of a process that was lost first in the queue."""
        if isinstance(job, _FileCall):
            self._calls.appendleft(job)
        elif not job.request.is_closed:
            job.process = None
            job.request.waiting.appendleft(job)

    def close(self) -> None:
        """End the processes; whoever still waits for frames gets a RunError."""
        with self.lock:
            self._is_closed = True
            for process in self._processes:
                process.popen.kill()
                if isinstance(process.job, _Task):
                    process.job.request.n_underway = 0
            for request in [*self._requests]:
                self.end(request)
            for call in [
                *self._calls,
                *(process.job for process in self._processes if isinstance(process.job, _FileCall)),
            ]:
                call.changed.notify_all()
            if self._wake is not None:
                self._wake[1].send(None)
        if self._listener is not None:
            self._listener.join()
        for process in self._processes:
            process.popen.wait()
            process.line.close()
            process.socket.close()
        self._processes.clear()
        for ring in self._free_rings:
            ring.close()
        self._free_rings.clear()
        if self._wake is not None:
            for end in self._wake:
                end.close()
            self._wake = None

    def __enter__(self) -> DecodeProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes."""
        self.close()


def serve(descriptor: int) -> None:
    """Decode what is asked for over a socket, until its other end closes; the main function of a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow_parent, args=(descriptor, os.getppid()), daemon=True).start()
    with suppress(EOFError, ConnectionError):
        _Decoding(descriptor).run()


def _follow_parent(descriptor: int, parent: int) -> None:
    """End this process when its parent's end of the socket closes, or another process has become its parent."""
    poll = select.poll()
    poll.register(descriptor, 0)  # hang-ups alone
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
    """What a process holds: rings, open readers, and requests that it has begun."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._line = Connection(os.dup(descriptor))
        self._rings: dict[int, mmap.mmap] = {}
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
        """Do what a message says that gets no reply."""
        kind, *arguments = message
        if kind == "ring":
            number, n_bytes = arguments
            _, (descriptor,), _, _ = socket.recv_fds(self._socket, 1, 1)
            self._rings[number] = mmap.mmap(descriptor, n_bytes)
            os.close(descriptor)
        elif kind == "forget":
            self._rings.pop(arguments[0], None)
        else:
            self._end(arguments[0])

    def _scan(self, source: VideoState) -> Scan:
        scan = scan_file(source.path)
        remember_scan(source.path, source.state, scan, most=OPEN_READERS)
        return scan

    def _reference_frames(self, source: VideoState) -> IntArray | None:
        reader = self._reader(source)
        self._readers[source] = reader
        return reader.reference_frames

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

        `frames` are all of a new task, None for one that was begun.
        """
        n_done, started, error = 0, time.perf_counter(), None
        before = (0, 0.0)
        try:
            if frames is not None:
                reader = self._reader(source)
                self._begun[number] = _Begun(source, reader, reader.stream(frames), frames.size)
            task = self._begun[number]
            before = task.reader.n_decoded, task.reader.decode_cpu_seconds
            pixels: Pixels = np.ndarray(shape, np.uint8, buffer=self._rings[ring])
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
        """Put the reader of a task aside for the next of its video."""
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
            # A request of another video may end meanwhile: what comes before the scan says so.
            while not isinstance(scan := self._line.recv(), Scan):
                self._take_note(scan)
        remember_scan(source.path, source.state, scan, most=OPEN_READERS)
        return PyAVReader(source.path, n_threads=1, **dict(source.options))


def _portable(error: BaseException) -> BaseException:
    """An error that can be sent to another process, with its traceback as a note where that is ours."""
    if isinstance(error, VideoError):
        return VideoError(str(error))
    return RuntimeError(f"{error!r} in a process that decodes:\n{''.join(traceback.format_exception(error))}")
