"""How does a video file become an exact reader? One file per backend, loaded when it is asked for."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from focus_eval.errors import unknown_name

if TYPE_CHECKING:
    from focus_eval.video.reader import VideoReader

# name: module of this package and its reader class.
_BACKENDS = {
    "pyav": ("pyav", "PyAVReader"),
    "torchcodec": ("torchcodec", "TorchCodecReader"),
    "decord": ("decord", "DecordReader"),
}


def open_video(path: str | Path, *, backend: str = "pyav") -> VideoReader:
    """Open a video file for exact reading by frame index.

    Args:
        backend: "pyav" (the default, always installed), "torchcodec" or "decord" (extras).

    Raises:
        VideoError: the file is not there, is no video, or is damaged; the message starts with its path.
        UnknownName: no such backend.
        MissingDependency: the backend's package is not installed.
    """
    if backend not in _BACKENDS:
        raise unknown_name("video backend", backend, _BACKENDS)
    module, name = _BACKENDS[backend]
    reader: VideoReader = getattr(import_module(f"focus_eval.video.{module}"), name)(Path(path))
    return reader


def backend_names() -> tuple[str, ...]:
    """Return the names `open_video` accepts as backend."""
    return tuple(_BACKENDS)
