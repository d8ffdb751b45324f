"""Reads the WFS-SB format: the rows of the annotation with a field of frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from focus_eval.core.errors import SelectionMismatch
from focus_eval.selections.imported import ImportedSelection, Source

UNIT = "frames"
_FRAME_FIELDS = ("keyframe_indices", "selected_frames", "frame_indices", "frame_idx", "keyframes", "frames")
_ID_FIELDS = ("id", "question_id", "qid", "question_idx")


def detects(path: Path, data: Any) -> bool:
    """Return whether `data` is a list of objects."""
    return isinstance(data, list) and bool(data) and all(isinstance(row, Mapping) for row in data)


def read(data: Any, source: Source) -> Iterable[ImportedSelection]:
    """Yield the selections of the annotation's rows.

    Raises:
        SelectionMismatch: a file that does not fit; names the entry at fault.
    """
    if not isinstance(data, list) or not all(isinstance(row, Mapping) for row in data):
        raise SelectionMismatch(f"{source.path.name}: format 'wfs' is a list of the annotation's rows")
    frames_field = source.field or _first_field(data, _FRAME_FIELDS, source.path, "frames")
    id_field = _first_field(data, _ID_FIELDS, source.path, "an id")
    for row, values in enumerate(data):
        if frames_field not in values or id_field not in values:
            missing = frames_field if frames_field not in values else id_field
            raise SelectionMismatch(f"{source.path.name}: row {row} has no field {missing!r}")
        video = str(values.get("video_path") or values.get("video_name") or values.get("videoID") or "")
        yield from source.selection(
            values[frames_field], question_id=str(values[id_field]), where=f"row {row}", video=video
        )


def _first_field(rows: Sequence[Mapping[str, Any]], names: Sequence[str], path: Path, what: str) -> str:
    for name in names:
        if rows and name in rows[0]:
            return name
    have = ", ".join(sorted(rows[0])) if rows else "no rows"
    raise SelectionMismatch(f"{path.name}: row 0 has no field of {what} among {', '.join(names)}; has: {have}")
