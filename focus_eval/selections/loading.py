"""Reads a file of selections in any known format and checks it against the benchmark's questions."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from focus_eval.core.errors import InvalidInput, SelectionMismatch, unknown_name
from focus_eval.core.resources import read_json
from focus_eval.rows.records import AskedQuestion
from focus_eval.rows.store import read_records
from focus_eval.selections import aks, answers, bolt, focus, qca, toolmerge, wfs
from focus_eval.selections.imported import (
    ImportedSelection,
    Source,
    check_lengths,
    check_unit_plausible,
    selections_hash,
)

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


# Parquet, one row per question, with the columns of a `SelectionRow` that a published selection can fill; a file of
# whole `SelectionRow`s is read as well. `clips` is JSON text, for its fields are of mixed kinds.


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


# One module per format: `detects(path, data)` and `read(data, source)`; `UNIT` is what its numbers usually are.
# A new format is a module in this table; `detects` is asked in this order.
READERS: dict[str, ModuleType] = {
    "aks": aks,
    "focus": focus,
    "bolt": bolt,
    "qca": qca,
    "toolmerge": toolmerge,
    "wfs": wfs,
    "answers": answers,
}
FORMATS = ("auto", *READERS, "rows")
UNITS = ("frames", "seconds")


def load_selections(
    path: str | Path,
    *,
    format: str = "auto",
    questions: Sequence[AskedQuestion] | None = None,
    unit: str | None = None,
    field: str | None = None,
    fps: Mapping[str, float] | None = None,
    sampler: str | None = None,
    allow_missing: bool = False,
    columns: Mapping[str, str] | None = None,
) -> dict[str, ImportedSelection]:
    """Return the selections of a file by question id, in the file's order.

    | format | what the file is |
    |---|---|
    | aks | a list, one entry of frames per row of the annotation |
    | focus | the same, `selected_frames.json` (or its folder) with `sampling_details.json` beside it |
    | bolt | by video: a list of `{question_id, question, frames}`, frames in seconds |
    | qca | by question id (or by video, for all its questions): frames |
    | wfs | the rows of the annotation with a field of frames |
    | toolmerge | a list of rows: `uid`, `timestamps_used`, and the model's `answer` |
    | answers | a list of rows: id, times or frames, and the model's answer, in fields that `columns` names |
    | rows | ours: Parquet, JSON lines, or a run's folder |

    Args:
        questions: the benchmark's questions in the order of its annotation. `aks` and `focus` say nothing of ids,
            so they need them; the other formats are checked against them.
        unit: "frames" or "seconds" where the file differs from its format's habit.
        field: name of the field of frames (wfs); found by itself where there is a usual one.
        fps: rate by question id, to find indices past the end before any video is opened.
        sampler: which one, where rows of ours hold several (a sampler's name or a selection id).
        allow_missing: leave out questions without frames instead of refusing the file.
        columns: the fields of `answers`: {"id": "qid", "times": "seconds", "answer": "prediction"}.

    Raises:
        SelectionMismatch: a file that does not fit; names the row at fault.
        InvalidInput: an unknown format, unit or file.
    """
    _check_names(format, unit)
    path = Path(path)
    if format == "rows" or (format == "auto" and is_rows_path(path) and not _is_focus_folder(path)):
        found = load_rows(path, sampler=sampler, allow_missing=allow_missing)
        unit = "frames"
    else:
        said: dict[str, Any] = {"field": field, "questions": questions, "allow_missing": allow_missing}
        file = path / focus.FRAMES_FILE if path.is_dir() else path
        source = Source(path=file, format=format, unit=unit or "", columns=columns or {}, **said)
        path, unit, found = _read(source)
    selections = _by_id(found, path)
    if questions is None:
        return selections
    selections = _fitted(selections, questions, path, allow_missing=allow_missing)
    if unit == "frames":
        check_unit_plausible(selections, questions)
    check_lengths(selections, questions, fps or {})
    return selections


def _check_names(format: str, unit: str | None) -> None:
    if format not in FORMATS:
        raise unknown_name("selection format", format, FORMATS)
    if unit is not None and unit not in UNITS:
        raise unknown_name("unit", unit, UNITS)


def _read(source: Source) -> tuple[Path, str, list[ImportedSelection]]:
    """Return the file, the unit and the selections of `source`, its format found where it is "auto"."""
    data = read_json(source.path)
    format = _detect(source.path, data) if source.format == "auto" else source.format
    source = replace(source, format=format, unit=source.unit or str(READERS[format].UNIT))
    return source.path, source.unit, list(READERS[format].read(data, source))


def _detect(path: Path, data: Any) -> str:
    for name, module in READERS.items():
        if module.detects(path, data):
            return name
    raise SelectionMismatch(f"{path}: not a known kind of selection file; formats: {', '.join(FORMATS[1:])}")


def _is_focus_folder(path: Path) -> bool:
    return (path / focus.FRAMES_FILE).is_file()


def _by_id(found: Iterable[ImportedSelection], path: Path) -> dict[str, ImportedSelection]:
    selections: dict[str, ImportedSelection] = {}
    for selection in found:
        if selection.question_id in selections:
            first = selections[selection.question_id].where
            raise SelectionMismatch(
                f"{selection.where}: question {selection.question_id!r} appears twice; first in {first}"
            )
        selections[selection.question_id] = selection
    if not selections:
        raise SelectionMismatch(f"{path}: no selections in this file")
    return selections


def _fitted(
    selections: dict[str, ImportedSelection], questions: Sequence[AskedQuestion], path: Path, *, allow_missing: bool
) -> dict[str, ImportedSelection]:
    known = {asked.id: asked for asked in questions}
    for key, selection in selections.items():
        if key not in known:
            raise SelectionMismatch(
                f"{selection.where}: {key!r} is not a question of this benchmark ({len(known)} questions)"
            )
    missing = [asked.id for asked in questions if asked.id not in selections]
    if missing and not allow_missing:
        raise SelectionMismatch(
            f"{path.name}: {len(selections)} selections for {len(known)} questions, the first without is "
            f"{missing[0]!r} (allow_missing leaves them out)"
        )
    return {key: _named(selection, known[key]) for key, selection in selections.items()}


def _named(selection: ImportedSelection, asked: AskedQuestion) -> ImportedSelection:
    if selection.benchmark and selection.benchmark != asked.benchmark:
        raise SelectionMismatch(
            f"{selection.where}: a selection for {selection.benchmark}, the question is of {asked.benchmark}"
        )
    return replace(selection, benchmark=asked.benchmark, video=asked.video)
