"""Annotated evidence: its units, and the distances within which a keyframe counts as near it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from focus_eval.core.errors import InvalidInput

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
