"""A question, whatever benchmark it comes from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any, Protocol

from focus_eval.core.errors import InvalidInput, unknown_name

# Length buckets of videos, in the order of every table. Simulated videos of more than an hour have one of their own.
BUCKETS = ("short", "medium", "long")
ALL_BUCKETS = (*BUCKETS, "hours")


def in_order(buckets: Iterable[str]) -> list[str]:
    """Return each bucket once, in the order of `ALL_BUCKETS`; other names come last, "" not at all."""
    names = set(buckets) - {""}
    return [name for name in ALL_BUCKETS if name in names] + sorted(names - set(ALL_BUCKETS))


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
        n_evidence_dropped: annotated times that lie past the end of the video and were left out.
        evidence_unread: why the annotated evidence cannot be read; "" where it can, or where there is none.
        category: the benchmark's question type, "" where there is none.
        fps: the annotation's own frame rate of the video; None where it has none.
        subtitles: file of what is said in the video, relative to the folder beside the video folder; "" where the
            benchmark has none.
        subtitles_offset_seconds: what that file's clock says when the video begins.
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
    n_evidence_dropped: int = 0
    evidence_unread: str = ""
    category: str = ""
    fps: float | None = None
    subtitles: str = ""
    subtitles_offset_seconds: float = 0.0

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


@dataclass(frozen=True, kw_only=True)
class BenchmarkFacts:
    """What is true of a benchmark beside its documents; it stands in the benchmark's YAML file.

    Args:
        questions: of the whole split; None where not stated.
        mean_over_types: True where its accuracy is reported as the mean over question types.
        types_with_parts: types whose parts are averaged first: "a" has the parts "a_easy" and "a_hard".
        evidence_file: file beside the documents that holds their evidence, where they do not.
        lmms_eval_parsing: the task whose rule reads answers under `answer_parsing=lmms_eval`: "longvideobench",
            "vsibench", or "letters" (the first letter); "" where the task itself scores then.
    """

    questions: int | None = None
    mean_over_types: bool = False
    types_with_parts: tuple[str, ...] = ()
    evidence_file: str = ""
    lmms_eval_parsing: str = ""

    def __post_init__(self) -> None:
        if self.lmms_eval_parsing not in ("", *LMMS_EVAL_PARSINGS):
            raise unknown_name("lmms_eval_parsing", self.lmms_eval_parsing, LMMS_EVAL_PARSINGS)

    def strata(self, categories: Sequence[str]) -> list[str] | None:
        """Return the type of each question, "type/part" for a part of one; None where accuracy is over questions.

        None also where a category is "": then only the mean over questions is known.
        """
        if not self.mean_over_types or not all(categories):
            return None
        return [self._stratum(category) for category in categories]

    def _stratum(self, category: str) -> str:
        whole = next((name for name in self.types_with_parts if category.startswith(f"{name}_")), None)
        return category if whole is None else f"{whole}/{category[len(whole) + 1 :]}"


LMMS_EVAL_PARSINGS = ("longvideobench", "vsibench", "letters")


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
    def facts(self) -> BenchmarkFacts:
        """What is true of it beside its documents."""
        ...

    def question(self, document: Mapping[str, Any]) -> Question:
        """Return the question of one lmms-eval document (or row of the published annotation)."""
        ...

    def bucket(self, duration_seconds: float) -> str:
        """Return the length bucket of a video of that length."""
        ...
