"""Compares a video with its folder's manifest, so that a damaged or exchanged file is noticed."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from focus_eval.core.errors import VideoError
from focus_eval.core.types import VideoInfo

_CHUNK_BYTES = 1 << 20


class FileState(NamedTuple):
    """File size in bytes, time of change and inode: a cheap sign that a file's content changed."""

    size: int
    mtime_ns: int
    inode: int


def file_state(path: Path) -> FileState:
    """Return size, time of change and inode of `path`. Raises VideoError if there is no file."""
    try:
        status = path.stat()
    except OSError as error:
        raise VideoError(f"{path}: {error.strerror}; was it moved or deleted?") from error
    return FileState(status.st_size, status.st_mtime_ns, status.st_ino)


def content_hash(path: Path) -> str:
    """Return the SHA-256 of the whole file, hexadecimal; other threads go on while it runs.

    Raises:
        VideoError: the file cannot be read, or changed while it was read.
    """
    state = file_state(path)
    digest, chunk = hashlib.sha256(), bytearray(_CHUNK_BYTES)
    try:
        with open(path, "rb", buffering=0) as file:
            while n_bytes := file.readinto(chunk):
                digest.update(memoryview(chunk)[:n_bytes])
    except OSError as error:
        raise VideoError(f"{path}: {error.strerror}") from error
    if file_state(path) != state:
        raise VideoError(f"{path}: changed while it was read; run again when it is complete")
    return digest.hexdigest()


MANIFEST_NAME = "videos.manifest.json"
MANIFEST_VERSION = 1
# Folders above a video that may hold its manifest: benchmarks sort videos into folders.
_MAX_FOLDER_LEVELS = 4
_RECENT_MANIFESTS = 16


@dataclass(frozen=True)
class ManifestEntry:
    """One video's entry in a manifest.

    Args:
        sha256: of the whole file, hexadecimal.
        fps: average rate; `frames / fps` is `seconds`.
        error: why the video could not be read when the manifest was written; its frames are then 0.
        notes: harmless peculiarities of the file.
        mtime_ns: time of change when a run first saw the video, which is hashed again only if that differs. 0 for
            entries written by `videos index`, which are hashed once in every process.
    """

    bytes: int
    sha256: str
    frames: int
    fps: float
    seconds: float
    error: str = ""
    notes: tuple[str, ...] = ()
    mtime_ns: int = 0


def known_info(path: Path) -> VideoInfo | None:
    """Return a video's length and rate from its manifest; None if it has no entry, an error or another size.

    The video itself is not opened and need not exist.
    """
    match = entry_of(path)
    if match is None or match[1].error or (path.exists() and path.stat().st_size != match[1].bytes):
        return None
    return VideoInfo(n_frames=match[1].frames, fps=match[1].fps)


def is_named(path: Path) -> bool:
    """Return True if a manifest has an entry for a video."""
    return entry_of(path) is not None


def check_file(path: Path) -> None:
    """Compare a file's size and checksum with its manifest entry; do nothing if it has none.

    Raises:
        VideoError: another size or content than when the folder was indexed, or a manifest that cannot be read.
    """
    match = entry_of(path)
    if match is None:
        return
    manifest, entry = match
    fix = f"download it again, or write the manifest again: focus-eval videos index {manifest.parent}"
    if (size := path.stat().st_size) != entry.bytes:
        raise VideoError(f"{path}: {size} bytes, its manifest says {entry.bytes}; {fix}")
    if entry.mtime_ns == path.stat().st_mtime_ns:
        return
    if content_hash(path) != entry.sha256:
        raise VideoError(f"{path}: its content is not what {manifest.name} was written for; {fix}")


def check_length(path: Path, info: VideoInfo) -> None:
    """Compare a file's number of frames with its manifest entry; do nothing if it has none.

    Raises:
        VideoError: another number of frames: the manifest was written by a version that counts differently.
    """
    match = entry_of(path)
    if match is not None and not match[1].error and match[1].frames != info.n_frames:
        raise VideoError(
            f"{path}: {info.n_frames} frames, its manifest says {match[1].frames}; another version wrote it: "
            f"focus-eval videos index {match[0].parent}"
        )


def entry_of(path: Path) -> tuple[Path, ManifestEntry] | None:
    """Return (manifest path, entry) of the nearest manifest above a video that names it; None if none does."""
    for folder in list(Path(os.path.abspath(path)).parents)[:_MAX_FOLDER_LEVELS]:
        manifest = folder / MANIFEST_NAME
        try:
            state = manifest.stat()
        except OSError:
            continue
        entry = _read(manifest, state.st_size, state.st_mtime_ns).get(name_in(folder, path))
        if entry is not None:
            return manifest, entry
    return None


def name_in(folder: Path, path: Path) -> str:
    """Return the path of a file in an absolute `folder`, as manifests name it."""
    return Path(os.path.abspath(path)).relative_to(folder).as_posix()


@lru_cache(maxsize=_RECENT_MANIFESTS)
def _read(manifest: Path, n_bytes: int, modified_ns: int) -> dict[str, ManifestEntry]:
    """Return entries by path relative to the manifest's folder; size and time of change are only cache keys."""
    del n_bytes, modified_ns
    try:
        content: Any = json.loads(manifest.read_text(encoding="utf-8"))
        if content["version"] != MANIFEST_VERSION:
            raise VideoError(f"{manifest}: version {content['version']}, this program reads {MANIFEST_VERSION}")
        # Manifests once said how far damage would be noticed, too.
        return {
            name: ManifestEntry(**{key: value for key, value in entry.items() if key != "checked"})
            for name, entry in content["videos"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise VideoError(
            f"{manifest}: not a manifest ({type(error).__name__}: {error}); delete it or write it again"
        ) from error
