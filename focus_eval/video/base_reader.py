"""Base classes of the readers: length, rate and times are of a file's scan; one is for libraries that go by index."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from threading import Lock, RLock
from types import TracebackType
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from focus_eval.core.errors import VideoError
from focus_eval.core.types import FloatArray, IntArray, Pixels
from focus_eval.video.decoder import Decoder
from focus_eval.video.manifest import FileState, file_state
from focus_eval.video.reader import checked_file, checked_frames
from focus_eval.video.scan import Scan
from focus_eval.video.scan_cache import scan_video
from focus_eval.video.verdicts import verdict_on

ReaderT = TypeVar("ReaderT", bound="ScannedReader")


_reference_lock = Lock()


@lru_cache(maxsize=64)
def _reference_frames(path: Path, state: FileState) -> IntArray | None:
    """Return the frames that others may refer to, ascending; None if the file has no frame index."""
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

    Length, rate and sync frames come from one scan for all backends, so that a selection does not depend on the
    backend.

    Class attributes:
        name: the registered name.
        gives_exact_pixels: True if every file it opens gives the same pixels as the default reader.
        package: the distribution that decodes; `focus-eval doctor` shows its version.
        extra: the extra of this package that installs what the reader imports.
        needs_gpu: True if it opens no file without a GPU.

    Attributes:
        notes: harmless peculiarities of the file, one sentence each.
    """

    name: ClassVar[str]
    gives_exact_pixels: ClassVar[bool] = False
    package: ClassVar[str] = ""
    extra: ClassVar[str] = ""
    needs_gpu: ClassVar[bool] = False

    def __init__(self, path: str | Path, *, scan: Scan | None = None) -> None:
        """Scan the file, unless `scan` is given; raise VideoError if it is damaged."""
        self.path = Path(path)
        self._lock = RLock()
        self._state = file_state(checked_file(self.path))
        self._scan = scan or scan_video(self.path)
        self.info = self._scan.info
        self.width, self.height = self._scan.size
        self.notes = self._scan.notes
        self._verdict = None if scan else verdict_on(self.path)

    @abstractmethod
    def stream(self, frames: ArrayLike) -> Iterator[tuple[int, Pixels]]:
        """Yield `(frame, pixels (height, width, 3) RGB)` once per distinct frame, ascending."""

    @abstractmethod
    def close(self) -> None:
        """Release the file and its threads."""

    @property
    def reference_frames(self) -> IntArray | None:
        """Frames that others may refer to, ascending; all if packets do not show it, None without a frame index."""
        # Read when they are asked for: it takes as long as opening does.
        with _reference_lock:
            return _reference_frames(self.path, self._state)

    def frame_times(self, frames: ArrayLike) -> FloatArray:
        """Return times in seconds since the first frame, shape `(n,)`; `frames / fps` if the file states no times."""
        return self._scan.frame_times(self._checked(frames))

    def read(self, frames: ArrayLike) -> Pixels:
        """Return RGB uint8 `(n, height, width, 3)` of `frames`, in their order; repeats are allowed."""
        numbers = self._checked(frames)
        pixels = np.empty((numbers.size, self.height, self.width, 3), dtype=np.uint8)
        with self._lock:
            for number, picture in self.stream(numbers):
                pixels[numbers == number] = picture
        return pixels

    def _checked(self, frames: ArrayLike) -> IntArray:
        """Return `frames` as int64 `(n,)`; raise VideoError for one outside the video."""
        return checked_frames(self.path, frames, n_frames=self.info.n_frames)

    def _readable(self, frames: ArrayLike) -> IntArray:
        """Return the distinct frames, ascending; raise VideoError if the file's verdict lists one as damaged."""
        distinct = np.unique(self._checked(frames))
        damaged = self._verdict.refused_among(distinct) if self._verdict is not None else distinct[:0]
        if damaged.size:
            raise VideoError(
                f"{self.path}: frame {damaged[0]} asked, but it cannot be decoded: the file is damaged, by its "
                "verdict of `videos verify`; download it again"
            )
        return distinct

    def __enter__(self: ReaderT) -> ReaderT:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the reader."""
        self.close()


class ByIndexReader(ScannedReader):
    """Reads a video by frame index through another library; see `VideoReader` for the contract.

    A file is refused if the library counts another number of frames than the scan.

    Raises:
        VideoError: as `open_video`; also if the library cannot open the file or counts other frames.
    """

    library: ClassVar[str]
    # What the library raises for a file or a frame that it cannot read.
    failures: ClassVar[tuple[type[Exception], ...]]

    def __init__(self, path: str | Path, *, n_threads: int | None = None) -> None:
        """Open the file with the library; raise VideoError if that fails or the numbers of frames differ."""
        super().__init__(path)
        try:
            self._video: Any = self._open(n_threads)
            n_counted = len(self._video)
        except self.failures as error:
            reason = self._reason(error)
            raise VideoError(f"{self.path}: {self.library} cannot open it ({reason}); use backend pyav") from error
        if n_counted != self.info.n_frames:
            raise VideoError(
                f"{self.path}: {self.library} counts {n_counted} frames, the file has {self.info.n_frames}; "
                "use backend pyav"
            )

    @abstractmethod
    def _open(self, n_threads: int | None) -> Any:
        """Open `self.path` with the library; the result's `len` is the number of frames."""

    @abstractmethod
    def _decoded(self, number: int) -> Pixels:
        """Return frame `number` as RGB uint8 `(height, width, 3)`."""

    def _reason(self, error: BaseException) -> str:
        """Return an error's message on one line, cut to 200 characters."""
        return " ".join(str(error).split())[:200]

    def stream(self, frames: ArrayLike) -> Iterator[tuple[int, Pixels]]:
        """Yield `(frame, pixels (height, width, 3) RGB)` once per distinct frame, ascending."""
        numbers = self._readable(frames).tolist()
        # No generator: Python lets only one thread at a time into that.
        return zip(numbers, map(self._frame, numbers), strict=True)

    def _frame(self, number: int) -> Pixels:
        """Decode frame `number`; raise VideoError if it fails, has another size, or the reader is closed."""
        with self._lock:
            if self._video is None:
                raise VideoError(f"{self.path}: this reader is closed; open the file again")
            try:
                pixels = self._decoded(number)
            except self.failures as error:
                reason = self._reason(error)
                raise VideoError(f"{self.path}: {self.library} cannot decode frame {number} ({reason})") from error
        if pixels.shape != (self.height, self.width, 3):
            raise VideoError(f"{self.path}: {self.library} gives frame {number} as {pixels.shape}; use backend pyav")
        return pixels

    def close(self) -> None:
        """Release the file and the library's threads."""
        self._video = None
