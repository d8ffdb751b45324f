"""Reads the answer in a model's reply: the thinking is removed, then one option must be named without doubt.

`replies.read_option` is the strict reading. It reads no option if two places of the reply name different ones, if the
option is denied, or if it stands in a list of several. For `answer_parsing=lmms_eval`, lmms-eval's own functions are
called.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from focus_eval.bench.benchmarks.question import letters
from focus_eval.bench.lmms.numbers import read_number
from focus_eval.bench.lmms.replies import read_option
from focus_eval.core.types import AnswerParsing, Question
from focus_eval.keyframes.samplers.base import derived_rng

TagPairs = Sequence[Sequence[str]]

# The default of lmms-eval's command line (`--reasoning_tags`).
REASONING_TAGS: TagPairs = (("<think>", "</think>"), ("<analysis>", "</analysis>"))


@dataclass(frozen=True)
class ParsedAnswer:
    """An answer as parsed, and its score.

    Args:
        parsed: an option letter, a number as text, or an open answer; None if no answer can be read, or it is a guess.
        score: in [0, 1]; None if the answer cannot be scored.
        metric: name of the task's own metric that gave the score; "" if focus-eval scored the answer.
        is_cut: True if the reply ends while the model is still thinking.
    """

    parsed: str | None
    score: float | None
    metric: str = ""
    is_cut: bool = False


class StrippedReply(str):
    """A reply without its reasoning, as a wrapper returns it; `whole` is what the model wrote."""

    __slots__ = ("whole",)

    whole: str

    def __new__(cls, stripped: str, *, whole: str) -> StrippedReply:
        """Return `stripped`, which carries `whole`."""
        reply = super().__new__(cls, stripped)
        reply.whole = whole
        return reply


def read_answer(
    question: Question,
    reply: str,
    *,
    answer_parsing: AnswerParsing = "strict",
    rule: str = "letters",
    seed: int = 0,
    reasoning_tags: TagPairs = REASONING_TAGS,
) -> ParsedAnswer:
    """Parse the `reply` to `question` and score it; a reply that is cut while thinking is not parsed.

    A question whose answer the split hides has no score.

    Args:
        answer_parsing: "strict", or "lmms_eval" for lmms-eval's rule for the benchmark. The rule for LongVideoBench
            guesses an option where it reads none; the guess is drawn from (seed, question). The rules for the other
            benchmarks never guess, and differ from "strict" only in the accepted forms of an option. Of several
            numbers lmms-eval reads the first, "strict" the announced or the last one (see `read_number`).
        rule: name of lmms-eval's rule for "lmms_eval" (see `BenchmarkFacts.lmms_eval_parsing`).
        seed: seed of the guess.
        reasoning_tags: pairs of tags; what is between them is not read.
    """
    text, is_cut = strip_reasoning(reply, reasoning_tags)
    if answer_parsing == "lmms_eval" and question.options:
        letter, is_guess = _read_as_lmms_eval(question, text, rule, seed)
        # Read no option from a guess or a cut reply. The score stays lmms-eval's, which parses cut replies too.
        return ParsedAnswer(None if is_guess or is_cut else letter, _score(letter, question), is_cut=is_cut)
    if is_cut:
        return ParsedAnswer(None, _score(None, question), is_cut=True)
    if not question.options:
        return _read_number(question, text, answer_parsing)
    letter = read_option(text, question.options)
    return ParsedAnswer(letter, _score(letter, question))


def _score(letter: str | None, question: Question) -> float | None:
    """1.0 if `letter` is the question's answer, else 0.0; None if the split hides the answer."""
    return None if question.answer is None else float(letter == question.answer)


def strip_reasoning(reply: str, reasoning_tags: TagPairs = REASONING_TAGS) -> tuple[str, bool]:
    """Return `reply` without its reasoning, as lmms-eval strips it, and True if it ends inside the reasoning."""
    if not any(tag in reply for pair in reasoning_tags for tag in pair):
        return reply, False
    from lmms_eval.api.reasoning import strip_reasoning_tags

    text = strip_reasoning_tags(reply, [list(pair) for pair in reasoning_tags])
    # lmms-eval keeps the text after a tag that is never closed.
    return text, any(start in text for start, _ in reasoning_tags)


def _read_number(question: Question, text: str, answer_parsing: AnswerParsing) -> ParsedAnswer:
    """Read the number that answers an open question of VSI-Bench, and score it.

    The score is the mean relative accuracy over thresholds from .5 to .95, by lmms-eval's own function.
    """
    from lmms_eval.tasks.vsibench import utils

    value = read_number(text) if answer_parsing == "strict" else utils.extract_number(text)
    if question.answer is None:
        return ParsedAnswer(None if value is None else f"{value:.12g}", None)
    target = utils.to_float(question.answer)
    if value is None or target is None:
        return ParsedAnswer(None, 0.0)
    score = utils.mean_relative_accuracy(value, target, start=0.5, end=0.95, interval=0.05)
    return ParsedAnswer(f"{value:.12g}", float(score))


def _read_as_lmms_eval(question: Question, text: str, rule: str, seed: int) -> tuple[str | None, bool]:
    """The letter that lmms-eval reads (None if none), and True if lmms-eval guessed it."""
    option_letters = list(letters(len(question.options)))
    if rule == "longvideobench":
        from lmms_eval.tasks.longvideobench.utils import parse_multi_choice_response

        with guessing(question, seed) as seeded:
            letter = parse_multi_choice_response(
                text, option_letters, dict(zip(option_letters, question.options, strict=True))
            )
            # The parser does not report guesses, but only a guess advances the random state.
            return str(letter), random.getstate() != seeded
    if rule == "vsibench":
        from lmms_eval.tasks.vsibench.utils import fuzzy_matching

        # `fuzzy_matching` returns a word of the answer, which may not be an option.
        letter = str(fuzzy_matching(text)).upper()
        return (letter if letter in option_letters else None), False
    from lmms_eval.tasks._task_utils.mcq_extract import extract_mcq_answer

    return extract_mcq_answer(text, choices=["A", "B", "C", "D"]) or None, False


@contextmanager
def guessing(question: Question, seed: int) -> Iterator[object]:
    """Seed Python's `random`, with which lmms-eval's tasks guess, from `seed` and `question`; restore it afterwards.

    A guess then does not depend on earlier answers. Yields the seeded state.
    """
    state = random.getstate()
    random.seed(int(derived_rng(seed, question.benchmark, question.id, "guess").integers(2**32)))
    try:
        yield random.getstate()
    finally:
        random.setstate(state)
