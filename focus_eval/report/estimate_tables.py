"""Lays out what selections might be worth to a model, beside what was answered where that is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from focus_eval.report.estimate import DRAWS, AnswerModel, ExpectedShare, expected_share
from focus_eval.report.evidence import SERIES, evidence_answers
from focus_eval.report.run import Run
from focus_eval.report.table import Figure, Table, TableRow

_NOTES = (
    "An estimate, not an accuracy: the share of right answers that a ridge-regularised logistic regression expects, "
    "fitted on the model's answers from A (P(right) by evidence in view, length, category and K; penalty by ten-fold "
    "cross-validation over videos).",
    "In brackets the 95 % interval over draws of whole videos; it does not hold that the regression may be wrong.",
    "Answered: the share really right from B, where published; off by: estimate minus that, in points.",
    "Calibration error and Brier score (in parentheses that of guessing the mean) are of videos left out of the fit.",
    "With answers from a single K nothing says what more frames alone are worth: the estimate takes it as nothing.",
)


def estimate_table(run: Run, others: Run | None = None, *, min_seconds: float = 180.0, draws: int = DRAWS) -> Table:
    """Return what each other selection might be worth, by the answers from each selection of `run`.

    Args:
        others: selections without answers, of the same questions.
        min_seconds: shorter videos are left out.
    """
    answers = evidence_answers(run, min_seconds=min_seconds)
    parts = [(tuple(map(str, key)), part) for key, part in answers.groupby(SERIES, sort=False)]
    rows = []
    for key, part in parts:
        for name, lines, answered in _targets(key, part, parts, others):
            fitted, share = expected_share(part, lines, draws=draws)
            rows.append(TableRow((*key[:2], f"{key[2]}, K = {key[3]}", name), _figures(fitted, share, answered)))
    who = f"videos of {min_seconds:g} s and more" if min_seconds > 0 else "videos of every length"
    return Table(
        name="estimate",
        title=f"Expected share of right answers (an estimate), {who}",
        key_titles=("Benchmark", "Model", "Answers from A", "Expected from B"),
        columns=("Expected share", "Answered", "Off by", "Questions", "Calibration error", "Brier"),
        rows=tuple(rows),
        notes=_NOTES,
    )


def _targets(
    key: tuple[str, ...],
    part: pd.DataFrame,
    parts: Sequence[tuple[tuple[str, ...], pd.DataFrame]],
    others: Run | None,
) -> Iterator[tuple[str, pd.DataFrame, float | None]]:
    """Name, lines and share answered right of every other selection of the same benchmark and model."""
    for other, lines in parts:
        if other[:2] == key[:2] and other != key:
            yield f"{other[2]}, K = {other[3]}", lines, float(lines["score"].mean())
    if others is None:
        return
    asked = part.drop_duplicates("question_id")[["benchmark", "question_id", "duration", "category"]]
    chosen = others.selection_frame[others.selection_frame["recall@1"].notna()]
    for (label, k), lines in chosen.groupby(["label", "k"], sort=False):
        yield f"{label}, K = {k}", lines.merge(asked, on=["benchmark", "question_id"]), None


def _figures(fitted: AnswerModel, share: ExpectedShare, answered: float | None) -> tuple[Figure | str, ...]:
    return (
        Figure(ours=100 * share.value, low=100 * share.low, high=100 * share.high),
        Figure() if answered is None else Figure(ours=100 * answered),
        Figure() if answered is None else Figure(ours=100 * (share.value - answered), is_difference=True),
        str(share.questions),
        Figure(ours=100 * fitted.calibration_error),
        f"{fitted.brier:.3f} ({fitted.brier_of_mean:.3f})",
    )
