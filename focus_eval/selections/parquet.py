"""Writes and reads the common file of selections.

Parquet, one row per question, with the columns of a `SelectionRow` that a published selection can fill; a file of
whole `SelectionRow`s is read as well. `clips` is JSON text, for its fields are of mixed kinds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from focus_eval.selections.imported import ImportedSelection, selections_hash


def write_parquet(selections: Mapping[str, ImportedSelection], path: Path) -> None:
    """Write `selections` to one Parquet file, completely or not at all."""
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".unfinished")
    pq.write_table(_table(selections), unfinished, compression="zstd")
    os.replace(unfinished, path)


def read_parquet(path: Path) -> dict[str, ImportedSelection]:
    """Return the selections of a file that `write_parquet` wrote, by question id.

    Raises:
        InvalidInput: no such file, or not Parquet.
        SelectionMismatch: rows of several samplers.
    """
    from focus_eval.selections.our_rows import load_rows

    return {load_row.question_id: load_row for load_row in load_rows(path)}


def _table(selections: Mapping[str, ImportedSelection]) -> Any:
    import pyarrow as pa

    identity = selections_hash(selections)
    names = [declared.name for declared in fields(ImportedSelection) if declared.name not in ("where", "answered")]
    records: list[dict[str, Any]] = []
    for selection in selections.values():
        values = asdict(selection)
        record = {name: values[name] for name in names}
        record["clips"] = json.dumps(values["clips"])
        record["selection_id"] = identity
        records.append(record)
    return pa.Table.from_pylist(records, schema=_schema(pa))


def _schema(pa: Any) -> Any:
    kinds: Iterable[tuple[str, Any]] = (
        ("question_id", pa.string()),
        ("sampler", pa.string()),
        ("keyframes", pa.list_(pa.int64())),
        ("times_seconds", pa.list_(pa.float64())),
        ("benchmark", pa.string()),
        ("video", pa.string()),
        ("k", pa.int64()),
        ("n_frames", pa.int64()),
        ("fps", pa.float64()),
        ("pulled_frames", pa.list_(pa.int64())),
        ("pulled_relevance", pa.list_(pa.float64())),
        ("clips", pa.string()),
        ("scales", pa.list_(pa.float64())),
        ("selection_id", pa.string()),
    )
    return pa.schema(list(kinds))
