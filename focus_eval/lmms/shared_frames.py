"""Decodes all frames that will be shown of a video in one pass, one video ahead of the answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from focus_eval.errors import FocusEvalError
from focus_eval.types import FloatArray, IntArray, VideoInfo
from focus_eval.video import open_video
from focus_eval.video.reader import Pixels, VideoReader

MOST_BYTES = 1 << 30


@dataclass(frozen=True, eq=False)
class DecodedFrames:
    """Frames of one video, in the order in which they were asked for.

    Args:
        times_seconds: presentation times, `(n,)`.
        pixels: RGB uint8 `(n, height, width, 3)`.
    """

    info: VideoInfo
    times_seconds: FloatArray
    pixels: Pixels


def read_frames(path: Path, frames: Iterable[int], *, backend: str) -> DecodedFrames:
    """Return `frames` of the file at `path`.

    Raises:
        VideoError: a file or a frame that cannot be read.
    """
    with open_video(path, backend=backend) as reader:
        return _read(reader, np.asarray(tuple(frames), dtype=np.int64))


def _read(reader: VideoReader, frames: IntArray) -> DecodedFrames:
    return DecodedFrames(info=reader.info, times_seconds=reader.frame_times(frames), pixels=reader.read(frames))


class SharedFrames:
    """The frames of the video being answered, and, while it is, those of the next; a context manager.

    Args:
        videos: each file, in the order of the answers, and every frame that will be shown of it.
        backend: video reader.
        most_bytes: of decoded frames; a video that takes more than half is left to be decoded question by question.
    """

    def __init__(
        self, videos: Sequence[tuple[Path, Iterable[int]]], *, backend: str = "pyav", most_bytes: int = MOST_BYTES
    ) -> None:
        self._videos = [(path.resolve(), np.unique(np.asarray(tuple(frames), np.int64))) for path, frames in videos]
        self._backend = backend
        # Two videos are held at a time.
        self._bytes_a_video = most_bytes // 2
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="shared-frames")
        self._current: tuple[Path, IntArray, Future[DecodedFrames | None]] | None = None
        self._next: Future[DecodedFrames | None] | None = None

    def move_to(self, number: int) -> None:
        """Hold the frames of video `number` from now on, and begin to decode those of the one after it.

        Videos are moved to in their order, each once.
        """
        path, frames = self._videos[number]
        decoding = self._next or self._pool.submit(self._decode, number)
        self._current = (path, frames, decoding)
        self._next = self._pool.submit(self._decode, number + 1) if number + 1 < len(self._videos) else None

    def read(self, path: Path, frames: Sequence[int]) -> DecodedFrames | None:
        """Return `frames` of `path`; None where they are not held, so that the question must decode them itself."""
        if self._current is None or path.resolve() != self._current[0]:
            return None
        held, decoded = self._current[1], self._current[2].result()
        wanted = np.asarray(frames, dtype=np.int64)
        if decoded is None or not np.isin(wanted, held).all():
            return None
        at = np.searchsorted(held, wanted)
        return DecodedFrames(decoded.info, decoded.times_seconds[at], decoded.pixels[at])

    def _decode(self, number: int) -> DecodedFrames | None:
        path, frames = self._videos[number]
        try:
            with open_video(path, backend=self._backend) as reader:
                n_bytes = 3 * reader.width * reader.height * frames.size
                return _read(reader, frames) if n_bytes <= self._bytes_a_video else None
        except FocusEvalError:
            return None  # each question decodes its own frames, and those that cannot be decoded fail alone

    def __enter__(self) -> SharedFrames:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
