"""Finds by entry point what `lab` and `external` offer to `bench`, which must not import them.

load_selections = offered("load_selections")  # InvalidInput where the room is absent
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from focus_eval.core.errors import InvalidInput

GROUP = "focus_eval.offers"


def offered(name: str) -> Any:
    """Return the object that a room offers as `name`.

    Raises:
        InvalidInput: this install lacks the room.
    """
    for point in entry_points(group=GROUP, name=name):
        try:
            return point.load()
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("focus_eval"):
                raise
    raise InvalidInput(f"{name}: this install lacks the room that reads results of others, focus_eval/external")
