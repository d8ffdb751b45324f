"""A question, whatever benchmark it comes from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from string import ascii_uppercase
from typing import Any, Protocol

from focus_eval.core.errors import InvalidInput

BUCKETS = ("short", "medium", "long")


@dataclass(frozen=True)
class LengthEdges:
    """Bounds of the length buckets in seconds: short is below the first, long above the second, medium the rest.

    The defaults are those of the published LongVideoBench tables.

    Raises:
        InvalidInput: edges that are not `0 < first <= second`.
    """

    short_below_seconds: float = 180.0
    long_above_seconds: float = 1200.0

    def __post_init__(self) -> None:
        if not 0 < self.short_below_seconds <= self.long_above_seconds < float("inf"):
            raise InvalidInput(
                "length edges must be two finite ascending numbers of seconds above 0, "
                f"got {self.short_below_seconds} and {self.long_above_seconds}"
            )

    def bucket(self, duration_seconds: float) -> str:
        """Return "short", "medium" or "long".

        Raises:
            InvalidInput: a duration that is not a number above 0.
        """
        if not 0 < duration_seconds < float("inf"):
            raise InvalidInput(f"a duration must be seconds above 0, got {duration_seconds}")
        if duration_seconds < self.short_below_seconds:
            return "short"
        return "medium" if duration_seconds <= self.long_above_seconds else "long"


@dataclass(frozen=True, kw_only=True)
class Question:
    """One row of a benchmark.

    Args:
        benchmark: its name.
        id: unique within the benchmark.
        query: the bare question for the encoder: no options, no instructions.
        options: option texts in order; empty for open questions.
        video: path of the file relative to the benchmark's video folder; questions with equal `video` share it.
        answer: the correct option letter, or the value of an open question; None where the split hides it.
        duration_seconds: the annotation's own length; None where it has none and the file must be probed.
        bucket: the annotation's own length bucket; None where it follows from the seconds.
        evidence_seconds: times of the annotated evidence.
        evidence_intervals: the annotated evidence as (start, stop) in seconds, where it is given as intervals.
        category: the benchmark's question type, "" where there is none.
    """

    benchmark: str
    id: str
    query: str
    options: tuple[str, ...]
    video: str
    answer: str | None
    duration_seconds: float | None = None
    bucket: str | None = None
    evidence_seconds: tuple[float, ...] = ()
    evidence_intervals: tuple[tuple[float, float], ...] = ()
    category: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.id or not self.video or not self.query.strip():
            raise InvalidInput(f"{self.benchmark}: a question needs an id, a video and a query, got id {self.id!r}")


def query_text(question: Question, form: str = "question") -> str:
    """Return the text that an encoder compares frames with.

    Args:
        form: "question" (what FOCUS and AKS use), "question_and_options" (a line per option after it), or a template
            with `{question}` and perhaps `{options}`.

    Raises:
        InvalidInput: a form that is neither.
    """
    check_query_form(form)
    if form == "question":
        return question.query
    options = "\n".join(f"{letter}. {text}" for letter, text in zip(ascii_uppercase, question.options, strict=False))
    if form == "question_and_options":
        return f"{question.query}\n{options}".rstrip()
    return form.replace("{question}", question.query).replace("{options}", options)


def check_query_form(form: str) -> None:
    """Refuse a `form` that `query_text` cannot fill.

    Raises:
        InvalidInput: neither a known form nor a template with `{question}`, or a template with another field.
    """
    if form in ("question", "question_and_options"):
        return
    if "{question}" not in form:
        raise InvalidInput(
            f'query must be "question", "question_and_options" or a template with {{question}}, got {form!r}'
        )
    others = sorted(set(re.findall(r"\{\w*\}", form)) - {"{question}", "{options}"})
    if others:
        raise InvalidInput(f"query {form!r}: a template has {{question}} and {{options}}, not {', '.join(others)}")


class Benchmark(Protocol):
    """Turns a data set's documents into questions."""

    @property
    def name(self) -> str:
        """Name in matrices and rows."""
        ...

    @property
    def tasks(self) -> tuple[str, ...]:
        """Official lmms-eval tasks whose documents these are."""
        ...

    @property
    def video_folders(self) -> Mapping[str, str]:
        """Official task -> its videos' folder below $HF_HOME, where lmms-eval looks."""
        ...

    def question(self, document: Mapping[str, Any]) -> Question:
        """Return the question of one lmms-eval document (or row of the published annotation)."""
        ...

    def bucket(self, duration_seconds: float) -> str:
        """Return the length bucket of a video of that length."""
        ...
