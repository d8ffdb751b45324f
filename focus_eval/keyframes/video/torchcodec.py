"""Reads exact frames with torchcodec (PyTorch's decoder over the system's FFmpeg)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from focus_eval.core.errors import MissingDependency, VideoError
from focus_eval.core.types import IntArray, Pixels
from focus_eval.keyframes.video.pyav import PyAVReader
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
    device: ClassVar[str] = "cpu"

    def _open(self, n_threads: int | None) -> Any:
        """Return torchcodec's decoder in exact mode; raise MissingDependency if it finds no FFmpeg."""
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
        """Return frame `number` as RGB uint8 `(height, width, 3)`."""
        pixels: Pixels = self._video.get_frame_at(number).data.cpu().numpy()
        return pixels


N_COMPARED = 8
# Two pictures whose pixels differ by less than this in the mean, of 255 levels, are one frame converted differently.
NEAR_LEVELS = 2.0


class TorchCodecCudaReader(TorchCodecReader):
    """Reads with the GPU's video decoder; see `VideoReader` for the contract.

    Opening compares `N_COMPARED` frames over the whole file, and the first after each of as many sync frames, with
    those of the default backend, and refuses a file in which one pixel differs.

    Raises:
        VideoError: as `TorchCodecReader`; no GPU; a frame that is not the exact one.
    """

    name: ClassVar[str] = "torchcodec_cuda"
    gives_exact_pixels: ClassVar[bool] = True
    needs_gpu: ClassVar[bool] = True
    device: ClassVar[str] = "cuda"
    most_levels: ClassVar[float] = 0.0

    def __init__(self, path: str | Path, *, n_threads: int | None = None) -> None:
        """Open the file on the GPU; raise VideoError if frames differ from those of the default backend."""
        super().__init__(path, n_threads=n_threads)
        compared = frames_to_compare(self.info.n_frames, self.info.sync_frames)
        with PyAVReader(self.path, n_threads=n_threads) as exact:
            differences = [
                float(np.abs(self._frame(number).astype(int) - picture).mean())
                for number, picture in exact.stream(compared)
            ]
        wrong = [number for number, levels in zip(compared, differences, strict=True) if levels > self.most_levels]
        if wrong:
            self.close()
            raise VideoError(
                f"{self.path}: the GPU decodes {len(wrong)} of {compared.size} compared frames differently, the "
                f"first {wrong[0]}, by up to {max(differences):.2f} of 255 levels in the mean; use backend pyav"
                + ("" if self.most_levels else ", or torchcodec_cuda_near to accept other rounding")
            )

    def _open(self, n_threads: int | None) -> Any:
        """Return torchcodec's decoder on the GPU; raise MissingDependency without a GPU."""
        import torch

        if self.device == "cuda" and not torch.cuda.is_available():
            raise MissingDependency("torchcodec_cuda needs a GPU that torch can use; use backend pyav")
        return super()._open(n_threads)


class TorchCodecCudaNearReader(TorchCodecCudaReader):
    """Reads as `TorchCodecCudaReader`, but accepts a mean difference of `NEAR_LEVELS` of 255 levels per frame."""

    name: ClassVar[str] = "torchcodec_cuda_near"
    gives_exact_pixels: ClassVar[bool] = False
    most_levels: ClassVar[float] = NEAR_LEVELS


def frames_to_compare(n_frames: int, sync_frames: IntArray | None) -> IntArray:
    """Return `N_COMPARED` frames spread over the file and the frames after as many sync frames, ascending."""
    spread = np.linspace(0, n_frames - 1, N_COMPARED).astype(np.int64)
    if sync_frames is None or len(sync_frames) == 0:
        return np.unique(spread)
    syncs = np.asarray(sync_frames)[np.linspace(0, len(sync_frames) - 1, N_COMPARED).astype(np.int64)]
    return np.unique(np.concatenate([spread, np.minimum(syncs + 1, n_frames - 1)]))
