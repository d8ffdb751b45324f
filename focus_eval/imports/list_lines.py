"""Reads a CSV file with a list of frames a line, in the order of the annotation (momentslab/frame-sampling)."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from focus_eval.core.errors import SelectionMismatch
from focus_eval.core.options import option
from focus_eval.core.resources import read_text
from focus_eval.imports.imported import ImportedSelection, SelectionFormat, Source


@dataclass(frozen=True, kw_only=True)
class ListLines(SelectionFormat):
    """A column of lists, as published for MaxInfo and CSTA.

    Args:
        skip: lists before that of the first question, such as those of a run that began again in the same file.
    """

    name: ClassVar[str] = "csv"
    summary: ClassVar[str] = "a CSV column of lists of frames, a line per row of the annotation"
    skip: int = option(0, at_least=0)

    def detects(self, source: Source) -> bool:
        """Return True if the file is a CSV file whose second line begins a list."""
        if not source.path.is_file() or not source.path.name.removesuffix(".gz").endswith(".csv"):
            return False
        return read_text(source.path).partition("\n")[2].lstrip('"').startswith("[")

    def read(self, source: Source) -> Iterable[ImportedSelection]:
        """Yield the frames of each line below the first, for the question at the same row of the annotation."""
        rows = list(csv.reader(io.StringIO(read_text(source.path))))[1 + self.skip :]
        lists = [_frames(row, f"{source.path.name}: row {number}") for number, row in enumerate(rows)]
        for number, (frames, question) in enumerate(source.rows_with_questions(lists)):
            yield from source.selection(frames, question_id=question.id, location=f"row {number}", video=question.video)


def _frames(row: list[str], location: str) -> Any:
    """Return the JSON list in the first cell of `row`; raise SelectionMismatch, naming `location`, if there is none."""
    try:
        return json.loads(row[0])
    except (ValueError, IndexError) as error:
        raise SelectionMismatch(f"{location}: no list of frames, {','.join(row)[:40]!r}") from error
