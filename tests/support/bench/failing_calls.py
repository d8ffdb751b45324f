"""Lets one call to the operating system, to pyarrow or to SQLite fail: open, write, fsync, rename, link or lock."""

from __future__ import annotations

import builtins
import errno
import fcntl
import io
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock


class FailingCalls:
    """Counts the calls that concern files below `folder`, and lets the one of number `fail_at` fail once.

    Args:
        fail_at: from 1; 0 for none.
        kind: of the call that failed, "" where there were fewer.
    """

    def __init__(self, folder: Path, *, fail_at: int = 0) -> None:
        self._folder = str(folder)
        self._fail_at = fail_at
        self.n_calls = 0
        self.kind = ""

    def call(self, kind: str, path: Any = None) -> None:
        """Count a call; raise where it is the one that fails, naming the file only where the system would."""
        self.n_calls += 1
        if self.n_calls == self._fail_at:
            self.kind = kind
            if kind == "sqlite":
                raise sqlite3.OperationalError("disk I/O error")
            number = errno.ENOLCK if kind == "lock" else errno.ENOSPC
            raise OSError(number, os.strerror(number), *([str(path)] if path is not None else []))

    @contextmanager
    def watching(self) -> Iterator[FailingCalls]:
        """Watch the calls of this process while the block runs."""
        import pyarrow.parquet as pq

        from focus_eval.keyframes.encoders.store import RelevanceStore

        opened, connected = builtins.open, RelevanceStore._connected

        def watched_open(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
            if not self._is_inside(file):
                return opened(file, mode, *args, **options)
            self.call("open", file)
            file_object = opened(file, mode, *args, **options)
            return file_object if mode in ("r", "rb") else _WatchedFile(file_object, self)

        of_os: dict[str, Any] = self._of_paths({"replace": "rename", "link": "link", "open": "open"})
        of_os["fsync"] = self._before(os.fsync, "fsync")
        with (
            mock.patch.multiple("os", **of_os),
            mock.patch.object(builtins, "open", watched_open),
            mock.patch.object(io, "open", watched_open),
            mock.patch.object(fcntl, "flock", self._before(fcntl.flock, "lock")),
            mock.patch.object(pq.ParquetWriter, "write_table", self._before(pq.ParquetWriter.write_table, "write")),
            mock.patch.object(pq.ParquetWriter, "close", self._before(pq.ParquetWriter.close, "write")),
            mock.patch.object(RelevanceStore, "_connected", lambda store: _Watched(connected(store), self)),
        ):
            yield self

    def _is_inside(self, file: Any) -> bool:
        return isinstance(file, str | Path) and str(file).startswith(self._folder)

    def _before(self, call: Callable[..., Any], kind: str) -> Callable[..., Any]:
        """Return `call` with its failure before it, if it is due; giving a lock back never fails."""

        def watched(*arguments: Any, **options: Any) -> Any:
            if not (kind == "lock" and arguments[1] & fcntl.LOCK_UN):
                self.call(kind)
            return call(*arguments, **options)

        return watched

    def _of_paths(self, names: dict[str, str]) -> dict[str, Callable[..., Any]]:
        """Return these functions of `os`, each with its failure before it when its path is watched."""

        def watched(call: Callable[..., Any], kind: str) -> Callable[..., Any]:
            def run(path: Any, *arguments: Any, **options: Any) -> Any:
                if self._is_inside(path):
                    self.call(kind, path)
                return call(path, *arguments, **options)

            return run

        return {name: watched(getattr(os, name), kind) for name, kind in names.items()}


class _WatchedFile:
    """A file open for writing, whose writes and flushes may fail."""

    def __init__(self, file: Any, calls: FailingCalls) -> None:
        self._file, self._calls = file, calls

    def write(self, content: Any) -> Any:
        self._calls.call("write")
        return self._file.write(content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *raised: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._file)


class _Watched:
    """A connection to SQLite whose statements may fail."""

    def __init__(self, connection: Any, calls: FailingCalls) -> None:
        self._connection, self._calls = connection, calls

    def execute(self, *arguments: Any) -> Any:
        self._calls.call("sqlite")
        return self._connection.execute(*arguments)

    def executemany(self, *arguments: Any) -> Any:
        self._calls.call("sqlite")
        return self._connection.executemany(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)
