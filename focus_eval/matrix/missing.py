"""One thing that a run needs and this machine does not have."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Missing:
    """One thing that is not there, and what to do about it.

    Args:
        gigabytes: that fetching it will take.
    """

    what: str
    fix: str
    gigabytes: float = 0.0
