"""Stores rows: JSON lines while a run goes on, Parquet once a part is done.

A finished part is two Parquet files. `rows.parquet` holds what depends on the configuration alone: two runs of the
same matrix, or the same run killed and resumed, or on another number of workers, write the same bytes.
`costs.parquet` holds what the clock and the device said.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from focus_eval.errors import InvalidInput
from focus_eval.rows.parquet import parquet_records, parquet_writer
from focus_eval.rows.records import RowT, parse_line, read_lines, replace_file
from focus_eval.rows.stored import KEY_COLUMNS, StoredRows

COST_COLUMNS = ("forwards", "seconds", "device", "tokens")


def load_rows(folder: Path, kind: type[RowT]) -> Iterator[RowT]:
    """Yield the rows of one part of a run, a few at a time; see `StoredRows`.

    Raises:
        InvalidInput: a file that is damaged or holds other rows; names it.
    """
    yield from StoredRows(folder, kind)


def read_records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number and the fields of each row of one file of rows, JSON lines (from 1) or Parquet (from 0).

    Raises:
        InvalidInput: a file that is damaged; names it.
    """
    yield from enumerate(parquet_records(path)) if path.suffix == ".parquet" else read_lines(path)


def finished_questions(folder: Path, kind: type[RowT]) -> set[str]:
    """Return the ids of the questions that have a row, without reading what is in the rows.

    Raises:
        InvalidInput: a file that is damaged; names it.
    """
    return FinishedQuestions(folder, kind).ids()


class FinishedQuestions:
    """The questions of one part that have a row, also while runs write there: only what was added is read again."""

    def __init__(self, folder: Path, kind: type[Any]) -> None:
        self._folder = folder
        self._known = {declared.name for declared in fields(kind)}
        self._kind = kind.__name__
        self._ids: set[str] = set()
        self._read: dict[Path, tuple[int, int]] = {}  # bytes and lines
        self._parquet: tuple[int, int] | None = None

    def ids(self) -> set[str]:
        """Return the ids of the questions that have a row now.

        Raises:
            InvalidInput: a file that is damaged; names it.
        """
        # A part is compacted by writing the Parquet files first: looked at last, they hold what has no lines any more.
        for path in sorted(self._folder.glob("*.jsonl")):
            try:
                self._read_lines(path)
            except FileNotFoundError:
                continue
        self._read_parquet(self._folder / "rows.parquet")
        return self._ids

    def _read_lines(self, path: Path) -> None:
        n_bytes, n_lines = self._read.get(path, (0, 0))
        with open(path, "rb") as file:
            file.seek(n_bytes)
            for line in file:
                if not line.endswith(b"\n"):  # still being written
                    break
                n_bytes, n_lines = n_bytes + len(line), n_lines + 1
                values = parse_line(line, where=f"{path}:{n_lines}")
                if not set(values) <= self._known or "question_id" not in values:
                    raise InvalidInput(f"{path}:{n_lines}: not a {self._kind}")
                self._ids.add(values["question_id"])
        self._read[path] = (n_bytes, n_lines)

    def _read_parquet(self, path: Path) -> None:
        if not path.exists():
            return
        state = (path.stat().st_ino, path.stat().st_mtime_ns)
        if state != self._parquet:
            self._ids.update(row["question_id"] for row in parquet_records(path, columns=["question_id"]))
            self._parquet = state


def compact(folder: Path, kind: type[RowT], order: list[str], *, held: Collection[Path] = ()) -> None:
    """Turn the JSON lines of `folder` into Parquet, in the order of question ids `order`.

    Safe to kill: the lines go only once both files are in place. Files in `held` are still being written by others:
    their rows are read, and the files stay.

    Raises:
        InvalidInput: a row of a question that is not in `order`.
    """
    finished = [path for path in folder.glob("*.jsonl") if path not in held]
    if not finished:
        return  # nothing was added
    place = {question_id: at for at, question_id in enumerate(order)}
    stored = StoredRows(folder, kind)
    keys = [key for key, _ in stored.states()]
    unknown = next((question_id for _, question_id, _ in keys if question_id not in place), None)
    if unknown is not None:
        raise InvalidInput(f"{folder}: holds a row of question {unknown!r}, which the benchmark does not have")
    keys.sort(key=lambda key: place[key[1]])
    write_parquet(folder, kind, stored.in_order(keys))
    for path in finished:
        path.unlink()


def write_parquet(folder: Path, kind: type[RowT], rows: Iterator[RowT]) -> None:
    """Write `rows` as the two Parquet files of a finished part; both are complete before either takes its place."""
    names = [declared.name for declared in fields(kind)]
    costs = [name for name in names if name in COST_COLUMNS]
    keys = [name for name in names if name in KEY_COLUMNS]
    for left_by_a_kill in folder.glob(".*.parquet.*.part"):
        left_by_a_kill.unlink()
    # The inner file is put in its place first: rows without costs cannot be read, costs without rows can.
    with (
        replace_file(folder / "rows.parquet") as rows_file,
        replace_file(folder / "costs.parquet") as costs_file,
        parquet_writer(rows_file, kind, [name for name in names if name not in costs]) as write_row,
        parquet_writer(costs_file, kind, keys + costs) as write_costs,
    ):
        for row in rows:
            write_row(vars(row))
            write_costs(vars(row))
