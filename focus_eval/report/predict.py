"""What accuracy is a model expected to reach from a selection, judging by its answers from other selections?

A question's expected score is its mean score over the runs, adjusted by how much nearer to the evidence the selection
is than those runs were. The error is measured by leaving out whole families of runs: the variants of one method
resemble each other, so leaving out a single one would make the error look too small.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
import pandas as pd

from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import FloatArray
from focus_eval.report.evidence import lengths_text
from focus_eval.report.run import Run
from focus_eval.report.table import Table, TableRow, Value
from focus_eval.report.within import NEAR_RECALL, within_answers

# Named in advance and few: with three families, the best of many sets of measures would be best by chance.
COMBINATIONS: tuple[tuple[str, ...], ...] = (
    (NEAR_RECALL,),
    (NEAR_RECALL, "near_frames"),
    ("nearness",),
    ("nearness", "near_frames"),
)
# Each family left out leaves two, which is the least that a slope can be learned from.
FEWEST_FAMILIES = 3
# How far past the runs' range, as a share of it, a selection may lie: the errors were measured further out.
RANGE_SLACK = 0.1


@dataclass(frozen=True, kw_only=True)
class PredictionError:
    """Distance of expected and true accuracy of known runs, with each family of runs left out in turn.

    Args:
        measures: names of the measures of a selection that the expected accuracy is computed from.
        by_family: mean absolute distance over the runs of each family, in [0, 1], by family.
        root_mean_square: root mean square distance over runs, with equal weight for each family. `predict` makes the
            interval from it.
        one_run: mean absolute distance if only the run itself is left out, with equal weight for each run. It is
            smaller than the error to expect.
    """

    measures: tuple[str, ...]
    by_family: Mapping[str, float]
    root_mean_square: float
    one_run: float

    @property
    def name(self) -> str:
        """Return the names of the measures, joined by " + "."""
        return " + ".join(self.measures)

    @property
    def mean(self) -> float:
        """Return the mean of `by_family`, by which sets of measures are ranked."""
        return float(np.mean(list(self.by_family.values())))


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The accuracy expected from one selection, on the questions that the selection and the logs share.

    Args:
        questions: number of these questions.
        value, low, high: expected accuracy in [0, 1] and its 95 % interval; None if `outside` is not "".
        outside: why no accuracy can be expected, e.g. a K that no run of the logs has; "" if one can.
    """

    questions: int
    value: float | None = None
    low: float | None = None
    high: float | None = None
    outside: str = ""


def prediction_errors(answers: pd.DataFrame) -> list[PredictionError]:
    """Return the error of each set of measures in `COMBINATIONS`, the smallest mean error first.

    Args:
        answers: one line per question and run of one model on one benchmark: columns question_id, run, family, score
            and the measures. Every run has every question (see `common_questions`).

    Raises:
        InvalidInput: fewer than three families.
    """
    families = list(dict.fromkeys(answers["family"]))
    if len(families) < FEWEST_FAMILIES:
        raise InvalidInput(
            f"{len(families)} families of runs ({', '.join(map(str, families))}): an expected accuracy needs answers "
            f"from at least {FEWEST_FAMILIES} kinds of selection, to measure its error by leaving one out"
        )
    return sorted((_error(answers, families, measures) for measures in COMBINATIONS), key=lambda error: error.mean)


def predict(answers: pd.DataFrame, selection: pd.DataFrame, error: PredictionError) -> Prediction:
    """Return the accuracy expected from `selection`, judging by the answers to its questions.

    The interval is the expected accuracy plus and minus t times the root mean square error over families. t has as
    many degrees of freedom as there are families.

    Args:
        answers: as in `prediction_errors`, with the column k.
        selection: a line per question: question_id, k and the measures.
        error: error of the set of measures to use.
    """
    from scipy.special import stdtrit

    shared = selection[selection["question_id"].isin(set(answers["question_id"]))]
    shared_answers = answers[answers["question_id"].isin(set(shared["question_id"]))]
    if shared.empty:
        return Prediction(questions=0, outside="no question in common with the logs")
    outside = _outside(shared_answers, shared, error.measures)
    if outside:
        return Prediction(questions=len(shared), outside=outside)
    value = float(expected_scores(shared_answers, shared, error.measures).mean())
    reach = float(stdtrit(len(error.by_family), 0.975)) * error.root_mean_square
    low, high = max(0.0, value - reach), min(1.0, value + reach)
    return Prediction(questions=len(shared), value=value, low=low, high=high)


def expected_scores(answers: pd.DataFrame, selection: pd.DataFrame, measures: Sequence[str]) -> FloatArray:
    """Return the expected score of each line of `selection`, shape `(n,)`.

    The score is the question's mean score over the runs, plus slope times (measure - the question's mean measure) for
    each of `measures`. The slopes are fitted by least squares to deviations from the question's means, with equal
    weight for each family.
    """
    columns = ["score", *measures]
    question_means = answers.groupby("question_id")[columns].mean()
    moved = answers[columns].to_numpy(dtype=np.float64) - question_means.loc[answers["question_id"]].to_numpy()
    runs_of_family = answers.groupby("family")["run"].transform("nunique").to_numpy(dtype=np.float64)
    weight = 1 / np.sqrt(runs_of_family)
    slopes = np.linalg.lstsq(moved[:, 1:] * weight[:, np.newaxis], moved[:, 0] * weight, rcond=None)[0]
    mean_of = question_means.loc[selection["question_id"]].to_numpy(dtype=np.float64)
    return np.asarray(mean_of[:, 0] + (selection[list(measures)].to_numpy(dtype=np.float64) - mean_of[:, 1:]) @ slopes)


def _error(answers: pd.DataFrame, families: Sequence[str], measures: tuple[str, ...]) -> PredictionError:
    """Return the error of one set of measures, with each of `families` left out in turn."""
    by_family, squares = {}, []
    for family in families:
        distances = _distances(answers, answers["family"] == family, measures)
        by_family[family] = float(np.abs(distances).mean())
        squares.append(float((distances**2).mean()))
    unweighted = answers.assign(family=answers["run"])
    single_distances = [
        _distances(unweighted, answers["run"] == run, measures) for run in dict.fromkeys(answers["run"])
    ]
    return PredictionError(
        measures=measures,
        by_family=by_family,
        root_mean_square=float(np.sqrt(np.mean(squares))),
        one_run=float(np.abs(np.concatenate(single_distances)).mean()),
    )


def _distances(answers: pd.DataFrame, is_left_out: pd.Series, measures: Sequence[str]) -> FloatArray:
    """Return expected minus true accuracy of each run that is left out, shape `(n_runs,)`.

    Args:
        is_left_out: a mask over the lines of `answers`.
    """
    left_out = answers[is_left_out]
    off = expected_scores(answers[~is_left_out], left_out, measures) - left_out["score"].to_numpy(dtype=np.float64)
    return np.asarray(pd.Series(off).groupby(left_out["run"].to_numpy()).mean(), dtype=np.float64)


def _outside(answers: pd.DataFrame, selection: pd.DataFrame, measures: Sequence[str]) -> str:
    """Return why the logs do not cover the selection: its K, or its mean of a measure; "" if they do."""
    ks, k = sorted(set(answers["k"])), int(selection["k"].max())
    if not ks[0] <= k <= ks[-1]:
        return f"K = {k}, the logs have {_range(f'{ks[0]}', f'{ks[-1]}')}"
    for measure in measures:
        of_runs = answers.groupby("run")[measure].mean()
        mean, slack = float(selection[measure].mean()), RANGE_SLACK * float(of_runs.max() - of_runs.min())
        if not of_runs.min() - slack <= mean <= of_runs.max() + slack:
            low, high = (_measure_text(measure, float(end)) for end in (of_runs.min(), of_runs.max()))
            return f"its mean {measure} is {_measure_text(measure, mean)}, the logs have {_range(low, high)}"
    return ""


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _measure_text(measure: str, value: float) -> str:
    return f"{100 * value:.1f} %" if measure.startswith("recall@") else f"{value:.3f}"


def common_questions(answers: pd.DataFrame) -> pd.DataFrame:
    """Return the lines of `answers` whose question every run answered."""
    runs = answers.groupby("question_id")["run"].transform("nunique")
    shared_answers: pd.DataFrame = answers[runs == answers["run"].nunique()]
    return shared_answers


def named_families(answers: pd.DataFrame, patterns: Mapping[str, str]) -> pd.DataFrame:
    """Return `answers` with the column family replaced by the first name in `patterns` whose pattern fits the run.

    A run that no pattern fits keeps its family.

    Args:
        patterns: family name -> pattern of names of runs, as a shell matches files ("*n_scenes*").

    Raises:
        InvalidInput: a pattern that fits no run.
    """
    runs = list(dict.fromkeys(answers["run"]))
    for name, pattern in patterns.items():
        if not any(fnmatchcase(run, pattern) for run in runs):
            raise InvalidInput(f"--family {name}={pattern} fits no run; the runs are {', '.join(runs)}")
    names_by_run = {run: [name for name, pattern in patterns.items() if fnmatchcase(run, pattern)] for run in runs}
    families = [*zip(answers["run"], answers["family"], strict=True)]
    return answers.assign(family=[[*names_by_run[run], sampler][0] for run, sampler in families])


def predict_tables(
    logs: Run, selections: Run, *, families: Mapping[str, str] | None = None, min_seconds: float = 0.0
) -> list[Table]:
    """Return two tables: the accuracy expected from each selection, and the error of each set of measures.

    Args:
        logs: answers of one or more models.
        selections: selections for questions of the same benchmarks, which need no answers.
        families: patterns of `named_families`; None groups the runs by sampler.
        min_seconds: shortest video that counts.

    Raises:
        InvalidInput: a benchmark and model with fewer than three families of runs.
    """
    answers = within_answers(logs, min_seconds=min_seconds)
    frame = selections.selection_frame
    measured = frame[frame[NEAR_RECALL].notna()]
    expected: list[TableRow] = []
    errors: list[TableRow] = []
    for (benchmark, model), part in answers.groupby(["benchmark", "model"], sort=False):
        common = common_questions(named_families(part, families or {}))
        try:
            errors_by_measures = prediction_errors(common)
        except InvalidInput as error:
            raise InvalidInput(
                f"{logs.name}, {model}: {error} (--family NAME=PATTERN says which belong together)"
            ) from error
        errors += _error_rows((str(benchmark), str(model)), errors_by_measures)
        for (label, k), lines in measured[measured["benchmark"] == benchmark].groupby(["label", "k"], sort=False):
            prediction = predict(common, lines, errors_by_measures[0])
            keys = (str(benchmark), str(model), f"{label}, K = {k}")
            shared_answers = common[common["question_id"].isin(lines["question_id"])]
            expected.append(TableRow(keys, tuple(_prediction_values(prediction, shared_answers))))
    lengths = lengths_text(min_seconds)
    return [_expected_table(expected, lengths), _error_table(errors, lengths)]


def _expected_table(rows: Sequence[TableRow], lengths: str) -> Table:
    return Table(
        name="predicted",
        title=f"Expected accuracy (no model was run), {lengths}",
        key_titles=("Benchmark", "Model", "Selection"),
        columns=("Expected", "Questions", "Runs' accuracies", "Why not"),
        rows=tuple(rows),
        notes=(
            "From the model's answers to the same questions under other selections: each question's mean, moved by "
            "how much nearer to the evidence this selection comes. In brackets the 95 % interval: t times the root "
            "mean square error of whole families of runs that were left out.",
            "A selection outside what the logs cover gets no figure: another K, or a mean more than a tenth of the "
            "runs' range past its end.",
        ),
    )


def _error_table(rows: Sequence[TableRow], lengths: str) -> Table:
    return Table(
        name="prediction_error",
        title=f"Error of the expected accuracy (points), {lengths}",
        key_titles=("Benchmark", "Model", "Measures"),
        columns=("Families left out", "By family", "One run left out"),
        rows=tuple(rows),
        notes=(
            "Distance of expected and true accuracy, the mean over families; the first line is used. One run left out: "
            "its variants stay in the logs, which flatters.",
        ),
    )


def _error_rows(keys: tuple[str, str], errors: Sequence[PredictionError]) -> Iterator[TableRow]:
    """Yield a row per error; `keys` are the benchmark and the model."""
    for error in errors:
        by_family = ", ".join(f"{family} {100 * value:.1f}" for family, value in error.by_family.items())
        yield TableRow((*keys, error.name), (Value(ours=100 * error.mean), by_family, Value(ours=100 * error.one_run)))


def _prediction_values(prediction: Prediction, answers: pd.DataFrame) -> Iterator[Value | str]:
    """Yield the cells of one selection: expected accuracy, questions, range of the runs' accuracies, why not."""
    if prediction.value is None or prediction.low is None or prediction.high is None:
        yield Value()
    else:
        yield Value(ours=100 * prediction.value, low=100 * prediction.low, high=100 * prediction.high)
    yield str(prediction.questions)
    of_runs = 100 * answers.groupby("run")["score"].mean()
    yield f"{of_runs.min():.1f} to {of_runs.max():.1f}" if of_runs.size else ""
    yield prediction.outside
