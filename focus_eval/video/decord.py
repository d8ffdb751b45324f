"""Reads exact frames with decord, the library that most published runs used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from focus_eval.errors import MissingDependency, VideoError
from focus_eval.types import FloatArray
from focus_eval.video.checks import checked_frames
from focus_eval.video.reader import Pixels
from focus_eval.video.scan import scan_video

try:
    import decord
except ImportError as error:
    raise MissingDependency("decord is not installed: pip install 'focus-eval[lmms]'") from error


class DecordReader:
    """Reads a video by frame index through decord; see `VideoReader` for the contract.

    Length, rate and sync frames come from the same scan as the default backend's, so that a selection does not
    depend on the backend; a file that decord counts otherwise is refused. decord decodes ahead in the background
    and its memory grows with that, has no AV1, and returns wrong frames for some files (`docs/fidelity.md`): that
    is why it is not the default.

    Raises:
        VideoError: as `open_video`; also where decord cannot open the file or counts other frames.
    """

    def __init__(self, path: str | Path, *, n_threads: int | None = None) -> None:
        self.path = Path(path)
        self._scan = scan_video(self.path)
        self.info = self._scan.info
        self.width, self.height = self._scan.size
        try:
            self._video: Any = decord.VideoReader(str(self.path), ctx=decord.cpu(0), num_threads=n_threads or 0)
            n_counted = len(self._video)
        except (decord.DECORDError, RuntimeError) as error:
            raise VideoError(f"{self.path}: decord cannot open it ({_last_line(error)}); use backend pyav") from error
        if n_counted != self.info.n_frames:
            raise VideoError(
                f"{self.path}: decord counts {n_counted} frames, the file has {self.info.n_frames}; use backend pyav"
            )

    def frame_times(self, frames: ArrayLike) -> FloatArray:
        """Return presentation times in seconds since the first frame, shape `(n,)`."""
        return self._scan.frame_times(checked_frames(self.path, frames, n_frames=self.info.n_frames))

    def stream(self, frames: ArrayLike) -> Iterator[tuple[int, Pixels]]:
        """Yield `(frame, pixels (height, width, 3) RGB)` once per distinct frame, ascending."""
        wanted = np.unique(checked_frames(self.path, frames, n_frames=self.info.n_frames))
        return ((number, self._frame(number)) for number in wanted.tolist())

    def read(self, frames: ArrayLike) -> Pixels:
        """Return RGB uint8 `(n, height, width, 3)` of `frames`: any order, repeats allowed, as asked."""
        asked = checked_frames(self.path, frames, n_frames=self.info.n_frames)
        pixels = np.empty((asked.size, self.height, self.width, 3), dtype=np.uint8)
        for number, picture in self.stream(asked):
            pixels[asked == number] = picture
        return pixels

    def _frame(self, number: int) -> Pixels:
        if self._video is None:
            raise VideoError(f"{self.path}: this reader is closed; open the file again")
        try:
            frame = self._video[number]
        except (decord.DECORDError, RuntimeError) as error:
            raise VideoError(f"{self.path}: decord cannot decode frame {number} ({_last_line(error)})") from error
        # Another package may have set decord's bridge, which turns its frames into that package's tensors.
        pixels: Pixels = frame.asnumpy() if hasattr(frame, "asnumpy") else np.asarray(frame)
        if pixels.shape != (self.height, self.width, 3):
            raise VideoError(f"{self.path}: decord gives frame {number} as {pixels.shape}; use backend pyav")
        return pixels

    def close(self) -> None:
        """Release the file and decord's threads."""
        self._video = None

    def __enter__(self) -> DecordReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _last_line(error: BaseException) -> str:
    """Return the first line of decord's message, which carries a stack trace, without its source location."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].split("] ", 1)[-1] if lines else type(error).__name__
