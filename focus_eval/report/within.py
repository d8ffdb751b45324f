"""Does evidence in view cause right answers? Estimates that hold the question fixed, or its kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import FloatArray
from focus_eval.report.clustered import Coefficient, clustered_fit, deviations, indicators

# Frames within 5 s of the one moment: first and last of each group; the last group has no end.
FRAME_GROUPS = ((0, 0), (1, 1), (2, 3), (4, 7), (8, 15), (16, None))


@dataclass(frozen=True, kw_only=True)
class MeasureEffect:
    """What one measure of a selection adds to the score of the same question.

    Args:
        alone: points of score for one unit of the measure, question and run effects taken out.
        question_only: the same without run effects: what differs between whole runs counts too.
        together: with all the other measures in the fit; None where there is one measure.
        correlation: of the deviations of score and measure from the question's means, in [-1, 1].
    """

    measure: str
    alone: Coefficient
    question_only: Coefficient
    together: Coefficient | None
    correlation: float


def measure_effects(answers: pd.DataFrame, measures: Sequence[str]) -> list[MeasureEffect]:
    """Return the effect of each measure within questions, alone and together, clustered by video.

    Each question is compared with itself under the selections of several runs: how hard it is does not matter. Run
    effects take out what a run does to all questions alike.

    Args:
        answers: columns question_id, video, run, score and `measures`; one line per question and run.

    Raises:
        InvalidInput: fewer than two runs, a line without a value, or a measure that does not vary within questions.
    """
    lines = _compared_lines(answers, measures)
    together = within_fit(lines, measures) if len(measures) > 1 else [None]
    effects = []
    for measure, coefficient in zip(measures, together, strict=True):
        group = np.unique(lines["question_id"].to_numpy(dtype=str), return_inverse=True)[1]
        moved = deviations(lines[["score", measure]].to_numpy(dtype=np.float64), group)
        effects.append(
            MeasureEffect(
                measure=measure,
                alone=within_fit(lines, [measure])[0],
                question_only=within_fit(lines, [measure], run_effects=False)[0],
                together=coefficient,
                correlation=float(np.corrcoef(moved.T)[0, 1]),
            )
        )
    return effects


def within_fit(answers: pd.DataFrame, measures: Sequence[str], *, run_effects: bool = True) -> list[Coefficient]:
    """Return the coefficient of each measure in one fit with question effects, and run effects unless told otherwise.

    Raises:
        InvalidInput: a measure that does not vary within questions, or that the others determine.
    """
    columns = answers[list(measures)].to_numpy(dtype=np.float64)
    if run_effects:
        columns = np.column_stack([columns, indicators(answers["run"].tolist())])
    try:
        fitted = clustered_fit(
            answers["score"].to_numpy(dtype=np.float64),
            columns,
            answers["video"].tolist(),
            absorbed=answers["question_id"].tolist(),
        )
    except InvalidInput as error:
        raise InvalidInput(
            f"{', '.join(measures)}: no effect can be told from that of questions and runs: the runs show the same "
            f"frames, or the measures go together ({error})"
        ) from error
    return fitted[: len(measures)]


def deviation_by_frames(answers: pd.DataFrame) -> list[tuple[str, float, int]]:
    """Return how far answers are from their question's mean, by the number of frames within 5 s of its moment.

    Args:
        answers: as in `measure_effects`, with the columns moments and near_frames; questions of one moment count.

    Returns:
        Name of the group ("0", "2 to 3", "16 and more"), mean deviation in [-1, 1], answers; groups with answers.
    """
    lines = answers[answers["moments"] == 1]
    moved = lines["score"] - lines.groupby("question_id")["score"].transform("mean")
    counts = np.rint(np.expm1(lines["near_frames"].to_numpy(dtype=np.float64)))
    found = []
    for first, last in FRAME_GROUPS:
        inside = (counts >= first) & (counts <= (np.inf if last is None else last))
        name = f"{first} and more" if last is None else f"{first}" if first == last else f"{first} to {last}"
        if inside.any():
            found.append((name, float(moved[inside].mean()), int(inside.sum())))
    return found


def _compared_lines(answers: pd.DataFrame, measures: Sequence[str]) -> pd.DataFrame:
    """Lines of the questions that at least two runs answered."""
    empty = next((name for name in ("score", *measures) if answers[name].isna().any()), None)
    if empty is not None:
        raise InvalidInput(f"{empty}: not known of every answer; leave out those without evidence first")
    runs = answers.groupby("question_id")["run"].transform("nunique")
    kept = answers[runs > 1]
    if kept.empty:
        raise InvalidInput("effects within questions need two runs with questions in common")
    twice = kept.duplicated(["question_id", "run"])
    if twice.any():
        first = kept[twice].iloc[0]
        raise InvalidInput(f"{first['run']}: question {first['question_id']!r} stands twice; give its mean over seeds")
    return kept


def mean_over_seeds(answers: pd.DataFrame, values: Sequence[str]) -> pd.DataFrame:
    """Return one line per question and run: `values` are means over its seeds, the other columns its first line's."""
    keys = ["run", "question_id"]
    others = {name: "first" for name in answers.columns if name not in (*keys, *values)}
    return answers.groupby(keys, sort=False, as_index=False).agg({**others, **dict.fromkeys(values, "mean")})


def rank_correlation(a: FloatArray, b: FloatArray) -> float:
    """Return Spearman's rank correlation."""
    from scipy.stats import spearmanr

    return float(spearmanr(a, b).statistic)
