"""Decodes videos in processes of their own, which hand frames over in shared memory.

A decoder releases Python's lock several times per packet, and an encoder at each operation that it launches, so their
threads would wait for one another in one process. Here each decoder has a process and a lock of its own, and a batch of
frames costs the process that asks for it only a few messages:

    with DecodeProcesses(n_cores()) as processes, processes.open_video("talk.mp4") as video:
        for frames, pixels in video.batches(range(0, 3000, 30), size=32):
            features = encoder.embed(pixels)  # `pixels` is a view, valid until the next batch

The code that selects or answers in a run owns the processes and closes them. They start when they are needed, do not
run the user's script again (which therefore needs no main guard), import neither torch nor a plugin, and end with the
process that started them, even if that process is killed.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from focus_eval.core.types import IntArray, Pixels, usable_path
from focus_eval.keyframes.video import open_video, reader_options
from focus_eval.keyframes.video.decode_jobs import FedVideo, FrameRequest
from focus_eval.keyframes.video.decode_pool import DecodePool
from focus_eval.keyframes.video.decode_process import TaskCounts, VideoState
from focus_eval.keyframes.video.pyav import PyAVReader
from focus_eval.keyframes.video.reader import VideoReader
from focus_eval.keyframes.video.scan import KeptScans, scan_video

# Frames per batch of `stream`, which copies them one by one.
_STREAM_BATCH = 8
# Videos with fewer bytes in total are decoded in less time than a process takes to start.
TINY_BYTES = 8_000_000


def n_processes_for(paths: Iterable[Path], n_cores: int) -> int:
    """Return how many processes should decode `paths`: one per core; 0 on one core, or if all videos are tiny."""
    if n_cores < 2 or not hasattr(os, "memfd_create"):
        return 0
    n_bytes = 0
    for path in paths:
        with suppress(OSError):
            n_bytes += path.stat().st_size
        if n_bytes >= TINY_BYTES:
            return n_cores
    return 0


class DecodeProcesses(DecodePool):
    """Processes that decode the videos of one owner, shared by all readers that `open_video` returns.

    Args:
        n_processes: number of them; 0: `open_video` decodes in this process. See `n_processes_for`.
    """

    def open_video(
        self, path: str | Path, *, backend: str = "pyav", n_threads: int | None = None, kept: KeptScans | None = None
    ) -> VideoReader:
        """Open a video as `focus_eval.open_video` does; it is decoded in the processes.

        Backends other than "pyav" decode in this process; if `n_processes` is 0, all backends do.

        Args:
            n_threads: threads for decoding in this process; ignored if another process decodes.
        """
        kind, options = reader_options(backend, n_threads) if self.n_processes else (None, {})
        if kind is not PyAVReader:
            return open_video(path, backend=backend, n_threads=n_threads, kept=kept)
        options.pop("n_threads", None)
        return FedReader(usable_path(path, "video"), self, options=options, kept=kept)

    def __enter__(self) -> DecodeProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes."""
        self.close()


class FedReader(PyAVReader):
    """Reads a video that other processes decode; see `VideoReader` for the contract.

    Frames, times, errors and counts are those of `PyAVReader`. Only one request runs at a time: a new request ends
    the one before.

    Args:
        processes: the decoding processes; must stay open as long as the reader.
        options: options of `PyAVReader`, without `n_threads`.
        kept: as in `open_video`.
    """

    def __init__(
        self,
        path: Path,
        processes: DecodePool,
        *,
        options: Mapping[str, Any] | None = None,
        kept: KeptScans | None = None,
    ) -> None:
        """Scan the file in a process, unless its scan is known; raise VideoError if it is damaged."""
        self._processes = processes
        processes.check(path)
        scan_video(path, store=kept, scan_new=processes.scan)
        super().__init__(path, **(options or {}))
        source = VideoState(path, self._state, tuple((options or {}).items()))
        self._video = FedVideo(source, self._scan, (self.height, self.width))
        self._request: FrameRequest | None = None

    @property
    def counts(self) -> TaskCounts:
        """Work of the processes for this reader so far."""
        return self._video.counts

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

        The pixels are a view of shared memory, valid until the next batch, the reader's next request, or its closing.
        If a frame of a batch cannot be read, the frames before it are yielded first, then its error is raised.

        Raises:
            VideoError: as `PyAVReader.stream`; also if decoding the file ended a process.
        """
        return _Batches(self._processes, self._begin_request(frames, size))

    def stream(self, frames: ArrayLike) -> Iterator[tuple[int, Pixels]]:
        """Yield `(frame, pixels (height, width, 3) RGB)` once per distinct frame, ascending, decoding forward once."""
        return _SingleFrames(self._processes, self._begin_request(frames, _STREAM_BATCH), self._lock)

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
        frames: IntArray | None = self._processes.call("reference_frames", self._video.source, self._scan)
        return frames

    def damaged_frames(self, *, progress: Callable[[int], None] = lambda n_frames: None) -> IntArray:
        """As in `PyAVReader`, but `progress` is never called, since another process decodes."""
        with self._damage_lock:
            if self._damaged is None:
                self._damaged = self._processes.call("damaged_frames", self._video.source, self._scan)
            return self._damaged

    def close(self) -> None:
        """End the reader's current request; the processes keep running."""
        with self._lock:
            self._end_request()
            self._is_closed = True

    def _begin_request(self, frames: ArrayLike, size: int) -> FrameRequest:
        distinct = self._readable(frames)
        with self._lock:
            self._check_open()
            self._end_request()
            # A file without an index is decoded in one run.
            index = self._scan.index
            runs = [run.frames for run in index.runs(distinct)] if index is not None else [distinct]
            self._request = self._processes.request(self._video, runs, size)
            return self._request

    def _end_request(self) -> None:
        if self._request is not None:
            self._processes.end(self._request)
            self._request = None


class _Batches(Iterator[tuple[IntArray, Pixels]]):
    def __init__(self, processes: DecodePool, request: FrameRequest) -> None:
        self._processes, self._request = processes, request

    def __next__(self) -> tuple[IntArray, Pixels]:
        batch = self._processes.next_batch(self._request)
        if batch is None:
            raise StopIteration
        return batch


class _SingleFrames(Iterator[tuple[int, Pixels]]):
    """The frames of a request one by one, each with memory of its own. Several threads may share it.

    Args:
        lock: the reader's lock, so that none of its requests begins while a frame is copied.
    """

    def __init__(self, processes: DecodePool, request: FrameRequest, lock: threading.RLock) -> None:
        self._processes, self._request, self._lock = processes, request, lock
        self._batches = _Batches(processes, request)
        self._frames: deque[tuple[int, Pixels]] = deque()

    def __next__(self) -> tuple[int, Pixels]:
        """Return the next frame and its pixels."""
        with self._lock:
            if self._frames:
                self._processes.check_request(self._request)
            else:
                frames, pixels = next(self._batches)
                self._frames.extend(zip(frames.tolist(), pixels, strict=True))
            number, picture = self._frames.popleft()
            return number, picture.copy()
