"""The base of benchmarks: their protocol, length buckets and facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from focus_eval.core.errors import InvalidInput, unknown_name
from focus_eval.core.types import Question

# Length buckets of videos, in the order of every table. Simulated videos of more than an hour have one of their own.
BUCKETS = ("short", "medium", "long")
ALL_BUCKETS = (*BUCKETS, "hours")


def in_order(buckets: Iterable[str]) -> list[str]:
    """Return the distinct bucket names in the order of `ALL_BUCKETS`.

    Unknown names follow by alphabet, "" is dropped.
    """
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
        """Raise InvalidInput unless `0 < short_below_seconds <= long_above_seconds`, both finite."""
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
class BenchmarkFacts:
    """Facts about a benchmark besides its documents, from its YAML file.

    Args:
        questions: of the whole split; None if not stated.
        mean_over_types: True if its accuracy is reported as the mean over question types.
        types_with_parts: types whose parts are averaged first: "a" has the parts "a_easy" and "a_hard".
        evidence_file: second file that holds the evidence, if the documents do not.
        lmms_eval_parsing: the task whose rule reads answers under `answer_parsing=lmms_eval`: "longvideobench",
            "vsibench", or "letters" (the first letter); "" if the task itself then scores them.
    """

    questions: int | None = None
    mean_over_types: bool = False
    types_with_parts: tuple[str, ...] = ()
    evidence_file: str = ""
    lmms_eval_parsing: str = ""

    def __post_init__(self) -> None:
        """Raise UnknownName for an unknown `lmms_eval_parsing`."""
        if self.lmms_eval_parsing not in ("", *LMMS_EVAL_PARSINGS):
            raise unknown_name("lmms_eval_parsing", self.lmms_eval_parsing, LMMS_EVAL_PARSINGS)

    def strata(self, categories: Sequence[str]) -> list[str] | None:
        """Return the question type of each category; None if accuracy is a mean over questions, not types.

        A category "type_part" of a type in `types_with_parts` gives "type/part". None also if a category is "": then
        only the mean over questions is known.
        """
        if not self.mean_over_types or not all(categories):
            return None
        return [self._stratum(category) for category in categories]

    def _stratum(self, category: str) -> str:
        """Return a category as the type to average over: "type/part" if its type is in `types_with_parts`."""
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
        """Official lmms-eval tasks that have these documents."""
        ...

    @property
    def facts(self) -> BenchmarkFacts:
        """Facts about it besides its documents."""
        ...

    def question(self, document: Mapping[str, Any]) -> Question:
        """Return the question of one lmms-eval document (or row of the published annotation)."""
        ...

    def bucket(self, duration_seconds: float) -> str:
        """Return the length bucket of a video of that length."""
        ...
