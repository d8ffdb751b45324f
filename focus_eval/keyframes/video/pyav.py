"""Reads exact frames with PyAV (FFmpeg's libraries, part of its wheel), several groups of pictures at a time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from enum import Enum
from functools import partial
from itertools import islice
from pathlib import Path
from queue import Queue, SimpleQueue
from threading import Event, Lock
from typing import TYPE_CHECKING, ClassVar, TypeVar

import av
import numpy as np
from numpy.typing import ArrayLike

from focus_eval.core.errors import DamagedFrame, VideoError
from focus_eval.core.processes import n_cores
from focus_eval.core.types import IntArray, PixelForm, Pixels
from focus_eval.keyframes.video.colour import VERSION, rgb_pixels
from focus_eval.keyframes.video.decoder import Decoder, SeekError, Step
from focus_eval.keyframes.video.encryption import is_encrypted
from focus_eval.keyframes.video.packets import FrameIndex, FrameRun
from focus_eval.keyframes.video.reader import ScannedReader
from focus_eval.keyframes.video.scan import Scan, writer_version

if TYPE_CHECKING:
    from av import VideoFrame


_NEVER = 1 << 62


class Taint:
    """Tracks from which packet on the frames of one decoded run may be damaged.

    A frame may refer to any frame decoded before it. So it counts as lost if FFmpeg refused or complained of its packet
    or of one before it in the run, or marked the frame of such a packet as damaged. Pictures
    shown before the sync packet's own (leading pictures) may need earlier packets; no later picture refers to them, so
    they are ignored.

    Args:
        first_packet: the sync packet's position in the file.
        is_key: tells whether a frame refers to no other frame, as the sync packet's frame must. If a damaged index
            marks another packet as a sync packet, some decoders decode it with the pictures of earlier packets. None at
            the file's start, where any frame is accepted.
        is_late: True if damage of a packet may show only in the next one.
    """

    def __init__(
        self, index: FrameIndex, first_packet: int, *, is_key: Callable[[VideoFrame], bool] | None, is_late: bool
    ) -> None:
        self._index = index
        self._first_packet, self._is_key, self._is_late = first_packet, is_key, is_late
        self._first_ticks = max(int(index.packets.ticks[first_packet]), int(index.frame_ticks[0]))
        self._lost_from, self._seen_to = _NEVER, first_packet

    def follow(self, step: Step) -> None:
        """Note what one step of the decoder shows."""
        packets, position = self._index.packets, step.position
        self._seen_to = _NEVER if position is None else position
        if position is not None and packets.ticks[position] >= self._first_ticks:
            if step.is_refused:
                self._lose(max(position - self._is_late, self._first_packet))
            if packets.is_corrupt[position]:
                self._lose(position)
        for frame in step.frames:
            self._note_frame(frame)

    def _note_frame(self, frame: VideoFrame) -> None:
        """Count a frame as lost if it is corrupt, or if it is the sync packet's and refers to other frames."""
        if frame.pts is None or frame.pts < self._first_ticks:
            return
        is_start = frame.pts == self._index.packets.ticks[self._first_packet]
        if frame.is_corrupt or (is_start and self._is_key is not None and not self._is_key(frame)):
            position = self._index.packet_at(frame.pts)
            if position is not None:
                self._lose(position)

    def _lose(self, position: int) -> None:
        """Count the frames from packet `position` on as possibly wrong; for a second field, from its first field on."""
        self._lost_from = min(self._lost_from, position - int(self._index.packets.is_second_field[position]))

    def is_lost(self, packet: int) -> bool:
        """Return True if the frame of `packet` may be wrong."""
        return packet >= self._lost_from

    def is_sure(self, packet: int) -> bool:
        """Return True if the frame of `packet` is right as far as FFmpeg shows; a later step may make it True."""
        return packet < self._lost_from and packet + self._is_late <= self._seen_to


T = TypeVar("T")


class _Mark(Enum):
    """Stands in a queue behind the last result of a task."""

    END = 0


def in_order_ahead(tasks: Iterable[Callable[[], Iterable[T]]], *, n_workers: int, n_held: int = 4) -> Iterator[T]:
    """Yield the results of each task in order, while the tasks that follow already run in threads.

    The order and the values do not depend on the number of workers. Decoding releases Python's lock, so that tasks
    which decode (runs of one video, or one video each) really run side by side. Closing the iterator stops the
    workers. An error of a task is raised when its results are due.

    Args:
        tasks: functions that give an iterable; each is called and iterated within one thread.
        n_workers: number of threads, each running one task at a time.
        n_held: results a task may have ready before it waits; at most `n_workers * (n_held + 2)` are held in all.
    """
    stop, waiting_tasks = Event(), iter(tasks)
    lanes: deque[tuple[Queue[T | _Mark], Future[None]]] = deque()

    def work(task: Callable[[], Iterable[T]], queue: Queue[T | _Mark]) -> None:
        """Put the task's results into the queue, then `_Mark.END`; runs in the thread."""
        try:
            for result in () if stop.is_set() else task():
                queue.put(result)
                if stop.is_set():
                    break
        finally:
            queue.put(_Mark.END)

    with ThreadPoolExecutor(max_workers=n_workers, thread_name_prefix="decode") as pool:
        try:
            while True:
                for task in islice(waiting_tasks, n_workers + 1 - len(lanes)):
                    queue: Queue[T | _Mark] = Queue(maxsize=n_held)
                    lanes.append((queue, pool.submit(work, task, queue)))
                if not lanes:
                    return
                queue, future = lanes[0]
                while (result := queue.get()) is not _Mark.END:
                    yield result
                lanes.popleft()
                future.result()
        finally:
            stop.set()
            for queue, future in lanes:
                # Drain the queue: a thread that waits for room in it would never end.
                while not future.cancel() and queue.get() is not _Mark.END:
                    pass


class _Stream(Iterator[tuple[int, Pixels]]):
    """The frames of one request, for several threads; a generator would raise an error if two threads entered it."""

    def __init__(self, next_frame: Callable[[], tuple[int, Pixels]]) -> None:
        self._next_frame = next_frame

    def __next__(self) -> tuple[int, Pixels]:
        """Return the next frame and its pixels."""
        return self._next_frame()


def _clocked(decoder: Decoder, frames: Iterator[T]) -> Iterator[T]:
    """Yield `frames`, adding the processor seconds that each takes in the calling thread to the decoder's clock."""
    while True:
        since = time.thread_time()
        try:
            frame = next(frames)
        except StopIteration:
            return
        finally:
            decoder.cpu_seconds += time.thread_time() - since
        yield frame


# Limit of runs of one video that are decoded in parallel, since each keeps a decoder's pictures in memory.
_DEFAULT_WORKERS = 4


class PyAVReader(ScannedReader):
    """Reads a video by frame index; see `VideoReader` for the contract.

    Opening demuxes the file once (and decodes only its first frame) and caches the index of the last few files. If the
    packets do not show the order of the frames (AVI with B-frames, raw streams), opening decodes the file once to count
    them, `info.sync_frames` is None and reading decodes from the start.

    The rate is the container's average rate if it agrees with the timestamps to 1 %, else frames over seconds. A frame
    of another size than the first is scaled to it. Pixels are converted by the file's own colour matrix and range. A
    reader serves one request at a time: a new `stream` ends the one before, and concurrent calls of `read` run one
    after the other.

    Frames after different sync frames are decoded side by side, by one decoder and one thread for each group of
    pictures. No decoder has threads of its own: they would hide damage.

    Args:
        n_threads: groups of pictures that are decoded side by side; None: one per core, at most 4. Set few if several
            videos are decoded at a time.
        pixels: "stored", or "display": HDR mapped to standard dynamic range, and square pixels (see `video.colour`).
        scan: the file's scan, if it was made before; the file is then not compared with its manifest and verdict.
    """

    name: ClassVar[str] = "pyav"
    package: ClassVar[str] = "av"
    gives_exact_pixels: ClassVar[bool] = True

    def __init__(
        self,
        path: str | Path,
        *,
        n_threads: int | None = None,
        pixels: PixelForm = "stored",
        scan: Scan | None = None,
    ) -> None:
        """Scan the file; decoders are opened when frames are requested."""
        super().__init__(path, scan=scan)
        self.shows_stored = pixels == "stored" or self.appearance.is_plain
        if not self.shows_stored:
            self.width, self.height = self._scan.orientation.size(*self.appearance.size(*self._scan.stored_size))
        self._n_threads = n_threads
        self._is_closed = False
        self._decoders: list[Decoder] = []
        self._underway: Iterator[tuple[int, Pixels]] = iter(())
        self._turn = 0
        self._unclean_syncs: set[int] = set()
        self._damaged: IntArray | None = None
        self._damage_lock = Lock()

    @property
    def decoder_version(self) -> str:
        """Name and major version of FFmpeg's decoders, whose 10-bit colours differ; version of the display mapping."""
        mapping = "" if self.shows_stored else f", display {VERSION}"
        return f"libavcodec {av.library_versions['libavcodec'][0]}{mapping}"

    @property
    def n_decoded(self) -> int:
        """Number of frames decoded since opening, requested or not."""
        return sum(decoder.n_decoded for decoder in self._decoders)

    @property
    def decode_cpu_seconds(self) -> float:
        """Processor seconds of all threads for decoding and converting frames since opening."""
        return sum(decoder.cpu_seconds for decoder in self._decoders)

    def stream(self, frames: ArrayLike) -> Iterator[tuple[int, Pixels]]:
        """Yield `(frame, pixels (height, width, 3) RGB)` once per distinct frame, ascending, decoding forward once.

        Raises:
            VideoError: a frame outside the video, or one that does not come out of the decoder.
        """
        distinct = self._readable(frames)
        with self._lock:
            self._check_open()
            self._end_request()
            self._underway = self._decode(distinct)
            return _Stream(partial(self._next, self._turn))

    def _next(self, turn: int) -> tuple[int, Pixels]:
        with self._lock:
            if turn == self._turn:
                return next(self._underway)
        raise VideoError(f"{self.path}: the reader was closed, or another stream was started, before this one ended")

    def _end_request(self) -> None:
        """Stop the threads of the previous request and invalidate its stream."""
        self._turn += 1
        if isinstance(self._underway, Generator):
            self._underway.close()

    def _decode(self, frames: IntArray) -> Iterator[tuple[int, Pixels]]:
        """Yield (frame, pixels) of ascending `frames`, several runs ahead in threads."""
        index = self._scan.index
        if index is None:
            decoder = self._open_decoders(1)[0]
            yield from _clocked(decoder, self._counted(decoder, frames))
            return
        runs = list(index.runs(frames))
        n_workers = min(self._n_threads or min(n_cores(), _DEFAULT_WORKERS), len(runs))
        decoders = self._open_decoders(n_workers)
        if n_workers < 2:
            for run in runs:
                yield from _clocked(decoders[0], self._run(decoders[0], index, run))
            return
        idle: SimpleQueue[Decoder] = SimpleQueue()
        for decoder in decoders:
            idle.put(decoder)
        yield from in_order_ahead([partial(self._run_ahead, idle, index, run) for run in runs], n_workers=n_workers)

    def damaged_ranges(self, *, progress: Callable[[int], None] = lambda n_frames: None) -> list[tuple[int, int]]:
        """Decode every frame in this thread and return half-open frame ranges `(start, stop)` that fail.

        [] for a file whose frames can only be counted: opening it decoded all frames, and would have refused damage.

        Args:
            progress: called with the number of frames of each group of pictures that was decoded.
        """
        index, damaged = self._scan.index, list[tuple[int, int]]()
        if index is None:
            return []
        with self._lock:
            self._end_request()
            for run in index.runs(np.arange(self.info.n_frames)):
                n_whole = 0
                try:
                    for _ in self._run(self._open_decoders(1)[0], index, run, convert=False):
                        n_whole += 1
                except VideoError:
                    damaged.append((int(run.frames[n_whole]), int(run.frames[-1]) + 1))
                progress(run.frames.size)
        return damaged

    def damaged_frames(self, *, progress: Callable[[int], None] = lambda n_frames: None) -> IntArray:
        """As in `VideoReader`; a file with a verdict of `videos verify` is not decoded."""
        with self._damage_lock:
            if self._damaged is None:
                ranges = [*(self._verdict.damaged if self._verdict is not None else ())]
                if not self._is_verified:
                    # Use another reader: this one may be serving the request of another question.
                    with PyAVReader(self.path, n_threads=1, scan=self._scan) as reader:
                        ranges += reader.damaged_ranges(progress=progress)
                is_damaged = np.zeros(self.info.n_frames, dtype=bool)
                for start, stop in ranges:
                    is_damaged[start:stop] = True
                self._damaged = np.flatnonzero(is_damaged)
            return self._damaged

    @property
    def _is_verified(self) -> bool:
        """True if `videos verify` has decoded the file with these versions."""
        return self._verdict is not None and self._verdict.writer == writer_version()

    def groups(self) -> list[tuple[int, int, int]]:
        """Return `(start, stop, CRC-32 of its packets)` per group of pictures, which frames `[start, stop)` need.

        [] for files whose frames can only be counted.
        """
        index = self._scan.index
        if index is None:
            return []
        with self._lock:
            self._end_request()
            checksums = self._open_decoders(1)[0].checksums(set(index.sync_packet.tolist()))
        group_of_frame = np.searchsorted(index.sync_packet, index.frame_packet, side="right") - 1
        stops = [*index.sync_frame[1:].tolist(), self.info.n_frames]
        # A group begins with its earliest frame: leading pictures are shown before the frame of its first packet.
        starts = index.sync_frame.copy()
        np.minimum.at(starts, group_of_frame, np.arange(self.info.n_frames))
        return list(zip(starts.tolist(), stops, checksums, strict=True))

    def _run_ahead(self, idle: SimpleQueue[Decoder], index: FrameIndex, run: FrameRun) -> Iterator[tuple[int, Pixels]]:
        """Yield the frames of a run, decoded in a worker thread with a decoder taken from `idle`."""
        decoder = idle.get()
        try:
            yield from _clocked(decoder, self._run(decoder, index, run))
        finally:
            idle.put(decoder)

    def close(self) -> None:
        """Release the file and its threads."""
        with self._lock:
            self._end_request()
            for decoder in self._decoders:
                decoder.close()
            self._is_closed = True

    def _check_open(self) -> None:
        """Raise VideoError if the reader is closed."""
        if self._is_closed:
            raise VideoError(f"{self.path}: this reader is closed; open the file again")

    def _open_decoders(self, n_decoders: int) -> list[Decoder]:
        """The first `n_decoders` decoders, opening those that are missing."""
        self._check_open()
        while len(self._decoders) < n_decoders:
            self._decoders.append(Decoder(self.path, state=self._state, is_verified=self._is_verified))
        return self._decoders[:n_decoders]

    def _run(
        self, decoder: Decoder, index: FrameIndex, run: FrameRun, *, convert: bool = True
    ) -> Iterator[tuple[int, Pixels]]:
        """Yield the frames of a run; if decoding cannot start at its sync point, start at an earlier one."""
        sync, n_done = run.sync, 0
        while True:
            while sync in self._unclean_syncs:
                sync -= 1
            try:
                for frame in self._attempt(decoder, index, run, sync=sync, n_done=n_done):
                    yield int(run.frames[n_done]), self._pixels(frame) if convert else np.zeros(0, dtype=np.uint8)
                    n_done += 1
            except SeekError:
                continue
            if n_done == run.frames.size:
                return
            if sync not in self._unclean_syncs:
                break
        ticks, number = index.frame_ticks, int(run.frames[n_done])
        if is_encrypted(self.path):
            raise VideoError(f"{self.path}: frame {number} asked, but it is encrypted; name a decrypted copy")
        raise DamagedFrame(
            f"{self.path}: frame {number} asked, but it cannot be decoded: the file is damaged near "
            f"{(ticks[number] - ticks[0]) * self._scan.time_base:.1f} s; download it again"
        )

    def _attempt(
        self, decoder: Decoder, index: FrameIndex, run: FrameRun, *, sync: int, n_done: int
    ) -> Iterator[VideoFrame]:
        """Yield the decoded frames of a run, from its frame `n_done` on, as far as they are sure to be right.

        If the first frame that comes out is not the sync point's own, or is not whole, decoding cannot start there (a
        gradual refresh, a container that marks every packet): the sync point is then never used again.
        """
        first_packet, packet_of = int(index.sync_packet[sync]), index.frame_packet[run.frames]
        first_ticks, asked_ticks = index.frame_ticks[index.sync_frame[sync]], index.frame_ticks[run.frames]
        asked_packets = set(packet_of[n_done:].tolist())
        is_key = decoder.is_key if sync > 0 else None
        taint = Taint(index, first_packet, is_key=is_key, is_late=decoder.shows_damage_late)
        latest: int | None = None
        held_frames: deque[VideoFrame] = deque()
        steps = decoder.frames(
            index, first_packet=first_packet, last_packet=run.last_packet, wanted_packets=asked_packets
        )
        for step in steps:
            taint.follow(step)
            for frame in step.frames:
                if frame.pts is None or frame.pts < first_ticks:
                    continue
                if latest is None and frame.pts != first_ticks and sync > 0:
                    self._unclean_syncs.add(sync)
                    return
                if latest is not None and frame.pts <= latest:
                    return
                latest = frame.pts
                if n_done + len(held_frames) < run.frames.size and frame.pts == asked_ticks[n_done + len(held_frames)]:
                    held_frames.append(frame)
            while held_frames and taint.is_sure(int(packet_of[n_done])):
                yield held_frames.popleft()
                n_done += 1
            if sync > 0 and taint.is_lost(first_packet):
                self._unclean_syncs.add(sync)
                return
            if n_done == run.frames.size or taint.is_lost(int(packet_of[n_done])):
                return

    def _counted(self, decoder: Decoder, frames: IntArray) -> Iterator[tuple[int, Pixels]]:
        """Yield wanted frames of a sequential decode, for files whose packets do not show the frames' order."""
        remaining = iter(frames.tolist())
        expected = next(remaining, None)
        if expected is None:
            return
        for number, frame in enumerate(decoder.frames_from_start()):
            if number == expected:
                yield number, self._pixels(frame)
                expected = next(remaining, None)
                if expected is None:
                    return
        raise VideoError(f"{self.path}: frame {expected} asked, the decoder now gives fewer; was the file replaced?")

    def _pixels(self, frame: VideoFrame) -> Pixels:
        """A decoded frame as upright RGB pixels of the video's size."""
        pixels = rgb_pixels(frame, self._scan.stored_size, None if self.shows_stored else self.appearance)
        return self._scan.orientation.apply(pixels)
