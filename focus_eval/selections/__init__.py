"""How do selections that others published come in, and ours go out?"""

from __future__ import annotations

from focus_eval.selections.exporters import EXPORT_FORMATS, export_aks, export_focus
from focus_eval.selections.imported import ImportedSelection, selections_hash
from focus_eval.selections.importers import FORMATS, load_selections
from focus_eval.selections.parquet import read_parquet, write_parquet

__all__ = [
    "EXPORT_FORMATS",
    "FORMATS",
    "ImportedSelection",
    "export_aks",
    "export_focus",
    "load_selections",
    "read_parquet",
    "selections_hash",
    "write_parquet",
]
