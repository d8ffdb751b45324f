"""Reads the WFS-SB format: the rows of the annotation with a field of frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from focus_eval.core.errors import SelectionMismatch
from focus_eval.imports.imported import ImportedSelection, SelectionFormat, Source, is_list_of_rows

_FRAME_FIELDS = ("keyframe_indices", "selected_frames", "frame_indices", "frame_idx", "keyframes", "frames")
_ID_FIELDS = ("id", "question_id", "qid", "question_idx")


@dataclass(frozen=True, kw_only=True)
class Wfs(SelectionFormat):
    """WFS-SB's copy of the annotation.

    Args:
        field: name of the field of frames; None for the first of the usual ones in the file.
    """

    name: ClassVar[str] = "wfs"
    summary: ClassVar[str] = "the rows of the annotation with a field of frames (option `field`)"
    is_general: ClassVar[bool] = True

    field: str | None = None

    def detects(self, source: Source) -> bool:
        """Return True if the file is a list of objects."""
        return is_list_of_rows(source.data)

    def read(self, source: Source) -> Iterable[ImportedSelection]:
        """Yield the selection of each row, from the named field of frames or the first of the usual ones."""
        rows = source.records()
        frames_field = self.field or _first_field(rows, _FRAME_FIELDS, source.path, "frames")
        id_field = _first_field(rows, _ID_FIELDS, source.path, "an id")
        for row, values in enumerate(source.records(frames_field, id_field)):
            video = str(values.get("video_path") or values.get("video_name") or values.get("videoID") or "")
            yield from source.selection(
                values[frames_field], question_id=str(values[id_field]), location=f"row {row}", video=video
            )


def _first_field(rows: Sequence[Mapping[str, Any]], names: Sequence[str], path: Path, field_role: str) -> str:
    """Return the first of `names` that the first row has; raise SelectionMismatch, naming `field_role`, if none."""
    for name in names:
        if rows and name in rows[0]:
            return name
    have = ", ".join(sorted(rows[0])) if rows else "no rows"
    raise SelectionMismatch(f"{path.name}: row 0 has no field of {field_role} among {', '.join(names)}; has: {have}")
