"""What might a selection be worth to a model that has answered another one?

A ridge-regularised logistic regression of "right" on the evidence in view, the video's length, the question's category
and K. What it gives is an estimate and never called an accuracy: the model did not see those frames.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from focus_eval.benchmarks.evidence import IN_VIEW_SECONDS, RECALL_SECONDS
from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import FloatArray
from focus_eval.report.evidence import SERIES, evidence_answers, lengths_text
from focus_eval.report.recall import recall_column
from focus_eval.report.run import Run
from focus_eval.report.statistics import Estimate
from focus_eval.report.table import Table, TableRow, Value

PENALTIES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1)
FOLDS = 10
DRAWS = 200
SEED = 20260101
_RECALLS = tuple(recall_column(seconds) for seconds in RECALL_SECONDS)
_BINS = 10


@dataclass(frozen=True, kw_only=True)
class AnswerModel:
    """A fitted estimate of P(right), and how it did on videos it was not fitted on.

    Args:
        categories: those of the answers, in the order of the columns.
        coefficients: intercept first, shape `(n_columns,)`.
        penalty: chosen by cross-validation over videos.
        calibration_error: mean distance, over ten bins of equal size, between the mean estimate and the share right,
            in [0, 1]; every question estimated by a fit that has not seen its video.
        brier, brier_of_mean: mean squared distance of estimate and answer, and the same of guessing the mean rate.
    """

    categories: tuple[str, ...]
    coefficients: FloatArray
    penalty: float
    calibration_error: float
    brier: float
    brier_of_mean: float

    def probabilities(self, lines: pd.DataFrame) -> FloatArray:
        """Return the estimated P(right) of each line, shape `(n,)`, in (0, 1)."""
        return _probabilities(_columns(lines, self.categories), self.coefficients)


def fit_answers(answers: pd.DataFrame) -> AnswerModel:
    """Return the estimate fitted on `answers`, the penalty chosen by ten-fold cross-validation over videos.

    Args:
        answers: columns `score` (0 or 1), `video`, the recall within each distance, `duration`, `category`, `k`.

    Raises:
        InvalidInput: scores other than 0 and 1, or fewer than ten videos.
    """
    scores = answers["score"].to_numpy(dtype=np.float64)
    if not np.isin(scores, (0.0, 1.0)).all():
        raise InvalidInput("an estimate needs answers that are right or wrong, without partial credit")
    folds = _folds(answers["video"].tolist())
    categories = tuple(sorted(set(answers["category"])))
    columns = _columns(answers, categories)
    left_out = {penalty: _left_out(columns, scores, folds, penalty) for penalty in PENALTIES}
    penalty = min(PENALTIES, key=lambda entry: _log_loss(left_out[entry], scores))
    guessed = np.array([scores[folds != fold].mean() for fold in folds])
    return AnswerModel(
        categories=categories,
        coefficients=_fit(columns, scores, penalty),
        penalty=penalty,
        calibration_error=calibration_error(left_out[penalty], scores),
        brier=float(((left_out[penalty] - scores) ** 2).mean()),
        brier_of_mean=float(((guessed - scores) ** 2).mean()),
    )


def expected_share(
    answers: pd.DataFrame, selection: pd.DataFrame, *, draws: int = DRAWS
) -> tuple[AnswerModel, Estimate]:
    """Return the estimate fitted on `answers`, and the share of right answers it expects from `selection`.

    The interval is a percentile one over draws of whole videos: each draw fits again on its videos' answers, at the
    same penalty, and expects over its videos' questions. It holds what the answers leave open within the model, not
    that the model may be wrong.

    Args:
        selection: a line per question with the columns of `fit_answers` but `score`.
    """
    fitted = fit_answers(answers)
    estimated = fitted.probabilities(selection)
    columns, scores = _columns(answers, fitted.categories), answers["score"].to_numpy(dtype=np.float64)
    new = _columns(selection, fitted.categories)
    videos = sorted({*answers["video"], *selection["video"]})
    place = {video: at for at, video in enumerate(videos)}
    of_answer = np.array([place[video] for video in answers["video"]])
    of_question = np.array([place[video] for video in selection["video"]])
    rng = np.random.default_rng(SEED)
    shares = []
    for _ in range(draws):
        counts = np.bincount(rng.integers(0, len(videos), len(videos)), minlength=len(videos)).astype(np.float64)
        drawn = _fit(columns, scores, fitted.penalty, weights=counts[of_answer], start=fitted.coefficients)
        shares.append(np.average(_probabilities(new, drawn), weights=counts[of_question]))
    low, high = np.quantile(shares, [0.025, 0.975])
    share = Estimate(float(estimated.mean()), float(low), float(high), len(selection), len(videos))
    return fitted, share


def calibration_error(estimated: FloatArray, scores: FloatArray) -> float:
    """Return the mean distance between estimate and share right over ten bins of equal size, by rising estimate."""
    order = np.argsort(estimated, kind="stable")
    bins = [part for part in np.array_split(order, _BINS) if part.size]
    gaps = [abs(estimated[part].mean() - scores[part].mean()) * part.size for part in bins]
    return float(sum(gaps) / estimated.size)


def _columns(lines: pd.DataFrame, categories: Sequence[str]) -> FloatArray:
    """Intercept; evidence in view; log length and log K, centred at 15 minutes and 16 frames; a column per category."""
    parts = [np.ones(len(lines)), *(lines[name].to_numpy(dtype=np.float64) - 0.5 for name in _RECALLS)]
    parts += [(lines[recall_column(IN_VIEW_SECONDS)].to_numpy(dtype=np.float64) >= 1) - 0.5]
    parts += [np.log(lines["duration"].to_numpy(dtype=np.float64) / 900), np.log2(lines["k"].to_numpy(float) / 16)]
    kind = lines["category"].to_numpy()
    return np.column_stack([*parts, *((kind == category).astype(np.float64) for category in categories)])


def _fit(
    columns: FloatArray,
    scores: FloatArray,
    penalty: float,
    *,
    weights: FloatArray | None = None,
    start: FloatArray | None = None,
) -> FloatArray:
    from scipy.optimize import minimize

    share = np.ones(scores.size) / scores.size if weights is None else weights / weights.sum()
    # The intercept is free; the penalty is per answer, so it means the same whatever their number.
    alpha = np.array([0.0, *[penalty] * (columns.shape[1] - 1)])

    def loss(coefficients: FloatArray) -> tuple[float, FloatArray]:
        logits = columns @ coefficients
        value = share @ (np.logaddexp(0, logits) - scores * logits) + alpha @ coefficients**2 / 2
        slope = columns.T @ (share * (_probabilities(columns, coefficients) - scores)) + alpha * coefficients
        return float(value), slope

    def curvature(coefficients: FloatArray) -> FloatArray:
        chances = _probabilities(columns, coefficients)
        return np.asarray((columns.T * (share * chances * (1 - chances))) @ columns + np.diag(alpha))

    begin = np.zeros(columns.shape[1]) if start is None else start
    # Convex with 25 columns: a handful of exact Newton steps.
    found = minimize(loss, begin, jac=True, hess=curvature, method="trust-exact", options={"gtol": 1e-8})
    return np.asarray(found.x, dtype=np.float64)


def _left_out(columns: FloatArray, scores: FloatArray, folds: FloatArray, penalty: float) -> FloatArray:
    estimated = np.zeros(scores.size)
    for fold in range(FOLDS):
        inside = folds == fold
        estimated[inside] = _probabilities(columns[inside], _fit(columns[~inside], scores[~inside], penalty))
    return estimated


def _folds(videos: Sequence[str]) -> FloatArray:
    """The fold of each line: videos in a fixed random order, dealt out in turn."""
    names = sorted(set(videos))
    if len(names) < FOLDS:
        raise InvalidInput(f"an estimate needs answers about at least {FOLDS} videos, got {len(names)}")
    order = np.random.default_rng(SEED).permutation(len(names))
    fold_of = {names[at]: turn % FOLDS for turn, at in enumerate(order)}
    return np.array([fold_of[video] for video in videos], dtype=np.float64)


def _probabilities(columns: FloatArray, coefficients: FloatArray) -> FloatArray:
    from scipy.special import expit

    return np.asarray(expit(columns @ coefficients), dtype=np.float64)


def _log_loss(estimated: FloatArray, scores: FloatArray) -> float:
    right = np.where(scores == 1, estimated, 1 - estimated)
    return float(-np.log(np.clip(right, 1e-12, None)).mean())


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
    return Table(
        name="estimate",
        title=f"Expected share of right answers (an estimate), {lengths_text(min_seconds)}",
        key_titles=("Benchmark", "Model", "Answers from A", "Expected from B"),
        columns=("Expected share", "Answered", "Off by", "Questions", "Calibration error", "Brier"),
        rows=tuple(rows),
        notes=_NOTES,
    )


def _targets(
    key: tuple[str, ...], part: pd.DataFrame, parts: Sequence[tuple[tuple[str, ...], pd.DataFrame]], others: Run | None
) -> Iterator[tuple[str, pd.DataFrame, float | None]]:
    """Name, lines and share answered right of every other selection of the same benchmark and model."""
    for other, lines in parts:
        if other[:2] == key[:2] and other != key:
            yield f"{other[2]}, K = {other[3]}", lines, float(lines["score"].mean())
    if others is None:
        return
    asked = part.drop_duplicates("question_id")[["benchmark", "question_id", "duration", "category"]]
    chosen = others.selection_frame[others.selection_frame[_RECALLS[0]].notna()]
    for (label, k), lines in chosen.groupby(["label", "k"], sort=False):
        yield f"{label}, K = {k}", lines.merge(asked, on=["benchmark", "question_id"]), None


def _figures(fitted: AnswerModel, share: Estimate, answered: float | None) -> tuple[Value | str, ...]:
    return (
        Value.of(share),
        Value() if answered is None else Value(ours=100 * answered),
        Value() if answered is None else Value(ours=100 * (share.value - answered), is_difference=True),
        str(share.questions),
        Value(ours=100 * fitted.calibration_error),
        f"{fitted.brier:.3f} ({fitted.brier_of_mean:.3f})",
    )
