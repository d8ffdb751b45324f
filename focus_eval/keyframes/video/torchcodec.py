"""Reads exact frames with torchcodec (PyTorch's decoder over the system's FFmpeg)."""

from __future__ import annotations

from typing import ClassVar

from focus_eval.core.errors import MissingDependency
from focus_eval.core.types import Pixels
from focus_eval.keyframes.video.reader import ByIndexReader

_NO_FFMPEG = "torchcodec cannot load FFmpeg's shared libraries; install ffmpeg, or use backend pyav"

try:
    from torchcodec.decoders import VideoDecoder  # type: ignore[attr-defined]
except (OSError, RuntimeError) as error:
    raise MissingDependency(_NO_FFMPEG) from error


class TorchCodecReader(ByIndexReader):
    """Reads a video by frame index through torchcodec in its exact seek mode, which reads all packets on opening."""

    name: ClassVar[str] = "torchcodec"
    package: ClassVar[str] = "torchcodec"
    extra: ClassVar[str] = "torchcodec"
    library = "torchcodec"
    failures = (RuntimeError, ValueError, IndexError)

    def _open(self, n_threads: int | None) -> VideoDecoder:
        """Torchcodec's decoder in exact mode; raises MissingDependency if it finds no FFmpeg."""
        try:
            return VideoDecoder(
                str(self.path), dimension_order="NHWC", seek_mode="exact", num_ffmpeg_threads=n_threads or 0
            )
        except RuntimeError as error:
            # From 0.16 on torchcodec can be imported without FFmpeg, and raises this error for the first file.
            if "Could not load libtorchcodec" in str(error):
                raise MissingDependency(_NO_FFMPEG) from error
            raise

    def _decoded(self, number: int) -> Pixels:
        pixels: Pixels = self._video.get_frame_at(number).data.numpy()
        return pixels
