"""The reader protocol: what can be asked of a video file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from focus_eval.types import FloatArray, IntArray, VideoInfo

Pixels = NDArray[np.uint8]


@runtime_checkable
class VideoReader(Protocol):
    """Exact access to frames by index: frame `i` is the i-th frame in presentation order, rotation applied.

    Opening reads the container's index, never decodes more than it must. Every failure is a `VideoError`
    whose message starts with the path. Memory does not grow with the length of the video.
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
