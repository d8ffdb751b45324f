"""Lays out accuracy by evidence in view as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from focus_eval.report.comparisons import p_text
from focus_eval.report.evidence import (
    SERIES,
    VIEWS,
    ViewAccuracy,
    WithinQuestion,
    accuracy_by_view,
    evidence_answers,
    within_question,
)
from focus_eval.report.labels import sampler_order
from focus_eval.report.paired_tests import holm
from focus_eval.report.recall import BUCKETS, DISTANCES_SECONDS
from focus_eval.report.run import Run
from focus_eval.report.statistics import Estimate
from focus_eval.report.table import Figure, Table, TableRow

_KEYS = ("Benchmark", "Model", "Selection", "K")
_VIEW_COLUMNS = ("All in view", "None in view", "All − none", "p", "p (Holm)", "Some in view", "Overall")
_CLUSTERED = (
    "In brackets 95 % intervals clustered by video (accuracies: t on the logit scale; differences: t), in parentheses "
    "the number of (question, seed) pairs."
)
_TEST = (
    "p: sign-flip permutation test over videos, two-sided; Holm adjusts it over this table. An arrow marks an "
    "adjusted p below 0.05."
)
_IN_VIEW = "All in view: every annotated moment has a keyframe within d seconds; none in view: no moment has one."


def evidence_tables(run: Run, *, distance: float = 5.0, min_seconds: float = 180.0) -> list[Table]:
    """Return accuracy by evidence in view: by distance, length and category, then two selections question by question.

    Args:
        distance: d in seconds, for all tables but the first.
        min_seconds: shorter videos are left out of all tables but that by length: their evidence is nearly always in
            view.

    Raises:
        InvalidInput: no answers with evidence, or a distance that rows are not measured at.
    """
    answers = evidence_answers(run, min_seconds=min_seconds)
    every_length = evidence_answers(run)
    parts = _series(answers)
    who = f"videos of {min_seconds:g} s and more" if min_seconds > 0 else "videos of every length"
    tables = [
        _view_table(
            [((*key, f"{d:g}"), accuracy_by_view(part, distance=d)) for key, part in parts for d in DISTANCES_SECONDS],
            keys=(*_KEYS, "d (s)"),
            name="evidence",
            title=f"Accuracy by evidence in view, {who}",
        ),
        _view_table(
            [
                ((*key, bucket), accuracy_by_view(chosen, distance=distance))
                for key, part in _series(every_length)
                for bucket in sorted(set(part["bucket"]), key=_bucket_order)
                if len(chosen := part[part["bucket"] == bucket])
            ],
            keys=(*_KEYS, "Length"),
            name="evidence_by_length",
            title=f"Accuracy by evidence in view within {distance:g} s and length of the video",
        ),
    ]
    by_category = [
        ((*key, str(category)), accuracy_by_view(chosen, distance=distance))
        for key, part in parts
        for category, chosen in part.groupby("category")
        if category
    ]
    if by_category:
        title = f"Accuracy by evidence in view within {distance:g} s and category, {who}"
        tables.append(_view_table(by_category, keys=(*_KEYS, "Category"), name="evidence_by_category", title=title))
    within = _within_table(parts, distance=distance, who=who)
    return [*tables, within] if within is not None else tables


def _series(answers: pd.DataFrame) -> list[tuple[tuple[str, ...], pd.DataFrame]]:
    """Lines of each benchmark, model, selection and K: fewer frames first, then as samplers are ordered."""
    parts = list(answers.groupby(SERIES, sort=False))
    parts.sort(key=lambda item: (item[0][0], item[0][1], item[0][3], sampler_order(item[0][2])))
    return [(tuple(str(value) for value in key), part) for key, part in parts]


def _view_table(
    lines: Sequence[tuple[tuple[str, ...], ViewAccuracy]], *, keys: tuple[str, ...], name: str, title: str
) -> Table:
    tested = [made.p_value for _, made in lines if made.p_value is not None]
    adjusted = iter(holm(tested))
    rows = []
    for key, made in lines:
        p_adjusted = float(next(adjusted)) if made.p_value is not None else None
        rows.append(TableRow(key, tuple(_view_figures(made, p_adjusted))))
    return Table(
        name=name,
        title=title,
        key_titles=keys,
        columns=_VIEW_COLUMNS,
        rows=tuple(rows),
        notes=(_IN_VIEW, _CLUSTERED, _TEST),
    )


def _view_figures(made: ViewAccuracy, p_adjusted: float | None) -> Iterable[Figure]:
    all_in, some, none = (made.by_view[view] for view in VIEWS)
    yield _accuracy(all_in)
    yield _accuracy(none)
    yield _difference(made.difference, p_adjusted)
    yield Figure() if made.p_value is None else Figure(ours=made.p_value, text=p_text(made.p_value))
    yield Figure() if p_adjusted is None else Figure(ours=p_adjusted, text=p_text(p_adjusted))
    yield _accuracy(some)
    yield _accuracy(made.overall)


def _within_table(parts: Sequence[tuple[tuple[str, ...], pd.DataFrame]], *, distance: float, who: str) -> Table | None:
    """The first selection of each benchmark and model against its others; None where there is just one."""
    lines: list[tuple[tuple[str, ...], WithinQuestion]] = []
    first: dict[tuple[str, ...], tuple[tuple[str, ...], pd.DataFrame]] = {}
    for key, part in parts:
        base_key, base = first.setdefault(key[:2], (key, part))
        if base_key != key:
            names = (f"{base_key[2]}, K = {base_key[3]}", f"{key[2]}, K = {key[3]}")
            made = within_question(base, part, distance=distance)
            lines += [((*key[:2], *names, item.change), item) for item in made]
    if not lines:
        return None
    adjusted = holm([line.compared.p_value for _, line in lines])
    rows = tuple(
        TableRow(key, tuple(_within_figures(line, float(p)))) for (key, line), p in zip(lines, adjusted, strict=True)
    )
    return Table(
        name="evidence_within",
        title=f"The same questions from two selections, evidence within {distance:g} s, {who}",
        key_titles=("Benchmark", "Model", "A", "B", "Evidence"),
        columns=("Pairs", "A", "B", "B − A", "p", "p (Holm)"),
        rows=rows,
        notes=(
            "gained: none in view in A, all in B; lost: all in A, none in B; in part: some of it in view in A or B.",
            _CLUSTERED,
            _TEST,
        ),
    )


def _within_figures(question: WithinQuestion, p_adjusted: float) -> Iterable[Figure | str]:
    yield str(question.compared.difference.questions)
    yield Figure(ours=100 * question.accuracy_a)
    yield Figure(ours=100 * question.accuracy_b)
    yield _difference(question.compared.difference, p_adjusted)
    yield Figure(ours=question.compared.p_value, text=p_text(question.compared.p_value))
    yield Figure(ours=p_adjusted, text=p_text(p_adjusted))


def _accuracy(made: Estimate | None) -> Figure:
    if made is None:
        return Figure()
    figure = _percent(made)
    return Figure(ours=figure.ours, low=figure.low, high=figure.high, text=f"{figure.ours_text} ({made.questions})")


def _difference(made: Estimate | None, p_adjusted: float | None) -> Figure:
    return Figure() if made is None else _percent(made, is_difference=True, p_adjusted=p_adjusted)


def _percent(made: Estimate, *, is_difference: bool = False, p_adjusted: float | None = None) -> Figure:
    return Figure(
        ours=100 * made.value,
        low=None if made.low is None else 100 * made.low,
        high=None if made.high is None else 100 * made.high,
        has_too_few_videos=made.low is None,
        is_difference=is_difference,
        p_adjusted=p_adjusted,
    )


def _bucket_order(bucket: str) -> tuple[int, str]:
    return (BUCKETS.index(bucket) if bucket in BUCKETS else len(BUCKETS), bucket)
