"""The base of benchmarks: protocol, length buckets, facts, and the units and distances of annotated evidence."""

from __future__ import annotations

import json
import math
import re
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


# Evidence recall is measured within each of these many seconds, ascending. All tables, figures and commands follow.
RECALL_SECONDS = (1.0, 2.0, 5.0)
# Where one figure stands for all: the page, the figures, and the tables of the demo and of simulations.
NEAR_SECONDS = RECALL_SECONDS[len(RECALL_SECONDS) // 2]
# Evidence is in view of a model's answer within this many seconds.
IN_VIEW_SECONDS = RECALL_SECONDS[-1]
# A moment this far past the end of the video still counts: lengths are rounded. Later ones are slips of the annotation.
END_SLACK_SECONDS = 1.0
# Times are quotients of integers: a frame exactly at a bound is near, and one at the end of an interval inside.
SLACK_SECONDS = 1e-6

# "frames@24" are frame numbers at 24 frames a second, whatever the file's rate; any other rate may stand there.
EVIDENCE_UNITS = ("seconds", "frames@24", "intervals", "clock")
Moments = tuple[float, ...]
Intervals = tuple[tuple[float, float], ...]
# Without hours, minutes may go past 59: LVBench writes 101:21.
_CLOCK = re.compile(r"(?:(\d+):(?=\d{1,2}:))?(\d+):(\d{1,2}(?:\.\d+)?)")


def distances_text(last: str = ", ") -> str:
    """Return the distances of evidence recall in seconds as text, e.g. "1, 2 or 5" with `last=" or "`."""
    *earlier, end = [f"{seconds:g}" for seconds in RECALL_SECONDS]
    return last.join([", ".join(earlier), end]) if earlier else end


def is_evidence_unit(unit: str) -> bool:
    """Return True if `unit` is one of `EVIDENCE_UNITS`, or "frames@" with another rate above 0."""
    return unit in EVIDENCE_UNITS or bool(re.fullmatch(r"frames@\d+(\.\d+)?", unit) and annotation_fps(unit) > 0)


def annotation_fps(unit: str) -> float:
    """Return the rate of a unit of frames: 24.0 for "frames@24"."""
    return float(unit.removeprefix("frames@"))


def evidence_of(value: Any, unit: str, *, location: str) -> tuple[Moments, Intervals]:
    """Return evidence as moments in seconds, and as half-open intervals in seconds; one of the two is empty.

    Args:
        value: the document's value: a number, text, or a list of them; text may also be JSON.
        unit: "seconds" (moments), "frames@RATE" (moments as frame numbers), "intervals" (pairs of seconds), or "clock"
            ("01:23" is a moment, "01:23-01:40" an interval; hours may come first).
        location: benchmark and question, for messages.

    Raises:
        InvalidInput: a value that does not have the unit's form.
    """
    if isinstance(value, str) and unit != "clock":
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise InvalidInput(f"{location}: evidence {value!r} is not a list of {unit}") from error
    entries = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    if unit == "clock":
        return _from_clock(entries, location=location)
    if unit == "intervals":
        pairs = [entries] if len(entries) == 2 and not any(isinstance(item, Sequence) for item in entries) else entries
        return (), tuple(_interval(pair, location=location) for pair in pairs)
    fps = annotation_fps(unit) if unit.startswith("frames@") else 1.0
    return tuple(_moment(number, location=location) / fps for number in entries), ()


def within_video(moments: Moments, duration_seconds: float) -> Moments:
    """Return the moments, in seconds, without those over `END_SLACK_SECONDS` past the end of the video."""
    return tuple(moment for moment in moments if moment <= duration_seconds + END_SLACK_SECONDS)


def _moment(number: Any, *, location: str) -> float:
    """Return `number` as seconds; raise InvalidInput, naming `location`, unless it is finite and at least 0."""
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not math.isfinite(number) or number < 0:
        raise InvalidInput(f"{location}: evidence {number!r} is not a number of 0 or above")
    return float(number)


def _interval(pair: Any, *, location: str) -> tuple[float, float]:
    """Return `pair` as start and stop in seconds; raise InvalidInput unless it is two moments in order."""
    if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
        raise InvalidInput(f"{location}: evidence {pair!r} is not a pair of seconds")
    start, stop = (_moment(number, location=location) for number in pair)
    if stop < start:
        raise InvalidInput(f"{location}: the evidence interval {start:g} to {stop:g} ends before it starts")
    return start, stop


def _from_clock(texts: Sequence[Any], *, location: str) -> tuple[Moments, Intervals]:
    """Return moments and intervals, one of them empty, from texts such as 01:23 and 01:23-01:40.

    Raises InvalidInput if both kinds occur.
    """
    moments: list[float] = []
    intervals: list[tuple[float, float]] = []
    for text in texts:
        times = [clock_seconds(part, location=location) for part in re.split(r"\s*[-–]\s*", str(text).strip())]
        if len(times) == 1:
            moments += times
        else:
            intervals.append(_interval(times, location=location))
    if moments and intervals:
        raise InvalidInput(f"{location}: evidence mixes moments and intervals: {list(texts)!r}")
    return tuple(moments), tuple(intervals)


def clock_seconds(text: str, *, location: str) -> float:
    """Return the seconds of a time like 01:23, 101:23 or 1:02:03.5. Raises InvalidInput for another text."""
    clock_match = _CLOCK.fullmatch(text.strip())
    if not clock_match:
        raise InvalidInput(f"{location}: {text!r} is not a time like 01:23 or 1:02:03")
    return 3600.0 * int(clock_match[1] or 0) + 60.0 * int(clock_match[2]) + float(clock_match[3])
