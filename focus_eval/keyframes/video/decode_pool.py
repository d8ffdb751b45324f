"""Starts the decoding processes and gives them work: which job comes next, and what happens when a process ends."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from focus_eval.core.errors import RunError, VideoError
from focus_eval.core.types import IntArray, Pixels
from focus_eval.keyframes.video.decode_jobs import FedVideo, FileCall, FrameRequest, FrameTask, Ring
from focus_eval.keyframes.video.decode_process import IN_ONE_PROCESS, OPEN_READERS, VideoState, no_shared_memory
from focus_eval.keyframes.video.manifest import FileState, checked_file, file_state
from focus_eval.keyframes.video.scan import Scan

# Signals that a crashing decoder raises itself. Any other signal came from outside: the video is not to blame.
_FAULTS = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE}
_MAX_KILLS = 2
# Make malloc keep freed memory for the next frame: clearing fresh pages takes as long as decoding. The mmap threshold
# is 32 MB because glibc ignores a larger one.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
}
_START = (
    "import sys; sys.path[:] = sys.argv[2:]; "
    "from focus_eval.keyframes.video.decode_process import serve; serve(int(sys.argv[1]))"
)


@dataclass(eq=False)
class _Process:
    """A decoding process and its current job."""

    popen: subprocess.Popen[bytes]
    line: Connection
    socket: socket.socket
    job: FileCall | FrameTask | None = None
    has_spoken: bool = False
    rings: set[int] = field(default_factory=set)
    paths: deque[Path] = field(default_factory=lambda: deque(maxlen=OPEN_READERS))

    def send(self, message: object) -> None:
        with suppress(OSError):  # the process has ended: `_listen` notices it
            self.line.send(message)

    def send_ring(self, ring: Ring) -> None:
        """Hand over the descriptor of a ring, once."""
        if ring.number not in self.rings:
            self.rings.add(ring.number)
            self.send(("ring", ring.number, ring.n_bytes))
            with suppress(OSError):
                socket.send_fds(self.socket, [b"r"], [ring.descriptor])


class DecodePool:
    """Processes that decode the videos of one owner, one a core, each with a single thread.

    They start as they are needed, and serve requests of any thread. If a video crashes a process, another process takes
    its place: requests for that video raise VideoError from then on, and other videos are not affected.

    Args:
        n_processes: largest number of processes.
    """

    def __init__(self, n_processes: int) -> None:
        self.n_processes = n_processes
        self.lock = threading.RLock()
        self._processes: list[_Process] = []
        self._calls: deque[FileCall] = deque()
        self._requests: list[FrameRequest] = []
        self._free_rings: list[Ring] = []
        self._faults: dict[tuple[Path, FileState], str] = {}
        self._poll: select.epoll | None = None
        self._wake: tuple[int, int] | None = None
        self._listener: threading.Thread | None = None
        self._is_closed = False

    def scan(self, path: Path) -> Scan:
        """Return `scan_file(path)`, computed in a process."""
        scan: Scan = self.call("scan", VideoState(path, file_state(checked_file(path)), ()), None)
        return scan

    def call(self, name: str, source: VideoState, scan: Scan | None) -> Any:
        """Return what a process answers to a message about a file, or raise its error."""
        call = FileCall(name, source, scan, threading.Condition(self.lock))
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
        """Raise RunError if the processes are closed; its message names `path`."""
        if self._is_closed:
            raise RunError(f"{path}: the processes that decode it were closed before it was read")

    def request(self, video: FedVideo, runs: Sequence[IntArray], size: int) -> FrameRequest:
        """Return a request for frames; decoding begins when its first batch is asked for."""
        return FrameRequest(video, runs, size, self.lock)

    def next_batch(self, request: FrameRequest) -> tuple[IntArray, Pixels] | None:
        """Give back the memory of the previous batch, and return the next batch; None after the last.

        Raises:
            VideoError: a frame that cannot be read, or a request that has ended.
        """
        with self.lock:
            request.n_released = request.n_taken
            if request.n_taken == request.frames.size:
                self.end(request)
                return None
            self.check_request(request)
            if not request.has_begun:
                self.check(request.video.source.path)
                request.ring = self._ring(request)
                self._requests.append(request)
                request.has_begun = True
            self.dispatch()
            try:
                while (batch := request.take()) is None:
                    request.changed.wait()
                    self.check_request(request)
            except BaseException:
                self.end(request)
                raise
            return batch

    def check_request(self, request: FrameRequest) -> None:
        """Raise VideoError if the request has ended, RunError if the processes are closed."""
        path = request.video.source.path
        self.check_open(path)
        if request.is_closed:
            raise VideoError(f"{path}: the reader was closed, or another stream was started, before this one ended")

    def end(self, request: FrameRequest) -> None:
        """End a request; later requests reuse its memory once no process writes to it."""
        with self.lock:
            if request.is_closed:
                return
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

    def _recycle(self, request: FrameRequest) -> None:
        """Keep an ended request's ring for the next request, once no process writes to it."""
        if request.is_closed and not request.n_underway and request.ring is not None:
            self._free_rings.append(request.ring)
            request.ring = None

    def _ring(self, request: FrameRequest) -> Ring:
        """Memory for a request: an ended request's if its size fits, since fresh pages cost time."""
        n_bytes = int(np.prod(request.ring_shape))
        for ring in self._free_rings:
            if n_bytes <= ring.n_bytes <= 2 * n_bytes:
                self._free_rings.remove(ring)
                return ring
        if self._free_rings:
            self._forget(self._free_rings.pop(0))
        try:
            return Ring(n_bytes)
        except OSError as error:
            raise no_shared_memory(request.video.source.path, n_bytes, error) from error

    def _forget(self, ring: Ring) -> None:
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
                try:
                    process = self._start()
                except OSError as error:
                    if not self._processes:
                        self._fail_unstarted(job, error)
                        continue
                    return  # leave the job to the running processes
            if isinstance(job, FrameTask):
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

    def _fail_unstarted(self, job: FileCall | FrameTask, error: OSError) -> None:
        """Fail a waiting job if no process can start; raising would end the listening thread."""
        if isinstance(job, FileCall):
            self._calls.popleft()
            changed = job.changed
        else:
            job.request.waiting.popleft()
            changed = job.request.changed
        job.fail(
            RunError(
                f"a process that decodes cannot start: {error}; raise this limit of the machine (see "
                f"`ulimit -a`), or decode in one process: {IN_ONE_PROCESS}"
            )
        )
        changed.notify_all()

    def _next_job(self, idle: list[_Process]) -> tuple[FileCall | FrameTask | None, _Process | None]:
        """The next job (None without work), and the process for it (None if no process is idle)."""
        if self._calls:
            return self._calls[0], idle[0] if idle else None
        parked = [task for request in self._requests for task in request.parked]
        ready = [task for task in parked if task.process in idle and task.at < task.request.window_end]
        fresh = [task for request in self._requests if (task := request.next_task()) is not None]
        if not ready and not fresh:
            return None, None
        # Take the job whose frames are needed soonest.
        job = min([*ready, *fresh], key=lambda task: task.at - task.request.n_taken)
        if job.process is not None:
            return job, job.process
        # Prefer a process that has the video open already.
        return job, next((process for process in idle if job.path in process.paths), idle[0] if idle else None)

    def _start(self) -> _Process:
        """Start a process; the first start also starts the thread that listens to all processes."""
        if self._poll is None:
            self._poll, self._wake = select.epoll(), os.pipe()
            self._poll.register(self._wake[0], select.EPOLLIN)
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-c", _START, str(theirs.fileno()), *sys.path]
        try:
            with theirs:
                line = Connection(os.dup(ours.fileno()))
                # In a session of its own the new process gets no Ctrl-C: only this process does, and ends the others.
                popen = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
                    start_new_session=True, env={**os.environ, **_ENVIRONMENT},
                )  # fmt: skip
        except OSError:
            ours.close()
            raise
        process = _Process(popen, line, ours)
        self._processes.append(process)
        self._poll.register(line.fileno(), select.EPOLLIN)
        if self._listener is None:
            self._listener = threading.Thread(target=self._listen, name="feed", daemon=True)
            self._listener.start()
        return process

    def _listen(self) -> None:
        """Take what the processes send, and give them their next work; runs in a thread."""
        assert self._poll is not None
        while not self._is_closed:
            # Wait on the one epoll object: creating one for each wait would cost more than all else in this thread.
            for number, _ in self._poll.poll():
                with self.lock:
                    by_number = {process.line.fileno(): process for process in self._processes}
                process = by_number.get(number)
                if process is None:  # the wake pipe, or a process that was just replaced
                    continue
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

    def _settle(self, process: _Process, job: FileCall | FrameTask) -> None:
        """Wake the threads that wait for a job; drop a task whose request has ended."""
        if isinstance(job, FileCall):
            job.changed.notify_all()
            return
        request = job.request
        request.n_underway -= 1
        if request.can_take:
            request.changed.notify_all()
        if request.is_closed:
            process.send(("drop", job.number))
            request.parked.clear()
            self._recycle(request)

    def _replace(self, process: _Process) -> None:
        """Handle the end of a process, with `lock` held: its video fails or is tried again."""
        self._processes.remove(process)
        assert self._poll is not None
        self._poll.unregister(process.line.fileno())
        process.line.close()
        process.socket.close()
        code = process.popen.wait()
        # Another process begins the tasks again that the ended process had begun.
        for request in self._requests:
            for task in [task for task in request.parked if task.process is process]:
                request.parked.remove(task)
                self._begin_again(task)
        job = process.job
        if job is None:
            return
        if isinstance(job, FrameTask):
            job.process = None
        if code > 0 and not process.has_spoken:
            job.fail(RunError(f"a process that decodes could not start (exit code {code}); its error stands above"))
        elif -code in _FAULTS or code >= 0:
            cause = f"signal {-code}" if code < 0 else f"exit code {code}"
            what_ended = f"{job.path}: reading this file ended the process ({cause})"
            fault = f"{what_ended}; re-encode it, or run again with --retry-errors"
            # Several processes may decode one video and crash at the same place: print the message once.
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

    def _begin_again(self, job: FileCall | FrameTask) -> None:
        """Put the work of a lost process at the head of the queue."""
        if isinstance(job, FileCall):
            self._calls.appendleft(job)
        elif not job.request.is_closed:
            job.process = None
            job.request.waiting.appendleft(job)

    def close(self) -> None:
        """End the processes; threads that still wait for frames get a RunError."""
        with self.lock:
            self._is_closed = True
            for process in self._processes:
                process.popen.kill()
                if isinstance(process.job, FrameTask):
                    process.job.request.n_underway = 0
            for request in [*self._requests]:
                self.end(request)
            for call in [
                *self._calls,
                *(process.job for process in self._processes if isinstance(process.job, FileCall)),
            ]:
                call.changed.notify_all()
            if self._wake is not None:
                os.write(self._wake[1], b"e")
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
        if self._poll is not None and self._wake is not None:
            self._poll.close()
            for end in self._wake:
                os.close(end)
            self._poll = self._wake = None
