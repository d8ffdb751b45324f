"""Reads and writes the AKS format: a list with the frames of each row of the annotation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from focus_eval.rows.records import AskedQuestion
from focus_eval.selections import imported


class Aks(imported.SelectionFormat):
    """The AKS pipeline's list by row."""

    name: ClassVar[str] = "aks"
    summary: ClassVar[str] = "a list, one entry of frames per row of the annotation"
    is_written: ClassVar[bool] = True

    def detects(self, source: imported.Source) -> bool:
        """Return whether it is a list of lists, without FOCUS's details beside it."""
        return imported.is_list_of_lists(source.data) and not source.path.with_name(imported.DETAILS_FILE).exists()

    def read(self, source: imported.Source) -> Iterable[imported.ImportedSelection]:
        for row, (values, question) in enumerate(source.rows_with_questions(source.data)):
            yield from source.selection(values, question_id=question.id, where=f"row {row}", video=question.video)

    def write(
        self, selections: Mapping[str, imported.ImportedSelection], path: Path, *, questions: Sequence[AskedQuestion]
    ) -> list[Path]:
        """Write the frames of every question in the annotation's order."""
        imported.write_json(
            path, [list(imported.frames_of(chosen)) for chosen in imported.in_order(selections, questions)]
        )
        return [path]
