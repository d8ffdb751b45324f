"""Identifies a video by its content, whatever its file is called."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from focus_eval.errors import VideoError

_CHUNK_BYTES = 1 << 20


class FileState(NamedTuple):
    """What changes whenever a file's content does, short of reading it."""

    size: int
    mtime_ns: int
    inode: int


def file_state(path: Path) -> FileState:
    """Return size, time of change and inode of `path`. Raises VideoError where there is no file."""
    try:
        status = path.stat()
    except OSError as error:
        raise VideoError(f"{path}: {error.strerror}") from error
    return FileState(status.st_size, status.st_mtime_ns, status.st_ino)


def content_hash(path: Path) -> str:
    """Return the SHA-256 of the whole file, hexadecimal; other threads go on while it runs.

    Raises:
        VideoError: the file cannot be read, or changed while it was read.
    """
    before = file_state(path)
    digest, chunk = hashlib.sha256(), bytearray(_CHUNK_BYTES)
    try:
        with open(path, "rb", buffering=0) as file:
            while n_bytes := file.readinto(chunk):
                digest.update(memoryview(chunk)[:n_bytes])
    except OSError as error:
        raise VideoError(f"{path}: {error.strerror}") from error
    if file_state(path) != before:
        raise VideoError(f"{path}: changed while it was read; run again when it is complete")
    return digest.hexdigest()
