"""Reads the ToolMerge format: per question `uid`, `timestamps_used` in seconds, and the model's answer.

Contrary to its README, `frames_used` are not native frame indices: they count on a grid of 2 frames per second
(`frames_used / timestamps_used` is 2 in every row of the published files). Only the times are read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from focus_eval.core.errors import SelectionMismatch
from focus_eval.imports.answers import Answers
from focus_eval.imports.imported import ImportedSelection, Source, is_list_of_rows


@dataclass(frozen=True, kw_only=True)
class ToolMerge(Answers):
    """ToolMerge's rows."""

    name: ClassVar[str] = "toolmerge"
    summary: ClassVar[str] = "rows of `uid`, `timestamps_used`, and the model's `answer`"
    unit: ClassVar[str] = "seconds"

    id: str = "uid"
    times: str = "timestamps_used"
    frames: str = ""
    correct_answer: str = "ground_truth"
    correct: str = "correct"

    def detects(self, source: Source) -> bool:
        """Return True if the file is a list of objects with `uid` and `timestamps_used`."""
        return is_list_of_rows(source.data, "uid", "timestamps_used")

    def read(self, source: Source) -> Iterable[ImportedSelection]:
        """Yield the selections with their answers; raise SelectionMismatch if the caller names frames as the unit."""
        if source.unit != "seconds":
            raise SelectionMismatch(
                f"{source.path.name}: ToolMerge's frames_used count on a grid of 2 frames per second, not in the file; "
                "its times are read (unit: seconds)"
            )
        yield from super().read(source)
