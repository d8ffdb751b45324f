"""Finds objects of packages that the caller must not import, through entry points.

For example, `bench` uses functions of `focus_eval.external` this way.

load_selections = offered("load_selections")  # InvalidInput where focus_eval.external is missing
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from focus_eval.core.errors import InvalidInput

GROUP = "focus_eval.offers"


def offered(name: str, *, offered_by: str = "focus_eval.external", install: str = "") -> Any:
    """Return the object that another package offers under `name` by an entry point.

    Args:
        offered_by: package that offers the object; named in the error.
        install: command that installs that package, for the error; "" if only a complete install contains it.

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
