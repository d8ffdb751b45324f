"""Answers the suite's cases in a process of its own: samplers as JSON on standard input, fingerprints on its output.

The clock of that process is moved and the cases come in the reverse order, each with a sampler just made: a choice
that depends on the time of day or on the questions before it comes out differently here.
"""

from __future__ import annotations

import datetime
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from focus_eval.samplers.contract import ELSEWHERE, fingerprint, select
from focus_eval.samplers.registry import make_sampler

# No whole number of minutes, hours, days, weeks or years.
AHEAD_SECONDS = 40_003_723.25


def move_clock(seconds: float = AHEAD_SECONDS) -> None:
    """Move every clock of this process that Python code can ask by `seconds`."""
    for name in ("time", "monotonic", "perf_counter"):
        setattr(time, name, _later(getattr(time, name), seconds))
        setattr(time, f"{name}_ns", _later(getattr(time, f"{name}_ns"), int(seconds * 10**9)))
    for name in ("localtime", "gmtime", "ctime"):
        setattr(time, name, _of_now(getattr(time, name)))
    strftime = time.strftime
    time.strftime = lambda text, parts=None: strftime(text, time.localtime() if parts is None else parts)
    datetime.datetime = MovedDatetime  # type: ignore[misc]
    datetime.date = MovedDate  # type: ignore[misc]


class MovedDatetime(datetime.datetime):
    """A datetime whose present is that of the moved clock."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> MovedDatetime:
        """Return the moved present."""
        return cls.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls) -> MovedDatetime:
        """Return the moved present in UTC, without a time zone."""
        return cls.now(datetime.timezone.utc).replace(tzinfo=None)


class MovedDate(datetime.date):
    """A date whose today is that of the moved clock."""

    @classmethod
    def today(cls) -> MovedDate:
        """Return the moved today."""
        return cls.fromtimestamp(time.time())


def _later(clock: Callable[[], Any], by: float) -> Callable[[], Any]:
    return lambda: clock() + by


def _of_now(shown: Callable[[float], Any]) -> Callable[..., Any]:
    return lambda seconds=None: shown(time.time() if seconds is None else seconds)


def main() -> None:
    """Print the fingerprints of the samplers on standard input, in the order of `ELSEWHERE`."""
    asked = json.load(sys.stdin)
    move_clock()
    answers = [
        [fingerprint(select(make_sampler(name, **options), case)) for case in reversed(ELSEWHERE)][::-1]
        for name, options in asked
    ]
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
