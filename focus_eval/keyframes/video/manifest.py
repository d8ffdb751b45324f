"""Reads a folder's records of its videos (manifest and verdicts), and compares files with the manifest."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from focus_eval.core.errors import VideoError
from focus_eval.core.types import IntArray, VideoInfo

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


def checked_file(path: Path) -> Path:
    """Return `path` unchanged if it is a readable, non-empty file.

    Raises:
        VideoError: the path does not exist, is a directory, a pipe or a device, is empty, or may not be read.
    """
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise VideoError(f"{path}: no such file; check the path") from error
    except OSError as error:
        raise VideoError(f"{path}: cannot be read ({error.strerror}); check the path and permissions") from error
    if stat.S_ISDIR(status.st_mode):
        raise VideoError(f"{path}: a directory, not a video file; name a file inside it")
    if not stat.S_ISREG(status.st_mode):
        raise VideoError(f"{path}: a pipe or a device, not a video file; write it to a file first")
    if status.st_size == 0:
        raise VideoError(f"{path}: the file is empty (0 bytes); download it again")
    if not os.access(path, os.R_OK):
        raise VideoError(f"{path}: no permission to read the file; change its permissions or owner")
    return path


def content_hash(path: Path) -> str:
    """Return the SHA-256 of the whole file, hexadecimal; other threads can run meanwhile.

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
# Number of folders above a video in which its manifest is looked for, since benchmarks sort videos into folders.
_MAX_FOLDER_LEVELS = 4
_RECENT_MANIFESTS = 16


@dataclass(frozen=True)
class ManifestEntry:
    """One video's entry in a manifest.

    Args:
        sha256: of the whole file, hexadecimal.
        fps: average rate; `frames / fps` is `seconds`.
        error: why the video could not be read when the manifest was written; `frames` is then 0.
        notes: harmless peculiarities of the file.
        mtime_ns: the file's time of change when a run first saw it; the file is hashed again only if this time differs.
            0 in an entry of `videos index`, whose file is hashed once in every process.
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
    """Return a video's length and rate from its manifest; None without an entry, with an error, or if the size differs.

    The video itself is not opened and need not exist.
    """
    match = entry_of(path)
    if match is None or match[1].error or (path.exists() and path.stat().st_size != match[1].bytes):
        return None
    return VideoInfo(n_frames=match[1].frames, fps=match[1].fps)


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
        if (entry := read_manifest(folder).get(name_in(folder, path))) is not None:
            return folder / MANIFEST_NAME, entry
    return None


def read_manifest(folder: Path) -> dict[str, ManifestEntry]:
    """Return the entries of a folder's manifest by path in the folder, {} without one; VideoError if it is damaged."""
    manifest = folder / MANIFEST_NAME
    try:
        state = manifest.stat()
    except OSError:
        return {}
    return _read_manifest(manifest, state.st_size, state.st_mtime_ns)


def name_in(folder: Path, path: Path) -> str:
    """Return the path of a file in an absolute `folder`, as manifests name it."""
    return Path(os.path.abspath(path)).relative_to(folder).as_posix()


@lru_cache(maxsize=_RECENT_MANIFESTS)
def _read_manifest(manifest: Path, n_bytes: int, modified_ns: int) -> dict[str, ManifestEntry]:
    """Entries by path relative to the manifest's folder; size and time of change are only cache keys."""
    del n_bytes, modified_ns
    with _parsed(manifest, MANIFEST_VERSION, "not a manifest", remedy="delete it or write it again") as content:
        # Ignore a field of older manifests, which stated how far damage would be noticed.
        return {
            name: ManifestEntry(**{key: value for key, value in entry.items() if key != "checked"})
            for name, entry in content["videos"].items()
        }


@contextmanager
def _parsed(path: Path, version: int, fault: str, *, remedy: str) -> Iterator[Any]:
    """Yield the content of a JSON file of `version`; errors of its content, in the block too, become a VideoError."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["version"] != version:
            raise VideoError(f"{path}: version {content['version']}, this program reads {version}")
        yield content
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise VideoError(f"{path}: {fault} ({type(error).__name__}: {error}); {remedy}") from error


VERDICTS_NAME = "videos.verified.json"
VERDICTS_VERSION = 1
# Beginning of the verdict on a file that crashed its decoding process.
CRASHES = "crashes the decoder"


@dataclass(frozen=True)
class VideoVerdict:
    """Result of decoding all of a file.

    Args:
        frames: number of frames; 0 if the file is refused as a whole.
        damaged: half-open ranges of frames that do not come out whole, ascending.
        groups: `(start, stop, CRC-32 of its packets)` for each group of pictures, which frames `[start, stop)` need; ()
            if frames can only be counted.
        error: why the file is refused as a whole; "" if it is not.
        writer: versions of the libraries that decoded the file.
        notes: harmless peculiarities, such as HDR, and signs of damage that prove nothing; no frame is refused for
            them.
    """

    frames: int
    damaged: tuple[tuple[int, int], ...] = ()
    groups: tuple[tuple[int, int, int], ...] = ()
    error: str = ""
    writer: str = ""
    notes: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """True if every frame can be decoded."""
        return not self.damaged and not self.error

    def summary(self) -> str:
        """Return the verdict as text, such as "whole, 90 frames"."""
        ranges = ", ".join(f"{start} to {stop - 1}" for start, stop in self.damaged)
        return self.error or (
            f"damaged: frames {ranges} of {self.frames}" if ranges else f"whole, {self.frames} frames"
        )

    def refused_among(self, frames: IntArray) -> IntArray:
        """Return those of `frames` that are damaged."""
        starts, stops = np.array(self.damaged, dtype=np.int64).reshape(-1, 2).T
        is_damaged = (frames[:, None] >= starts) & (frames[:, None] < stops)
        refused: IntArray = frames[is_damaged.any(axis=1)]
        return refused


@dataclass(frozen=True)
class Verdicts:
    """Verdicts kept in a folder.

    Args:
        videos: verdict by the video's SHA-256.
        states: `(size in bytes, time of change)` that a video had when its content last matched its manifest, by path
            in the folder.
    """

    videos: Mapping[str, VideoVerdict] = field(default_factory=dict)
    states: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def verdict_on(path: Path) -> VideoVerdict | None:
    """Return the verdict for a video's checksum in its manifest; None without a manifest entry or a verdict."""
    match = entry_of(path)
    return read_verdicts(match[0].parent).videos.get(match[1].sha256) if match is not None else None


def count_verified(paths: Sequence[Path]) -> str:
    """Return the number of verified videos as text: "20 of 900 videos verified, 1 of them damaged".

    A video whose file changed since it was verified is counted apart. No video is read.
    """
    known = [(path, verdict) for path in paths if (verdict := verdict_on(path)) is not None]
    current = [verdict for path, verdict in known if is_as_verified(path)]
    n_changed, n_damaged = len(known) - len(current), sum(not verdict.is_whole for verdict in current)
    text = f"{len(current)} of {len(paths)} video{'s' if len(paths) != 1 else ''} verified"
    text += f", {n_damaged} of them damaged" if n_damaged else ""
    return text + (f"; {n_changed} changed since: videos verify says how" if n_changed else "")


def is_as_verified(path: Path) -> bool:
    """Return True if a video with a verdict still has its size and time of change of when it was verified."""
    match, state = entry_of(path), file_state(path)
    states = read_verdicts(match[0].parent).states if match is not None else {}
    return match is not None and states.get(name_in(match[0].parent, path)) == (state.size, state.mtime_ns)


def read_verdicts(folder: Path) -> Verdicts:
    """Return the verdicts kept in a folder; empty if none are kept.

    Raises:
        VideoError: the file is damaged.
    """
    path = folder / VERDICTS_NAME
    return _read_verdicts(path, path.stat().st_mtime_ns) if path.exists() else Verdicts()


@lru_cache(maxsize=16)
def _read_verdicts(path: Path, modified_ns: int) -> Verdicts:
    """The verdicts in a file; `modified_ns` is only a cache key."""
    del modified_ns
    with _parsed(path, VERDICTS_VERSION, "cannot be read", remedy="delete it and run videos verify again") as content:
        return Verdicts(
            {digest: _verdict(fields) for digest, fields in content["videos"].items()},
            {name: (size, mtime_ns) for name, (size, mtime_ns) in content.get("states", {}).items()},
        )


def _verdict(fields: dict[str, Any]) -> VideoVerdict:
    """The verdict with `fields` from JSON, its lists as tuples."""
    damaged, groups = (tuple(map(tuple, fields[name])) for name in ("damaged", "groups"))
    return VideoVerdict(**{**fields, "damaged": damaged, "groups": groups, "notes": tuple(fields.get("notes", ()))})
