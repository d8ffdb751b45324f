"""Writes the manifest of a folder of videos: size, checksum, frames, seconds and rate of each."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from focus_eval.core.errors import InvalidInput, VideoError
from focus_eval.video.manifest import MANIFEST_NAME, MANIFEST_VERSION, Entry, content_hash
from focus_eval.video.scan import scan_file

SUFFIXES = frozenset(
    {".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".ts", ".m2ts", ".mts", ".mpg", ".mpeg", ".vob", ".flv", ".wmv"}
    | {".asf", ".ogv", ".ogg", ".3gp", ".mxf", ".gif", ".nut"}
)


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
    content = {"version": MANIFEST_VERSION, "videos": {name: asdict(entry) for name, entry in entries.items()}}
    partial = folder / f".{MANIFEST_NAME}.partial"
    partial.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(partial, folder / MANIFEST_NAME)
    return entries


def video_files(folder: Path) -> Iterator[Path]:
    """Yield the files under `folder` whose suffix is that of a video, sorted by path."""
    if not folder.is_dir():
        raise InvalidInput(f"{folder}: no such folder")
    yield from sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())


def _entry(path: Path) -> Entry:
    size, digest = path.stat().st_size, content_hash(path)
    try:
        info = scan_file(path).info
    except VideoError as error:
        return Entry(size, digest, 0, 0.0, 0.0, str(error).removeprefix(f"{path}: "))
    return Entry(size, digest, info.n_frames, info.fps, info.duration_seconds)
