"""Jobs of decoding processes: a call about a file, or the frames of one video, split into tasks."""

from __future__ import annotations

import mmap
import os
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from focus_eval.core.types import IntArray, Pixels
from focus_eval.keyframes.video.decode_process import TaskCounts, VideoState
from focus_eval.keyframes.video.scan import Scan

# Batches in a ring: the reader's user has one while two are being filled.
N_BATCHES = 3
# Short runs of a batch are joined until a task has this many frames: fewer are not worth a message, although the first
# frames then arrive later.
_FRAMES_A_TASK = 4


@dataclass(eq=False)
class FedVideo:
    """A video that processes decode for one reader: file, scan, (height, width), and counts of the work so far."""

    source: VideoState
    scan: Scan
    size: tuple[int, int]
    counts: TaskCounts = field(default_factory=TaskCounts)


class Ring:
    """Shared memory for the frames of one request; raises OSError if the machine provides none."""

    _numbers = count()

    def __init__(self, n_bytes: int) -> None:
        self.number, self.n_bytes = next(self._numbers), n_bytes
        self.descriptor = os.memfd_create("focus-eval frames")
        try:
            os.ftruncate(self.descriptor, n_bytes)
            self.memory = mmap.mmap(self.descriptor, n_bytes)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        # Close only the descriptor: the memory is freed when the last array that uses it is gone.
        os.close(self.descriptor)


class FileCall:
    """One call of a decoding process about a file: for its scan, its reference frames or its damaged frames."""

    def __init__(self, name: str, source: VideoState, scan: Scan | None, changed: threading.Condition) -> None:
        self.message, self.path, self.scan, self.changed = (name, source), source.path, scan, changed
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_done = False
        self.n_kills = 0

    def finish(self, result: object, error: BaseException | None) -> None:
        self.result, self.error, self.is_done = result, error, True

    def fail(self, error: BaseException) -> None:
        self.finish(None, error)


@dataclass(eq=False)
class FrameTask:
    """Frames `[at, stop)` of a request, all decoded by one process; each message asks for those of one batch.

    Attributes:
        at: the first frame that is not decoded yet.
        process: the process that began the task and must continue it; None before the task begins.
    """

    request: FrameRequest
    number: int
    at: int
    stop: int
    process: Any = None
    n_kills: int = 0

    @property
    def path(self) -> Path:
        return self.request.video.source.path

    @property
    def scan(self) -> Scan:
        return self.request.video.scan

    @property
    def end(self) -> int:
        """End of the frames that the next message asks for, all of one batch."""
        size = self.request.size
        return min(self.stop, (self.at // size + 1) * size)

    @property
    def message(self) -> tuple[Any, ...]:
        request, (start, end) = self.request, (self.at, self.end)
        slot = start % (N_BATCHES * request.size)
        frames = None if self.process is not None else request.frames[start : self.stop]
        assert request.ring is not None
        source, ring = request.video.source, request.ring.number
        return "frames", self.number, source, frames, ring, request.ring_shape, slot, end - start

    def finish(self, result: Any, error: BaseException | None) -> None:
        counts, request = TaskCounts(*result), self.request
        request.video.counts = request.video.counts.plus(counts)
        request.is_ready[self.at : self.at + counts.n_frames] = True
        self.at += counts.n_frames
        if counts.n_frames:
            self.n_kills = 0  # frames came, so this part of the video did not cause the kills
        if error is not None:
            self.fail(error)
        elif self.at < self.stop:
            request.parked.append(self)

    def fail(self, error: BaseException) -> None:
        self.request.errors[self.at] = error


class FrameRequest:
    """Ascending frames of one video, decoded a few batches ahead of its user.

    Args:
        runs: the frames, split into parts that can be decoded independently.
        size: frames per batch.
        lock: the pool's lock, which also guards the request's state.
    """

    _numbers = count()

    def __init__(self, video: FedVideo, runs: Sequence[IntArray], size: int, lock: threading.RLock) -> None:
        self.video, self.size = video, size
        self.frames: IntArray = np.concatenate(runs) if runs else np.empty(0, dtype=np.int64)
        self.changed = threading.Condition(lock)
        self.is_ready = np.zeros(self.frames.size, dtype=bool)
        self.errors: dict[int, BaseException] = {}
        self.waiting: deque[FrameTask] = deque()
        self.parked: list[FrameTask] = []
        self.n_underway = 0
        self.ring: Ring | None = None
        self.n_taken = self.n_released = 0  # frames that were handed out, and those given back
        self.is_closed = self.has_begun = False
        self._split(runs)

    def _split(self, runs: Sequence[IntArray]) -> None:
        start = stop = 0
        for run in runs:
            # Never split a run, so that no frame is decoded twice; short runs of the same batch share a task.
            joins = stop - start < _FRAMES_A_TASK and start // self.size == stop // self.size
            if stop > start and not joins:
                self.waiting.append(FrameTask(self, next(self._numbers), start, stop))
                start = stop
            stop += run.size
        if stop > start:
            self.waiting.append(FrameTask(self, next(self._numbers), start, stop))

    @property
    def ring_shape(self) -> tuple[int, int, int, int]:
        """Shape of the ring's frames."""
        return (N_BATCHES * self.size, *self.video.size, 3)

    @property
    def window_end(self) -> int:
        """End of the frames for which the ring has room: the batch that the user has, and the two after it."""
        return (self.n_released // self.size + N_BATCHES) * self.size

    def next_task(self) -> FrameTask | None:
        """Return the first task that any process may begin, if there is room for its frames."""
        return self.waiting[0] if self.waiting and self.waiting[0].at < self.window_end else None

    @property
    def can_take(self) -> bool:
        """True if `take` returns a batch or raises."""
        return bool(self.is_ready[self.n_taken : self._next_end()[0]].all())

    def take(self) -> tuple[IntArray, Pixels] | None:
        """Return the next batch; None if it is not ready. Raises an error once all frames before it were taken."""
        start, (end, failure) = self.n_taken, self._next_end()
        if not self.can_take:
            return None
        if failure is not None and start == end:
            raise failure
        self.n_taken = end
        assert self.ring is not None
        pixels: Pixels = np.ndarray(self.ring_shape, np.uint8, buffer=self.ring.memory)
        slot = start % (N_BATCHES * self.size)
        return self.frames[start:end], pixels[slot : slot + end - start]

    def _next_end(self) -> tuple[int, BaseException | None]:
        """End of the next batch, and the error that ends it early; None without an error."""
        stop = min(self.n_taken + self.size, self.frames.size)
        failures = [(at, error) for at, error in self.errors.items() if at < stop]
        return min(failures, default=(stop, None), key=lambda pair: pair[0])
