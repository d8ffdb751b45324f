"""Reads exact frames with torchcodec (PyTorch's decoder over the system's FFmpeg)."""

from __future__ import annotations

from typing import Any, ClassVar

from focus_eval.errors import MissingDependency
from focus_eval.video.by_index import ByIndexReader
from focus_eval.video.reader import Pixels

_NO_FFMPEG = "torchcodec cannot load FFmpeg's shared libraries; install ffmpeg, or use backend pyav"

try:
    from torchcodec.decoders import VideoDecoder  # type: ignore[attr-defined]
except ImportError as error:
    raise MissingDependency("torchcodec is not installed: pip install 'focus-eval[torchcodec]'") from error
except (OSError, RuntimeError) as error:
    raise MissingDependency(_NO_FFMPEG) from error


class TorchCodecReader(ByIndexReader):
    """Reads a video by frame index through torchcodec in its exact seek mode, which reads all packets on opening."""

    library = "torchcodec"
    failures = (RuntimeError, ValueError, IndexError)
    device: ClassVar[str] = "cpu"

    def _open(self, n_threads: int | None) -> Any:
        threads: dict[str, Any] = {"num_ffmpeg_threads": n_threads or 0} if self.device == "cpu" else {}
        try:
            return VideoDecoder(
                str(self.path), dimension_order="NHWC", seek_mode="exact", device=self.device, **threads
            )
        except RuntimeError as error:
            # From 0.16 on it can be imported without FFmpeg, and says so when the first file is opened.
            if "Could not load libtorchcodec" in str(error):
                raise MissingDependency(_NO_FFMPEG) from error
            raise

    def _decoded(self, number: int) -> Pixels:
        pixels: Pixels = self._video.get_frame_at(number).data.cpu().numpy()
        return pixels
