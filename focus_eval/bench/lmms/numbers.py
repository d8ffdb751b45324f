"""Reads the one number that a reply gives as its answer.

    read_number("2 chairs and 4 tables, so 6")  # 6.0
    read_number("1,200 square centimetres")  # 1200.0

lmms-eval's own rule, under `answer_parsing=lmms_eval`, takes the first number instead.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from focus_eval.bench.lmms.answer_words import roles_of_words
from focus_eval.bench.lmms.replies import marked_parts, without_marks

# A comma, an apostrophe or a no-break blank may stand before every three digits. "1,5" is unclear: a number with a
# decimal comma, or two numbers.
_DIGITS = re.compile(
    r"(?<![\w.,])(?P<number>-?(?:\d{1,3}(?:[,'’\u00a0\u202f]\d{3})+|\d+)(?:\.\d+)?(?:[eE][+-]?\d+)?|-?\.\d+)"
    r"(?P<unclear>,\d+)?"
)
_SEPARATOR = re.compile("[,'’\u00a0\u202f]")
_WORD = re.compile(r"[^\W\d_]+")
# What joins two numbers, as in "3 or 4", "3-4" or "between 3 and 4": joined numbers are no answer.
_JOINED = re.compile(r"\s*(?:-|–|—|/|~|to|or|and)\s*", re.IGNORECASE)
_GAP_IN_WORDS = re.compile(r"[\s-]+(?:and\s+)?")


@dataclass(frozen=True)
class _Number:
    """A number in a text, at [start, stop).

    Args:
        value: the number; None if the text can be read in two ways.
        is_pronoun: the word "one", which need not be a number.
    """

    start: int
    stop: int
    value: float | None
    is_pronoun: bool = False


def read_number(text: str) -> float | None:
    """Return the number that a reply answers with, or None.

    The first of these kinds that occurs counts: marked numbers (`<answer>4</answer>`, `\\boxed{4}`), announced numbers
    ("the answer is 4"), a number that fills the first line, the last number. Several marked or announced numbers must
    agree. A number that is joined to another ("3-4", "3 or 4") is no answer.
    """
    plain = without_marks(unicodedata.normalize("NFKC", text))
    marked = [part for part in marked_parts(plain) if any(_numbers(part))]
    if marked:
        values = {_read_plain(part) for part in marked}
        return values.pop() if len(values) == 1 else None
    return _read_plain(plain)


def _read_plain(text: str) -> float | None:
    numbers = list(_numbers(text))
    numbers = [number for number in numbers if not number.is_pronoun] or numbers
    if not numbers:
        return None
    first_line = text.strip().partition("\n")[0].strip(" .*")
    announced = [number for number in numbers if _is_announced(text, number)]
    leading = [number for number in numbers[:1] if text[number.start : number.stop] == first_line]
    answers = announced or leading or numbers[-1:]
    for left, right in pairwise(numbers):
        if (left in answers or right in answers) and _JOINED.fullmatch(text, left.stop, right.start):
            return None
    values = {number.value for number in answers}
    return values.pop() if len(values) == 1 else None


def _numbers(text: str) -> Iterator[_Number]:
    """Yield the numbers of `text`, in digits or English words, in order."""
    numbers = [
        _Number(match.start(), match.end(), None if match["unclear"] else float(_SEPARATOR.sub("", match["number"])))
        for match in _DIGITS.finditer(text.replace("−", "-"))
    ]
    yield from sorted([*numbers, *_numbers_in_words(text)], key=lambda number: number.start)


def _numbers_in_words(text: str) -> Iterator[_Number]:
    from lmms_eval.tasks.vsibench.utils import extract_number

    runs: list[list[re.Match[str]]] = []
    for match in _WORD.finditer(text):
        if extract_number(match[0]) is None:
            continue
        if runs and _GAP_IN_WORDS.fullmatch(text, runs[-1][-1].end(), match.start()):
            runs[-1].append(match)
        else:
            runs.append([match])
    for run in runs:
        words = text[run[0].start() : run[-1].end()]
        yield _Number(run[0].start(), run[-1].end(), extract_number(words), is_pronoun=words.casefold() == "one")


def _is_announced(text: str, number: _Number) -> bool:
    """True if words that announce an answer stand right before `number`: "the answer is about 4"."""
    before = re.split(r"[.!?。\n]\s", text[: number.start])[-1]
    roles = roles_of_words()
    for word in reversed(re.findall(r"[^\W\d_]+|[^\w\s]", before)):
        role = roles.get(word.casefold(), "")
        if role == "answer":
            return True
        if role not in ("link", "correct", "so") and word.casefold() not in _ABOUT and word not in ":=*\"'$([{\\":
            return False
    return False


_ABOUT = frozenset({"about", "approximately", "roughly", "around", "a", "total", "number", "count", "estimated"})
