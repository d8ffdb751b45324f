"""Exact video readers, one file per backend, loaded when asked for."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from focus_eval.core.errors import InvalidInput, unknown_name

if TYPE_CHECKING:
    from focus_eval.video.reader import VideoReader

# name: module of this package and its reader class.
_BACKENDS = {
    "pyav": ("pyav", "PyAVReader"),
    "torchcodec": ("torchcodec", "TorchCodecReader"),
    "decord": ("decord", "DecordReader"),
    "torchcodec_cuda": ("torchcodec_cuda", "TorchCodecCudaReader"),
    "torchcodec_cuda_near": ("torchcodec_cuda", "TorchCodecCudaNearReader"),
}


def open_video(path: str | Path, *, backend: str = "pyav", n_threads: int | None = None) -> VideoReader:
    """Open a video file for exact reading by frame index.

    Args:
        backend: "pyav" (the default, always installed), "torchcodec" or "decord" (extras); "torchcodec_cuda" decodes on
            a GPU and refuses a file where that gives other frames, "torchcodec_cuda_near" accepts other rounding.
        n_threads: threads to decode with; None: what the backend takes for the cores there are. Set 1 where several
            videos are decoded at a time.

    Raises:
        VideoError: the file is not there, is not a video, or is damaged; the message starts with its path.
        UnknownName: no such backend.
        InvalidInput: fewer than 1 thread.
        MissingDependency: the backend's package is not installed.
    """
    if backend not in _BACKENDS:
        raise unknown_name("video backend", backend, _BACKENDS)
    if n_threads is not None and n_threads < 1:
        raise InvalidInput(f"n_threads must be at least 1, got {n_threads}")
    module, name = _BACKENDS[backend]
    reader: VideoReader = getattr(import_module(f"focus_eval.video.{module}"), name)(Path(path), n_threads=n_threads)
    return reader


def gives_exact_pixels(backend: str) -> bool:
    """Return whether all files that `backend` opens give the same pixels as with the default one, as far as known.

    What was computed from other pixels must not be taken for what the exact ones give.
    """
    return backend != "torchcodec_cuda_near"


def backend_names() -> tuple[str, ...]:
    """Return the names `open_video` accepts as backend."""
    return tuple(_BACKENDS)
