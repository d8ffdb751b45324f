"""Reads and writes the AKS format: a list with the frames of each row of the annotation."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from focus_eval.core.types import Question
from focus_eval.imports import imported
from focus_eval.rows.records import write_text


class AksFormat(imported.SelectionFormat):
    """AKS's list of frames by row of the annotation."""

    name: ClassVar[str] = "aks"
    summary: ClassVar[str] = "a list, one entry of frames per row of the annotation"
    is_written: ClassVar[bool] = True

    def detects(self, source: imported.Source) -> bool:
        """Return True if the file is a list of lists without FOCUS's `sampling_details.json` beside it."""
        return imported.is_list_of_lists(source.data) and not source.path.with_name(imported.DETAILS_FILE).exists()

    def read(self, source: imported.Source) -> Iterable[imported.ImportedSelection]:
        """Yield the frames of each row, for the question at the same row of the annotation."""
        for row, (values, question) in enumerate(source.rows_with_questions(source.data)):
            yield from source.selection(values, question_id=question.id, location=f"row {row}", video=question.video)

    def write(
        self, selections: Mapping[str, imported.ImportedSelection], path: Path, *, questions: Sequence[Question]
    ) -> list[Path]:
        """Write the frames of every question in the annotation's order."""
        rows = [list(imported.frames_of(selection)) for selection in imported.in_order(selections, questions)]
        return [write_text(path, json.dumps(rows))]
