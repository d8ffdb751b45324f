"""What the readers share whose library gives any frame of a file by its index."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from focus_eval.errors import VideoError
from focus_eval.types import FloatArray
from focus_eval.video.checks import checked_frames
from focus_eval.video.reader import Pixels
from focus_eval.video.scan import scan_video


class ByIndexReader(ABC):
    """Reads a video by frame index through another library; see `VideoReader` for the contract.

    Length, rate and sync frames come from the same scan as the default backend's, so that a selection does not
    depend on the backend. A file in which the library counts other frames is refused.

    Raises:
        VideoError: as `open_video`; also where the library cannot open the file or counts other frames.
    """

    library: ClassVar[str]
    # What the library raises for a file or a frame that it cannot read.
    failures: ClassVar[tuple[type[Exception], ...]]

    def __init__(self, path: str | Path, *, n_threads: int | None = None) -> None:
        self.path = Path(path)
        self._scan = scan_video(self.path)
        self.info = self._scan.info
        self.width, self.height = self._scan.size
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
        """Return the library's own reader of `self.path`."""

    @abstractmethod
    def _decoded(self, number: int) -> Pixels:
        """Return frame `number` as the library gives it."""

    def _reason(self, error: BaseException) -> str:
        """Return an error's message on one line."""
        return " ".join(str(error).split())[:200]

    def frame_times(self, frames: ArrayLike) -> FloatArray:
        """Return presentation times in seconds since the first frame, shape `(n,)`."""
        return self._scan.frame_times(checked_frames(self.path, frames, n_frames=self.info.n_frames))

    def stream(self, frames: ArrayLike) -> Iterator[tuple[int, Pixels]]:
        """Yield `(frame, pixels (height, width, 3) RGB)` once per distinct frame, ascending."""
        wanted = np.unique(checked_frames(self.path, frames, n_frames=self.info.n_frames))
        return ((number, self._frame(number)) for number in wanted.tolist())

    def read(self, frames: ArrayLike) -> Pixels:
        """Return RGB uint8 `(n, height, width, 3)` of `frames`, in their order; repeats are allowed."""
        asked = checked_frames(self.path, frames, n_frames=self.info.n_frames)
        pixels = np.empty((asked.size, self.height, self.width, 3), dtype=np.uint8)
        for number, picture in self.stream(asked):
            pixels[asked == number] = picture
        return pixels

    def _frame(self, number: int) -> Pixels:
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

    def __enter__(self) -> ByIndexReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
