"""Stores rows: JSON lines while a run goes on, Parquet once a part is done.

A finished part is two Parquet files. `rows.parquet` holds what depends on the configuration alone: two runs of the
same matrix, or the same run killed and resumed, or on another number of workers, write the same bytes.
`costs.parquet` holds what the clock and the device said.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from focus_eval.errors import InvalidInput
from focus_eval.rows.records import RowT, read_lines, read_rows, replace_file

if TYPE_CHECKING:
    import pyarrow as pa

COST_COLUMNS = ("forwards", "seconds", "device", "tokens")
KEY_COLUMNS = ("benchmark", "question_id", "selection_id", "cell_id")
# Columns whose shape varies from row to row are kept as JSON text.
JSON_COLUMNS = ("options", "changed_options", "facts", "clips", "seconds", "tokens")


def load_rows(folder: Path, kind: type[RowT]) -> Iterator[RowT]:
    """Yield the rows of one part of a run: its Parquet files where it is done, and its JSON lines; a key once.

    Of several rows of one key the first without an error counts: a question that failed was asked again.

    Raises:
        InvalidInput: a file that is damaged or holds other rows; names it.
    """
    rows: dict[tuple[str, str, str], RowT] = {}
    parts: list[Iterable[RowT]] = []
    if (folder / "rows.parquet").exists():
        parts.append(_read_parquet(folder, kind))
    parts += [read_rows(path, kind) for path in sorted(folder.glob("*.jsonl"))]
    for part in parts:
        for row in part:
            if row.key not in rows or (rows[row.key].error is not None and row.error is None):
                rows[row.key] = row
    yield from rows.values()


def read_records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number and the fields of each row of one file of rows, JSON lines (from 1) or Parquet (from 0).

    Raises:
        InvalidInput: a file that is damaged; names it.
    """
    if path.suffix == ".parquet":
        import pyarrow as pa

        try:
            yield from enumerate(_parquet_records(path))
        except (OSError, pa.ArrowException) as error:
            raise InvalidInput(f"{path}: not a Parquet file that can be read ({error})") from error
    else:
        yield from read_lines(path)


def finished_questions(folder: Path, kind: type[RowT]) -> set[str]:
    """Return the ids of the questions that have a row, without reading what is in the rows.

    Raises:
        InvalidInput: a file that is damaged; names it.
    """
    done = {row.question_id for path in sorted(folder.glob("*.jsonl")) for row in read_rows(path, kind)}
    if (folder / "rows.parquet").exists():
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            done.update(pq.ParquetFile(folder / "rows.parquet").read(["question_id"])["question_id"].to_pylist())
        except (OSError, pa.ArrowException) as error:
            raise InvalidInput(f"{folder}: rows.parquet cannot be read ({error}); delete the folder") from error
    return done


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
    rows = list(load_rows(folder, kind))
    unknown = [row.question_id for row in rows if row.question_id not in place]
    if unknown:
        raise InvalidInput(f"{folder}: holds a row of question {unknown[0]!r}, which the benchmark does not have")
    rows.sort(key=lambda row: place[row.question_id])
    values = [vars(row) for row in rows]
    names = [declared.name for declared in fields(kind)]
    costs = [name for name in names if name in COST_COLUMNS]
    keys = [name for name in names if name in KEY_COLUMNS]
    _write(values, keys + costs, kind, folder / "costs.parquet")
    _write(values, [name for name in names if name not in costs], kind, folder / "rows.parquet")
    for path in finished:
        path.unlink()


def _read_parquet(folder: Path, kind: type[RowT]) -> Iterator[RowT]:
    import pyarrow as pa

    try:
        rows, costs = (_parquet_records(folder / name) for name in ("rows.parquet", "costs.parquet"))
    except (OSError, pa.ArrowException) as error:
        raise InvalidInput(
            f"{folder}: its Parquet files cannot be read ({error}); delete the folder to redo it"
        ) from error
    known = {declared.name for declared in fields(kind)}
    unknown = {name for record in (*rows[:1], *costs[:1]) for name in record} - known
    if unknown:
        raise InvalidInput(
            f"{folder}: written by another version of focus-eval, with columns this one does not know: "
            f"{', '.join(sorted(unknown))}"
        )
    keys = [name for name in KEY_COLUMNS if name in {column for cost in costs for column in cost}]
    cost_of = {tuple(cost[key] for key in keys): cost for cost in costs}
    for row in rows:  # a run killed while a part grew leaves costs of rows that are still lines
        cost = cost_of.get(tuple(row[key] for key in keys))
        if cost is None:
            raise InvalidInput(f"{folder}: costs.parquet lacks {row['question_id']!r}; delete the folder to redo it")
        yield kind(**{**cost, **row})


def _parquet_records(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a Parquet file; what is kept as JSON text is decoded."""
    import pyarrow.parquet as pq

    records: list[dict[str, Any]] = pq.ParquetFile(path).read().to_pylist()
    for record in records:
        for name in JSON_COLUMNS:
            if isinstance(record.get(name), str):
                record[name] = json.loads(record[name])
    return records


def _write(values: list[dict[str, Any]], names: list[str], kind: type[Any], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _schema(kind)
    columns = {name: [_cell(name, value[name]) for value in values] for name in names}
    table = pa.table(columns, schema=pa.schema([schema.field(name) for name in names]))
    with replace_file(path) as part:
        pq.write_table(table, part, compression="zstd")


def _cell(name: str, value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) if name in JSON_COLUMNS else value


def _schema(kind: type[Any]) -> pa.Schema:
    import pyarrow as pa

    types = {
        "str": pa.string(),
        "str | None": pa.string(),
        "int": pa.int64(),
        "int | None": pa.int64(),
        "float": pa.float64(),
        "float | None": pa.float64(),
        "list[str]": pa.list_(pa.string()),
        "list[int]": pa.list_(pa.int64()),
        "list[float]": pa.list_(pa.float64()),
        "list[float] | None": pa.list_(pa.float64()),
        "list[float | None]": pa.list_(pa.float64()),
    }
    return pa.schema(
        [
            (declared.name, pa.string() if declared.name in JSON_COLUMNS else types[str(declared.type)])
            for declared in fields(kind)
        ]
    )
