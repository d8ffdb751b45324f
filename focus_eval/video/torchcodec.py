"""Reads exact frames with torchcodec (PyTorch's decoder over the system's FFmpeg)."""

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
    from torchcodec.decoders import VideoDecoder  # type: ignore[attr-defined]
except ImportError as error:
    raise MissingDependency("torchcodec is not installed: pip install 'focus-eval[torchcodec]'") from error
except (OSError, RuntimeError) as error:
    raise MissingDependency("torchcodec cannot load FFmpeg's shared libraries (4 to 8); install ffmpeg") from error


class TorchCodecReader:
    """Reads a video by frame index through torchcodec; see `VideoReader` for the contract.

    torchcodec runs in its exact seek mode, which reads all packets when it opens a file. Length, rate and sync
    frames come from the same scan as the default backend's; a file that torchcodec counts otherwise is refused.

    Raises:
        VideoError: as `open_video`; also where torchcodec cannot open the file or counts other frames.
    """

    def __init__(self, path: str | Path, *, n_threads: int | None = None) -> None:
        self.path = Path(path)
        self._scan = scan_video(self.path)
        self.info = self._scan.info
        self.width, self.height = self._scan.size
        try:
            self._decoder: Any = VideoDecoder(
                str(self.path), dimension_order="NHWC", num_ffmpeg_threads=n_threads or 0, seek_mode="exact"
            )
        except (RuntimeError, ValueError) as error:
            raise VideoError(
                f"{self.path}: torchcodec cannot open it ({_one_line(error)}); use backend pyav"
            ) from error
        if len(self._decoder) != self.info.n_frames:
            raise VideoError(
                f"{self.path}: torchcodec counts {len(self._decoder)} frames, the file has {self.info.n_frames}; "
                "use backend pyav"
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
        if self._decoder is None:
            raise VideoError(f"{self.path}: this reader is closed; open the file again")
        try:
            pixels: Pixels = self._decoder.get_frame_at(number).data.numpy()
        except (RuntimeError, ValueError, IndexError) as error:
            raise VideoError(f"{self.path}: torchcodec cannot decode frame {number} ({_one_line(error)})") from error
        if pixels.shape != (self.height, self.width, 3):
            raise VideoError(f"{self.path}: torchcodec gives frame {number} as {pixels.shape}; use backend pyav")
        return pixels

    def close(self) -> None:
        """Release the file."""
        self._decoder = None

    def __enter__(self) -> TorchCodecReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _one_line(error: BaseException) -> str:
    """Return an error's message on one line."""
    return " ".join(str(error).split())[:200]
