"""Reads and writes the selections and logs of others, in their formats.

selections = load_selections("selected_frames.json", format="aks", questions=questions)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from focus_eval.imports.imported import ImportedSelection, SelectionFormat, Source, selections_hash
    from focus_eval.imports.loading import load_selections, write_selections
    from focus_eval.imports.rows import write_parquet

__all__ = [
    "ImportedSelection",
    "SelectionFormat",
    "Source",
    "load_selections",
    "selections_hash",
    "write_parquet",
    "write_selections",
]
# Loaded when it is asked for: importing a log needs no selection format.
_MODULES = {"load_selections": "loading", "write_selections": "loading", "write_parquet": "rows"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'imported')}"), name)
