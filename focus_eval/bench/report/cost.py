"""The cost of choosing frames, counted in one way for every table and figure.

A frame that several questions of a video need is encoded once. Each of the q questions counts 1/q of the frame, so that
the shares of all rows of a selection add up to the distinct frames.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from focus_eval.core.types import FloatArray, IntArray
from focus_eval.keyframes.rows.cost import common_forward, forward_equivalents, llm_equivalents, unit_costs
from focus_eval.keyframes.rows.records import SelectionRow, forward_gmacs

if TYPE_CHECKING:
    import pandas as pd

FORWARDS_NOTE = (
    "Forward equivalents: all compute spent choosing frames (encoder images, scans, text matching, language-model "
    "tokens), converted to encoder images by multiply-adds. A frame shared by several questions counts once."
)
COLUMNS = ("n_encoded", "n_scanned_encoded", "forward_equivalents")


def frame_shares(groups: Sequence[Hashable], frames: Sequence[IntArray]) -> FloatArray:
    """Return each row's share of the distinct frames of its group, shape `(n_rows,)`.

    Args:
        groups: group of each row, such as (benchmark, video, selection id). Rows of a group share frames.
        frames: frame numbers that each row needs, any order.
    """
    shares = np.zeros(len(groups))
    members: dict[Hashable, list[int]] = {}
    for number, group in enumerate(groups):
        if frames[number].size:
            members.setdefault(group, []).append(number)
    for numbers in members.values():
        distinct = [np.unique(frames[number]) for number in numbers]
        _, place, n_asking = np.unique(np.concatenate(distinct), return_inverse=True, return_counts=True)
        asking = np.repeat(np.arange(len(numbers)), [frames_of_row.size for frames_of_row in distinct])
        shares[numbers] = np.bincount(asking, weights=1 / n_asking[place])
    return shares


class CostColumns:
    """The cost columns of a run, collected row by row; NaN if a row lacks the numbers."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}  # (benchmark, video, selection) -> group number
        self._groups: list[int] = []
        self._frames: dict[str, list[IntArray]] = {"main": [], "scan": []}
        self._distinct_frames: dict[bytes, IntArray] = {}
        self._stated: dict[str, list[tuple[float, float | None] | None]] = {"main": [], "scan": []}
        self._units = array("d")  # three values per row
        self._n_pulls: list[int] = []
        # Cost of a forward -> multiply-adds of a row that states this cost.
        self._stating: dict[float | None, Mapping[str, float]] = {}
        # Row number -> multiply-adds, model usage, and True if the row has no encoder; only rows that called a model.
        self._asked: dict[int, tuple[Mapping[str, float], Mapping[str, float], bool]] = {}

    def add(self, row: SelectionRow, *, has_cost: bool = True) -> None:
        """Add one row to the columns.

        Args:
            has_cost: False for a row whose pulls are not recorded.
        """
        self._groups.append(self._numbers.setdefault((row.benchmark, row.video, row.selection_id), len(self._numbers)))
        lists = {
            "main": (sorted(row.encoded_frames), row.n_pulls if has_cost else np.nan),
            "scan": (row.scanned_frames, row.n_scanned if has_cost else np.nan),
        }
        for kind, (frames, count) in lists.items():
            # Share equal lists of frames between rows: they take most of the memory, and questions of a video often
            # need the same frames.
            content = np.asarray(frames, dtype=np.int32).tobytes()
            view: IntArray = np.frombuffer(content, dtype=np.int32)  # type: ignore[assignment]
            self._frames[kind].append(self._distinct_frames.setdefault(content, view))
            self._stated[kind].append(None if count is None else (count, row.encoded.get(kind)))
        self._units.extend(unit_costs(row.gmacs, relative_cost=row.options.get("relative_cost")))
        self._n_pulls.append(row.n_scored)
        self._stating.setdefault(forward_gmacs(row.gmacs), row.gmacs)
        if row.asked.get("calls"):
            self._asked[len(self._n_pulls) - 1] = (row.gmacs, row.asked, row.encoder == "")

    def columns(self) -> dict[str, FloatArray]:
        """Return `COLUMNS`, each of shape `(n_rows,)`, in the order of the rows.

        n_encoded, n_scanned_encoded: the row's share of the distinct frames that the main and the scan encoder saw.
        forward_equivalents: all encoded frames, text matching and language-model tokens, in multiply-adds of one
            image.
        """
        encoded, scanned = self._encoded("main"), self._encoded("scan")
        main, scan, pair = np.asarray(self._units, dtype=np.float64).reshape(-1, 3).T
        equivalents = forward_equivalents((main, scan, pair), encoded=encoded, scanned=scanned, pulls=self._n_pulls)
        unit = common_forward(self._stating.values())
        for number, (gmacs, usage, is_alone) in self._asked.items():
            equivalents[number] += llm_equivalents(gmacs, usage, unit=unit if is_alone else None)
        return dict(zip(COLUMNS, (encoded, scanned, equivalents), strict=True))

    def _encoded(self, kind: str) -> FloatArray:
        """Return each row's share of distinct frames seen by the "main" or "scan" encoder, or the share the row states.

        NaN if a row counts its frames without listing them, states no share, and other questions have the same video.
        """
        shares = frame_shares(self._groups, self._frames[kind])
        n_questions = Counter(self._groups)
        for number, (group, statement) in enumerate(zip(self._groups, self._stated[kind], strict=True)):
            if statement is not None:
                count, share = statement
                # The only question of a video pays for all its frames. If a video has several questions, each must
                # state its share.
                own_count = count if count == 0 or n_questions[group] == 1 else np.nan
                shares[number] = own_count if share is None else share
        return shares


def charged_seconds(frame: pd.DataFrame) -> pd.Series:
    """Return the seconds that each row of `Run.selection_frame` would have taken alone, without other selections.

    A selection that made all its forwards itself is charged the measured seconds. Any other selection is charged the
    measured seconds of opening and choosing, plus for each frame of the row's share the mean seconds of a forward and
    of waiting
    for a decoded frame on that device. NaN if no such forward was measured.
    """
    sums = frame.groupby(["benchmark", "selection_id"])[
        ["forwards", "n_encoded", "scan_forwards", "n_scanned_encoded"]
    ].transform("sum")
    # Allow for rounding: the shares of a frame may not add up to exactly 1.
    pays = (sums["forwards"] >= sums["n_encoded"] - 1e-6) & (sums["scan_forwards"] >= sums["n_scanned_encoded"] - 1e-6)
    decoded = frame["forwards"] + frame["scan_forwards"]
    wait = _mean_seconds(frame, "idle", decoded, [])
    seconds_alone = frame["seconds_open"] + frame["seconds_select"]
    for count_column, stage, encoder in (("forwards", "encode", "encoder"), ("scan_forwards", "scan", "scan_encoder")):
        frames = frame["n_encoded" if count_column == "forwards" else "n_scanned_encoded"]
        seconds_per_frame = _mean_seconds(frame, stage, frame[count_column], [encoder]) + wait
        seconds_alone = seconds_alone + (frames * seconds_per_frame).where(frames != 0, 0.0)
    seconds: pd.Series = frame["select_seconds"].where(pays, seconds_alone)
    return seconds


def _mean_seconds(frame: pd.DataFrame, stage: str, counts: pd.Series, by: list[str]) -> pd.Series:
    """For each row the mean seconds of `stage` per count, over all rows with its device and columns `by`."""
    sums = frame[["select_device", *by]].assign(seconds=frame[f"seconds_{stage}"], count=counts)
    sums = sums.groupby(["select_device", *by])[["seconds", "count"]].transform("sum")
    seconds: pd.Series = sums["seconds"] / sums["count"].where(sums["count"] > 0)
    return seconds
