"""Compares a new sampler with others: tested differences in evidence recall, and the cost of each sampler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from focus_eval.bench.benchmarks.question import in_order
from focus_eval.bench.report.measures import forwards_percent
from focus_eval.bench.report.recall_layouts import WITHIN_NEAR, paired_by_question
from focus_eval.bench.report.rendering import SIGNIFICANT, Table, Value, number, p_text, tested_value
from focus_eval.bench.report.statistics import (
    PairedComparison,
    compare_paired,
    difference_estimate,
    equivalence_p,
    holm,
)

# Number of videos of each world at each look. A look may use a share of the 5 % error level in proportion to its
# videos.
LOOKS = (150, 300, 600, 1200)
MARGIN_POINTS = 3.0
# World -> kind of pair -> (number of pairs of published LongVideoBench selections that the world orders as published,
# number of all pairs of the kind), from research/results/world_orders.csv.
PAIRS_ORDERED_ALIKE = {
    "realistic": {"two forms of AKS": (4, 4), "AKS and WFS-SB": (3, 3), "with uniform": (18, 18)},
    "realistic:blind=0.65": {"two forms of AKS": (1, 4), "AKS and WFS-SB": (1, 3), "with uniform": (14, 18)},
}
EQUIVALENT, NOT_TOLD_APART = "equivalent to", "not told apart from"
# Words of a verdict, in the order in which its sentence lists them.
WORDS = ("behind", "ahead of", EQUIVALENT, "perhaps behind", "perhaps ahead of", NOT_TOLD_APART)


@dataclass(frozen=True)
class Rival:
    """A sampler to compare the new one with, at one K.

    Args:
        name: its name in tables and sentences.
        label: value of the column label in its rows.
    """

    k: int
    name: str
    label: str


@dataclass(frozen=True, kw_only=True)
class RivalComparison:
    """The difference between the new sampler and one rival over all questions.

    Args:
        p_differs: p-value of the sign-flip test that there is no difference, adjusted over rivals, K and looks.
        p_equivalent: p-value of two one-sided tests that the difference is beyond the margin, with the same adjustment.
    """

    rival: Rival
    overall: PairedComparison
    p_differs: float
    p_equivalent: float

    @property
    def differs(self) -> bool:
        """True if the adjusted test finds a difference and the interval does not contain 0."""
        return self.p_differs < SIGNIFICANT and self.overall.difference.leaves_out_zero

    @property
    def is_equivalent(self) -> bool:
        """True if the adjusted tests show that any difference is within the margin."""
        return self.p_equivalent < SIGNIFICANT

    @property
    def word(self) -> str:
        """The finding in words; "perhaps" if the adjusted test finds a difference but the interval contains 0."""
        side = "ahead of" if self.overall.difference.value > 0 else "behind"
        if self.differs:
            return side
        if self.is_equivalent:
            return EQUIVALENT
        return f"perhaps {side}" if self.p_differs < SIGNIFICANT else NOT_TOLD_APART

    @property
    def is_decided(self) -> bool:
        """True if the two differ, or are equivalent within the margin."""
        return self.differs or self.is_equivalent


def with_failures_as_0(frame: pd.DataFrame) -> pd.DataFrame:
    """Return `frame` with every recall column set to 0 in lines with an error."""
    failed = frame["error"].notna()
    recalls = [column for column in frame if str(column).startswith("recall@")]
    return frame.assign(**{column: frame[column].mask(failed, 0.0) for column in recalls})


def compare_with_rivals(
    frame: pd.DataFrame, new: str, rivals: Sequence[Rival], *, margin: float = MARGIN_POINTS, share: float = 1.0
) -> list[RivalComparison]:
    """Return the tested difference in evidence recall of `new` to each rival over all questions.

    At most one verdict in 20 states a difference that does not exist. p-values are adjusted by Holm over rivals and K,
    and each look has its share of the 5 % error level (Bonferroni), so a run may stop at any look. The equivalence
    tests are adjusted
    separately.

    Args:
        frame: from `lab.lab_frame`, of one benchmark, with `with_failures_as_0`.
        new: label of the new sampler.
        margin: points of recall; samplers whose difference is smaller count as equivalent.
        share: share of the 5 % error level that this look may use, in (0, 1].
    """
    pairs = [paired_by_question(frame[frame["k"] == rival.k], rival.label, new) for rival in rivals]
    overall = [compare_paired(a.values, b.values, a.videos) for a, b in pairs]
    alike = [equivalence_p(b.values - a.values, a.videos, margin=margin / 100) for a, b in pairs]
    p_differs, p_equivalent = _adjusted([item.p_value for item in overall], share), _adjusted(alike, share)
    return [
        RivalComparison(rival=rival, overall=item, p_differs=differs, p_equivalent=alike)
        for rival, item, differs, alike in zip(rivals, overall, p_differs, p_equivalent, strict=True)
    ]


def _adjusted(p_values: Sequence[float], share: float) -> list[float]:
    """The p-values, adjusted by Holm and divided by the look's share of the 5 % error level, at most 1."""
    return [min(1.0, float(p_value) / share) for p_value in holm(p_values)]


def by_length(
    compared: Sequence[RivalComparison], frame: pd.DataFrame, new: str, *, share: float = 1.0
) -> list[dict[str, Value]]:
    """Return, for each of `compared`, the difference in points by length bucket.

    A comparison's buckets are tested only if it differs over all questions; otherwise they have no p-value. The p-value
    of a bucket is never smaller than that over all questions. These tests are adjusted separately.
    """
    lengths: list[dict[str, Value]] = [{} for _ in compared]
    tested: list[tuple[int, str, PairedComparison]] = []
    for at, item in enumerate(compared):
        part = frame[frame["k"] == item.rival.k]
        for bucket in in_order(frame["bucket"]):
            a, b = paired_by_question(part[part["bucket"] == bucket], item.rival.label, new)
            if a.keys and item.differs:
                tested.append((at, bucket, compare_paired(a.values, b.values, a.videos)))
            elif a.keys:
                lengths[at][bucket] = Value.of(difference_estimate(b.values - a.values, a.videos), is_difference=True)
    adjusted = _adjusted([comparison.p_value for *_, comparison in tested], share)
    for (at, bucket, comparison), p_value in zip(tested, adjusted, strict=True):
        p_value = max(p_value, compared[at].p_differs)
        lengths[at][bucket] = tested_value(comparison.difference, p_value)
    return lengths


def verdict_table(
    compared: Sequence[RivalComparison],
    frame: pd.DataFrame,
    new: str,
    lengths: Sequence[dict[str, Value]],
    *,
    margin: float = MARGIN_POINTS,
    share: float = 1.0,
) -> Table:
    """Return a table with a row per comparison: the rival's cost, the difference over all questions and by length.

    Args:
        lengths: differences from `by_length`, in the order of `compared`.
    """
    buckets = in_order(frame["bucket"])
    lines = []
    for item, by_bucket in zip(compared, lengths, strict=True):
        overall = tested_value(item.overall.difference, item.p_differs, suffix=f"({p_text(item.p_differs)})")
        rival_rows = frame[(frame["k"] == item.rival.k) & (frame["label"] == item.rival.label)]
        cells = {"its cost (%)": Value(ours=_spent(rival_rows), digits=2), "all": overall}
        cells |= {f"p within ±{margin:g}": Value.of_p(item.p_equivalent), **by_bucket}
        lines.append(((str(item.rival.k), item.rival.name), cells))
    looks = f"; this look may spend {100 * share:.0f} % of the error, the rest is for the others" if share < 1 else ""
    return Table.of(
        lines,
        name="verdict",
        title=f"Evidence recall difference of {new} {WITHIN_NEAR} (points)",
        key_titles=("K", "Other"),
        columns=("its cost (%)", "all", f"p within ±{margin:g}", *buckets),
        notes=(
            "Paired by question; 95 % interval: sign flips over videos, of each figure on its own. In parentheses the "
            f"p of no difference, adjusted by Holm over this column{looks}.",
            f"p within ±{margin:g}: two one-sided tests that the difference is {margin:g} points or more, adjusted "
            "likewise. By length: a family of its own, tested where all is decided. An arrow marks an adjusted p below "
            "0.05 and an interval without 0.",
            "Cost: forward equivalents over frames. A question that a sampler fails on counts as 0.",
        ),
    )


def verdict_sentence(
    item: RivalComparison, frame: pd.DataFrame, new: str, lengths: dict[str, Value], *, margin: float = MARGIN_POINTS
) -> str:
    """Return one comparison as a sentence: difference, lengths, costs, failures and short selections."""
    part = frame[frame["k"] == item.rival.k]
    rival_rows, new_rows = part[part["label"] == item.rival.label], part[part["label"] == new]
    sentence = f"K = {item.rival.k}, {new} against {item.rival.name}: {_finding(item, margin)}"
    for word, sign in (("more", 1), ("less", -1)):
        buckets = [name for name, value in lengths.items() if value.is_clear and sign * (value.ours or 0) > 0]
        sentence += f"; {word} on {', '.join(buckets)}" if buckets else ""
    sentence += f"; {_costs_text(_spent(new_rows), _spent(rival_rows), item.rival.label.split()[0])}"
    for name, rows in ((new, new_rows), (item.rival.name, rival_rows)):
        failed = int(rows["error"].notna().sum())
        sentence += f"; {name} failed on {failed} of {len(rows)} questions, counted as 0" if failed else ""
        n_short = int((rows["error"].isna() & (rows["n_keyframes"] < rows[["k", "n_frames"]].min(axis=1))).sum())
        sentence += f"; {name} chose fewer frames than asked on {n_short} of {len(rows)} questions" if n_short else ""
    return f"{sentence}."


def world_record(world: str) -> str:
    """Return a sentence on how often `world` ranks pairs of methods as their published selections; "" if unknown."""
    counts = PAIRS_ORDERED_ALIKE.get(world)
    if counts is None:
        return ""
    n_alike, n_pairs = (sum(values) for values in zip(*counts.values(), strict=True))
    kinds = "; ".join(f"{kind}: {alike} of {of}" for kind, (alike, of) in counts.items())
    return (
        f"This world orders {n_alike} of {n_pairs} pairs of methods on LongVideoBench as their published selections do "
        f"({kinds})."
    )


def whole_verdict(compared_by_world: Mapping[str, Sequence[RivalComparison]], new: str, margin: float) -> str:
    """Return all comparisons as one sentence, e.g. "new is behind even_cover; not told apart from focus at K = 8."."""
    words: dict[str, dict[tuple[str, int], str]] = {}
    for world, compared in compared_by_world.items():
        for item in compared:
            words.setdefault(item.rival.name, {})[world, item.rival.k] = item.word
    parts = []
    for word in WORDS:
        rivals = [
            name + _cases_text({case for case, other in cases.items() if other == word}, {*cases})
            for name, cases in words.items()
            if word in cases.values()
        ]
        margin_text = f" within ±{margin:g} points" if word == EQUIVALENT else ""
        parts += [f"{word} {', '.join(rivals)}{margin_text}"] if rivals else []
    sentence = f"{new} is {'; '.join(parts)}."
    if any(word in sentence for word in ("perhaps ahead", "perhaps behind")):
        sentence += " Perhaps: the test that is adjusted for all comparisons finds it, the interval holds 0."
    return sentence


def _cases_text(cases: set[tuple[str, int]], all_cases: set[tuple[str, int]]) -> str:
    """E.g. " at K = 8", " in realistic" or " in 3 of 4 comparisons"; "" for all cases (world, K)."""
    if cases == all_cases:
        return ""
    for place, text in ((1, "at K = {}"), (0, "in {}")):
        values = {case[place] for case in cases}
        if len(values) == 1 and cases == {case for case in all_cases if case[place] in values}:
            return f" {text.format(*values)}"
    return f" in {len(cases)} of {len(all_cases)} comparisons"


def differing_worlds(compared_by_world: Mapping[str, Sequence[RivalComparison]], new: str) -> list[str]:
    """Return a sentence for each rival and K where `new` is clearly ahead or behind in some worlds but not in all."""
    by_rival: dict[tuple[int, str], dict[str, float]] = {}
    for world, compared in compared_by_world.items():
        for item in compared:
            gap = item.overall.difference.value if item.differs else 0.0
            by_rival.setdefault((item.rival.k, item.rival.name), {})[world] = gap
    sentences = []
    for (k, rival), gaps in by_rival.items():
        for word, sign in (("ahead of", 1), ("behind", -1)):
            worlds = [world for world, gap in gaps.items() if sign * gap > 0]
            if worlds and len(worlds) < len(gaps):
                other_worlds = ", ".join(world for world in gaps if world not in worlds)
                sentences.append(
                    f"K = {k}: {new} is {word} {rival} in {', '.join(worlds)} only, not in {other_worlds}."
                )
    return sentences


def _finding(item: RivalComparison, margin: float) -> str:
    """E.g. "finds 3.1 points more [1.2, 5.0], p = 0.002"."""
    gap = item.overall.difference
    points = number(100 * abs(gap.value), 1)
    ends = "" if gap.low is None or gap.high is None else f" [{_signed(gap.low)}, {_signed(gap.high)}]"
    if item.word in ("ahead of", "behind"):
        word = "more" if gap.value > 0 else "less"
        equivalence = f", within ±{margin:g} points (p = {p_text(item.p_equivalent)})" if item.is_equivalent else ""
        return f"finds {points} points {word}{ends}, p = {p_text(item.p_differs)}{equivalence}".replace("= <", "< ")
    value = f"{_signed(gap.value)}{ends}"
    if item.is_equivalent:
        return f"equivalent within ±{margin:g} points: {value}, p = {p_text(item.p_equivalent)}".replace("= <", "< ")
    side = ("perhaps more, " if gap.value > 0 else "perhaps less, ") if item.word.startswith("perhaps") else ""
    adjusted = f"adjusted p = {p_text(item.p_differs)}".replace("= <", "< ")
    shape = f" ({gap.shape})" if side else ""
    return f"{side}not decided by {gap.videos:,} videos: {value}, {adjusted}{shape}"


def _signed(share: float) -> str:
    return number(100 * share, 1, signed=True)


def _spent(part: pd.DataFrame) -> float | None:
    """The forward equivalents in percent of the frames, over lines without an error; None if unknown."""
    return forwards_percent(part[part["error"].isna()])


def _costs_text(own_cost: float | None, rival_cost: float | None, rival: str) -> str:
    """E.g. "both at 1.7 % of frames encoded", "at 0.56 % of frames encoded (focus 1.7 %)"."""
    texts = [
        "unknown" if cost is None else f"{number(cost, 1 if cost >= 1 else 2)} %" for cost in (own_cost, rival_cost)
    ]
    if texts[0] == texts[1]:
        return f"both at {texts[0]} of frames encoded"
    return f"at {texts[0]} of frames encoded ({rival} {texts[1]})"


def telling_questions(frame: pd.DataFrame, new: str, rival: str, k: int) -> tuple[list[str], list[str]]:
    """Return ids of up to 3 questions where `new` gains most recall over `rival`, and up to 3 where it loses most.

    Args:
        new, rival: labels of the two samplers.
    """
    first, second = paired_by_question(frame[frame["k"] == k], rival, new)
    gain = pd.Series(second.values - first.values, [question_id for _, question_id in first.keys])
    gain = gain.sort_values(kind="stable")
    return gain[gain > 0].index[::-1][:3].tolist(), gain[gain < 0].index[:3].tolist()
