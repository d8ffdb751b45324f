"""The reader protocol: exact access to the frames of a video file."""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from focus_eval.core.errors import VideoError
from focus_eval.core.types import FloatArray, IntArray, Pixels, VideoInfo


@runtime_checkable
class VideoReader(Protocol):
    """Exact access to frames by index: frame `i` is the i-th frame in presentation order, rotation applied.

    Opening reads the container's index and decodes as little as possible. Every failure is a `VideoError` whose message
    starts with the path. Memory does not grow with the length of the video.
    """

    path: Path
    info: VideoInfo
    width: int
    height: int

    def frame_times(self, frames: IntArray) -> FloatArray:
        """Return presentation times in seconds since the first frame, shape `(n,)`."""
        ...

    def stream(self, frames: IntArray) -> Iterator[tuple[int, Pixels]]:
        """Yield `(frame, pixels (height, width, 3) RGB)` once per distinct frame, ascending, decoding forward once."""
        ...

    def read(self, frames: IntArray) -> Pixels:
        """Return RGB uint8 `(n, height, width, 3)` of `frames`, in their order; repeats are allowed."""
        ...

    def close(self) -> None:
        """Release the file."""
        ...

    def __enter__(self) -> VideoReader: ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@runtime_checkable
class TellsReferences(Protocol):
    """A reader that knows which frames others refer to: they are decoded on the way to a later frame anyway."""

    @property
    def reference_frames(self) -> IntArray | None:
        """Referenced frames, ascending; all if packets do not show it, None if frames can only be counted."""
        ...


def checked_file(path: Path) -> Path:
    """Return `path` unchanged if it is a readable, non-empty file.

    Raises:
        VideoError: the path does not exist, is a directory, a pipe or a device, is empty, or may not be read.
    """
    if path.is_dir():
        raise VideoError(f"{path}: a directory, not a video file; name a file inside it")
    try:
        status = path.stat()
    except OSError as error:
        raise VideoError(f"{path}: no such file; check the path") from error
    if not stat.S_ISREG(status.st_mode):
        raise VideoError(f"{path}: a pipe or a device, not a video file; write it to a file first")
    if status.st_size == 0:
        raise VideoError(f"{path}: the file is empty (0 bytes); download it again")
    if not os.access(path, os.R_OK):
        raise VideoError(f"{path}: no permission to read the file; change its permissions or owner")
    return path


def checked_frames(path: Path, frames: ArrayLike, *, n_frames: int) -> IntArray:
    """Return `frames` as an int64 array, shape `(n,)`, after checking that each lies in `[0, n_frames)`.

    Raises:
        VideoError: a frame outside the video, or indices that are not whole numbers.
    """
    array = np.asarray(frames)
    if array.size == 0:
        return np.zeros(0, dtype=np.int64)
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise VideoError(
            f"{path}: frame indices must be a 1-D array of integers, got {array.dtype} of shape {array.shape}"
        )
    outside = array[(array < 0) | (array >= n_frames)]
    if outside.size:
        raise VideoError(f"{path}: frame {outside[0]} asked, video has {n_frames} (0 to {n_frames - 1})")
    return array.astype(np.int64)


def unreadable(path: Path, cause: BaseException) -> VideoError:
    """Return the error for a file that no demuxer can open, with the likely reason read from its first bytes."""
    if lacks_index(path):
        return without_index(path)
    if _is_mp4(path):
        return VideoError(f"{path}: a damaged MP4 ({_plain(cause)}); download it again")
    return VideoError(f"{path}: not a video this FFmpeg can open ({_plain(cause)}); check the file")


def lacks_index(path: Path) -> bool:
    """Return True for an MP4 that ends before or within its index."""
    return _is_mp4(path) and not _has_box(path, b"moov")


def without_index(path: Path) -> VideoError:
    """Return the error for an MP4 that `lacks_index`."""
    return VideoError(f"{path}: an MP4 without its index (moov box), so cut off before the end; download it again")


def _is_mp4(path: Path) -> bool:
    """Return True if the file begins like an MP4."""
    with path.open("rb") as file:
        return file.read(12)[4:8] == b"ftyp"


def _has_box(path: Path, name: bytes) -> bool:
    """Return True if an MP4 has a complete box `name` at its top level."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return any(box == name and start + length <= len(data) for box, start, length in mp4_boxes(data))


def mp4_boxes(data: mmap.mmap) -> Iterator[tuple[bytes, int, int]]:
    """Yield (name, offset, length) of the boxes at the top level of an MP4, the last perhaps longer than the file."""
    start = 0
    while start + 8 <= len(data):
        length = int.from_bytes(data[start : start + 4], "big")
        if length == 1:
            length = int.from_bytes(data[start + 8 : start + 16], "big")
        length = length or len(data) - start
        yield data[start + 4 : start + 8], start, length
        start += max(length, 8)


def _plain(cause: BaseException) -> str:
    """Return a decoder's message on one line."""
    return " ".join(str(getattr(cause, "strerror", None) or cause).split())
