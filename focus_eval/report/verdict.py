"""The verdict on a new sampler: what it finds more or less of than others, at what cost, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from focus_eval.benchmarks.question import in_order
from focus_eval.report.lab import WITHIN, paired_by_question
from focus_eval.report.measures import forwards_percent
from focus_eval.report.statistics import PairedComparison, compare_paired, difference_estimate, equivalence_p, holm
from focus_eval.report.table import SIGNIFICANT, Table, TableRow, Value, number, p_text

# Videos of each world after which one looks; each look spends of the 5 % in proportion to its videos.
LOOKS = (150, 300, 600, 1200)
MARGIN_POINTS = 3.0


@dataclass(frozen=True)
class Rival:
    """A sampler to compare with at one K.

    Args:
        name: shown in tables and sentences.
        label: of its rows in the frame.
    """

    k: int
    name: str
    label: str


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The new sampler less one rival over all questions, p-values adjusted over rivals, K and looks.

    Args:
        p_differs: of the sign-flip test that there is no difference.
        p_alike: of two one-sided tests that the difference is beyond the margin.
    """

    rival: Rival
    overall: PairedComparison
    p_differs: float
    p_alike: float

    @property
    def differs(self) -> bool:
        return self.p_differs < SIGNIFICANT

    @property
    def is_alike(self) -> bool:
        return self.p_alike < SIGNIFICANT

    @property
    def is_decided(self) -> bool:
        return self.differs or self.is_alike


def with_failures_as_0(frame: pd.DataFrame) -> pd.DataFrame:
    """Return `frame` with recall 0 for every question on which the sampler failed: it shows nothing of the evidence."""
    failed = frame["error"].notna()
    recalls = [column for column in frame if str(column).startswith("recall@")]
    return frame.assign(**{column: frame[column].mask(failed, 0.0) for column in recalls})


def compared_with(
    frame: pd.DataFrame, new: str, rivals: Sequence[Rival], *, margin: float = MARGIN_POINTS, share: float = 1.0
) -> list[Compared]:
    """Return how much more evidence `new` finds than each rival over all questions.

    At most one verdict in 20 states a difference that is not there: Holm over rivals and K, and each look has a share
    of the 5 % (Bonferroni), which holds however one stops. The tests that a difference lies within the margin are a
    family of their own.

    Args:
        frame: from `lab.lab_frame`, of one benchmark, with `with_failures_as_0`.
        new: label of the new sampler.
        margin: in points; a difference within it is none that matters.
        share: of the 5 % that this look may spend.
    """
    pairs = [paired_by_question(frame[frame["k"] == rival.k], rival.label, new) for rival in rivals]
    overall = [compare_paired(a.values, b.values, a.videos) for a, b in pairs]
    alike = [equivalence_p(b.values - a.values, a.videos, margin=margin / 100) for a, b in pairs]
    p_differs, p_alike = _adjusted([item.p_value for item in overall], share), _adjusted(alike, share)
    return [
        Compared(rival=rival, overall=item, p_differs=differs, p_alike=alike)
        for rival, item, differs, alike in zip(rivals, overall, p_differs, p_alike, strict=True)
    ]


def _adjusted(p_values: Sequence[float], share: float) -> list[float]:
    return [min(1.0, float(p_value) / share) for p_value in holm(p_values)]


def by_length(
    compared: Sequence[Compared], frame: pd.DataFrame, new: str, *, share: float = 1.0
) -> list[dict[str, Value]]:
    """Return the differences of each comparison by length bucket.

    They are a second family: tested where the comparison over all questions shows a difference, and never surer.
    """
    made: list[dict[str, Value]] = [{} for _ in compared]
    tested: list[tuple[int, str, PairedComparison]] = []
    for at, item in enumerate(compared):
        part = frame[frame["k"] == item.rival.k]
        for bucket in in_order(frame["bucket"]):
            a, b = paired_by_question(part[part["bucket"] == bucket], item.rival.label, new)
            if a.keys and item.differs:
                tested.append((at, bucket, compare_paired(a.values, b.values, a.videos)))
            elif a.keys:
                made[at][bucket] = Value.of(difference_estimate(b.values - a.values, a.videos), is_difference=True)
    adjusted = _adjusted([found.p_value for *_, found in tested], share)
    for (at, bucket, found), p_value in zip(tested, adjusted, strict=True):
        p_value = max(p_value, compared[at].p_differs)
        made[at][bucket] = Value.of(found.difference, is_difference=True, p_adjusted=p_value)
    return made


def verdict_table(
    compared: Sequence[Compared],
    frame: pd.DataFrame,
    new: str,
    lengths: Sequence[dict[str, Value]],
    *,
    margin: float = MARGIN_POINTS,
    share: float = 1.0,
) -> Table:
    """Return a line per comparison: what the rival costs, the difference over all questions and by length."""
    buckets = in_order(frame["bucket"])
    rows = []
    for item, by_bucket in zip(compared, lengths, strict=True):
        suffix = f"({p_text(item.p_differs)})"
        overall = Value.of(item.overall.difference, is_difference=True, p_adjusted=item.p_differs, suffix=suffix)
        theirs = frame[(frame["k"] == item.rival.k) & (frame["label"] == item.rival.label)]
        spent = Value(ours=_spent(theirs), digits=2)
        shown = [by_bucket.get(bucket, Value()) for bucket in buckets]
        rows.append(TableRow((str(item.rival.k), item.rival.name), (spent, overall, Value.of_p(item.p_alike), *shown)))
    looks = f"; this look may spend {100 * share:.0f} % of the error, the rest is for the others" if share < 1 else ""
    return Table(
        name="verdict",
        title=f"Evidence recall {WITHIN}: {new} minus the others (points)",
        key_titles=("K", "Other"),
        columns=("its cost (%)", "all", f"p within ±{margin:g}", *buckets),
        rows=tuple(rows),
        notes=(
            "Paired by question; 95 % interval: sign flips over videos, of each figure on its own. In parentheses the "
            f"p of no difference, adjusted by Holm over this column{looks}.",
            f"p within ±{margin:g}: two one-sided tests that the difference is {margin:g} points or more, adjusted "
            "likewise. By length: a family of its own, tested where all is decided. An arrow marks an adjusted p below "
            "0.05.",
            "Cost: forward equivalents over frames. A question that a sampler fails on counts as 0.",
        ),
    )


def verdict_sentence(
    item: Compared, frame: pd.DataFrame, new: str, lengths: dict[str, Value], *, margin: float = MARGIN_POINTS
) -> str:
    """Return what one comparison shows, where, at what cost, and where a sampler failed or chose fewer frames."""
    part = frame[frame["k"] == item.rival.k]
    theirs, mine = part[part["label"] == item.rival.label], part[part["label"] == new]
    said = f"K = {item.rival.k}, {new} against {item.rival.name}: {_finding(item, margin)}"
    for word, sign in (("more", 1), ("less", -1)):
        where = [name for name, value in lengths.items() if value.is_clear and sign * (value.ours or 0) > 0]
        said += f"; {word} on {', '.join(where)}" if where else ""
    said += f"; {_costs_text(_spent(mine), _spent(theirs), item.rival.label.split()[0])}"
    for name, rows in ((new, mine), (item.rival.name, theirs)):
        failed = int(rows["error"].notna().sum())
        said += f"; {name} failed on {failed} of {len(rows)} questions, counted as 0" if failed else ""
        fewer = int((rows["error"].isna() & (rows["n_keyframes"] < rows[["k", "n_frames"]].min(axis=1))).sum())
        said += f"; {name} chose fewer frames than asked on {fewer} of {len(rows)} questions" if fewer else ""
    return f"{said}."


def _finding(item: Compared, margin: float) -> str:
    made = item.overall.difference
    points = number(100 * abs(made.value), 1)
    ends = "" if made.low is None or made.high is None else f" [{_signed(made.low)}, {_signed(made.high)}]"
    if item.differs:
        word = "more" if made.value > 0 else "less"
        within = f", within ±{margin:g} points (p = {p_text(item.p_alike)})" if item.is_alike else ""
        return f"finds {points} points {word}{ends}, p = {p_text(item.p_differs)}{within}".replace("= <", "< ")
    value = f"{_signed(made.value)}{ends}"
    if item.is_alike:
        return f"equivalent within ±{margin:g} points: {value}, p = {p_text(item.p_alike)}".replace("= <", "< ")
    return f"not decided by {made.videos:,} videos: {value}"


def _signed(share: float) -> str:
    return number(100 * share, 1, signed=True)


def _spent(part: pd.DataFrame) -> float | None:
    """Forward equivalents of the questions that did not fail, in percent of their frames; None where unknown."""
    return forwards_percent(part[part["error"].isna()])


def _costs_text(mine: float | None, theirs: float | None, other: str) -> str:
    """E.g. "both at 1.7 % of frames encoded", "at 0.56 % of frames encoded (focus 1.7 %)"."""
    texts = ["unknown" if cost is None else f"{number(cost, 1 if cost >= 1 else 2)} %" for cost in (mine, theirs)]
    if texts[0] == texts[1]:
        return f"both at {texts[0]} of frames encoded"
    return f"at {texts[0]} of frames encoded ({other} {texts[1]})"


def telling_questions(frame: pd.DataFrame, new: str, other: str, k: int) -> tuple[list[str], list[str]]:
    """Return up to 3 questions that `new` wins most clearly against `other`, and up to 3 that it loses; labels."""
    first, second = paired_by_question(frame[frame["k"] == k], other, new)
    gain = pd.Series(second.values - first.values, [question_id for _, question_id in first.keys])
    gain = gain.sort_values(kind="stable")
    return gain[gain > 0].index[::-1][:3].tolist(), gain[gain < 0].index[:3].tolist()
