"""Selections that others published, read and written in their formats."""

from __future__ import annotations

from focus_eval.selections.imported import ImportedSelection, SelectionFormat, Source, selections_hash
from focus_eval.selections.loading import load_selections, write_selections
from focus_eval.selections.rows import write_parquet

__all__ = [
    "ImportedSelection",
    "SelectionFormat",
    "Source",
    "load_selections",
    "selections_hash",
    "write_parquet",
    "write_selections",
]
