"""Turns our own rows (Parquet, JSON lines, a run's folder) into selections."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from focus_eval.errors import InvalidInput, SelectionMismatch
from focus_eval.rows.storage import read_records
from focus_eval.selections.imported import ImportedSelection

_SUFFIXES = (".jsonl", ".parquet")


def is_rows_path(path: Path) -> bool:
    """Return whether `path` looks like our rows: by its suffix, or as a folder that holds such files."""
    return path.suffix in _SUFFIXES or (path.is_dir() and bool(_row_files(path)))


def load_rows(path: Path, *, sampler: str | None = None, allow_missing: bool = False) -> list[ImportedSelection]:
    """Return the selections of one sampler from our rows.

    Args:
        sampler: a sampler's name or a selection id; needed where the rows hold several.
        allow_missing: leave out rows that record an error.

    Raises:
        SelectionMismatch: several samplers and none named, or an error row; names the row.
        InvalidInput: no rows, or a broken line.
    """
    files = _row_files(path) if path.is_dir() else [path]
    rows = [(where, row) for file in files for where, row in _rows_of(file)]
    if not rows:
        raise InvalidInput(f"{path}: no selection rows (*.jsonl or *.parquet) here")
    rows = _of_one_sampler(rows, sampler, path)
    selections = []
    for where, row in rows:
        if row.get("error"):
            if not allow_missing:
                raise SelectionMismatch(f"{where} ({row.get('question_id')}): no selection, {row['error']}")
            continue
        selections.append(_selection(row, where))
    return selections


def _row_files(folder: Path) -> list[Path]:
    """Files of rows in a run's folder, in its `selections/`, or in one part of that; costs stand apart and are none."""
    inside = folder / "selections" if (folder / "selections").is_dir() else folder
    files = [*inside.glob("*"), *inside.glob("*/*")]
    return sorted(file for file in files if file.suffix in _SUFFIXES and file.name != "costs.parquet")


def _rows_of(file: Path) -> list[tuple[str, Mapping[str, Any]]]:
    if not file.is_file():
        raise InvalidInput(f"{file}: no such file")
    unit = "row" if file.suffix == ".parquet" else "line"
    return [(f"{file.name}: {unit} {number}", row) for number, row in read_records(file)]


def _of_one_sampler(
    rows: list[tuple[str, Mapping[str, Any]]], sampler: str | None, path: Path
) -> list[tuple[str, Mapping[str, Any]]]:
    if sampler is not None:
        kept = [(where, row) for where, row in rows if sampler in (row.get("sampler"), row.get("selection_id"))]
        if not kept:
            names = sorted({str(row.get("sampler")) for _, row in rows})
            raise SelectionMismatch(f"{path}: no rows of {sampler!r}; there are: {', '.join(names)}")
        rows = kept
    kinds = {(str(row.get("sampler")), str(row.get("selection_id", "")), str(row.get("benchmark"))) for _, row in rows}
    if len(kinds) > 1:
        listed = ", ".join(f"{name} {identity}" for name, identity, _ in sorted(kinds))
        raise SelectionMismatch(f"{path}: rows of {len(kinds)} samplers ({listed}); say which (sampler=)")
    return rows


def _selection(row: Mapping[str, Any], where: str) -> ImportedSelection:
    keyframes, times = row.get("keyframes"), row.get("times_seconds") or None
    if keyframes is None and times is None:
        raise SelectionMismatch(f"{where}: no keyframes; not a selection row")
    try:
        return ImportedSelection(
            question_id=str(row["question_id"]),
            sampler=str(row.get("sampler") or "rows"),
            keyframes=None if keyframes is None else tuple(int(frame) for frame in keyframes),
            times_seconds=None if times is None else tuple(float(time) for time in times),
            benchmark=str(row.get("benchmark") or ""),
            video=str(row.get("video") or ""),
            k=int(row.get("k") or 0),
            n_frames=int(row.get("n_frames") or 0),
            fps=float(row.get("fps") or 0.0),
            pulled_frames=tuple(int(frame) for frame in row.get("pulled_frames") or ()),
            pulled_relevance=tuple(None if item is None else float(item) for item in row.get("pulled_relevance") or ()),
            clips=tuple(tuple(clip) for clip in row.get("clips") or ()),
            scales=None if row.get("scales") is None else tuple(float(scale) for scale in row["scales"]),
            where=where,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise SelectionMismatch(f"{where}: not a selection row ({type(error).__name__}: {error})") from error
