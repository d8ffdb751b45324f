"""Counts what choosing frames costs, in one way for every table and figure.

A frame that several questions of a video ask for is encoded once. Each of the q questions that ask for it counts 1/q of
it, so that the shares of all rows of a selection add up to the distinct frames.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from focus_eval.core.types import FloatArray, IntArray
from focus_eval.rows.records import SelectionRow, forward_gmacs

if TYPE_CHECKING:
    import pandas as pd

FORWARDS_NOTE = (
    "Forward equivalents: images through the main encoder, a frame that several questions of a video ask for once, and "
    "scanned frames, matching with text and the tokens of a model that was asked by their multiply-adds."
)
COLUMNS = ("n_encoded", "n_scanned_encoded", "forward_equivalents")


def frame_shares(groups: Sequence[Hashable], frames: Sequence[IntArray]) -> FloatArray:
    """Return each row's share of the distinct frames of its group, shape `(n_rows,)`.

    Args:
        groups: what shares its frames, by row: one selection of one video of one benchmark.
        frames: what each row asked for, any order.
    """
    shares = np.zeros(len(groups))
    members: dict[Hashable, list[int]] = {}
    for number, group in enumerate(groups):
        if frames[number].size:
            members.setdefault(group, []).append(number)
    for numbers in members.values():
        distinct = [np.unique(frames[number]) for number in numbers]
        _, place, n_asking = np.unique(np.concatenate(distinct), return_inverse=True, return_counts=True)
        asking = np.repeat(np.arange(len(numbers)), [mine.size for mine in distinct])
        shares[numbers] = np.bincount(asking, weights=1 / n_asking[place])
    return shares


class CostColumns:
    """Collects what the rows of a run say of their cost, one after the other; NaN where a row does not say enough."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}  # of each group, by benchmark, video and selection
        self._groups: list[int] = []
        self._frames: dict[str, list[IntArray]] = {"main": [], "scan": []}
        self._stated: dict[str, list[tuple[float, float | None] | None]] = {"main": [], "scan": []}
        self._units = array("d")  # three numbers a row
        self._n_pulls: list[int] = []
        # What the forwards of the run cost: each distinct statement once, most rows make the same.
        self._stating: dict[float | None, Mapping[str, float]] = {}
        # By number of the row: its multiply-adds, what it asked, and whether it has no encoder.
        self._asked: dict[int, tuple[Mapping[str, float], Mapping[str, float], bool]] = {}

    def add(self, row: SelectionRow, *, has_cost: bool = True) -> None:
        """Count one row.

        Args:
            has_cost: False for a row that does not know its pulls.
        """
        self._groups.append(self._numbers.setdefault((row.benchmark, row.video, row.selection_id), len(self._numbers)))
        lists = {
            "main": (sorted(row.encoded_frames), row.n_pulls if has_cost else np.nan),
            "scan": (row.scanned_frames, row.n_scanned if has_cost else np.nan),
        }
        for what, (frames, count) in lists.items():
            self._frames[what].append(np.asarray(frames, dtype=np.int32))
            self._stated[what].append(None if count is None else (count, row.encoded.get(what)))
        self._units.extend(unit_costs(row.gmacs, relative_cost=row.options.get("relative_cost")))
        self._n_pulls.append(row.frames_scored)
        self._stating.setdefault(forward_gmacs(row.gmacs), row.gmacs)
        if row.asked.get("calls"):
            self._asked[len(self._n_pulls) - 1] = (row.gmacs, row.asked, row.encoder == "")

    def columns(self) -> dict[str, FloatArray]:
        """Return `COLUMNS`, each of shape `(n_rows,)`, in the order of the rows.

        n_encoded, n_scanned_encoded: the row's share of the distinct frames that the main and the scan encoder saw.
        forward_equivalents: these, matching the pulled frames with the texts, and the tokens of a model that was
            asked, over the multiply-adds of one image.
        """
        encoded, scanned = self._encoded("main"), self._encoded("scan")
        main, scan, pair = np.asarray(self._units, dtype=np.float64).reshape(-1, 3).T
        equivalents = forward_equivalents((main, scan, pair), encoded=encoded, scanned=scanned, pulls=self._n_pulls)
        unit = common_forward(self._stating.values())
        for number, (gmacs, asked, is_alone) in self._asked.items():
            equivalents[number] += llm_equivalents(gmacs, asked, unit=unit if is_alone else None)
        return dict(zip(COLUMNS, (encoded, scanned, equivalents), strict=True))

    def _encoded(self, what: str) -> FloatArray:
        shares = frame_shares(self._groups, self._frames[what])
        n_questions = Counter(self._groups)
        for number, (group, stated) in enumerate(zip(self._groups, self._stated[what], strict=True)):
            if stated is not None:
                count, share = stated
                # A question that is alone with its video has its frames to itself; the others must say.
                alone = count if count == 0 or n_questions[group] == 1 else np.nan
                shares[number] = alone if share is None else share
        return shares


def unit_costs(gmacs: Mapping[str, float], *, relative_cost: float | None = None) -> tuple[float, float, float]:
    """Return what a main frame, a scanned frame and a (frame, question) pair cost, in forwards of the main encoder.

    An encoder that does not say its cost counts its forwards alone; a scan of unknown cost is NaN.

    Args:
        gmacs: as in a `SelectionRow`.
        relative_cost: a scanned frame over a main one, where the user said it.
    """
    unit = forward_gmacs(gmacs) or np.nan
    scan = gmacs.get("scan_image", np.nan) / unit if relative_cost is None else float(relative_cost)
    keys, fusion = (gmacs[name] / unit if name in gmacs else 0.0 for name in ("keys", "fusion"))
    # An encoder that reads image and text together makes its forwards for pairs alone.
    return (0.0 if "fusion" in gmacs and "image" not in gmacs else 1.0 + keys), scan, fusion


def common_forward(rows: Iterable[Mapping[str, float]]) -> float | None:
    """Return what a forward costs in all of `rows` that say it, their `gmacs`; None where they differ, or none says it.

    It is the unit of rows without an encoder, whose sampler asked a model.
    """
    found = {unit for unit in map(forward_gmacs, rows) if unit}
    return found.pop() if len(found) == 1 else None


def llm_equivalents(gmacs: Mapping[str, float], asked: Mapping[str, float], *, unit: float | None = None) -> float:
    """Return what asking a model cost, in forwards of the main encoder; NaN where tokens or their cost are not known.

    A token takes one multiply-add per parameter, so two operations, whether it is read or written.

    Args:
        gmacs, asked: as in a `SelectionRow`.
        unit: 10^9 multiply-adds of a forward where the row has no encoder.
    """
    if not asked.get("calls"):
        return 0.0
    tokens = asked.get("input", np.nan) + asked.get("output", np.nan)
    return float(tokens * gmacs.get("llm_token", np.nan) / (forward_gmacs(gmacs) or unit or np.nan))


def forward_equivalents(
    units: tuple[Any, Any, Any], *, encoded: ArrayLike, scanned: ArrayLike, pulls: ArrayLike
) -> FloatArray:
    """Return what so many frames and pairs cost together, numbers or arrays; `units` as of `unit_costs`."""
    main, scan, pair = units
    # What costs nobody knows how much costs nothing where it was not used.
    scans = np.where(np.asarray(scanned) == 0, 0.0, np.asarray(scanned) * scan)
    return np.asarray(np.asarray(encoded) * main + scans + np.asarray(pulls) * pair, dtype=np.float64)


def charged_seconds(frame: pd.DataFrame) -> pd.Series:
    """Return what each row of `Run.selection_frame` would have taken had no other selection been there.

    As measured where the selection made all its forwards itself. Else opening and choosing as measured, and each frame
    of its share at the seconds that a forward of its encoder, and the wait for a decoded frame, took on its device in
    this run; NaN where no such forward was measured.
    """
    made = frame.groupby(["benchmark", "selection_id"])[
        ["forwards", "n_encoded", "scan_forwards", "n_scanned_encoded"]
    ].transform("sum")
    # Shares of a frame add up to 1 but for rounding.
    pays = (made["forwards"] >= made["n_encoded"] - 1e-6) & (made["scan_forwards"] >= made["n_scanned_encoded"] - 1e-6)
    decoded = frame["forwards"] + frame["scan_forwards"]
    wait = _mean_seconds(frame, "idle", decoded, [])
    alone = frame["seconds_open"] + frame["seconds_select"]
    for what, stage, encoder in (("forwards", "encode", "encoder"), ("scan_forwards", "scan", "scan_encoder")):
        frames = frame["n_encoded" if what == "forwards" else "n_scanned_encoded"]
        one = _mean_seconds(frame, stage, frame[what], [encoder]) + wait
        alone = alone + (frames * one).where(frames != 0, 0.0)
    seconds: pd.Series = frame["select_seconds"].where(pays, alone)
    return seconds


def _mean_seconds(frame: pd.DataFrame, stage: str, counts: pd.Series, by: list[str]) -> pd.Series:
    """Return for each row the seconds of `stage` over `counts` among the rows of its device and of `by`."""
    sums = frame[["select_device", *by]].assign(seconds=frame[f"seconds_{stage}"], count=counts)
    sums = sums.groupby(["select_device", *by])[["seconds", "count"]].transform("sum")
    seconds: pd.Series = sums["seconds"] / sums["count"].where(sums["count"] > 0)
    return seconds
