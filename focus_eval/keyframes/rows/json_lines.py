"""Files of rows as JSON lines, written so that a kill loses at most the row being written."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from focus_eval.core.errors import NO_PERMISSION, DamagedFile, InvalidInput, RunError
from focus_eval.core.files import replace_file
from focus_eval.core.resources import HALF_ESCAPED, whole_text, whole_texts
from focus_eval.keyframes.rows.records import AnswerRow, RowT, SelectionRow, values_of

# Fields that few rows have; they are not written if they are empty.
_LEFT_OUT_IF_EMPTY = ("evidence_intervals", "is_cut", "prompt_note")


class RowWriter:
    """Appends rows to one JSON-lines file, one writer per file.

    An incomplete last line, left by a killed writer, is cut off when the file is opened again.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            cut_torn_line(path)
        self.path = path
        self._file = open(path, "ab")  # noqa: SIM115 (closed by close)

    def write(self, row: SelectionRow | AnswerRow) -> None:
        """Append `row` as one line and flush it to the operating system; raise RunError if that fails."""
        values = {name: value for name, value in values_of(row).items() if value or name not in _LEFT_OUT_IF_EMPTY}
        line = json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        with name_file_in_errors(self.path):
            self._file.write(whole_text(line).encode() + b"\n")
            self._file.flush()

    def close(self) -> None:
        """Sync the file to the disk and close it; a second call does nothing."""
        if not self._file.closed:
            with name_file_in_errors(self.path), closing(self._file):
                os.fsync(self._file.fileno())


def write_rows(path: Path, rows: Iterable[SelectionRow | AnswerRow]) -> Path:
    """Write `rows` to a JSON-lines file atomically, create its folder if needed, and return `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as part:
        part.unlink(missing_ok=True)  # a killed process with the same id may have left this file
        with closing(RowWriter(part)) as writer:
            for row in rows:
                writer.write(row)
    return path


@contextmanager
def name_file_in_errors(path: Path) -> Iterator[None]:
    """Turn an `OSError` of the `with` block into a `RunError` that names `path`."""
    try:
        yield
    except OSError as error:
        fix = "run again when it can, finished rows are kept"
        if error.errno in NO_PERMISSION:
            fix = "name another folder, or allow writing to this one"
        raise RunError(f"{path}: cannot be written ({error.strerror or error}); {fix}") from error


def read_rows(path: Path, kind: type[RowT]) -> Iterator[RowT]:
    """Yield the complete rows of a JSON-lines file in file order, without an incomplete last line.

    Raises:
        InvalidInput: a broken line that is not the last, or one with other fields; names file and line.
    """
    for number, values in read_lines(path):
        yield _row(values, kind, location=f"{path}:{number}")


def is_row(line: bytes, kind: type[RowT], *, location: str) -> bool:
    """Return True if `line`, one line of a JSON-lines file, can be read as a row of this kind; errors mean False."""
    try:
        _row(parse_line(line, location=location), kind, location=location)
    except InvalidInput:
        return False
    return True


def _row(values: dict[str, Any], kind: type[RowT], *, location: str) -> RowT:
    """The row of `values`; raises InvalidInput, naming `location`, for an unknown or a missing field."""
    field_names = {declared.name for declared in fields(kind)}
    if unknown := set(values) - field_names:
        raise InvalidInput(f"{location}: not a {kind.__name__}; it has no field {min(unknown)!r}")
    try:
        return kind(**values)
    except TypeError as error:
        raise InvalidInput(f"{location}: not a {kind.__name__} ({error})") from error


def read_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number, from 1, and the fields of each line of a JSON-lines file, without an incomplete last line.

    Raises:
        InvalidInput: a line that is not a JSON object; names file and line.
    """
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            yield number, parse_line(line, location=f"{path}:{number}")


def parse_line(line: bytes, *, location: str) -> dict[str, Any]:
    """Return the fields of one line of a JSON-lines file.

    Raises:
        InvalidInput: a line that is not a JSON object; names `location`.
    """
    try:
        values = json.loads(text := line.decode())
        values = whole_texts(values) if HALF_ESCAPED.search(text) else values
    except (ValueError, RecursionError) as error:
        raise DamagedFile(f"{location}: not a JSON row ({error}); the file was edited or damaged") from error
    if not isinstance(values, dict):
        raise DamagedFile(f"{location}: not a row but {type(values).__name__}")
    return values


def cut_torn_line(path: Path) -> None:
    """Remove an incomplete last line, which a killed writer may have left, from the file at `path`."""
    with open(path, "rb+") as file:
        end = file.seek(0, os.SEEK_END)
        keep = end
        while keep > 0:
            start = max(0, keep - 65536)
            file.seek(start)
            newline = file.read(keep - start).rfind(b"\n")
            if newline >= 0:
                keep = start + newline + 1
                break
            keep = start
        if keep != end:
            file.truncate(keep)
