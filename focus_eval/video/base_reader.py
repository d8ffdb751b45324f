"""What the readers share: a file's length, rate and times by its scan, and its frames in the order asked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from focus_eval.core.types import FloatArray, IntArray
from focus_eval.video.decoder import Decoder
from focus_eval.video.manifest import FileState, file_state
from focus_eval.video.reader import Pixels, checked_file, checked_frames
from focus_eval.video.scan_cache import scan_video

ReaderT = TypeVar("ReaderT", bound="ScannedReader")


_reading = Lock()


@lru_cache(maxsize=64)
def _reference_frames(path: Path, state: FileState) -> IntArray | None:
    index = scan_video(path).index
    if index is None:
        return None
    decoder = Decoder(path, state=state)
    try:
        return np.flatnonzero(decoder.are_references()[index.frame_packet])
    finally:
        decoder.close()


class ScannedReader(ABC):
    """Base of the readers; see `VideoReader` for the contract.

    Length, rate and sync frames come from one scan whatever decodes, so that a selection does not depend on the
    backend.

    Class attributes:
        name: how a reader is registered.
        gives_exact_pixels: whether all files that it opens give the same pixels as with the default reader.
        package: the distribution that decodes, by which `focus-eval doctor` knows its version.
        extra: the extra of this package that brings what the reader imports.
        needs_gpu: whether it opens nothing without a GPU.

    Attributes:
        checked: how far damage within its pictures would have been noticed, as `integrity.kind_of_check` says.
        notes: what is unusual about the file and does no harm.
    """

    name: ClassVar[str]
    gives_exact_pixels: ClassVar[bool] = False
    package: ClassVar[str] = ""
    extra: ClassVar[str] = ""
    needs_gpu: ClassVar[bool] = False

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._state = file_state(checked_file(self.path))
        self._scan = scan_video(self.path)
        self.info = self._scan.info
        self.width, self.height = self._scan.size
        self.checked, self.notes = self._scan.checked, self._scan.notes

    @abstractmethod
    def stream(self, frames: ArrayLike) -> Iterator[tuple[int, Pixels]]:
        """Yield `(frame, pixels (height, width, 3) RGB)` once per distinct frame, ascending."""

    @abstractmethod
    def close(self) -> None:
        """Release the file and its threads."""

    @property
    def reference_frames(self) -> IntArray | None:
        """Frames that others may refer to, ascending: all where packets do not show it; None for counted files."""
        # Read when they are asked for: it takes as long as opening does.
        with _reading:
            return _reference_frames(self.path, self._state)

    def frame_times(self, frames: ArrayLike) -> FloatArray:
        """Return times in seconds since the first frame, shape `(n,)`; `frame / fps` where the file says none."""
        return self._scan.frame_times(self._checked(frames))

    def read(self, frames: ArrayLike) -> Pixels:
        """Return RGB uint8 `(n, height, width, 3)` of `frames`, in their order; repeats are allowed."""
        asked = self._checked(frames)
        pixels = np.empty((asked.size, self.height, self.width, 3), dtype=np.uint8)
        for number, picture in self.stream(asked):
            pixels[asked == number] = picture
        return pixels

    def _checked(self, frames: ArrayLike) -> IntArray:
        return checked_frames(self.path, frames, n_frames=self.info.n_frames)

    def __enter__(self: ReaderT) -> ReaderT:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
