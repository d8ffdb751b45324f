"""Finds by entry point what `lab` and `external` offer to `bench`, which must not import them.

load_selections = offered("load_selections")  # InvalidInput where focus_eval.external is missing
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from focus_eval.core.errors import InvalidInput

GROUP = "focus_eval.offers"


def offered(name: str) -> Any:
    """Return the object that an entry point of the group offers as `name`.

    Raises:
        InvalidInput: the package that offers it is missing from this install.
    """
    for point in entry_points(group=GROUP, name=name):
        try:
            return point.load()
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("focus_eval"):
                raise
    raise InvalidInput(f"{name}: needs focus_eval.external, which is missing from this install")
