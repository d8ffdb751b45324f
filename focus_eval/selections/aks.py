"""Reads and writes the AKS format: a list with the frames of each row of the annotation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from focus_eval.rows.records import AskedQuestion
from focus_eval.selections.imported import (
    DETAILS_FILE,
    ImportedSelection,
    Source,
    frames_of,
    in_order,
    is_list_of_lists,
    write_json,
)

# Its habit, where the caller names no unit.
UNIT = "frames"


def detects(path: Path, data: Any) -> bool:
    """Return whether `data` is a list of lists, without FOCUS's details beside it."""
    return is_list_of_lists(data) and not path.with_name(DETAILS_FILE).exists()


def read(data: Any, source: Source) -> Iterable[ImportedSelection]:
    """Yield the selections of a list by row.

    Raises:
        SelectionMismatch: a file that does not fit; names the entry at fault.
    """
    for row, (values, question) in enumerate(source.rows_with_questions(data)):
        yield from source.selection(values, question_id=question.id, where=f"row {row}", video=question.video)


def export_aks(
    selections: Mapping[str, ImportedSelection], path: Path, *, questions: Sequence[AskedQuestion]
) -> list[Path]:
    """Write the list-by-row file of the AKS pipeline: frames of every question in the annotation's order.

    Raises:
        SelectionMismatch: a question without a selection, or one in seconds.
    """
    write_json(path, [list(frames_of(chosen)) for chosen in in_order(selections, questions)])
    return [path]
