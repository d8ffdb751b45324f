"""What a reader of a selection format is given, and what the formats share."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from focus_eval.errors import SelectionMismatch
from focus_eval.rows.building import AskedQuestion
from focus_eval.selections.checks import numbers
from focus_eval.selections.imported import ImportedSelection

# Written beside the frames by the public FOCUS code: by this file its list is told from AKS's.
DETAILS_FILE = "sampling_details.json"


@dataclass(frozen=True, kw_only=True)
class Source:
    """A file of selections and what the caller said of it.

    Args:
        path: the file.
        format: name of its format.
        unit: "frames" or "seconds".
        field: name of the field of frames, where the caller gave one.
        questions: in the order of the annotation; None where none were given.
        allow_missing: leave out questions without frames instead of refusing the file.
        columns: names of the fields of published answers (`AnswerShape`), where the caller gave some.
    """

    path: Path
    format: str
    unit: str
    field: str | None = None
    questions: Sequence[AskedQuestion] | None = None
    allow_missing: bool = False
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def selection(
        self,
        values: Any,
        *,
        question_id: str,
        where: str,
        video: str = "",
        unit: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> Iterable[ImportedSelection]:
        """Yield the selection of one entry, or nothing for an empty one that the caller allows.

        Args:
            unit: of this entry, where it is not that of the file.

        Raises:
            SelectionMismatch: no frames, or values that are not of `unit`; names file and entry.
        """
        where = f"{self.path.name}: {where}"
        if isinstance(values, list) and not values:
            if self.allow_missing:
                return
            raise SelectionMismatch(f"{where} ({question_id}): no frames chosen (allow_missing leaves it out)")
        unit = unit or self.unit
        kept = numbers(values, unit=unit, where=f"{where} ({question_id})")
        stated: dict[str, Any] = {"times_seconds" if unit == "seconds" else "keyframes": kept}
        said: dict[str, Any] = {"sampler": self.format, "video": video, **stated, **(details or {})}
        yield ImportedSelection(question_id=question_id, where=where, **said)

    def rows_with_questions(self, data: Any) -> Iterable[tuple[Any, AskedQuestion]]:
        """Return the entries of a list, each with the question of the same row of the annotation.

        Raises:
            SelectionMismatch: not a list, no questions given, or another number of rows.
        """
        name = self.path.name
        if not isinstance(data, list):
            raise SelectionMismatch(f"{name}: format {self.format!r} is a list with one entry per question")
        if self.questions is None:
            raise SelectionMismatch(
                f"{name}: format {self.format!r} follows the order of the annotation; give the questions too"
            )
        if len(data) != len(self.questions):
            raise SelectionMismatch(
                f"{name}: {len(data)} rows for {len(self.questions)} questions; another benchmark or split?"
            )
        return zip(data, self.questions, strict=True)


def is_list_of_lists(data: Any) -> bool:
    """Return whether `data` is a list of lists, at least one."""
    return isinstance(data, list) and bool(data) and all(isinstance(row, list) for row in data)


def is_mapping_of_lists(data: Any) -> bool:
    """Return whether `data` maps names to lists, at least one."""
    return isinstance(data, Mapping) and bool(data) and all(isinstance(value, list) for value in data.values())


def video_stem(video: str) -> str:
    """Return a video's name without folder and suffix, by which formats name it."""
    return Path(str(video)).stem


def write_json(path: Path, value: Any) -> None:
    """Write `value` to `path`, completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.write_text(json.dumps(value, allow_nan=False), encoding="utf-8")
    os.replace(unfinished, path)


def in_order(
    selections: Mapping[str, ImportedSelection], questions: Sequence[AskedQuestion]
) -> list[ImportedSelection]:
    """Return the selections of `questions` in the annotation's order, for formats that go by it.

    Raises:
        SelectionMismatch: a question without a selection, or a selection of no question.
    """
    for row, asked in enumerate(questions):
        if asked.id not in selections:
            raise SelectionMismatch(f"row {row} ({asked.id}): no selection; a list by row needs one for every question")
    if len(selections) > len(questions):
        extra = sorted(set(selections) - {asked.id for asked in questions})[0]
        raise SelectionMismatch(f"{extra!r} is not a question of this benchmark ({len(questions)} questions)")
    return [selections[asked.id] for asked in questions]


def frames_of(selection: ImportedSelection) -> tuple[int, ...]:
    """Return the keyframes of `selection`, for formats that state frames.

    Raises:
        SelectionMismatch: chosen in seconds.
    """
    if selection.keyframes is None:
        raise SelectionMismatch(f"{selection.question_id}: chosen in seconds; this format needs frame indices")
    return selection.keyframes
