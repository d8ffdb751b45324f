"""Reads the answer in a model's reply: the thinking is removed, then one option must be named without doubt.

`read_option` is the strict reading. An option that two places name differently, that is denied, or that stands in a
list of several is not read. lmms-eval's own rules (`answer_parsing=lmms_eval`) are called, not repeated.
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from focus_eval.bench.benchmarks.question import letters
from focus_eval.core.types import AnswerParsing, Question
from focus_eval.keyframes.samplers.base import derived_rng

TagPairs = Sequence[Sequence[str]]

# The default of lmms-eval's command line (`--reasoning_tags`).
REASONING_TAGS: TagPairs = (("<think>", "</think>"), ("<analysis>", "</analysis>"))


@dataclass(frozen=True)
class ParsedAnswer:
    """An answer as parsed, and its score.

    Args:
        parsed: an option letter, a number as text, or an open answer; None if none can be read or it was guessed.
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
        answer_parsing: "lmms_eval" parses LongVideoBench as lmms-eval does, with its random guess drawn from (seed,
            question). Its rules for the other benchmarks never guess: there the two differ only in the accepted forms.
        rule: name of lmms-eval's rule for "lmms_eval" (see `BenchmarkFacts.lmms_eval_parsing`).
        seed: seed of the guess.
        reasoning_tags: pairs of tags; what is between them is not read.
    """
    text, is_cut = strip_reasoning(reply, reasoning_tags)
    if answer_parsing == "lmms_eval" and question.options:
        letter, is_guess = _read_as_lmms_eval(question, text, rule, seed)
        # The score is lmms-eval's, which reads the thoughts of a reply that is cut.
        return ParsedAnswer(None if is_guess or is_cut else letter, _score(letter, question), is_cut=is_cut)
    if is_cut:
        return ParsedAnswer(None, _score(None, question), is_cut=True)
    if not question.options:
        return _read_number(question, text)
    letter = read_option(text, question.options)
    return ParsedAnswer(letter, _score(letter, question))


def _score(letter: str | None, question: Question) -> float | None:
    """Return 1.0 if `letter` is the question's answer, else 0.0; None if the split hides the answer."""
    return None if question.answer is None else float(letter == question.answer)


def strip_reasoning(reply: str, reasoning_tags: TagPairs = REASONING_TAGS) -> tuple[str, bool]:
    """Return `reply` without its reasoning, as lmms-eval strips it, and True if it ends inside the reasoning."""
    if not any(tag in reply for pair in reasoning_tags for tag in pair):
        return reply, False
    from lmms_eval.api.reasoning import strip_reasoning_tags

    text = strip_reasoning_tags(reply, [list(pair) for pair in reasoning_tags])
    # lmms-eval leaves a tag that nothing closes.
    return text, any(start in text for start, _ in reasoning_tags)


def read_option(text: str, options: tuple[str, ...]) -> str | None:
    """Return the letter of the one option that `text` names, or None.

    A marked answer (`<answer>B</answer>`, `\\boxed{B}`) counts alone. Otherwise these must agree: a leading letter
    ("C", "(C) text", "C. text"), letters that are announced ("the answer is C", "C is correct"), and a last line that
    is a letter. Without any of them, the text of exactly one option is read, with its letter or without.
    """
    option_letters = letters(len(options))
    # Up to H are letters of options to anyone; later ones only where there are so many options ("I" is a word).
    patterns = _patterns(option_letters[-1] if len(option_letters) > 8 else "H")
    marked = _MARKED.findall(text)
    if marked:
        parts = {_read_plain(content, options, patterns) for groups in marked for content in groups if content}
        return parts.pop() if len(parts) == 1 else None
    return _read_plain(text, options, patterns)


# "<answer>B</answer>", also where generation stopped at the closing tag; "\boxed{B}", "\boxed{\text{B}}"; GLM's box.
_MARKED = re.compile(
    r"<answer>(.*?)(?:</answer>|$)"
    r"|\\boxed\s*\{\s*(?:\\(?:text|mathrm|mathbf|textbf)\s*\{)?([^{}]*)\}"
    r"|<\|begin_of_box\|>(.*?)(?:<\|end_of_box\|>|$)",
    re.DOTALL | re.IGNORECASE,
)
# Tokens that end a turn, which some services leave in the text.
_END_OF_TURN = re.compile(r"(?:\s*(?:<\|[^|<>]+\|>|</s>|<eos>))+\s*$")
_EMPHASIS = re.compile(r"[*`]+|^#+\s*", re.MULTILINE)
# What before an announcement, in the same clause, turns it into its opposite or into a question.
_DENIED_BEFORE = re.compile(
    r"(?:\b(?:not|never|neither|nor|cannot|without|except|unless|if|whether|eliminates?d?|excludes?d?|rules? out"
    r"|ruled out|instead of|rather than)\b|n['’]t\b)"
    r"(?:(?!\b(?:but|so|therefore|thus|hence|because)\b)[^.!?,;:\n])*$|不\s*$",
    re.IGNORECASE,
)
# What after a letter does.
_DENIED_AFTER = (
    r"(?![\"')\]}]*(?:,?\s*(?:which|that)\b|,\s*but\s+(?:it|this|that)\b)?"
    r"\s*(?:(?:is|was|are|seems?|can|could|would|should|does)\s*(?:be\s+)?)?"
    r"(?:not\b|n['’]t\b|cannot\b|can['’]t\b|incorrect\b|wrong\b|false\b|unlikely\b|ruled out\b|eliminated\b|excluded\b"
    r"|contradict))"
)


@dataclass(frozen=True)
class _Patterns:
    """Patterns of an option letter in a reply; group 1 or a later one is the letter.

    Args:
        leading: at the start of the reply.
        whole: the only thing in a line.
        of_line: a letter that begins a line of a list of options.
        announced: named as the answer.
        several: a list of letters.
    """

    leading: re.Pattern[str]
    whole: re.Pattern[str]
    of_line: re.Pattern[str]
    announced: tuple[re.Pattern[str], ...]
    several: re.Pattern[str]


@cache
def _patterns(last: str) -> _Patterns:
    """Return the patterns for option letters A to `last`; cached."""
    capital = f"[A-{last}]"
    # A small letter stands for an option only where the pattern leaves no word that it could be.
    either = f"[A-{last}a-{last.lower()}]"
    opened = r"[\"'(\[{]{0,3}"
    # The end of a name: a bracket or a stop, the end of a line, or a word that goes on with the sentence.
    ended = (
        r"(?=[\"')\]}.,:;!、。]|\s*$|\s*\n|\s+(?:because|since|as|or|and)\b|\s*[-–—]\s|\s+\(|[^\W\da-zA-Z])"
        + _DENIED_AFTER
    )
    noun = r"(?:answer|option|choice|respuesta|réponse|antwort)"
    verb = r"(?:is|was|would be|should be|must be|has to be|will be|correcta es|es|est|ist)"
    certain = r"(?:\s+(?:therefore|thus|hence|clearly|definitely|indeed|most likely))?"
    either_name = rf"{opened}({either}){ended}"
    return _Patterns(
        # "C", "(C)", "C.", "C) text", "C: text", "C - text", "C because ..."; a letter followed by a blank and other
        # words is a word ("A man runs").
        leading=re.compile(
            rf"(?:[(\[{{]{{1,2}}({either})[)\]}}]{{1,2}}"
            rf"|({capital})(?:[)\]][)\]]?|[.:,!](?=\s|$|[^\W\da-zA-Z])|、|\s*$|\s*\n|(?=\s+[-–—]\s|\s+(?:because|since)\b))"
            rf"|({either})[.)]?\s*$){_DENIED_AFTER}"
        ),
        whole=re.compile(rf"[(\[]?({capital})[)\]]?[.!]?"),
        of_line=re.compile(rf"^\s*[(\[]?({capital})(?:[)\]][.:]?|[.:])\s", re.MULTILINE),
        announced=(
            # "the answer is C", "Answer: (C)", "Best option: C", "option C", also as JSON.
            re.compile(
                rf"\b{noun}\b[\"']?(?:\s+{verb})?{certain}\s*[:=]?\s*(?:(?:the\s+)?{noun}\s+)?{either_name}",
                re.IGNORECASE,
            ),
            # "I choose C", "I would go with option C".
            re.compile(rf"\bI(?:\s+would|['’]d)?\s+(?:choose|select|pick|go with)\s+(?:{noun}\s+)?{either_name}"),
            # "C is the correct answer", "(C) is correct". A person or a team may be "A": "is the best player" is none.
            re.compile(
                rf"(?<![\w'’]){opened}({capital})[\"')\]]{{0,3}}\s+(?:is|must be|would be)\s+(?:the\s+)?"
                rf"(?:(?:only\s+|most\s+)?(?:correct|right|accurate|best)\s+{noun}|{noun}|correct|right)\b"
                r"(?!\s*(?:\?|\w))"
            ),
            # "Therefore, C." and "it must be C" at the end.
            re.compile(
                rf"\b(?:[Tt]herefore|[Tt]hus|[Hh]ence|[Ss]o|[Ii]t is|[Ii]t['’]s|must be|should be),?"
                rf"\s+(?:it is\s+)?{opened}({capital})"
                r"[\"')\]]{0,3}[.!]?\s*$"
            ),
            re.compile(
                rf"(?:答案|选项|选择|选|정답은|답은|答えは)(?:应该|应)?(?:是|为)?\s*[:]?\s*{opened}({capital})(?![A-Za-z0-9])"
            ),
        ),
        # "A or B", "(A) and (C)", "A, B and D", "A/B", "(A)(B)": two options are no answer.
        several=re.compile(
            rf"(?<![A-Za-z0-9])\(?{capital}\)?(?:,?\s+(?:or|and|nor)\s+|\s*[/&+、和或与]\s*|(?<=\))(?=\())"
            rf"(?:the answer is |option )?\(?{capital}\)?(?![A-Za-z0-9])"
            rf"|(?<![A-Za-z0-9])\(?{capital}\)?,\s*\(?{capital}\)?(?=[.,)]|\s*$|\s+(?:or|and)\b)",
        ),
    )


def _read_plain(text: str, options: tuple[str, ...], patterns: _Patterns) -> str | None:
    """Return the letter of the one option that a text without marks names, or None."""
    option_letters = letters(len(options))
    # Full-width brackets and letters become plain; models put their answer in quotes or in markdown.
    plain = _EMPHASIS.sub("", unicodedata.normalize("NFKC", _END_OF_TURN.sub("", text))).strip().strip("\"'$").strip()
    spans = [match.span() for match in patterns.several.finditer(plain)]
    named: set[str] = set()
    for start, letter in _named_letters(plain, patterns):
        if any(first <= start < end for first, end in spans):
            return None
        named.add(letter.upper())
    if named:
        return named.pop() if len(named) == 1 and named <= set(option_letters) else None
    # The whole reply, or what follows "the answer is", is an option's text, perhaps beside its letter.
    texts = {_folded(plain), _folded(_ANNOUNCEMENT.sub("", plain, count=1))}
    # Options may repeat: a text that fits two names neither.
    matching_letters = [
        letter
        for letter, option in zip(option_letters, options, strict=True)
        if texts & {_folded(option), _folded(f"{letter} {option}"), _folded(f"{option} ({letter})")}
    ]
    return matching_letters[0] if len(matching_letters) == 1 else None


_ANNOUNCEMENT = re.compile(r"^(?:the\s+)?(?:\w+\s+)?answer\s*(?:is|:)\s*", re.IGNORECASE)


def _named_letters(plain: str, patterns: _Patterns) -> Iterator[tuple[int, str]]:
    """Yield position and letter of each place in `plain` that names an option as the answer."""
    # A reply that repeats the options begins with the first of them and does not choose it.
    if len(set(patterns.of_line.findall(plain))) < 2 and (match := patterns.leading.match(plain)):
        yield match.start(match.lastindex or 0), match[match.lastindex or 0]
    for pattern in patterns.announced:
        for match in pattern.finditer(plain):
            if not _DENIED_BEFORE.search(plain[: match.start()]):
                yield match.start(1), match[1]
    last_line = plain.splitlines()[-1].strip() if plain else ""
    if match := patterns.whole.fullmatch(last_line):
        yield len(plain) - len(last_line) + match.start(1), match[1]


def _folded(text: str) -> str:
    """Return `text` in lower case with single blanks, without a final period or exclamation mark."""
    return " ".join(unicodedata.normalize("NFKC", text).strip().rstrip(".!").casefold().split())


def _read_number(question: Question, text: str) -> ParsedAnswer:
    """Read VSI-Bench's open questions with lmms-eval's own functions: mean relative accuracy from .5 to .95."""
    from lmms_eval.tasks.vsibench import utils

    value = utils.extract_number(text)
    if question.answer is None:
        return ParsedAnswer(None if value is None else f"{value:g}", None)
    target = utils.to_float(question.answer)
    if value is None or target is None:
        return ParsedAnswer(None, 0.0)
    score = utils.mean_relative_accuracy(value, target, start=0.5, end=0.95, interval=0.05)
    return ParsedAnswer(f"{value:g}", float(score))


def _read_as_lmms_eval(question: Question, text: str, rule: str, seed: int) -> tuple[str | None, bool]:
    """Return the letter that lmms-eval reads (None if none), and True if lmms-eval guessed it."""
    option_letters = list(letters(len(question.options)))
    if rule == "longvideobench":
        from lmms_eval.tasks.longvideobench.utils import parse_multi_choice_response

        with guessing(question, seed) as seeded:
            letter = parse_multi_choice_response(
                text, option_letters, dict(zip(option_letters, question.options, strict=True))
            )
            # It does not say that it guessed, but only a guess draws a number.
            return str(letter), random.getstate() != seeded
    if rule == "vsibench":
        from lmms_eval.tasks.vsibench.utils import fuzzy_matching

        # It returns a word of the answer, which need not be an option.
        letter = str(fuzzy_matching(text)).upper()
        return (letter if letter in option_letters else None), False
    from lmms_eval.tasks._task_utils.mcq_extract import extract_mcq_answer

    return extract_mcq_answer(text, choices=["A", "B", "C", "D"]) or None, False


@contextmanager
def guessing(question: Question, seed: int) -> Iterator[Any]:
    """Seed Python's `random`, with which lmms-eval's tasks guess, from `seed` and `question`; restore it afterwards.

    A guess then does not depend on earlier answers. Yields the seeded state.
    """
    state = random.getstate()
    random.seed(int(derived_rng(seed, question.benchmark, question.id, "guess").integers(2**32)))
    try:
        yield random.getstate()
    finally:
        random.setstate(state)
