"""Guards the files of a run: each contains its own SHA-256, and a lock keeps two processes apart.

The digest is inside the file, so that both are renamed into place at once, even if the writer is killed. Older files
have no digest and are read without a check.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock, Timeout

from focus_eval.core.errors import DamagedFile, InvalidInput, RunError
from focus_eval.core.files import replace_file
from focus_eval.core.resources import read_json_object, whole_text

DIGEST_KEY = "focus_eval.sha256"
NO_DIGEST = "0" * 64
_TAIL_BYTES = 1 << 16  # a Parquet file ends with its metadata
_BLOCK_BYTES = 1 << 20
# A file counts as unchanged since its check only if it was modified at least this long before. A younger file may have
# been changed again within one tick of the file system's clock, with the same modification time.
_SURE_AFTER_NS = 2 * 10**9
_DIGEST = re.compile("[0-9a-f]{64}")
_FIX = "run the matrix again: it keeps this file aside and asks again what was in it"

_sound: dict[Path, tuple[int, ...]] = {}


def seal_parquet(path: Path) -> None:
    """Write the digest of a Parquet file into its metadata, in place of `NO_DIGEST` at `DIGEST_KEY`."""
    with open(path, "rb+") as file:
        at = _place_of_digest(file)
        if at is None:
            raise ValueError(f"{path}: has no {DIGEST_KEY}")
        digest = _digest_around(file, at)
        file.seek(at)
        file.write(digest.encode())


def check_parquet(path: Path) -> None:
    """Raise an error if a Parquet file does not match its digest; a file is read again only if it has changed.

    Raises:
        DamagedFile: its content does not match its digest.
        FileNotFoundError: no such file.
    """
    stat = path.stat()
    state = (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    if _sound.get(path) == state:
        return
    with open(path, "rb") as file:
        at = _place_of_digest(file)
        if at is not None:
            file.seek(at)
            if file.read(64).decode("ascii", "replace") != _digest_around(file, at):
                raise DamagedFile(f"{path}: damaged, its content does not match its SHA-256; {_FIX}")
    if time.time_ns() - max(state[2:]) > _SURE_AFTER_NS:
        _sound[path] = state


def write_sealed_json(path: Path, document: Mapping[str, object]) -> None:
    """Write `document` with its digest as the last key to `path`, whole or not at all.

    Raises:
        InvalidInput: as `replace_file`.
    """
    # Convert to JSON and back first, so that the digest is that of the content as it will be read.
    content = json.loads(whole_text(json.dumps(dict(document), ensure_ascii=False)))
    text = json.dumps({**content, "sha256": _document_digest(content)}, indent=1, ensure_ascii=False)
    with replace_file(path) as part:
        part.write_text(text + "\n", encoding="utf-8")


def read_sealed_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file without its digest.

    Raises:
        DamagedFile: not JSON, or content that does not match its digest; names file and remedy.
    """
    try:
        document = read_json_object(path)
    except InvalidInput as error:
        raise DamagedFile(f"{error}; {_FIX}") from error
    digest = document.pop("sha256", None)
    last_value = str(next(reversed(document.values()), ""))
    # Older files have no digest. A last value that looks like a digest, without its key, means that the key is damaged.
    is_damaged = digest != _document_digest(document) if digest is not None else _DIGEST.fullmatch(last_value)
    if is_damaged:
        raise DamagedFile(
            f"{path}: edited or damaged, its content does not match its SHA-256; {_FIX} "
            '(if you edited it, remove its key "sha256")'
        )
    return document


def set_aside(path: Path, consequence: str, *, reason: str = "damaged") -> None:
    """Rename a damaged or dropped file to a free name and print that, with `consequence`, to standard error."""
    new_path = aside_path(path, reason=reason)
    os.replace(path, new_path)
    print(f"{path}: {reason}, kept as {new_path.name}; {consequence}", file=sys.stderr, flush=True)


def aside_path(path: Path, *, reason: str = "damaged") -> Path:
    """Return a free path next to `path`, which is renamed to it: `NAME.damaged`, `NAME.damaged2`, .."""
    number, new_path = 1, path.with_name(f"{path.name}.{reason}")
    while new_path.exists():
        number += 1
        new_path = path.with_name(f"{path.name}.{reason}{number}")
    return new_path


def _place_of_digest(file: BinaryIO) -> int | None:
    """The byte offset of the digest in a Parquet file; None for a file without one."""
    start = max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES)
    file.seek(start)
    tail = file.read()
    key = tail.rfind(DIGEST_KEY.encode())
    # Between key and value, Thrift writes two or three bytes: the field's type, and the value's length, which is 64.
    at = tail.find(b"\x40", key + len(DIGEST_KEY), key + len(DIGEST_KEY) + 4) + 1
    if key < 0:
        return None
    return start + (at or key)  # if the length is missing, the file is damaged: the check then fails at the key


def _digest_around(file: BinaryIO, at: int) -> str:
    """The SHA-256, in hexadecimal digits, of a file without the 64 bytes of the digest at offset `at`."""
    digest = hashlib.sha256()
    file.seek(0)
    n_bytes = at
    while n_bytes:
        block = file.read(min(n_bytes, _BLOCK_BYTES))
        digest.update(block)
        n_bytes -= len(block)
    file.seek(at + 64)
    while block := file.read(_BLOCK_BYTES):
        digest.update(block)
    return digest.hexdigest()


def _document_digest(content: dict[str, object]) -> str:
    """The SHA-256 of a JSON object, in hexadecimal digits, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


class FolderLock(FileLock):
    """A lock of the operating system on a file; it ends with the process, even if the process is killed.

    Raises:
        Timeout: another process holds it for longer than `timeout` seconds.
        RunError: the folder's file system gives no locks, or has no room for the file.
    """

    def acquire(self, *args: Any, **kwargs: Any) -> Any:
        """Take the lock, as `FileLock.acquire`; Timeout passes, other errors of the system become RunError."""
        try:
            return super().acquire(*args, **kwargs)
        except Timeout:
            raise
        except OSError as error:
            is_protected = error.errno in (errno.EROFS, errno.EACCES, errno.EPERM)
            remedy = "copy it to a folder that can be written"
            if not is_protected:
                remedy = "use a folder on a local disk, or mount it with locks"
            folder = Path(self.lock_file).parent
            raise RunError(f"{folder}: cannot be locked ({error.strerror or error}); {remedy}") from error


@contextmanager
def locked_at_once(file: Path, refusal: str) -> Iterator[None]:
    """Hold the lock `file` in the block, without waiting for it; the lock ends with the process in any case.

    Raises:
        RunError: another process holds it, "FOLDER: REFUSAL"; or as `FolderLock`.
    """
    try:
        lock = FolderLock(file, timeout=0).acquire()
    except Timeout as error:
        raise RunError(f"{file.parent}: {refusal}") from error
    with lock:
        yield
