"""Stores embeddings and relevance of frames on disk, for this run and later ones.

The store is one SQLite file in WAL mode. A killed process loses only values that it had not yet stored. Several
processes of one machine may read and write at once. WAL needs memory shared between these processes, so the file must
lie on a local disk, not on a network file system.

Every stored value ends with a checksum over the value, its series and its frame. A damaged value is deleted and then
computed again. If SQLite cannot read the file, the store renames it and begins a new one. In both cases it prints a
one-line warning.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from focus_eval.core.errors import InvalidInput, RunError
from focus_eval.core.types import FloatArray, IntArray
from focus_eval.keyframes.rows.files import aside_path
from focus_eval.keyframes.video.manifest import FileState, content_hash, file_state

LAYOUT = 2  # increase whenever the tables change; layout 1 had no checksums
_APPLICATION_ID = 0x464F4352  # SQLite application id of our stores
_CHECK_BYTES = 4
_DAMAGE = ("malformed", "not a database", "no such table", "no such column", "has no column", "decode")
_BUSY = ("database is locked", "database table is locked", "locking protocol")

_TABLES = """
CREATE TABLE IF NOT EXISTS series (
  id INTEGER PRIMARY KEY, scorer TEXT NOT NULL, video TEXT NOT NULL, query TEXT NOT NULL, UNIQUE (scorer, video, query)
);
CREATE TABLE IF NOT EXISTS embedding (
  series INTEGER NOT NULL, frame INTEGER NOT NULL, vector BLOB NOT NULL, PRIMARY KEY (series, frame)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS relevance (
  series INTEGER NOT NULL, frame INTEGER NOT NULL, value BLOB NOT NULL, PRIMARY KEY (series, frame)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS file (
  path TEXT PRIMARY KEY, size INTEGER, mtime_ns INTEGER, inode INTEGER, fingerprint BLOB NOT NULL
);
"""
# These tables are created separately, because older stores lack them and are still read.
_LATER_TABLES = """
CREATE TABLE IF NOT EXISTS scan (
  path TEXT PRIMARY KEY, size INTEGER, mtime_ns INTEGER, inode INTEGER, content BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS reply (key TEXT PRIMARY KEY, content BLOB NOT NULL);
"""
_FILE_STATE = "path = ? AND size = ? AND mtime_ns = ? AND inode = ?"
_DECODER = " libavcodec "  # stands in a video's key between the fingerprint and the decoder's version
_NO_QUERY = ""  # stands in place of a query in the keys of embeddings; a real query is never empty

ResultT = TypeVar("ResultT")


class RelevanceStore:
    """Keeps embeddings of frames, and relevance of frames to queries, across runs and processes.

    Keys are texts: `scorer` is the encoder's name and revision in one line; `video` is a fingerprint of the content
    (see `video_fingerprint`), which the decoder's version may follow. The first value stored for a key is never
    replaced, and the methods `put_...` return the values that the store then holds: two processes that score the same
    frame go on with the same numbers. A store can be used by several threads, and after a fork.

    Args:
        path: the file; it is created, with its folder, if missing.
        lock_seconds: longest wait for another process's write.

    Raises:
        RunError: the file cannot be opened or made, is not a store, or has another layout.
    """

    def __init__(self, path: Path | str, *, lock_seconds: float = 60.0) -> None:
        self.path = Path(path)
        self._lock_seconds = lock_seconds
        self._lock = threading.RLock()
        self._hashing = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._owner = -1
        self._inode: int | None = None
        self._series: dict[tuple[str, str, str], int] = {}
        self._run(lambda connection: None)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the path only; the copy opens the file itself."""
        return (partial(RelevanceStore, lock_seconds=self._lock_seconds), (self.path,))

    def embeddings(self, scorer: str, video: str, frames: IntArray) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
        """Return a mask `(n,)` of the `frames` that are stored, and their embeddings, float32 `(n_stored, d)`."""
        frames = np.asarray(frames, dtype=np.int64)
        rows = self._read("embedding", "vector", (scorer, video, _NO_QUERY), frames)
        is_stored = np.array([frame in rows for frame in frames.tolist()], dtype=bool)
        blobs = [rows[frame] for frame in frames[is_stored].tolist()]
        if len({len(blob) for blob in blobs}) > 1:
            raise RunError(f"{self.path}: embeddings of {scorer} have several lengths; choose another file")
        return is_stored, np.frombuffer(b"".join(blobs), dtype="<f4").reshape(len(blobs), -1 if blobs else 0)

    def put_embeddings(
        self, scorer: str, video: str, frames: IntArray, vectors: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Store the float32 embeddings `(n, d)` of `frames` `(n,)`; return the stored ones, `(n, d)`.

        Raises:
            InvalidInput: another type or shape, or numbers that are not finite.
            RunError: no space left, or a lock not obtained in time; nothing of this put is kept.
        """
        frames, vectors = np.asarray(frames, dtype=np.int64), np.asarray(vectors)
        if vectors.dtype != np.float32 or vectors.shape[:1] != frames.shape or vectors.ndim != 2:
            raise InvalidInput(
                f"embeddings of {frames.size} frames must be float32 (n, d), got {vectors.dtype} {vectors.shape}"
            )
        if not np.isfinite(vectors).all():
            raise InvalidInput(f"an embedding of {scorer} is not finite")
        blobs = [row.tobytes() for row in np.ascontiguousarray(vectors, dtype="<f4")]
        if self._write("embedding", "vector", (scorer, video, _NO_QUERY), frames, blobs):
            return vectors
        is_stored, stored_vectors = self.embeddings(scorer, video, frames)
        if is_stored.all():
            return stored_vectors
        # Some values are missing after all, because the file was damaged meanwhile: use the given vectors for them.
        refreshed: NDArray[np.float32] = vectors.copy()
        refreshed[is_stored] = stored_vectors.reshape(-1, vectors.shape[1])
        return refreshed

    def relevance(self, scorer: str, video: str, query: str, frames: IntArray) -> FloatArray:
        """Return the stored relevance of `frames` `(n,)` to `query`, NaN for frames without one, `(n,)`."""
        frames = np.asarray(frames, dtype=np.int64)
        rows = self._read("relevance", "value", (scorer, video, query), frames)
        is_stored = np.array([frame in rows for frame in frames.tolist()], dtype=bool)
        values = np.full(frames.shape, np.nan)
        values[is_stored] = np.frombuffer(b"".join(rows[frame] for frame in frames[is_stored].tolist()), dtype="<f8")
        return values

    def put_relevance(self, scorer: str, video: str, query: str, frames: IntArray, values: FloatArray) -> FloatArray:
        """Store the relevance `(n,)` of `frames` `(n,)` to `query`; return the stored values, `(n,)`.

        Raises:
            InvalidInput: an empty query, another shape, or values that are not finite numbers in [0, 1].
            RunError: no space left, or a lock not obtained in time; nothing of this put is kept.
        """
        frames, values = np.asarray(frames, dtype=np.int64), np.asarray(values, dtype=np.float64)
        if not query:
            raise InvalidInput("the query is empty: say what to look for")
        if values.shape != frames.shape or not ((values >= 0) & (values <= 1)).all():
            raise InvalidInput(
                f"relevance of {frames.size} frames by {scorer} must be as many finite numbers in [0, 1]"
            )
        blobs = [value.tobytes() for value in values.astype("<f8")]
        if self._write("relevance", "value", (scorer, video, query), frames, blobs):
            return values
        stored_values = self.relevance(scorer, video, query, frames)
        # A stored value is NaN only if the file was damaged after the write: use the given value then.
        return np.where(np.isnan(stored_values), values, stored_values)

    def video_fingerprint(self, path: Path | str) -> str:
        """Return a hash of the file's content; computed again only if size, modification time or inode have changed.

        Raises:
            VideoError: the file cannot be read, or changes while it is read.
        """
        path = Path(path).resolve()
        state = file_state(path)
        with self._hashing:  # several questions may ask for a video's hash at once: compute it once
            fingerprint = self.known_fingerprint(path)
            if fingerprint is None:
                fingerprint = content_hash(path)
                self._keep("file", _file_key(path, state), fingerprint.encode())
        return fingerprint

    def known_fingerprint(self, path: Path) -> str | None:
        """Return the stored hash of the file's content; None if the file is new, changed or its entry damaged."""
        content = self._kept("file", _FILE_STATE, _file_key(path, file_state(path)))
        return None if content is None else content.decode()

    def kept_scan(self, path: Path, state: FileState) -> bytes | None:
        """Return the content stored by `keep_scan` for this state of the video file; None if there is none."""
        return self._kept("scan", _FILE_STATE, _file_key(path, state))

    def keep_scan(self, path: Path, state: FileState, content: bytes) -> None:
        """Store `content`, the facts found when the video file was opened, for this state of the file."""
        self._keep("scan", _file_key(path, state), content)

    def reply(self, key: str) -> bytes | None:
        """Return the content stored by `keep_reply` under `key`; None if there is none."""
        return self._kept("reply", "key = ?", (key,))

    def keep_reply(self, key: str, content: bytes) -> None:
        """Store a model's reply under `key`, in place of an earlier one."""
        self._keep("reply", (key,), content)

    def _kept(self, table: str, condition: str, key: tuple[str | int, ...]) -> bytes | None:
        """The content stored under `key`; None if table or entry is missing, or the entry is damaged."""

        def read(connection: sqlite3.Connection) -> bytes | None:
            """Return the content from the database."""
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone():
                return None
            row = connection.execute(f"SELECT * FROM {table} WHERE {condition}", key).fetchone()
            return None if row is None else _unseal(row[-1], _entry_key(table, key))

        return self._run(read)

    def _keep(self, table: str, key: tuple[str | int, ...], content: bytes) -> None:
        """Store `content` with its checksum under `key`, in place of an earlier one, in one transaction."""

        def write(connection: sqlite3.Connection) -> None:
            """Insert the entry, in a new table if there is none."""
            with _transaction(connection):
                _create(connection, _LATER_TABLES)
                values = (*key, _seal(content, _entry_key(table, key)))
                connection.execute(f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * len(values))})", values)

        self._run(write)

    def close(self) -> None:
        """Close the file; it opens again when needed."""
        with self._lock:
            if self._connection is not None and self._owner == os.getpid():
                self._connection.close()
            self._connection = None

    def _read(self, table: str, column: str, series: tuple[str, str, str], frames: IntArray) -> dict[int, bytes]:
        """Return the stored values of `frames` by frame, for a series (scorer, video, query).

        Values that an earlier version stored under a video's key without the decoder are used too. Missing values are
        left out of the result. Damaged values are left out and deleted from the store.
        """
        rows = self._read_series(table, column, series, frames)
        scorer, video, query = series
        fingerprint, decoder = video.partition(_DECODER)[:2]
        if decoder and len(rows) < len(set(frames.tolist())):
            rows = {**self._read_series(table, column, (scorer, fingerprint, query), frames), **rows}
        return rows

    def _read_series(self, table: str, column: str, series: tuple[str, str, str], frames: IntArray) -> dict[int, bytes]:
        ask = f"SELECT frame, {column} FROM {table} WHERE series = ? AND frame IN (SELECT value FROM json_each(?))"

        def read(connection: sqlite3.Connection) -> dict[int, bytes]:
            """Return the undamaged values by frame, and delete damaged ones."""
            number = self._series_number(connection, series)
            if number is None:
                return {}
            key, sound, damaged = _key(table, *series), dict[int, bytes](), list[tuple[int, int, bytes]]()
            for frame, blob in connection.execute(ask, (number, json.dumps(frames.tolist()))).fetchall():
                value = _unseal(blob, key, frame)
                if value is None:
                    damaged.append((number, frame, blob))
                else:
                    sound[frame] = value
            if damaged:
                with _transaction(connection):  # delete only this damaged value: another process may have replaced it
                    connection.executemany(f"DELETE FROM {table} WHERE (series, frame, {column}) = (?, ?, ?)", damaged)
                self._warn(f"{len(damaged)} damaged values of {table}; they are computed again")
            return sound

        return self._run(read)

    def _write(
        self, table: str, column: str, series: tuple[str, str, str], frames: IntArray, values: list[bytes]
    ) -> bool:
        """Store the values that are not stored yet, all or nothing; return True if every one of `frames` was new."""
        if frames.size == 0:
            return True
        key = _key(table, *series)
        sealed = [_seal(value, key, frame) for frame, value in zip(frames.tolist(), values, strict=True)]

        def write(connection: sqlite3.Connection) -> bool:
            """Insert the values in one transaction; return True if every frame was new."""
            with _transaction(connection):
                connection.execute("INSERT OR IGNORE INTO series (scorer, video, query) VALUES (?, ?, ?)", series)
                number = self._series_number(connection, series)
                if number is None:
                    raise sqlite3.DatabaseError("malformed: a series that is there is not found")
                n_changes = connection.total_changes
                connection.executemany(
                    f"INSERT OR IGNORE INTO {table} (series, frame, {column}) VALUES ({number}, ?, ?)",
                    zip(frames.tolist(), sealed, strict=True),
                )
                return connection.total_changes - n_changes == frames.size

        return self._run(write)

    def _series_number(self, connection: sqlite3.Connection, series: tuple[str, str, str]) -> int | None:
        """The number of `series` in the database; None if it has none yet. Remembered if no transaction is open."""
        if series not in self._series:
            ask = "SELECT id FROM series WHERE scorer = ? AND video = ? AND query = ?"
            row = connection.execute(ask, series).fetchone()
            if row is not None and not isinstance(row[0], int):
                raise sqlite3.DatabaseError("malformed: the number of a series is none")
            if row is None or connection.in_transaction:  # do not remember an id whose transaction may still roll back
                return None if row is None else int(row[0])
            self._series[series] = int(row[0])
        return self._series[series]

    def _run(self, work: Callable[[sqlite3.Connection], ResultT]) -> ResultT:
        """Return `work(connection)`. If the store is damaged, rename it and do the work once more with a new store.

        Errors of SQLite are raised as RunError.
        """
        try:
            with self._lock:
                try:
                    return work(self._connected())
                except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
                    if not self._set_aside(error):
                        raise
                    return work(self._connected())
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self._explain(error) from error
        except OSError as error:
            raise RunError(f"{self.path}: the store cannot be made here ({error.strerror})") from error

    def _connected(self) -> sqlite3.Connection:
        """The open connection; opened again after a fork or `close`."""
        if self._connection is not None and self._owner != os.getpid():
            # After a fork, keep a reference to the parent's connection: closing it would release the parent's locks.
            _OF_PARENTS.append(self._connection)
            self._connection = None
        if self._connection is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._inode = self._inode_now()
            self._connection = _open(self.path, self._lock_seconds)
            self._owner = os.getpid()
            self._series.clear()
        return self._connection

    def _set_aside(self, error: Exception) -> bool:
        """Rename an unreadable store, so that a new one takes its place; return True if it was renamed.

        A file without the store's application id is left alone.
        """
        if not any(sign in str(error) for sign in _DAMAGE):
            return False
        inode = self._inode
        self.close()
        if inode is not None and self._inode_now() == inode:  # otherwise another process has already renamed it
            with open(self.path, "rb") as file:
                if file.read(72)[68:] != _APPLICATION_ID.to_bytes(4, "big"):
                    return False
            damaged_path = aside_path(self.path)
            for suffix in ("-wal", "-shm", ""):  # rename the write-ahead log too: a new file must not replay it
                with suppress(FileNotFoundError):
                    os.replace(f"{self.path}{suffix}", f"{damaged_path}{suffix}")
            self._warn(f"damaged ({error}), kept as {damaged_path.name}; what it held is computed again")
        return True

    def _inode_now(self) -> int | None:
        return self.path.stat().st_ino if self.path.exists() else None

    def _warn(self, message: str) -> None:
        """Print a message about the store to standard error."""
        print(f"{self.path}: {message}", file=sys.stderr, flush=True)

    def _explain(self, error: Exception) -> RunError:
        """SQLite's error as a RunError that says what to do: wait, free space, delete or check permissions."""
        text = str(error)
        if any(busy in text for busy in _BUSY):
            return RunError(
                f"{self.path}: another process held the store for more than {self._lock_seconds:g} s; try again"
            )
        if "full" in text:
            return RunError(
                f"{self.path}: no space left to keep relevance; free some and run again, nothing kept is lost"
            )
        if any(sign in text for sign in _DAMAGE):
            return RunError(
                f"{self.path}: no relevance store, or one whose beginning is damaged ({text}); choose another file"
            )
        if self.path.is_dir():
            return RunError(f"{self.path}: a folder; name a file in it to keep relevance")
        return RunError(f"{self.path}: the store cannot be used ({text}); check the folder's permissions and space")


_OF_PARENTS: list[sqlite3.Connection] = []


def _open(path: Path, lock_seconds: float) -> sqlite3.Connection:
    """Return a connection to the store at `path`, made if needed.

    Raises RunError for a database of another program or another layout.
    """
    connection = sqlite3.connect(path, timeout=lock_seconds, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("BEGIN")  # read one snapshot, as another process may be creating the tables right now
        ask = ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
        owner, layout, n_tables = (connection.execute(item).fetchone()[0] for item in ask)
        connection.execute("COMMIT")
        if (owner, layout) != (_APPLICATION_ID, LAYOUT):
            if n_tables and owner != _APPLICATION_ID:
                raise RunError(f"{path}: a database of another program, not a relevance store; choose another file")
            if n_tables:
                raise RunError(f"{path}: a relevance store of layout {layout}, this version reads {LAYOUT}; delete it")
            _lay_out(connection, lock_seconds)
        connection.execute("PRAGMA synchronous = NORMAL")  # safe with WAL: a power cut loses only the last writes
        connection.execute("PRAGMA cache_size = -65536")
    except BaseException:
        connection.close()
        raise
    return connection


def _lay_out(connection: sqlite3.Connection, lock_seconds: float) -> None:
    """Create the tables of a new store and mark the file with application id and layout."""
    connection.execute("PRAGMA page_size = 16384")  # ten embeddings a page
    _wait_for_wal(connection, lock_seconds)
    with _transaction(connection):
        _create(connection, _TABLES)
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {LAYOUT}")


def _create(connection: sqlite3.Connection, tables: str) -> None:
    """Run the statements in `tables`, which create missing tables; the caller has opened a transaction."""
    for statement in tables.split(";"):
        connection.execute(statement)


def _entry_key(table: str, key: tuple[str | int, ...]) -> int:
    return _key(*key) if table == "file" else _key(table, *key)


def _key(*parts: object) -> int:
    """The checksum of a value's key (series or file); the checksum of the value starts from it."""
    return zlib.crc32(json.dumps(parts).encode())


def _seal(value: bytes, key: int, frame: int = 0) -> bytes:
    """`value` followed by 4 bytes of checksum over its key, frame and content."""
    return value + zlib.crc32(value, zlib.crc32(frame.to_bytes(8, "little", signed=True), key)).to_bytes(4, "little")


def _unseal(blob: object, key: int, frame: object = 0) -> bytes | None:
    """The value of a sealed `blob`; None unless it was sealed for `key` and `frame`."""
    if not isinstance(blob, bytes) or not isinstance(frame, int) or len(blob) < _CHECK_BYTES:
        return None
    value = blob[:-_CHECK_BYTES]
    return value if _seal(value, key, frame) == blob else None


def _wait_for_wal(connection: sqlite3.Connection, lock_seconds: float) -> None:
    """Turn WAL on; retry, because SQLite itself does not wait when several processes do so at once."""
    deadline = time.monotonic() + lock_seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if time.monotonic() > deadline or not any(busy in str(error) for busy in _BUSY):
                raise
            time.sleep(0.01)


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run the block as one transaction, rolled back on any error.

    The write lock is taken at the start. Waiting for it is therefore limited in time and cannot deadlock.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _file_key(path: Path, state: FileState) -> tuple[str | int, ...]:
    """The database key of a file in a state; a path that is not UTF-8 is escaped, as SQLite requires."""
    return (str(path.resolve()).encode(errors="backslashreplace").decode(), *state)
