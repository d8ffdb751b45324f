"""Reads the ToolMerge format: per question `uid`, `timestamps_used` in seconds, and what the model answered.

Its `frames_used` are not native frame indices, whatever its README says: they count on a grid of 2 frames per second
(`frames_used / timestamps_used` is 2 in every row of the published files). Only the times are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from focus_eval.core.errors import SelectionMismatch
from focus_eval.selections.answers import AnswerShape, read_shape
from focus_eval.selections.imported import ImportedSelection, Source

UNIT = "seconds"
SHAPE = AnswerShape(
    id="uid",
    times="timestamps_used",
    frames="",
    answer="answer",
    correct_answer="ground_truth",
    correct="correct",
)


def detects(path: Path, data: Any) -> bool:
    """Return whether `data` is a list of objects with `uid` and `timestamps_used`."""
    is_rows = isinstance(data, list) and bool(data) and all(isinstance(row, Mapping) for row in data)
    return is_rows and all("uid" in row and "timestamps_used" in row for row in data)


def read(data: Any, source: Source) -> Iterable[ImportedSelection]:
    """Yield the selections and answers of a ToolMerge file.

    Raises:
        SelectionMismatch: a row that lacks a field, or frames asked for instead of times.
    """
    if source.unit != "seconds":
        raise SelectionMismatch(
            f"{source.path.name}: ToolMerge's frames_used count on a grid of 2 frames per second, not in the file; "
            "its times are read (unit: seconds)"
        )
    yield from read_shape(data, source, SHAPE)
