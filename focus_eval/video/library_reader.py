"""Base class of readers whose library gives any frame of a file by its index."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from numpy.typing import ArrayLike

from focus_eval.core.errors import VideoError
from focus_eval.video.base_reader import ScannedReader
from focus_eval.video.reader import Pixels


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
