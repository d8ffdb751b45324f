"""Reads our own selection rows, JSON lines or Parquet, and writes published selections as Parquet."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from focus_eval.bench.rows.store import parquet_records
from focus_eval.core.errors import InvalidInput, SelectionMismatch
from focus_eval.external.imports.formats import FileEntry, SelectionFormat, Source, file_entry
from focus_eval.external.imports.lmms_logs import read_lines
from focus_eval.external.imports.loading import selections_hash
from focus_eval.keyframes.rows.records import read_lines as read_run_lines
from focus_eval.keyframes.rows.records import replace_file

_SUFFIXES = (".jsonl", ".parquet")
LinesOf = Callable[[Path], Iterator[tuple[int, dict[str, Any]]]]


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
        """Yield the selections in our rows, which must be of one sampler and hold no failed question."""
        path = source.path
        if source.unit != "frames":
            raise SelectionMismatch(f"{path.name}: rows say themselves what is in seconds; leave out the unit")
        # The last line of a run may be unfinished; that of a file that somebody gives is part of it.
        lines_of = read_run_lines if path.is_dir() else read_lines
        files = _row_files(path) if path.is_dir() else [path]
        rows = [(location, row) for file in files for location, row in _rows_of(file, lines_of)]
        if not rows:
            raise InvalidInput(f"{path}: no selection rows (*.jsonl or *.parquet) here")
        rows = _of_one_sampler(rows, self.sampler, path)
        failed = next(((location, row) for location, row in rows if row.get("error")), None)
        if failed is not None and not source.allow_missing:
            location, row = failed
            raise SelectionMismatch(f"{location} ({row.get('question_id')}): no selection, {row['error']}")
        return [_entry(row, location) for location, row in rows if not row.get("error")]


def is_rows_path(path: Path) -> bool:
    """Return True if `path` looks like our rows: by its suffix, or as a folder that holds such files."""
    return Path(path.name.removesuffix(".gz")).suffix in _SUFFIXES or (path.is_dir() and bool(_row_files(path)))


def _row_files(folder: Path) -> list[Path]:
    """Return the files of selection rows in a run's folder, in its `selections/`, or in one part of that; no costs."""
    inside = folder / "selections" if (folder / "selections").is_dir() else folder
    files = [*inside.glob("*"), *inside.glob("*/*")]
    return sorted(file for file in files if file.suffix in _SUFFIXES and file.name != "costs.parquet")


def _rows_of(file: Path, lines_of: LinesOf) -> list[tuple[str, Mapping[str, Any]]]:
    """Return (location such as "file: line 3", row) pairs of `file`; `lines_of` reads it unless it is Parquet.

    Raises InvalidInput if there is no file.
    """
    if not file.is_file():
        raise InvalidInput(f"{file}: no such file")
    if file.suffix == ".parquet":
        return [(f"{file.name}: row {number}", row) for number, row in enumerate(parquet_records(file))]
    return [(f"{file.name}: line {number}", row) for number, row in lines_of(file)]


def _of_one_sampler(
    rows: list[tuple[str, Mapping[str, Any]]], sampler: str | None, path: Path
) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the rows of `sampler` (a name or a selection id), or all if it is None.

    Raises SelectionMismatch if none are left, or they are of several selections.
    """
    if sampler is not None:
        named_rows = [
            (location, row) for location, row in rows if sampler in (row.get("sampler"), row.get("selection_id"))
        ]
        if not named_rows:
            names = sorted({str(row.get("sampler")) for _, row in rows})
            raise SelectionMismatch(f"{path.name}: no rows of {sampler!r}; there are: {', '.join(names)}")
        rows = named_rows
    kinds = {(str(row.get("sampler")), str(row.get("selection_id", "")), str(row.get("benchmark"))) for _, row in rows}
    if len(kinds) > 1:
        listed = ", ".join(f"{name} {identity}" for name, identity, _ in sorted(kinds))
        raise SelectionMismatch(f"{path.name}: rows of {len(kinds)} samplers ({listed}); say which (rows:sampler=NAME)")
    return rows


def _entry(row: Mapping[str, Any], location: str) -> FileEntry:
    """Return the selection in a row; raise SelectionMismatch if its frames are unknown or it is no selection row."""
    keyframes, times = row.get("keyframes"), row.get("times_seconds") or None
    if keyframes is None and times is None:
        reason = "no keyframes, so not a selection row of ours; name its format: rows of id and frames are wfs"
        reason = "a line of an lmms-eval log; name its format, lmms:frames_field=NAME" if "doc_id" in row else reason
        raise SelectionMismatch(f"{location}: {'the frames are not known' if 'keyframes' in row else reason}")
    try:
        return file_entry(
            str(row["question_id"]),
            str(row.get("sampler") or "rows"),
            keyframes=None if keyframes is None else [int(frame) for frame in keyframes],
            times_seconds=None if times is None else [float(time) for time in times],
            benchmark=str(row.get("benchmark") or ""),
            video=str(row.get("video") or ""),
            k=int(row.get("k") or 0),
            n_frames=int(row.get("n_frames") or 0) or None,
            fps=float(row.get("fps") or 0.0) or None,
            pulled_frames=[int(frame) for frame in row.get("pulled_frames") or ()],
            pulled_relevance=[None if item is None else float(item) for item in row.get("pulled_relevance") or ()],
            clips=[list(clip) for clip in row.get("clips") or ()],
            scales=None if row.get("scales") is None else [float(scale) for scale in row["scales"]],
            facts={"filled": int(row["n_filled"])} if row.get("n_filled") else {},
            location=location,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise SelectionMismatch(f"{location}: not a selection row ({type(error).__name__}: {error})") from error


# Parquet, one row per question, with the columns of a `SelectionRow` that a published selection can fill; a file of
# whole `SelectionRow`s is read as well. `clips` is JSON text, for its fields are of mixed kinds.


def write_parquet(entries: Mapping[str, FileEntry], path: Path) -> None:
    """Write the selections to one Parquet file, completely or not at all."""
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as unfinished:
        pq.write_table(_table(entries), unfinished, compression="zstd")


def _table(entries: Mapping[str, FileEntry]) -> Any:
    """Return the selections as an Arrow table, one row each."""
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
