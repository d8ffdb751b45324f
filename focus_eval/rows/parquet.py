"""Reads and writes Parquet files of rows, a few rows at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from focus_eval.errors import InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa

ItemT = TypeVar("ItemT")

# Columns whose shape varies from row to row are kept as JSON text.
JSON_COLUMNS = ("options", "changed_options", "facts", "clips", "seconds", "tokens")
# Rows that are Python objects at once, and rows that are compressed together: with its pulls a row takes up to 100 KB.
BATCH_ROWS, GROUP_ROWS = 64, 256
_TYPES = {
    "str": "string",
    "str | None": "string",
    "int": "int64",
    "int | None": "int64",
    "float": "float64",
    "float | None": "float64",
    "list[str]": "list<string>",
    "list[int]": "list<int64>",
    "list[float]": "list<float64>",
    "list[float] | None": "list<float64>",
    "list[float | None]": "list<float64>",
}


def parquet_records(path: Path, *, columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file; what is kept as JSON text is decoded.

    Args:
        columns: only these; the others are not read.

    Raises:
        InvalidInput: a file that is missing or damaged; names it.
    """
    with _readable(path) as file:
        # A few columns are short; rows with their lists of pulls are read a few at a time.
        n_rows = 4096 if columns is not None and "pulled_frames" not in columns else BATCH_ROWS
        batches = file.iter_batches(batch_size=n_rows, columns=columns, use_threads=False)
        while (batch := _next(batches, path)) is not None:
            for record in batch.to_pylist():
                for name in JSON_COLUMNS:
                    if isinstance(record.get(name), str):
                        record[name] = json.loads(record[name])
                yield record


def parquet_columns(path: Path) -> list[str]:
    """Return the names of the columns of a Parquet file.

    Raises:
        InvalidInput: a file that is missing or damaged; names it.
    """
    with _readable(path) as file:
        return list(file.schema_arrow.names)


@contextmanager
def parquet_writer(path: Path, kind: type[Any], names: Sequence[str]) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Yield a function that appends a row's columns `names` to the new file `path`; the same rows give the same bytes.

    Args:
        kind: dataclass of the rows, whose annotations give the columns' types.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _schema(kind, names)
    waiting: list[Mapping[str, Any]] = []

    def flush() -> None:
        columns = {name: [_cell(name, values[name]) for values in waiting] for name in names}
        writer.write_table(pa.table(columns, schema=schema))
        waiting.clear()

    def write(values: Mapping[str, Any]) -> None:
        waiting.append({name: values[name] for name in names})
        if len(waiting) == GROUP_ROWS:
            flush()

    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        yield write
        if waiting:
            flush()


class RowsByKey(Generic[ItemT]):
    """Finds rows by key in a stream that has about the same order as they are asked for.

    What lies before the row that is asked for is kept until it is asked for itself.
    """

    def __init__(self, rows: Iterable[ItemT], *, key: Callable[[ItemT], Hashable]) -> None:
        self._rows = iter(rows)
        self._key = key
        self._kept: dict[Hashable, ItemT] = {}

    def take(self, key: Hashable) -> ItemT | None:
        """Return the row of `key`, once; None where there is none (all rows are then held)."""
        while key not in self._kept:
            try:
                row = next(self._rows)
            except StopIteration:
                return None
            self._kept[self._key(row)] = row
        return self._kept.pop(key)


@contextmanager
def _readable(path: Path) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error
    with file:
        yield file


def _next(batches: Iterator[Any], path: Path) -> Any:
    import pyarrow as pa

    try:
        return next(batches, None)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> InvalidInput:
    return InvalidInput(f"{path}: not a Parquet file that can be read ({error})")


def _cell(name: str, value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) if name in JSON_COLUMNS else value


def _schema(kind: type[Any], names: Sequence[str]) -> pa.Schema:
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "int64": pa.int64(),
        "float64": pa.float64(),
        "list<string>": pa.list_(pa.string()),
        "list<int64>": pa.list_(pa.int64()),
        "list<float64>": pa.list_(pa.float64()),
    }
    declared = {item.name: "str" if item.name in JSON_COLUMNS else str(item.type) for item in fields(kind)}
    return pa.schema([(name, types[_TYPES[declared[name]]]) for name in names])
