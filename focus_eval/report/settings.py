"""Was a published figure measured with the settings of a line of ours?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from focus_eval.report.anchors import read_anchors
from focus_eval.rows.records import SelectionRow

# The tables about one model; the others name theirs in every line.
_ONE_MODEL = "llava_video_7b"
_OF_ONE_MODEL = ("by_length", "alpha", "clip_length", "encoder")
_K_OF_OTHERS = 64
_ENCODER = "blip"
_OTHER_ENCODERS = {"qframe": "longclip"}
# Options with which the paper ran a sampler that are not our defaults.
_PUBLISHED_OPTIONS: Mapping[str, Mapping[str, Any]] = {"qframe": {"fixed_frames": True}}
# What the lines of a table differ in; a published line is found by it.
_OPTIONS_OF_LINES = {"alpha": ("alpha", "zoom_ratio"), "clip_length": ("clip_seconds", "coarse_every_sec")}


def has_published_settings(
    table: str, line: Mapping[str, str], part: pd.DataFrame, variants: Iterable[SelectionRow]
) -> bool:
    """Return whether rows have the model, K, encoder and options of the published `line` that they would stand beside.

    Args:
        table: name of the published table.
        line: of that table.
        part: rows of one figure, with `k`, `encoder`, `selection_id` and, where models answered, `model`.
        variants: one selection row for every selection id.
    """
    if table in _OF_ONE_MODEL and "model" in part and set(part["model"]) != {_ONE_MODEL}:
        return False
    if set(part["k"]) != {_published_k(line)}:
        return False
    mine = set(part["selection_id"])
    return all(_is_as_published(table, row) for row in variants if row.selection_id in mine)


def _published_k(line: Mapping[str, str]) -> int:
    if line.get("frames"):
        return int(line["frames"])
    of_models = {entry["model"]: int(entry["frames"]) for entry in read_anchors("main_results").lines}
    return of_models.get(line.get("model", ""), _K_OF_OTHERS)


def _is_as_published(table: str, row: SelectionRow) -> bool:
    own = _OPTIONS_OF_LINES.get(table, ())
    changed = {name: value for name, value in row.changed_options.items() if name not in own}
    if changed != _PUBLISHED_OPTIONS.get(row.sampler, {}):
        return False
    return table == "encoder" or row.encoder in ("", _OTHER_ENCODERS.get(row.sampler, _ENCODER))
