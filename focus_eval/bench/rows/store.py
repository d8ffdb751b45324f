"""Stores rows as JSON lines during a run, and as Parquet once a part is finished.

A finished part is two Parquet files. `rows.parquet` holds the columns that depend on the configuration alone: two runs
of the same matrix, resumed or not, on any number of workers, write the same bytes. `costs.parquet` holds measured times
and devices.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import fields
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from focus_eval.core.errors import DamagedFile, InvalidInput, RowsChanged, printable
from focus_eval.core.files import replace_file
from focus_eval.keyframes.rows.files import (
    DIGEST_KEY,
    NO_DIGEST,
    aside_path,
    check_parquet,
    read_sealed_json,
    seal_parquet,
    set_aside,
    write_sealed_json,
)
from focus_eval.keyframes.rows.identity import git_revision, versions
from focus_eval.keyframes.rows.json_lines import is_row, parse_line, read_rows, write_rows
from focus_eval.keyframes.rows.records import AnswerRow, RowT, SelectionRow, values_of

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from _typeshed import DataclassInstance


ItemT = TypeVar("ItemT")

# File in a cell's folder with the first prompt that the model was sent.
PROMPT_FILE = "prompt.json"
# Folder beside runs with the rows that they share.
POOL_NAME = "pool"
# Columns whose shape varies from row to row are stored as JSON text.
JSON_COLUMNS = (
    "options", "changed_options", "facts", "clips", "seconds", "tokens", "gmacs", "decoded", "encoded",
    "text_pulls", "asked", "evidence_intervals", "frame_seconds",
)  # fmt: skip
# Number of rows held as Python objects, and rows per Parquet group. Both are small, since a row with pulls takes up to
# 100 KB.
BATCH_ROWS, GROUP_ROWS = 64, 256
# Limits of texts that are interned while a file is read: number of texts, and length of a text.
MAX_SHARED, MAX_SHARED_TEXT = 10_000, 300
MAX_NAME_BYTES = 255  # limit of a file's name on every usual file system


def parquet_records(path: Path, *, columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file, with JSON columns decoded.

    Args:
        columns: names of the columns to read; None reads all.

    Raises:
        InvalidInput: a file that is missing or damaged; names it.
    """
    with _readable(path) as file:
        # Rows with lists of pulls are large, so read only a few at a time.
        n_rows = 4096 if columns is not None and "pulled_frames" not in columns else BATCH_ROWS
        batches = file.iter_batches(batch_size=n_rows, columns=columns, use_threads=False)
        known_values: dict[tuple[bool, str], object] = {}
        while (batch := _next(batches, path)) is not None:
            yield from _decoded(batch, path, known_values)
            if len(known_values) > MAX_SHARED:
                known_values.clear()


def parquet_columns(path: Path) -> list[str]:
    """Return the names of the columns of a Parquet file.

    Raises:
        InvalidInput: a file that is missing or damaged; names it.
    """
    with _readable(path) as file:
        return list(file.schema_arrow.names)


@contextmanager
def parquet_writer(
    path: Path, kind: type[DataclassInstance], names: Sequence[str]
) -> Iterator[Callable[[Mapping[str, object]], None]]:
    """Yield a function that appends the columns `names` of a row to the new Parquet file `path`.

    The same rows give the same bytes.

    Args:
        kind: dataclass of the rows, whose annotations give the columns' types.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _schema(kind, names)
    waiting: list[Mapping[str, object]] = []

    def flush() -> None:
        """Write the waiting rows to the file as one row group."""
        columns: dict[str, list[object]] = {}
        for name in names:
            columns[name] = [values[name] for values in waiting]
            if name in JSON_COLUMNS:
                columns[name] = [json.dumps(cell, ensure_ascii=False, separators=(",", ":")) for cell in columns[name]]
        writer.write_table(pa.table(columns, schema=schema))
        waiting.clear()

    def write(values: Mapping[str, object]) -> None:
        """Add a row; every `GROUP_ROWS` rows are written together."""
        waiting.append(values)
        if len(waiting) == GROUP_ROWS:
            flush()

    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        yield write
        if waiting:
            flush()
        writer.add_key_value_metadata({DIGEST_KEY: NO_DIGEST})
    seal_parquet(path)


class RowsByKey(Generic[ItemT]):
    """Finds rows by key in a stream that is roughly in the order of the requests.

    Rows that come before a requested row are kept in memory until they are requested.
    """

    def __init__(self, rows: Iterable[ItemT], *, key: Callable[[ItemT], Hashable]) -> None:
        self._rows = iter(rows)
        self._key = key
        self._kept: dict[Hashable, ItemT] = {}

    def take(self, key: Hashable) -> ItemT | None:
        """Return and forget the row of `key`; None, after reading the whole stream, if there is no such row."""
        while key not in self._kept:
            try:
                row = next(self._rows)
            except StopIteration:
                return None
            self._kept[self._key(row)] = row
        return self._kept.pop(key)


@contextmanager
def _readable(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file after checking its digest; errors that mean a broken file become DamagedFile."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        check_parquet(path)
        file = pq.ParquetFile(path)
    except DamagedFile:
        raise
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error
    with file:
        yield file


def _next(batches: Iterator[pa.RecordBatch], path: Path) -> pa.RecordBatch | None:
    """The next batch, None at the end; read errors become `DamagedFile` for `path`."""
    import pyarrow as pa

    try:
        return next(batches, None)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error


def _decoded(batch: pa.RecordBatch, path: Path, known_values: dict[tuple[bool, str], object]) -> list[dict[str, Any]]:
    """Return the rows of a record batch as dicts, with the text of JSON columns parsed.

    Short equal texts become one object, kept in `known_values` by (is JSON, text): most fields of a part's rows are
    equal. Raises DamagedFile if a text is no JSON.
    """
    try:
        records: list[dict[str, Any]] = batch.to_pylist()
        for record in records:
            for name, text in record.items():
                if not isinstance(text, str):
                    continue
                is_json = name in JSON_COLUMNS
                if len(text) > MAX_SHARED_TEXT:
                    record[name] = json.loads(text) if is_json else text
                elif (key := (is_json, text)) in known_values:
                    record[name] = known_values[key]
                else:
                    record[name] = known_values[key] = json.loads(text) if is_json else text
    except ValueError as error:  # a damaged file of an earlier version, without a digest
        raise _unreadable(path, error) from error
    return records


def _unreadable(path: Path, error: Exception) -> DamagedFile:
    """The error for a Parquet file that cannot be read, to be raised by the caller."""
    return DamagedFile(f"{path}: not a Parquet file that can be read ({error})")


def _schema(kind: type[DataclassInstance], names: Sequence[str]) -> pa.Schema:
    """The Arrow schema of the columns `names`, typed as the annotations of `kind`; JSON columns are text."""
    import pyarrow as pa

    scalars = {"str": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
    # Any column may hold None; a list's items too.
    declared = {item.name: str(item.type).replace(" | None", "") for item in fields(kind)}
    declared |= dict.fromkeys(JSON_COLUMNS, "str")
    types = {**scalars, **{f"list[{name}]": pa.list_(scalar) for name, scalar in scalars.items()}}
    return pa.schema([(name, types[declared[name]]) for name in names])


Key = tuple[str, str, str]


def run_folders(folder: Path) -> list[Path]:
    """Return the runs one level below `folder`; [] if `folder` holds rows and so is itself a run."""
    kinds = ("selections", "answers")
    if not folder.is_dir() or any((folder / kind).is_dir() for kind in kinds):
        return []
    folders = {rows.parent for kind in kinds for rows in folder.glob(f"*/{kind}")}
    return sorted(path for path in folders if path.name != POOL_NAME)


KEY_COLUMNS = ("benchmark", "question_id", "selection_id", "cell_id")
_PARQUET = ("rows.parquet", "costs.parquet")


class StoredRows(Collection[RowT]):
    """The rows of one part, from its Parquet files and its JSON lines; one row per key.

    If a key has several rows, because a failed question was asked again, the first row without an error counts. Every
    iteration reads the files again, so memory does not grow with the number of rows, except for the keys of JSON lines.

    Args:
        folder: folder of the part.
        kind: `SelectionRow` or `AnswerRow`.

    Raises:
        InvalidInput: on iteration, a file is damaged, holds rows of another kind, or was changed by a run meanwhile.
    """

    def __init__(self, folder: Path, kind: type[RowT]) -> None:
        self._folder = folder
        self._kind = kind
        self._left_out: tuple[str, ...] = ()
        # Compaction writes Parquet before it removes lines: list lines first, then Parquet, so that no row is missed.
        self._lines = sorted(folder.glob("*.jsonl"))
        self._parquet = [folder / name for name in _PARQUET] if (folder / _PARQUET[0]).exists() else []
        self._inodes = self._inodes_now()

    def __iter__(self) -> Iterator[RowT]:
        if not self._lines:
            yield from self._parquet_rows()
            return
        for source in range(len(self._lines) + 1):
            yield from self._counting_rows(source)

    def without(self, *names: str) -> Iterator[RowT]:
        """Yield all rows with the fields `names` at their defaults.

        Their Parquet columns are not read, which saves memory.
        """
        slim = copy(self)
        slim._left_out = names
        yield from slim

    def __len__(self) -> int:
        """Number of keys; a key with several rows counts once."""
        return len(self._counting) if self._lines else sum(1 for _ in self.states())

    def __contains__(self, row: object) -> bool:
        return any(stored == row for stored in self)

    def states(self) -> Iterator[tuple[Key, str | None]]:
        """Yield (key, error) of every row that counts; the error is None for success.

        Reads no other Parquet columns.
        """
        if self._lines:
            yield from ((key, error) for key, (_, _, error) in self._counting.items())
        else:
            yield from self._parquet_states()

    def counts(self, question_ids: Collection[str] | None = None) -> tuple[int, int]:
        """Return the numbers of questions with a row, and of those whose row is an error.

        Fast, for showing the progress of a run: reads only ids and errors, and checks no digest.

        Args:
            question_ids: questions to count; None counts all.

        Raises:
            InvalidInput: a file that cannot be read, or was changed by a run meanwhile.
        """
        self._check_unchanged()
        if not self._lines and question_ids is None:
            if not self._parquet:
                return 0, 0
            # No two rows of a Parquet file have the same question, so the number of rows is the number of questions.
            errors = _unchecked_columns(self._parquet[0], ["error"])["error"]
            return len(errors), len(errors) - errors.null_count
        is_failed: dict[str, bool] = {}
        for question_id, has_error in itertools.chain(
            _parquet_question_states(self._parquet[0]) if self._parquet else (),
            *(_line_question_states(path) for path in self._lines),
        ):
            if question_ids is None or question_id in question_ids:
                is_failed[question_id] = has_error and is_failed.get(question_id, True)
        return len(is_failed), sum(is_failed.values())

    def in_order(self, keys: Iterable[Key]) -> Iterator[RowT]:
        """Yield the rows of `keys` in that order.

        Rows that come before a requested row are kept in memory until they are requested: few rows, if `keys` are
        roughly in the order of the files.

        Raises:
            KeyError: a key without a row.
        """
        sources = range(len(self._lines) + 1)
        rows = {source: RowsByKey(self._counting_rows(source), key=lambda row: row.key) for source in sources}
        for key in keys:
            row = rows[self._counting[key][0] if self._lines else 0].take(key)
            if row is None:
                raise KeyError(key)
            yield row

    @cached_property
    def _counting(self) -> dict[Key, tuple[int, int, str | None]]:
        """Key -> (file, number in the file, error) of the row that counts; file 0 is the Parquet file."""
        counting: dict[Key, tuple[int, int, str | None]] = {}
        finished = ((0, number, key, error) for number, (key, error) in enumerate(self._parquet_states()))
        lines = (
            (source, number, row.key, row.error)
            for source, path in enumerate(self._lines, start=1)
            for number, row in enumerate(self._rows_of(path))
        )
        for part in (finished, lines):
            for source, number, key, error in part:
                if key not in counting or (counting[key][2] is not None and error is None):
                    counting[key] = (source, number, error)
        return counting

    def _counting_rows(self, source: int) -> Iterator[RowT]:
        """Yield the rows of one file that count: of Parquet (0), or of the n-th file of JSON lines."""
        rows = self._parquet_rows() if source == 0 else self._rows_of(self._lines[source - 1])
        for number, row in enumerate(rows):
            if not self._lines or self._counting.get(row.key, (-1, -1, None))[:2] == (source, number):
                yield row

    def _rows_of(self, path: Path) -> Iterator[RowT]:
        """Yield the rows of one file of JSON lines; raise RowsChanged if the part's files changed."""
        self._check_unchanged()
        yield from read_rows(path, self._kind)

    def _parquet_states(self) -> Iterator[tuple[Key, str | None]]:
        """Yield (key, error) of each Parquet row; nothing if the part has no Parquet files."""
        if not self._parquet:
            return
        self._check_unchanged()
        self._checked_keys()
        last = "cell_id" if "cell_id" in {declared.name for declared in fields(self._kind)} else "selection_id"
        for row in parquet_records(self._parquet[0], columns=["benchmark", "question_id", last, "error"]):
            yield (row["benchmark"], row["question_id"], row[last]), row["error"]

    def _parquet_rows(self) -> Iterator[RowT]:
        """Yield the rows of the Parquet files, joined with their costs by key; nothing if the part has none.

        Raises an error for a row without costs.
        """
        if not self._parquet:
            return
        self._check_unchanged()
        keys = self._checked_keys()
        rows, costs = self._parquet
        cost_of = RowsByKey(parquet_records(costs), key=lambda cost: tuple(cost[name] for name in keys))
        columns = [name for name in parquet_columns(rows) if name not in self._left_out]
        for row in parquet_records(rows, columns=columns if self._left_out else None):
            # A run killed during compaction may leave costs of rows that are still JSON lines, so look costs up by key.
            cost = cost_of.take(tuple(row[name] for name in keys))
            if cost is None:
                raise InvalidInput(
                    f"{self._folder}: costs.parquet lacks {row['question_id']!r}; delete the folder to redo it"
                )
            yield self._kind(**{**cost, **row})

    def _checked_keys(self) -> list[str]:
        """Return the columns by which rows and costs are joined.

        Raises InvalidInput if either Parquet file has a column that this version does not know.
        """
        rows, costs = (parquet_columns(path) for path in self._parquet)
        unknown = {*rows, *costs} - {declared.name for declared in fields(self._kind)}
        if unknown:
            raise InvalidInput(
                f"{self._folder}: written by another version of focus-eval, with columns this one does not know: "
                f"{', '.join(sorted(unknown))}"
            )
        return [name for name in KEY_COLUMNS if name in costs]

    def _check_unchanged(self) -> None:
        """Raise `RowsChanged` if a file of the part was replaced or removed since it was opened."""
        now = self._inodes_now()
        if now is None or now != self._inodes:
            raise RowsChanged(f"{self._folder}: changed")

    def _inodes_now(self) -> list[int] | None:
        """The inodes of the part's files; None if one is missing."""
        try:
            return [os.stat(path).st_ino for path in (*self._parquet, *self._lines)]
        except FileNotFoundError:
            return None


def _parquet_question_states(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield each question id of a Parquet file, and True for an error."""
    columns = _unchecked_columns(path, ["question_id", "error"])
    yield from zip(columns["question_id"].to_pylist(), columns["error"].is_valid().to_pylist(), strict=True)


def _unchecked_columns(path: Path, columns: list[str]) -> pa.Table:
    """Columns of a Parquet file without checking its digest; raises DamagedFile if it cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path).read(columns, use_threads=False)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error


# Our rows begin with the question and end with the error, so these patterns save parsing most lines as JSON.
_QUESTION_ID = re.compile(rb'\{"benchmark":"[^"\\]*","question_id":"([^"\\]*)"')
_NO_ERROR = b',"error":null}\n'


def _line_question_states(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield the question id of each complete line of a file of JSON lines, and True for an error."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):  # still being written
                break
            match = _QUESTION_ID.match(line)
            if match and line.endswith(_NO_ERROR):
                yield match[1].decode(), False
            else:
                values = parse_line(line, location=f"{path}:{number}")
                yield str(values.get("question_id")), values.get("error") is not None


COST_COLUMNS = ("forwards", "scan_forwards", "seconds", "device", "decoded", "asked", "tokens")


class FinishedQuestions:
    """The questions of one part that have a row.

    Reads only keys, and at a later call only the rows added since the last call.
    """

    def __init__(self, folder: Path, kind: type[DataclassInstance]) -> None:
        self._folder = folder
        self._known = {declared.name for declared in fields(kind)}
        self._kind = kind.__name__
        self._ids: set[str] = set()
        self._read: dict[Path, tuple[int, int]] = {}  # file -> bytes and lines read so far
        self._parquet: tuple[int, int] | None = None

    def ids(self) -> set[str]:
        """Return the ids of the questions that have a row now.

        Raises:
            InvalidInput: a file that is damaged; names it.
        """
        # Compaction writes Parquet before it removes lines: list lines first, then Parquet, so that no row is missed.
        for path in sorted(self._folder.glob("*.jsonl")):
            try:
                self._read_lines(path)
            except FileNotFoundError:
                continue
        self._read_parquet(self._folder / "rows.parquet")
        return self._ids

    def _read_lines(self, path: Path) -> None:
        """Add the question ids of the complete lines that were appended to a file of JSON lines since the last call."""
        n_bytes, n_lines = self._read.get(path, (0, 0))
        with open(path, "rb") as file:
            file.seek(n_bytes)
            for line in file:
                if not line.endswith(b"\n"):  # still being written
                    break
                n_bytes, n_lines = n_bytes + len(line), n_lines + 1
                values = parse_line(line, location=f"{path}:{n_lines}")
                if not set(values) <= self._known or "question_id" not in values:
                    raise InvalidInput(f"{path}:{n_lines}: not a {self._kind}")
                self._ids.add(values["question_id"])
        self._read[path] = (n_bytes, n_lines)

    def _read_parquet(self, path: Path) -> None:
        """Add the question ids of a Parquet file, if it exists and has changed since the last call."""
        if not path.exists():
            return
        state = (path.stat().st_ino, path.stat().st_mtime_ns)
        if state != self._parquet:
            self._ids.update(row["question_id"] for row in parquet_records(path, columns=["question_id"]))
            self._parquet = state


def compact(folder: Path, kind: type[RowT], order: list[str], *, in_use: Collection[Path] = ()) -> None:
    """Move the rows in the JSON lines of `folder` into its two Parquet files, sorted by the question ids `order`.

    May be killed at any time, since lines are deleted only once both files are in place. Files in `in_use` are being
    written by another process: their rows are read, and the files stay.

    Raises:
        InvalidInput: a row of a question that is not in `order`.
    """
    finished = [path for path in folder.glob("*.jsonl") if path not in in_use]
    if not finished:
        return  # no new rows
    place = {question_id: at for at, question_id in enumerate(order)}
    stored = StoredRows(folder, kind)
    keys = [key for key, _ in stored.states()]
    unknown = next((question_id for _, question_id, _ in keys if question_id not in place), None)
    if unknown is not None:
        raise InvalidInput(f"{folder}: holds a row of question {unknown!r}, which the benchmark does not have")
    keys.sort(key=lambda key: place[key[1]])
    with part_writer(folder, kind) as write:
        for row in stored.in_order(keys):
            write(row)
    for path in finished:
        path.unlink()


def set_damaged_files_aside(folder: Path, kind: type[RowT], *, in_use: Collection[Path] = ()) -> None:
    """Rename the unreadable files of a part (a folder of rows) and report them: their questions are asked again.

    Complete rows of a damaged file of JSON lines are kept. Files in `in_use` are still being written by others.
    """
    parquet = [folder / name for name in _PARQUET]
    if parquet[0].exists():
        try:
            for path in parquet:
                parquet_columns(path)
        except DamagedFile:
            # Rename the rows first: rows without costs cannot be read, costs without rows can.
            for path in parquet:
                if path.exists():
                    set_aside(path, "its questions are asked again")
    for path in sorted(folder.glob("*.jsonl")):
        if path not in in_use:
            _keep_whole_lines(path, kind)


def _keep_whole_lines(path: Path, kind: type[RowT]) -> None:
    """Rewrite a damaged file of JSON lines with its whole rows only; the damaged file stays under another name.

    Does nothing if all lines can be read, or if the file holds rows of another kind.
    """
    try:
        for _ in read_rows(path, kind):
            pass
    except InvalidInput as error:
        lines = path.read_bytes().split(b"\n")[:-1]
        whole = [line for line in lines if is_row(line, kind, location=str(path))]
        if not (whole or isinstance(error, DamagedFile)):
            return  # written by another version; the reader reports it
        damaged_path = aside_path(path)
        os.link(path, damaged_path)  # keep both names until the repaired file replaces it
        with replace_file(path) as part:
            part.write_bytes(b"".join(line + b"\n" for line in whole))
        n_broken = len(lines) - len(whole)
        print(
            f"{path}: {n_broken} damaged lines, kept as {damaged_path.name}; asked again", file=sys.stderr, flush=True
        )


@contextmanager
def part_writer(folder: Path, kind: type[RowT]) -> Iterator[Callable[[RowT], None]]:
    """Yield a function that appends a row to the two Parquet files of a part; both appear once they are whole."""
    names = [declared.name for declared in fields(kind)]
    costs = [name for name in names if name in COST_COLUMNS]
    keys = [name for name in names if name in KEY_COLUMNS]
    for left_by_a_kill in folder.glob(".*.parquet.*.part"):
        left_by_a_kill.unlink()
    # Replace the costs first: a part with costs but no rows can be read, a part with rows but no costs cannot.
    with (
        replace_file(folder / "rows.parquet") as rows_file,
        replace_file(folder / "costs.parquet") as costs_file,
        parquet_writer(rows_file, kind, [name for name in names if name not in costs]) as write_row,
        parquet_writer(costs_file, kind, keys + costs) as write_costs,
    ):

        def write(row: RowT) -> None:
            """Append the costs of `row` to `costs.parquet`, and its remaining fields to `rows.parquet`."""
            values = values_of(row)
            write_row(values)
            write_costs(values)

        yield write


def write_run(
    folder: Path, selections: Sequence[SelectionRow], answers: Sequence[AnswerRow] = (), *, name: str = ""
) -> list[Path]:
    """Add the rows of one selection, and of one model's answers, to a run's folder; return the files written.

    Args:
        name: name of the selection, by default its sampler. A selection of the same name and K is replaced.
    """
    part = f"{name or selections[0].sampler}-k{selections[0].k}"
    path = folder / "selections" / part_name(part, location=folder) / "rows-0.jsonl"
    written = [write_rows(path, selections)]
    if answers:
        path = folder / "answers" / part_name(f"{answers[0].model}-{part}", location=folder) / "rows-0.jsonl"
        written.append(write_rows(path, answers))
    name_run(folder)
    return written


def write_parts(
    folder: Path,
    parts: tuple[str, str],
    rows: Iterable[tuple[SelectionRow, AnswerRow]],
    cell: Mapping[str, object],
) -> list[Path]:
    """Add the rows of one log to a run's folder, streaming them; return the files written.

    Args:
        parts: folder names of the log's selections and answers; existing folders are replaced.
        cell: content of the answers' `cell.json`.
    """
    places = (folder / "selections" / parts[0], folder / "answers" / parts[1])
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
    with part_writer(places[0], SelectionRow) as put_selection, part_writer(places[1], AnswerRow) as put_answer:
        for selection, answer in rows:
            put_selection(selection)
            put_answer(answer)
    write_sealed_json(places[1] / "cell.json", cell)
    name_run(folder)
    return [place / "rows.parquet" for place in places]


def part_name(text: str, *, location: Path) -> str:
    """Return `text` as the name of a part's folder, with "_" for characters that Windows or a path do not allow.

    Raises:
        InvalidInput: `text` is too long for the name of a folder.
    """
    if len(text.encode()) > MAX_NAME_BYTES:
        raise InvalidInput(
            f"{location}: {text[:40]}..., {len(text):,} characters, is too long for a folder; "
            "give a short --name or --model"
        )
    return re.sub(r'[/\\:*?"<>|\n\t]', "_", printable(text))


def describe_run(
    folder: Path, *, name: str, engine: str, device: str, matrix: Mapping[str, object] | None = None, **fields: object
) -> None:
    """Record a start in `run.json`, with time, versions and git revision; earlier starts stay, unless it is damaged.

    Args:
        matrix: its content; None for a run of the plugin.
        fields: others of the file, which replace those of an earlier start.

    Raises:
        InvalidInput: the folder belongs to a run of another name.
    """
    file = folder / "run.json"
    earlier: Mapping[str, Any] = {}
    try:
        earlier = read_sealed_json(file) if file.exists() else {}
    except DamagedFile:
        set_aside(file, "it is written again")
    # A folder shows the tables of one matrix; the rows of another would be mixed in.
    if earlier.get("name", name) != name:
        raise InvalidInput(f"{folder}: holds the run of matrix {earlier['name']!r}; name another folder with --out")
    start = {
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "engine": engine,
        "device": device,
        "git": git_revision(),
        "versions": versions(),
    }
    # Keep all starts, so that a run continued with other versions shows it.
    starts = [*earlier.get("starts", []), start]
    write_sealed_json(file, {**earlier, "name": name, "matrix": matrix or {}, **fields, "starts": starts})


def name_run(folder: Path) -> None:
    """Write a `run.json` that names the run after its folder, unless there is one."""
    path = folder / "run.json"
    if not path.exists():
        write_sealed_json(path, {"name": folder.resolve().name, "matrix": {}})
