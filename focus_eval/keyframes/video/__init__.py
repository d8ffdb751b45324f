"""Exact video readers, one file per backend, loaded at first use."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from focus_eval.core.errors import InvalidInput, PluginError
from focus_eval.core.options import declared_types, named_options, read_options
from focus_eval.core.plugins import Registry, classes_in
from focus_eval.core.types import Pixels, usable_path

if TYPE_CHECKING:
    from focus_eval.keyframes.video.reader import VideoReader
    from focus_eval.keyframes.video.scan import KeptScans

# A file, a folder of pictures, or an array of pictures.
Video: TypeAlias = "str | Path | Pixels"

_URL = re.compile(r"(?!file:/)[A-Za-z]{2,}:/")  # one slash, since Path() makes "http:/x" of "http://x"
_PROTOCOL = ("frame_times", "stream", "read", "close", "__enter__", "__exit__")


def _check(loaded: object, label: str) -> type[VideoReader]:
    """The loaded class if it has the methods of a reader; raises PluginError otherwise."""
    missing = [method for method in _PROTOCOL if not hasattr(loaded, method)]
    if not isinstance(loaded, type) or missing:
        raise PluginError(f"{label} is not a reader: it has no {missing[0] if missing else 'class'}")
    return loaded


READERS: Registry[type[VideoReader]] = Registry(
    "video reader",
    group="focus_eval.video_readers",
    built_in=classes_in("focus_eval.keyframes.video", base="ScannedReader"),
    check=_check,
)


def open_video(
    path: str | Path, *, backend: str = "pyav", n_threads: int | None = None, kept: KeptScans | None = None
) -> VideoReader:
    """Open a video file for exact reading by frame index.

    >>> with open_video("talk.mp4") as video:
    ...     len(video.read([0, 5]))
    2

    Args:
        backend: "pyav" (the default, always installed), "torchcodec" or "decord" (extras), or a plugin's name. Options
            follow the name: "pyav:n_threads=2", "pyav:pixels=display".
        n_threads: threads to decode with; None: the backend chooses by the number of cores. Set 1 to decode several
            videos at a time.
        kept: store of file scans shared between processes (a `RelevanceStore`); None: keep none.

    Raises:
        VideoError: the file is not there, is not a video, or is damaged; the message starts with its path.
        UnknownName: no such reader.
        PluginError: a plugin that cannot be loaded.
        InvalidInput: not a path, or fewer than 1 thread.
        MissingDependency: the backend's package is not installed.
    """
    from focus_eval.keyframes.video.crashes import noted

    file = usable_path(path, "video")
    kind, options = reader_options(backend, n_threads)
    with ExitStack() as note:
        note.enter_context(noted(file))
        if kept is not None:
            from focus_eval.keyframes.video.reader import ScannedReader
            from focus_eval.keyframes.video.scan import scan_video

            if issubclass(kind, ScannedReader):
                scan_video(file, store=kept)
        make_reader: Callable[..., VideoReader] = kind
        reader = make_reader(file, **options)
        reader.on_exit = note.pop_all().close
    return reader


def reader_options(backend: str, n_threads: int | None) -> tuple[type[VideoReader], dict[str, Any]]:
    """Return the class of a reader and its checked options; arguments and errors are those of `open_video`."""
    name, options = named_options(backend, {} if n_threads is None else {"n_threads": n_threads})
    kind = READERS.load(name)
    hints = {option: hint for option, hint in declared_types(kind).items() if option not in ("path", "scan")}
    checked_options = read_options(f"video reader {name!r}", hints, options)
    threads = checked_options.get("n_threads")
    if threads is not None and threads < 1:
        raise InvalidInput(f"n_threads must be at least 1, got {threads}")
    return kind, checked_options


def gives_exact_pixels(backend: str) -> bool:
    """Return True if `backend` declares that it gives the same pixels as the default backend for every file it opens.

    Results computed from other pixels must not be reused as results of the exact ones.
    """
    name, options = named_options(backend, {})
    return options.get("pixels", "stored") == "stored" and bool(READERS.fact(name, "gives_exact_pixels", False))


def displayed(backend: str) -> str:
    """Return `backend` with the option `pixels=display`; unchanged if it states `pixels` or is not "pyav"."""
    name, options = named_options(backend, {})
    if name != "pyav" or "pixels" in options:
        return backend
    return f"{backend}{',' if options else ':'}pixels=display"


def open_source(
    video: Video, *, fps: float | None = None, backend: str = "pyav", kept: KeptScans | None = None
) -> VideoReader:
    """Open a video file, a folder of pictures or an array of them.

    Raises:
        VideoError: the source cannot be read.
        InvalidInput: pictures without `fps`, a video file with `fps`, a web address, or `video` of another type.
    """
    from focus_eval.keyframes.video.pictures import SUFFIXES, PictureReader

    if not isinstance(video, (str, Path, np.ndarray)):
        raise InvalidInput(f"video must be a path or an array of pictures, got {type(video).__name__}")
    source = video if isinstance(video, np.ndarray) else _local_file(video)
    if isinstance(source, Path) and not source.is_dir():
        if source.suffix.lower() in SUFFIXES and source.exists():
            raise InvalidInput(
                f"{source}: a picture, not a video; give a folder of pictures, and fps (1 for one a second)"
            )
        if fps is not None:
            raise InvalidInput(f"{source}: a video file has a frame rate of its own; leave fps out")
        return open_video(source, backend=displayed(backend), kept=kept)
    if fps is None:
        kind = f"{source}: a directory" if isinstance(source, Path) else "an array"
        raise InvalidInput(f"{kind} of pictures has no frame rate: give fps, e.g. 1 for one a second")
    return PictureReader(source, fps=fps)


def _local_file(video: str | Path) -> Path:
    """The path of a video; raises InvalidInput for an address on the web."""
    if _URL.match(str(video)):
        url = str(video).replace(":/", "://") if isinstance(video, Path) else video
        raise InvalidInput(
            f"{url}: videos are read from files; download it first (of a page `yt-dlp URL`, of a file `curl -O URL`) "
            "and name the file"
        )
    return usable_path(video, "video")
