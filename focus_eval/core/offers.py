"""Finds by entry point what `external` offers to `bench`, and the package of research to both: they must not import it.

load_selections = offered("load_selections")  # InvalidInput where focus_eval.external is missing
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from focus_eval.core.errors import InvalidInput

GROUP = "focus_eval.offers"


def offered(name: str, *, offered_by: str = "focus_eval.external", install: str = "") -> Any:
    """Return the object that an entry point of the group offers as `name`.

    Args:
        offered_by: package that offers it, for the error.
        install: how to install that package, for the error; "" where nothing but the whole install has it.

    Raises:
        InvalidInput: the package that offers it is missing from this install.
    """
    for point in entry_points(group=GROUP, name=name):
        try:
            return point.load()
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("focus_eval"):
                raise
    fix = f"; {install}" if install else ""
    raise InvalidInput(f"{name}: needs {offered_by}, which is missing from this install{fix}")
