"""Reads our own selection rows, JSON lines or Parquet, and writes published selections as Parquet."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from focus_eval.bench.rows.entries import FileEntry, is_rows_path, read_own_rows
from focus_eval.core.errors import SelectionMismatch
from focus_eval.core.files import replace_file
from focus_eval.external.imports.formats import SelectionFormat, Source
from focus_eval.external.imports.loading import selections_hash


@dataclass(frozen=True, kw_only=True)
class Rows(SelectionFormat):
    """Our own rows: a file, or the folder of a run.

    Args:
        sampler: a sampler's name or a selection id; required if the rows hold several.
    """

    name: ClassVar[str] = "rows"
    summary: ClassVar[str] = "ours: Parquet, JSON lines, or a run's folder (option `sampler`)"
    is_general: ClassVar[bool] = True

    sampler: str | None = None

    def detects(self, source: Source) -> bool:
        """Return True if the path looks like our rows; see `is_rows_path`."""
        return is_rows_path(source.path)

    def read(self, source: Source) -> Iterable[FileEntry]:
        """Yield the selections in our rows; the rows must be of one sampler, and none may be a failed question."""
        if source.unit != "frames":
            raise SelectionMismatch(f"{source.path.name}: rows say themselves what is in seconds; leave out the unit")
        return read_own_rows(source.path, sampler=self.sampler, allow_missing=source.allow_missing)


# Parquet, one row per question, with the columns of a `SelectionRow` that a published selection can fill; a file of
# whole `SelectionRow`s is read as well. `clips` is JSON text, for its fields are of mixed kinds.


def write_parquet(entries: Mapping[str, FileEntry], path: Path) -> None:
    """Write the selections to one Parquet file, completely or not at all."""
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as unfinished:
        pq.write_table(_table(entries), unfinished, compression="zstd")


def _table(entries: Mapping[str, FileEntry]) -> object:
    """The selections as an Arrow table, one row each."""
    import pyarrow as pa

    text, whole, number = pa.string(), pa.int64(), pa.float64()
    kinds = {"question_id": text, "sampler": text, "keyframes": pa.list_(whole), "times_seconds": pa.list_(number)}
    kinds |= {"benchmark": text, "video": text, "k": whole, "n_frames": whole, "fps": number}
    kinds |= {"pulled_frames": pa.list_(whole), "pulled_relevance": pa.list_(number), "clips": text}
    kinds |= {"scales": pa.list_(number), "n_filled": whole, "selection_id": text}
    selection_id, rows = selections_hash(entries), []
    for entry in entries.values():
        row = entry.selection
        derived_values = {
            "clips": json.dumps(row.clips),
            "n_filled": row.facts.get("filled", 0),
            "selection_id": selection_id,
        }
        rows.append({name: derived_values[name] if name in derived_values else getattr(row, name) for name in kinds})
    return pa.Table.from_pylist(rows, schema=pa.schema(kinds))
