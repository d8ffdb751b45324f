"""Is one sampler better than another on the same questions?"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from focus_eval.errors import InvalidInput
from focus_eval.report.run import Run, sampler_order
from focus_eval.report.statistics import (
    PairedComparison,
    compare_paired,
    design_effect_of,
    holm,
    minimal_difference,
)
from focus_eval.report.table import Figure, Table, TableRow, number

BASELINES = ("uniform", "uniform_1fps")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two arms of a comparison on the questions both answered."""

    where: tuple[str, ...]
    a: str
    b: str
    compared: PairedComparison
    minimal: float


def baseline_table(run: Run, *, baseline: str | None = None) -> Table | None:
    """Return every sampler of `run` against its baseline, per benchmark and model; None where there is no pair.

    Args:
        baseline: label of the baseline; uniform where the run has it.
    """
    if not run.answers:
        return None
    pairs = []
    for where, part in run.answer_frame.groupby(["benchmark", "model", "k"]):
        labels = sorted(set(part["label"]), key=sampler_order)
        named = baseline or next((one for one in BASELINES if one in labels), None)
        if named is None or named not in labels:
            continue
        pairs += [
            made
            for label in labels
            if label != named and (made := _pair(part, part, named, label, tuple(map(str, where)))) is not None
        ]
    return comparison_table(pairs, name="against_baseline", title="Samplers on the same questions") if pairs else None


def run_comparison(a: Run, b: Run) -> Table:
    """Return how the answers of run `b` differ from those of run `a`, cell by cell, on the same questions.

    Cells are matched by benchmark, model, K and sampler; where each run has one cell of a benchmark, these two are
    compared whatever they are.

    Raises:
        InvalidInput: no question answered in both.
    """
    pairs = []
    keys = ["benchmark", "model", "k", "label"]
    if not a.answers or not b.answers:
        raise InvalidInput(f"{a.name if not a.answers else b.name}: has no answers to compare")
    cells_a = {_texts(where): part for where, part in a.answer_frame.groupby(keys, sort=False)}
    cells_b = {_texts(where): part for where, part in b.answer_frame.groupby(keys, sort=False)}
    shared = [where for where in cells_a if where in cells_b]
    for where in shared:
        made = _pair(cells_a[where], cells_b[where], where[3], where[3], where[:3])
        pairs += [made] if made else []
    if not shared:
        for one, other in itertools.product(cells_a, cells_b):
            if one[0] == other[0] and len(cells_a) == len(cells_b) == 1:
                made = _pair(cells_a[one], cells_b[other], one[3], other[3], (one[0], one[1], one[2]))
                pairs += [made] if made else []
    if not pairs:
        raise InvalidInput(f"{a.name} and {b.name} have no cell and question in common")
    title = f"{b.name} against {a.name} on the same questions"
    return comparison_table(pairs, name="comparison", title=title)


def comparison_table(pairs: Sequence[Pair], *, name: str, title: str) -> Table:
    """Return the table of `pairs`, p-values adjusted over all of them by Holm's method."""
    adjusted = holm([pair.compared.p_value for pair in pairs])
    rows = []
    for pair, p_value in zip(pairs, adjusted, strict=True):
        one = pair.compared
        difference = Figure(
            ours=100 * one.difference.value, low=100 * one.difference.low, high=100 * one.difference.high
        )
        rows.append(
            TableRow(
                (*pair.where, pair.a, pair.b),
                (
                    difference_text(difference, is_clear=not one.holds_zero),
                    str(one.difference.questions),
                    f"{one.only_a} / {one.only_b}",
                    p_text(one.p_value) + ("" if one.is_exact else "*"),
                    p_text(float(p_value)),
                    "–" if np.isnan(pair.minimal) else number(100 * pair.minimal, 1),
                ),
            )
        )
    return Table(
        name=name,
        title=title,
        key_titles=("Benchmark", "Model", "K", "A", "B"),
        columns=("B − A (points)", "Questions", "Only A / only B right", "McNemar p", "p (Holm)", "Least visible"),
        rows=tuple(rows),
        notes=(
            "Differences of accuracy in points with a 95 % interval (bootstrap over videos), on the questions both "
            "answered; an arrow marks those whose interval leaves out 0.",
            "McNemar's test is exact, or chi-square with continuity correction (*) above 25 disagreements; Holm "
            "adjusts over this table.",
            "Least visible: the smallest difference this many questions show with 80 % power, at the disagreement "
            "and the clustering seen.",
        ),
    )


def difference_text(one: Figure, *, is_clear: bool) -> str:
    """Return e.g. "+2.3 [0.4, 4.1] ↑"; the arrow only where the interval leaves out 0."""
    value = one.ours or 0.0
    arrow = (" ↑" if value > 0 else " ↓") if is_clear else ""
    interval = f" [{number(one.low or 0.0, 1)}, {number(one.high or 0.0, 1)}]"
    return number(value, one.digits, signed=True) + interval + arrow


def p_text(value: float) -> str:
    """Return a p-value with three decimals, "<0.001" below that."""
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def _pair(part_a: pd.DataFrame, part_b: pd.DataFrame, a: str, b: str, where: tuple[str, ...]) -> Pair | None:
    scores_a, scores_b = _scores(part_a, a), _scores(part_b, b)
    both = scores_a.join(scores_b, how="inner", lsuffix="_a", rsuffix="_b")
    if both.empty:
        return None
    videos = both["video_a"].tolist()
    compared = compare_paired(both["score_a"].to_numpy(), both["score_b"].to_numpy(), videos)
    disagreement = compared.disagreements / len(both)
    effect = design_effect_of((both["score_b"] - both["score_a"]).to_numpy(), videos)
    least = (
        minimal_difference(len(both), disagreement=disagreement, design_effect=effect)
        if disagreement > 0
        else float("nan")
    )
    return Pair(where=where, a=a, b=b, compared=compared, minimal=least)


def _scores(part: pd.DataFrame, label: str) -> pd.DataFrame:
    """Mean score per answered question over seeds, with its video."""
    rows = part[(part["label"] == label) & part["is_answered"]]
    scores: pd.DataFrame = rows.groupby("question_id").agg(score=("score", "mean"), video=("video", "first"))
    return scores


def _texts(values: object) -> tuple[str, ...]:
    return tuple(str(value) for value in values) if isinstance(values, tuple) else (str(values),)
