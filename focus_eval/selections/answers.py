"""Reads selections that were published with a model's answers, in a declared shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from focus_eval.core.errors import SelectionMismatch, unknown_name
from focus_eval.selections.imported import ImportedSelection, PublishedAnswer, Source

UNIT = "frames"
LETTERS = "ABCDEFGH"


@dataclass(frozen=True, kw_only=True)
class AnswerShape:
    """Which field of a row holds what.

    Args:
        id: the question's id in the annotation.
        times, frames: keyframes in seconds, or as frame indices of the file; one of the two.
        answer: the option letter that the model gave; null where it gave none.
        correct_answer, correct: the right letter, and whether the answer is right; "" where the file has none.
    """

    id: str = "id"
    times: str = "times"
    frames: str = "frames"
    answer: str = "answer"
    correct_answer: str = ""
    correct: str = ""

    @classmethod
    def of(cls, columns: Mapping[str, str]) -> AnswerShape:
        """Return the shape with the named columns: {"id": "qid", "times": "ts"}.

        Raises:
            UnknownName: a name that is not part of the shape.
        """
        for name in columns:
            if name not in cls.__dataclass_fields__:
                raise unknown_name("column", name, cls.__dataclass_fields__)
        return cls(**columns)


def detects(path: Path, data: Any) -> bool:
    """Return False: an annotation's `answer` is the right one, a model's looks the same; the format must be named."""
    return False


def read(data: Any, source: Source) -> Iterable[ImportedSelection]:
    """Yield the selections and answers of a list of rows.

    Raises:
        SelectionMismatch: a row without id, keyframes or answer, or whose verdict contradicts its letters.
    """
    yield from read_shape(data, source, AnswerShape.of(source.columns))


def read_shape(data: Any, source: Source, shape: AnswerShape) -> Iterable[ImportedSelection]:
    """Yield the selections and answers of rows of `shape`. Raises as `read`."""
    if not isinstance(data, list) or not all(isinstance(row, Mapping) for row in data):
        raise SelectionMismatch(f"{source.path.name}: format {source.format!r} is a list of rows, one per question")
    for at, row in enumerate(data):
        keyframes = next((name for name in (shape.times, shape.frames) if name and name in row), None)
        missing = [name for name in (shape.id, shape.answer, shape.correct_answer, shape.correct) if name]
        missing = [name for name in missing if name not in row]
        if keyframes is None:
            missing.append(" or ".join(name for name in (shape.times, shape.frames) if name))
        if missing or keyframes is None:
            raise SelectionMismatch(
                f"{source.path.name}: row {at} lacks {', '.join(missing)}; it has: {', '.join(map(str, row))}"
            )
        question_id = str(row[shape.id])
        answered = _answer(row, shape, where=f"{source.path.name}: row {at} ({question_id})")
        unit = "seconds" if keyframes == shape.times else "frames"
        yield from source.selection(
            row[keyframes], question_id=question_id, where=f"row {at}", unit=unit, details={"answered": answered}
        )


def _answer(row: Mapping[str, Any], shape: AnswerShape, *, where: str) -> PublishedAnswer:
    letter = row[shape.answer]
    if letter is not None and (not isinstance(letter, str) or len(letter) != 1 or letter not in LETTERS):
        raise SelectionMismatch(f"{where}: answer {letter!r} is not an option letter A to H or null")
    right = row[shape.correct_answer] if shape.correct_answer else None
    is_right = row[shape.correct] if shape.correct else None
    if is_right is not None and not isinstance(is_right, bool):
        raise SelectionMismatch(f"{where}: {shape.correct} is {is_right!r}, not true or false")
    if is_right is not None and right is not None and is_right != (letter == right):
        raise SelectionMismatch(
            f"{where}: says {shape.correct} = {is_right}, but {letter} was answered and {right} is right"
        )
    return PublishedAnswer(letter=letter, correct_letter=right, is_correct=is_right)
