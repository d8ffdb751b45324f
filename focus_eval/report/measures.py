"""The figures of a report: accuracy, evidence recall, frames scored, hours and counts of some lines of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from focus_eval.report.question_means import QuestionMeans, question_means
from focus_eval.report.run import Run
from focus_eval.report.statistics import Estimate, mean_estimate, spread_over_seeds, stratum_weights
from focus_eval.report.table import Counts, Figure
from focus_eval.report.task_means import strata_of

NOT_SCORED = "not scored here"


def accuracy_figure(part: pd.DataFrame, *, published: float | None = None, over_types: bool = False) -> Figure:
    """Return accuracy in percent over the answered questions of `part`, whose rows may come from several seeds.

    A question asked under several seeds counts once, with its mean score.

    Args:
        over_types: the mean over task types; no figure where the benchmark is not reported so, or several are there.
    """
    answered = part[part["is_answered"]]
    if len(answered) and answered["score"].isna().all():
        return Figure(published=published, text="" if over_types else NOT_SCORED)
    questions = question_means(answered, "score")
    strata = _strata(questions) if over_types else None
    if not questions.keys or (over_types and strata is None):
        return Figure(published=published)
    estimate = mean_estimate(questions.values, questions.videos, strata=strata)
    per_seed = [question_means(rows, "score") for _, rows in answered.groupby("seed")] if "seed" in answered else []
    means = [_mean(scores, _strata(scores) if over_types else None) for scores in per_seed if scores.keys]
    spread = spread_over_seeds([100 * mean for mean in means or [estimate.value]])
    return replace(
        _figure_of(estimate),
        published=published,
        spread=spread.deviation if spread.seeds > 1 else None,
        seeds=spread.seeds,
    )


def reported_figure(part: pd.DataFrame) -> Figure:
    """Return the accuracy that the benchmark of `part` reports: the mean over questions, or over task types."""
    over_types = accuracy_figure(part, over_types=True)
    return accuracy_figure(part) if over_types.ours is None else over_types


def recall_figure(chosen: pd.DataFrame, metric: str) -> Figure:
    """Return evidence recall in percent, `metric` being "recall@1" and the like, over the questions of `chosen`."""
    questions = question_means(chosen, metric)
    return _figure_of(mean_estimate(questions.values, questions.videos)) if questions.keys else Figure()


def frames_scored_percent(chosen: pd.DataFrame) -> float | None:
    """Return frames scored over frames of the videos in percent, summed over questions and seeds; None if unknown."""
    total = chosen["n_frames"].sum()
    return float(100 * chosen["n_pulls"].sum() / total) if total and chosen["has_cost"].all() else None


def hours_per_seed(chosen: pd.DataFrame) -> float | None:
    """Return the hours that a device was held for one seed's selections: the mean over seeds; None if unknown."""
    if not chosen["has_cost"].all():
        return None
    return float(chosen["select_seconds"].sum() / 3600 / chosen["seed"].nunique())


def runs_on_gpu(chosen: pd.DataFrame) -> bool:
    """Whether all selections that pulled anything ran on a GPU: only then may hours be compared with the paper's."""
    devices = chosen.loc[chosen["n_pulls"] > 0, "select_device"]
    return bool(len(devices)) and all(str(device).startswith("cuda") for device in devices.unique())


def counts_of(run: Run, part: pd.DataFrame) -> Counts:
    """Return what the figures over `part` (lines of answers, or of selections where no model answered) rest on.

    Questions are counted once whatever their seeds; the other counts are of (question, seed) pairs.
    """
    expected = [run.expected_questions.get(name) for name in part["benchmark"].unique()]
    is_error = part["error"].notna()
    answered = "is_answered" in part
    below = part["is_below_k"] if answered else (~is_error & (part["n_keyframes"] < part["k"]))
    return Counts(
        questions=_distinct_questions(part[~is_error]),
        asked=_distinct_questions(part),
        expected=sum(number for number in expected if number) if all(expected) else None,
        unparsed=int(part["is_unparsed"].sum()) if answered else 0,
        errors=int(is_error.sum()),
        fallbacks=int(part["fallback"].notna().sum()) if answered else 0,
        below_k=int(below.sum()),
    )


def selections_of(run: Run, part: pd.DataFrame) -> pd.DataFrame:
    """Return the selections behind lines of answers, each once whichever models were shown it."""
    frame = run.selection_frame
    if frame.empty:
        return frame
    keys = ["benchmark", "question_id", "selection_id"]
    wanted = part[keys].drop_duplicates()
    chosen: pd.DataFrame = frame.merge(wanted, on=keys)
    return chosen


def _strata(questions: QuestionMeans) -> list[str] | None:
    """The task types of the questions, where they are of one benchmark that is reported so."""
    benchmarks = {benchmark for benchmark, _ in questions.keys}
    return strata_of(benchmarks.pop(), questions.categories) if len(benchmarks) == 1 else None


def _mean(questions: QuestionMeans, strata: Sequence[str] | None) -> float:
    weights = stratum_weights(strata) if strata else None
    return float(np.average(questions.values, weights=weights))


def _figure_of(estimate: Estimate) -> Figure:
    return Figure(
        ours=100 * estimate.value,
        low=None if estimate.low is None else 100 * estimate.low,
        high=None if estimate.high is None else 100 * estimate.high,
        has_too_few_videos=estimate.low is None,
    )


def _distinct_questions(part: pd.DataFrame) -> int:
    return len(part[["benchmark", "question_id"]].drop_duplicates())
