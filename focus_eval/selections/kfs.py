"""Reads KFS-Bench's format: per question `id` and `frame_timestamps` in seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from focus_eval.core.errors import SelectionMismatch
from focus_eval.selections.imported import ImportedSelection, SelectionFormat, Source, is_list_of_rows


@dataclass(frozen=True, kw_only=True)
class Kfs(SelectionFormat):
    """KFS-Bench's list of results."""

    name: ClassVar[str] = "kfs"
    summary: ClassVar[str] = "rows of `id` and `frame_timestamps` in seconds"
    unit: ClassVar[str] = "seconds"

    def detects(self, source: Source) -> bool:
        """Return whether it is a list of objects with `id` and `frame_timestamps`."""
        return is_list_of_rows(source.data) and all("id" in row and "frame_timestamps" in row for row in source.data)

    def read(self, source: Source) -> Iterable[ImportedSelection]:
        """Yield the selections of the rows."""
        rows = source.data
        if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
            raise SelectionMismatch(f"{source.path.name}: format 'kfs' is a list of rows with id and frame_timestamps")
        for row, values in enumerate(rows):
            if "id" not in values or "frame_timestamps" not in values:
                raise SelectionMismatch(
                    f"{source.path.name}: row {row} lacks id or frame_timestamps; it has: {', '.join(map(str, values))}"
                )
            yield from source.selection(values["frame_timestamps"], question_id=str(values["id"]), where=f"row {row}")
