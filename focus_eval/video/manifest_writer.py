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
from focus_eval.video.manifest import MANIFEST_NAME, MANIFEST_VERSION, ManifestEntry, content_hash, file_state, is_named
from focus_eval.video.scan import scan_file
from focus_eval.video.scan_cache import scan_video

SUFFIXES = frozenset(
    {".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".ts", ".m2ts", ".mts", ".mpg", ".mpeg", ".vob", ".flv", ".wmv"}
    | {".asf", ".ogv", ".ogg", ".3gp", ".mxf", ".gif", ".nut"}
)

_manifest_lock = threading.Lock()


def index_folder(
    folder: Path, *, only_new: bool = False, progress: Callable[[Path], None] = lambda path: None
) -> dict[str, ManifestEntry]:
    """Read the videos under `folder`, write the manifest there, and return their entries by path in the folder.

    An existing manifest is replaced, unless `only_new`.

    Args:
        only_new: read only videos that no manifest names, and add their entries.
        progress: called with each path before it is read.

    Raises:
        InvalidInput: no such folder, or no video in it.
    """
    paths = list(video_files(folder))
    if not paths:
        raise InvalidInput(f"{folder}: no videos in it ({', '.join(sorted(SUFFIXES))})")
    entries = {}
    for path in paths:
        if not (only_new and is_named(path)):
            progress(path)
            entries[path.relative_to(folder).as_posix()] = _entry(path)
    if entries:
        earlier = _read_videos(folder) if only_new else {}
        _write(folder, {**earlier, **{name: asdict(entry) for name, entry in entries.items()}})
    return entries


def note_first_sight(folder: Path, path: Path, *, sha256: str) -> bool:
    """Add a video that no manifest names to `folder`'s manifest, so that a later change of it is noticed.

    Of two processes that write at once, one may lose its entry: its video is then named by the next run.

    Returns:
        True if a manifest names the video now; False if `folder` does not hold it or cannot be written to.
    """
    if is_named(path):
        return True
    folder, path = folder.resolve(), path.resolve()
    if folder not in path.parents or not os.access(folder, os.W_OK):
        return False
    scan, state = scan_video(path), file_state(path)
    info = scan.info
    entry = ManifestEntry(
        state.size, sha256, info.n_frames, info.fps, info.duration_seconds, notes=scan.notes, mtime_ns=state.mtime_ns
    )
    with _manifest_lock:
        _write(folder, {**_read_videos(folder), path.relative_to(folder).as_posix(): asdict(entry)})
    return True


def _read_videos(folder: Path) -> dict[str, Any]:
    """Return the entries in the folder's manifest, by path in the folder; {} without a manifest."""
    manifest = folder / MANIFEST_NAME
    videos: dict[str, Any] = json.loads(manifest.read_text(encoding="utf-8"))["videos"] if manifest.exists() else {}
    return videos


def _write(folder: Path, videos: dict[str, Any]) -> None:
    """Write the folder's manifest."""
    write_json(folder / MANIFEST_NAME, {"version": MANIFEST_VERSION, "videos": videos}, indent=1)


def write_json(path: Path, content: dict[str, Any], *, indent: int | None = None) -> None:
    """Write a JSON file atomically: readers find the old content or all of the new."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    # A name that is not UTF-8 is written as JSON's escapes, so that it is found again.
    text = json.dumps(content, indent=indent, ensure_ascii=False) + "\n"
    partial.write_text(text, encoding="utf-8", errors="backslashreplace")
    os.replace(partial, path)


def video_files(folder: Path) -> Iterator[Path]:
    """Yield the files under `folder` with a suffix in `SUFFIXES`, sorted; raise InvalidInput if it is no folder."""
    if not folder.is_dir():
        raise InvalidInput(f"{folder}: no such folder")
    yield from sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())


def _entry(path: Path) -> ManifestEntry:
    """Return a video's entry: size, checksum, length and rate, or why the video cannot be read."""
    size, digest = path.stat().st_size, content_hash(path)
    try:
        scan = scan_file(path)
    except VideoError as error:
        return ManifestEntry(size, digest, 0, 0.0, 0.0, str(error).removeprefix(f"{path}: "))
    info = scan.info
    return ManifestEntry(size, digest, info.n_frames, info.fps, info.duration_seconds, notes=scan.notes)
