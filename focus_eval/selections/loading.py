"""Reads a file of selections in any known format and checks it against the benchmark's questions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from focus_eval.errors import SelectionMismatch, unknown_name
from focus_eval.resources import read_json
from focus_eval.rows.building import AskedQuestion
from focus_eval.selections import aks, answers, bolt, focus, qca, toolmerge, wfs
from focus_eval.selections.checks import check_lengths, check_unit_plausible
from focus_eval.selections.imported import ImportedSelection
from focus_eval.selections.our_rows import is_rows_path, load_rows
from focus_eval.selections.source import Source

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
