"""Reads published selections with a model's answers; options name the file's fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from focus_eval.core.errors import SelectionMismatch
from focus_eval.imports.imported import ImportedSelection, PublishedAnswer, SelectionFormat, Source

LETTERS = "ABCDEFGH"


@dataclass(frozen=True, kw_only=True)
class Answers(SelectionFormat):
    """A list of rows, each with the model's answer; the options name the fields.

    Args:
        id: the question's id in the annotation.
        times, frames: keyframes in seconds, or as frame indices of the file; one of the two.
        answer: the option letter that the model gave; null if it gave none.
        correct_answer, correct: the right letter, and whether the answer is right; "" if the file has none.
    """

    name: ClassVar[str] = "answers"
    # Never detected: an annotation's `answer` is the right one, a model's looks the same.
    summary: ClassVar[str] = "rows of id, times or frames, and the model's answer, in fields that the options name"

    id: str = "id"
    times: str = "times"
    frames: str = "frames"
    answer: str = "answer"
    correct_answer: str = ""
    correct: str = ""

    def read(self, source: Source) -> Iterable[ImportedSelection]:
        """Yield the selections and answers of a list of rows.

        Raises:
            SelectionMismatch: a row without id, keyframes or answer, or whose verdict contradicts its letters.
        """
        required_fields = filter(None, (self.id, self.answer, self.correct_answer, self.correct))
        for at, row in enumerate(source.records(*required_fields)):
            keyframes = next((name for name in (self.times, self.frames) if name and name in row), None)
            if keyframes is None:
                names = " or ".join(filter(None, (self.times, self.frames)))
                raise SelectionMismatch(
                    f"{source.path.name}: row {at} lacks {names}; it has: {', '.join(map(str, row))}"
                )
            question_id = str(row[self.id])
            answered = _answer(row, self, location=f"{source.path.name}: row {at} ({question_id})")
            unit = "seconds" if keyframes == self.times else "frames"
            yield from source.selection(
                row[keyframes], question_id=question_id, location=f"row {at}", unit=unit, details={"answered": answered}
            )


def _answer(row: Mapping[str, Any], shape: Answers, *, location: str) -> PublishedAnswer:
    """Return the answer in `row`, whose field names `shape` gives.

    Raises SelectionMismatch for an answer that is no letter A to H or null, or a verdict that contradicts the letters.
    """
    letter = row[shape.answer]
    if letter is not None and (not isinstance(letter, str) or len(letter) != 1 or letter not in LETTERS):
        raise SelectionMismatch(f"{location}: answer {letter!r} is not an option letter A to H or null; write it alone")
    right = row[shape.correct_answer] if shape.correct_answer else None
    is_right = row[shape.correct] if shape.correct else None
    if is_right is not None and not isinstance(is_right, bool):
        raise SelectionMismatch(f"{location}: {shape.correct} is {is_right!r}, not true or false")
    if is_right is not None and right is not None and is_right != (letter == right):
        raise SelectionMismatch(
            f"{location}: says {shape.correct} = {is_right}, but {letter} was answered and {right} is right"
        )
    return PublishedAnswer(letter=letter, correct_letter=right, is_correct=is_right)
