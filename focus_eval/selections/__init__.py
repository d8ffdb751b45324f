"""Selections that others published, read and written in their formats."""

from __future__ import annotations

from focus_eval.selections.aks import export_aks
from focus_eval.selections.focus import export_focus
from focus_eval.selections.imported import ImportedSelection, selections_hash
from focus_eval.selections.loading import FORMATS, load_selections, read_parquet, write_parquet

__all__ = [
    "FORMATS",
    "ImportedSelection",
    "export_aks",
    "export_focus",
    "load_selections",
    "read_parquet",
    "selections_hash",
    "write_parquet",
]
