"""Sorts videos by length: short, medium or long."""

from __future__ import annotations

from dataclasses import dataclass

from focus_eval.errors import InvalidInput

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
