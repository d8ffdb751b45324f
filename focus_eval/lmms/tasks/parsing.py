"""Reads the option or the number that an answer names.

Strict: an option must be named without doubt; what cannot be read is wrong and counted as unparsed. lmms-eval's own
rule for LongVideoBench (the first capital letter A to E anywhere, else a random option) is there as "lmms_eval": the
random option gives the score, and counts as unparsed too.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from functools import cache

from focus_eval.benchmarks.documents import letters
from focus_eval.benchmarks.question import Question
from focus_eval.samplers.randomness import derived_rng
from focus_eval.types import AnswerParsing

# What lmms-eval gets for a question without an answer. None of its parsers for our benchmarks reads an option or a
# number in it (no capital letter, no digit, no number word). LongVideoBench's own then guesses at random, as it
# does for every answer it cannot read; our tasks count it as unparsed.
NO_ANSWER = "[focus-eval: no result; see the error in the row]"


@dataclass(frozen=True)
class _Patterns:
    """How a letter may stand in an answer, for options A to the last of `last`."""

    leading: re.Pattern[str]
    announced: re.Pattern[str]
    several: re.Pattern[str]


@cache
def _patterns(last: str) -> _Patterns:
    letter = f"[A-{last}]"
    return _Patterns(
        # "C", "(C)", "C.", "C) text", "C: text"; a letter followed by a blank and more words is a word ("A man runs").
        leading=re.compile(rf"^\(?({letter})(?:\)|[.:,)](?=\s|$)|$)"),
        # "the answer is C", "Answer: (C)", "Best option: C", "I choose option C".
        announced=re.compile(
            r"(?:\b(?:answer|option|choice)\b(?:\s+(?:is|would be))?\s*[:=]?\s*(?:option\s+)?)"
            rf"[\"'*(\[]{{0,3}}({letter})(?=[\"'*)\].,:;]|\s*$|\s+(?:because|since|as|or|and)\b)",
            re.IGNORECASE,
        ),
        # "A or B", "(A) and (C)": two options are no answer.
        several=re.compile(rf"(?<!\w)\(?{letter}\)?,?\s+(?:or|and)\s+(?:the answer is |option )?\(?{letter}\)?(?!\w)"),
    )


@dataclass(frozen=True)
class ParsedAnswer:
    """What an answer says, and what it is worth.

    Args:
        parsed: an option letter, or a number as text; None where neither can be read, also where a score was guessed.
        score: in [0, 1]; None where nothing here scores the answer.
        metric: the task's own metric that gave the score; "" where it was read here.
    """

    parsed: str | None
    score: float | None
    metric: str = ""


def read_answer(
    question: Question, text: str, *, answer_parsing: AnswerParsing = "strict", seed: int = 0
) -> ParsedAnswer:
    """Return what `text` answers to `question`, and its score.

    Args:
        answer_parsing: "lmms_eval" reads LongVideoBench as lmms-eval does, its random guess drawn from (seed,
            question). Its rules for the other benchmarks make no guess: there the two differ only in what they
            accept.
    """
    if not question.options:
        return _read_number(question, text)
    if answer_parsing == "lmms_eval":
        letter, is_guess = _read_as_lmms_eval(question, text, seed)
    else:
        letter, is_guess = read_option(text, question.options), False
    is_right = letter is not None and letter == question.answer
    return ParsedAnswer(None if is_guess else letter, float(is_right))


def read_option(text: str, options: tuple[str, ...]) -> str | None:
    """Return the letter that `text` names among `options`, or None.

    Read are, in this order: a leading letter ("C", "(C) text", "C. text"), one announced letter ("the answer is
    C"), and the exact text of one option. Several different letters announced are no answer.
    """
    known = letters(len(options))
    # Up to H are letters of options to anyone; later ones only where there are so many options ("I" is a word).
    patterns = _patterns(known[-1] if len(known) > 8 else "H")
    # Models put their answer in quotes or in markdown.
    bare = text.strip().strip("*`\"'").strip()
    found = patterns.leading.match(bare)
    if found and not patterns.several.match(bare):
        return found[1] if found[1] in known else None
    if patterns.several.search(bare):
        return None
    announced = {letter.upper() for letter in patterns.announced.findall(bare)}
    if announced:
        return announced.pop() if len(announced) == 1 and announced <= set(known) else None
    # Options may repeat: a text that fits two names neither.
    same = [letter for letter, option in zip(known, options, strict=True) if _folded(option) == _folded(bare)]
    return same[0] if len(same) == 1 else None


def _folded(text: str) -> str:
    return " ".join(text.strip().rstrip(".!").casefold().split())


def _read_number(question: Question, text: str) -> ParsedAnswer:
    """Read VSI-Bench's open questions with lmms-eval's own functions: mean relative accuracy from .5 to .95."""
    from lmms_eval.tasks.vsibench import utils

    value = utils.extract_number(text)
    target = utils.to_float(question.answer)
    if value is None or target is None:
        return ParsedAnswer(None, 0.0)
    score = utils.mean_relative_accuracy(value, target, start=0.5, end=0.95, interval=0.05)
    return ParsedAnswer(f"{value:g}", float(score))


def _read_as_lmms_eval(question: Question, text: str, seed: int) -> tuple[str | None, bool]:
    """Return the letter that lmms-eval takes, and whether it guessed it."""
    known = list(letters(len(question.options)))
    if question.benchmark in ("longvideobench", "photo_events"):
        from lmms_eval.tasks.longvideobench.utils import parse_multi_choice_response

        # lmms-eval guesses with the generator of the process: seeded for this question, then put back as it was.
        state = random.getstate()
        random.seed(int(derived_rng(seed, question.benchmark, question.id, "guess").integers(2**32)))
        seeded = random.getstate()
        try:
            letter = parse_multi_choice_response(text, known, dict(zip(known, question.options, strict=True)))
            # It does not say that it guessed, but only a guess draws a number.
            return str(letter), random.getstate() != seeded
        finally:
            random.setstate(state)
    if question.benchmark == "vsibench":
        from lmms_eval.tasks.vsibench.utils import fuzzy_matching

        # It returns a word of the answer, which need not be an option.
        letter = str(fuzzy_matching(text)).upper()
        return (letter if letter in known else None), False
    from lmms_eval.tasks._task_utils.mcq_extract import extract_mcq_answer

    return extract_mcq_answer(text, choices=["A", "B", "C", "D"]) or None, False
