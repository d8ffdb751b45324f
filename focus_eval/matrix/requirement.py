"""What a check reports: a requirement of a run that this machine does not meet, and its fix."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Missing:
    """One missing requirement, and how to fix it.

    Args:
        gigabytes: that fetching it will take.
    """

    what: str
    fix: str
    gigabytes: float = 0.0
