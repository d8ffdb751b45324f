"""Reads and writes the AKS format: a list with the frames of each row of the annotation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from focus_eval.rows.records import AskedQuestion
from focus_eval.selections.imported import (
    DETAILS_FILE,
    ImportedSelection,
    SelectionFormat,
    Source,
    frames_of,
    in_order,
    is_list_of_lists,
    write_json,
)


class Aks(SelectionFormat):
    """The AKS pipeline's list by row."""

    name: ClassVar[str] = "aks"
    summary: ClassVar[str] = "a list, one entry of frames per row of the annotation"
    is_written: ClassVar[bool] = True

    def detects(self, source: Source) -> bool:
        """Return whether it is a list of lists, without FOCUS's details beside it."""
        return is_list_of_lists(source.data) and not source.path.with_name(DETAILS_FILE).exists()

    def read(self, source: Source) -> Iterable[ImportedSelection]:
        """Yield the selections of a list by row."""
        for row, (values, question) in enumerate(source.rows_with_questions(source.data)):
            yield from source.selection(values, question_id=question.id, where=f"row {row}", video=question.video)

    def write(
        self, selections: Mapping[str, ImportedSelection], path: Path, *, questions: Sequence[AskedQuestion]
    ) -> list[Path]:
        """Write the frames of every question in the annotation's order."""
        write_json(path, [list(frames_of(chosen)) for chosen in in_order(selections, questions)])
        return [path]
