"""Writes the manifest of a folder of videos: size, checksum, frames, seconds and rate of each."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from focus_eval.core.errors import InvalidInput, VideoError
from focus_eval.video.manifest import MANIFEST_NAME, MANIFEST_VERSION, Entry, content_hash, file_state, is_named
from focus_eval.video.scan import scan_file
from focus_eval.video.scan_cache import scan_video

SUFFIXES = frozenset(
    {".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".ts", ".m2ts", ".mts", ".mpg", ".mpeg", ".vob", ".flv", ".wmv"}
    | {".asf", ".ogv", ".ogg", ".3gp", ".mxf", ".gif", ".nut"}
)

_writing = threading.Lock()


def index_folder(folder: Path, *, progress: Callable[[Path], None] = lambda path: None) -> dict[str, Entry]:
    """Read every video under `folder`, write the manifest there, and return its entries by path in the folder.

    A manifest that is there is replaced, so that videos which were fetched again are right afterwards.

    Args:
        progress: told each video before it is read.

    Raises:
        InvalidInput: no such folder, or no video in it.
    """
    paths = list(video_files(folder))
    if not paths:
        raise InvalidInput(f"{folder}: no videos in it ({', '.join(sorted(SUFFIXES))})")
    entries = {}
    for path in paths:
        progress(path)
        entries[path.relative_to(folder).as_posix()] = _entry(path)
    _write(folder, {name: asdict(entry) for name, entry in entries.items()})
    return entries


def note_first_sight(folder: Path, path: Path, *, sha256: str) -> bool:
    """Write a video that no manifest names into that of `folder`, so that a later change of it is noticed.

    Of two processes that write at once, one may lose its entry: its video is then named by the next run.

    Returns:
        Whether it is named now: not where `folder` does not hold it, or cannot be written to.
    """
    if is_named(path):
        return True
    folder, path = folder.resolve(), path.resolve()
    if folder not in path.parents or not os.access(folder, os.W_OK):
        return False
    scan, state, manifest = scan_video(path), file_state(path), folder / MANIFEST_NAME
    info = scan.info
    entry = Entry(
        state.size, sha256, info.n_frames, info.fps, info.duration_seconds, "", scan.checked, scan.notes, state.mtime_ns
    )
    with _writing:
        known = json.loads(manifest.read_text(encoding="utf-8"))["videos"] if manifest.exists() else {}
        _write(folder, {**known, path.relative_to(folder).as_posix(): asdict(entry)})
    return True


def _write(folder: Path, videos: dict[str, Any]) -> None:
    partial = folder / f".{MANIFEST_NAME}.{os.getpid()}.partial"
    content = {"version": MANIFEST_VERSION, "videos": videos}
    # A name that is not UTF-8 is written as JSON's escapes, so that it is found again.
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    partial.write_text(text, encoding="utf-8", errors="backslashreplace")
    os.replace(partial, folder / MANIFEST_NAME)


def video_files(folder: Path) -> Iterator[Path]:
    """Yield the files under `folder` whose suffix is that of a video, sorted by path."""
    if not folder.is_dir():
        raise InvalidInput(f"{folder}: no such folder")
    yield from sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())


def _entry(path: Path) -> Entry:
    size, digest = path.stat().st_size, content_hash(path)
    try:
        scan = scan_file(path)
    except VideoError as error:
        return Entry(size, digest, 0, 0.0, 0.0, str(error).removeprefix(f"{path}: "))
    info = scan.info
    return Entry(size, digest, info.n_frames, info.fps, info.duration_seconds, checked=scan.checked, notes=scan.notes)
