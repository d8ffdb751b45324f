"""Reads the subtitles of a video, with times, from a benchmark's files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from focus_eval.core.errors import InvalidInput
from focus_eval.core.resources import read_text, whole_texts
from focus_eval.core.types import TimedText


def read_subtitles(path: Path, *, offset_seconds: float = 0.0) -> tuple[TimedText, ...]:
    """Return the lines of a JSON file of subtitles in the order of their start.

    An entry has `timestamp` (two numbers, the second may be null: until the next line) and `text`, or `start` and `end`
    (h:mm:ss.ms) and `line`, as in LongVideoBench.

    Args:
        offset_seconds: time on the file's clock at which the video begins.

    Raises:
        InvalidInput: no such file, or an entry of another form; names both.
    """
    try:
        return _read(path, offset_seconds)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path}: subtitles cannot be read ({error}); fetch them, or choose without them") from error


# Several questions ask about one video.
@lru_cache(maxsize=64)
def _read(path: Path, offset_seconds: float) -> tuple[TimedText, ...]:
    """Return the subtitles of a file, ascending by start, `offset_seconds` subtracted from all times; cached.

    Raises ValueError for a file of another form.
    """
    entries = whole_texts(json.loads(read_text(path)))
    if not isinstance(entries, list):
        raise ValueError("not a list of lines")
    spans = [_span(entry, at) for at, entry in enumerate(entries)]
    lines = []
    for at, (start, stop, text) in enumerate(spans):
        following = spans[at + 1][0] if at + 1 < len(spans) else start
        stop = max(start, following) if stop is None else stop
        lines.append(TimedText(start - offset_seconds, stop - offset_seconds, text))
    return tuple(sorted(lines, key=lambda line: line.start_seconds))


def _span(entry: Any, at: int) -> tuple[float, float | None, str]:
    """Return (start, stop, text) of entry number `at`, in seconds; stop is None if the entry leaves it open.

    Raises ValueError for an entry of another form.
    """
    try:
        if isinstance(entry, Mapping) and "timestamp" in entry:
            start, stop = entry["timestamp"]
            return float(start), None if stop is None else float(stop), str(entry["text"])
        return _seconds(entry["start"]), _seconds(entry["end"]), str(entry["line"])
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"entry {at} is not a line with its times: {str(entry)[:80]}") from error


def _seconds(clock: str) -> float:
    """Return the seconds of a clock time such as "01:02:03.5"."""
    seconds = 0.0
    for part in clock.split(":"):
        seconds = 60 * seconds + float(part)
    return seconds
