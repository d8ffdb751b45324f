"""Reads KFS-Bench's format: per question `id` and `frame_timestamps` in seconds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from focus_eval.imports.imported import ImportedSelection, SelectionFormat, Source, is_list_of_rows


@dataclass(frozen=True, kw_only=True)
class Kfs(SelectionFormat):
    """KFS-Bench's list of results."""

    name: ClassVar[str] = "kfs"
    summary: ClassVar[str] = "rows of `id` and `frame_timestamps` in seconds"
    unit: ClassVar[str] = "seconds"

    def detects(self, source: Source) -> bool:
        """Return True if the file is a list of objects with `id` and `frame_timestamps`."""
        return is_list_of_rows(source.data, "id", "frame_timestamps")

    def read(self, source: Source) -> Iterable[ImportedSelection]:
        """Yield the selection of each object, times in seconds."""
        for row, values in enumerate(source.records("id", "frame_timestamps")):
            yield from source.selection(
                values["frame_timestamps"], question_id=str(values["id"]), location=f"row {row}"
            )
