"""What accuracy is a model expected to reach from a selection, judging by its answers from other selections?

A question's expected score is its mean over the runs, moved by how much nearer to the evidence the selection comes
than those runs did. How far that can be wrong is measured by leaving out whole families of runs: the variants of one
method resemble each other, and leaving out one of them alone flatters.
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
    """How far the expected accuracies of known runs were from the true ones, each family left out in turn.

    Args:
        measures: the set that the expectation rests on.
        by_family: mean distance over the family's runs, in [0, 1].
        root_mean_square: over runs, families weighing alike; the interval rests on it.
        one_run: mean distance where just the run itself is left out and all runs weigh alike; it flatters.
    """

    measures: tuple[str, ...]
    by_family: Mapping[str, float]
    root_mean_square: float
    one_run: float

    @property
    def name(self) -> str:
        """Return the measures as text."""
        return " + ".join(self.measures)

    @property
    def mean(self) -> float:
        """Return the mean of the families' errors: what sets of measures are compared by."""
        return float(np.mean(list(self.by_family.values())))


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The accuracy expected from one selection, on the questions that it and the logs share.

    Args:
        value, low, high: with a 95 % interval; None where the selection lies outside what the logs cover.
        outside: why it does; "" where it does not.
    """

    questions: int
    value: float | None = None
    low: float | None = None
    high: float | None = None
    outside: str = ""


def prediction_errors(answers: pd.DataFrame) -> list[PredictionError]:
    """Return the error of each of `COMBINATIONS`, the least first.

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
    """Return the accuracy expected from `selection`.

    The interval is the expected accuracy plus and minus t times the root mean square error between families, with as
    many degrees of freedom as families.

    Args:
        answers: as in `prediction_errors`.
        selection: a line per question: question_id, k and the measures.
    """
    from scipy.special import stdtrit

    shared = selection[selection["question_id"].isin(set(answers["question_id"]))]
    known = answers[answers["question_id"].isin(set(shared["question_id"]))]
    if shared.empty:
        return Prediction(questions=0, outside="no question in common with the logs")
    outside = _outside(known, shared, error.measures)
    if outside:
        return Prediction(questions=len(shared), outside=outside)
    value = float(expected_scores(known, shared, error.measures).mean())
    reach = float(stdtrit(len(error.by_family), 0.975)) * error.root_mean_square
    low, high = max(0.0, value - reach), min(1.0, value + reach)
    return Prediction(questions=len(shared), value=value, low=low, high=high)


def expected_scores(answers: pd.DataFrame, selection: pd.DataFrame, measures: Sequence[str]) -> FloatArray:
    """Return the expected score of each line of `selection`, shape `(n,)`.

    The question's mean score over the runs, plus slope times (measure - the question's mean measure). The slopes are
    least-squares ones of deviations from the question's means, families weighing alike.
    """
    columns = ["score", *measures]
    means = answers.groupby("question_id")[columns].mean()
    moved = answers[columns].to_numpy(dtype=np.float64) - means.loc[answers["question_id"]].to_numpy()
    runs_of_family = answers.groupby("family")["run"].transform("nunique").to_numpy(dtype=np.float64)
    weight = 1 / np.sqrt(runs_of_family)
    slopes = np.linalg.lstsq(moved[:, 1:] * weight[:, np.newaxis], moved[:, 0] * weight, rcond=None)[0]
    mean_of = means.loc[selection["question_id"]].to_numpy(dtype=np.float64)
    return np.asarray(mean_of[:, 0] + (selection[list(measures)].to_numpy(dtype=np.float64) - mean_of[:, 1:]) @ slopes)


def _error(answers: pd.DataFrame, families: Sequence[str], measures: tuple[str, ...]) -> PredictionError:
    by_family, squares = {}, []
    for family in families:
        distances = _distances(answers, answers["family"] == family, measures)
        by_family[family] = float(np.abs(distances).mean())
        squares.append(float((distances**2).mean()))
    unweighted = answers.assign(family=answers["run"])
    alone = [_distances(unweighted, answers["run"] == run, measures) for run in dict.fromkeys(answers["run"])]
    return PredictionError(
        measures=measures,
        by_family=by_family,
        root_mean_square=float(np.sqrt(np.mean(squares))),
        one_run=float(np.abs(np.concatenate(alone)).mean()),
    )


def _distances(answers: pd.DataFrame, is_left_out: pd.Series, measures: Sequence[str]) -> FloatArray:
    """Expected minus true accuracy of each run that is left out, shape `(runs,)`."""
    left_out = answers[is_left_out]
    off = expected_scores(answers[~is_left_out], left_out, measures) - left_out["score"].to_numpy(dtype=np.float64)
    return np.asarray(pd.Series(off).groupby(left_out["run"].to_numpy()).mean(), dtype=np.float64)


def _outside(answers: pd.DataFrame, selection: pd.DataFrame, measures: Sequence[str]) -> str:
    """Say where the selection lies outside of what the logs cover: its K, or the mean of a measure."""
    ks, k = sorted(set(answers["k"])), int(selection["k"].max())
    if not ks[0] <= k <= ks[-1]:
        return f"K = {k}, the logs have {_range(ks[0], ks[-1], 'd')}"
    for measure in measures:
        of_runs = answers.groupby("run")[measure].mean()
        mean, slack = float(selection[measure].mean()), RANGE_SLACK * float(of_runs.max() - of_runs.min())
        if not of_runs.min() - slack <= mean <= of_runs.max() + slack:
            return f"its mean {measure} is {mean:.3f}, the logs have {_range(of_runs.min(), of_runs.max(), '.3f')}"
    return ""


def _range(low: float, high: float, form: str) -> str:
    return f"{low:{form}}" if low == high else f"{low:{form}} to {high:{form}}"


def common_questions(answers: pd.DataFrame) -> pd.DataFrame:
    """Return the lines of the questions that every run answered."""
    runs = answers.groupby("question_id")["run"].transform("nunique")
    kept: pd.DataFrame = answers[runs == answers["run"].nunique()]
    return kept


def named_families(answers: pd.DataFrame, patterns: Mapping[str, str]) -> pd.DataFrame:
    """Return `answers` with the family of each run: the first name whose pattern fits the run, else its sampler.

    Args:
        patterns: name -> pattern of runs' names, as a shell matches files ("*n_scenes*").

    Raises:
        InvalidInput: a pattern that fits no run.
    """
    runs = list(dict.fromkeys(answers["run"]))
    for name, pattern in patterns.items():
        if not any(fnmatchcase(run, pattern) for run in runs):
            raise InvalidInput(f"--family {name}={pattern} fits no run; the runs are {', '.join(runs)}")
    named = {run: [name for name, pattern in patterns.items() if fnmatchcase(run, pattern)] for run in runs}
    families = [*zip(answers["run"], answers["family"], strict=True)]
    return answers.assign(family=[[*named[run], own][0] for run, own in families])


def predict_tables(
    logs: Run, selections: Run, *, families: Mapping[str, str] | None = None, min_seconds: float = 0.0
) -> list[Table]:
    """Return the accuracy expected from each selection, by model of the logs, and the error of each set of measures.

    Args:
        selections: rows of selections of the same benchmark.
        families: see `named_families`.

    Raises:
        InvalidInput: a benchmark and model with fewer than three families of runs.
    """
    answers = within_answers(logs, min_seconds=min_seconds)
    frame = selections.selection_frame
    chosen = frame[frame[NEAR_RECALL].notna()]
    expected: list[TableRow] = []
    errors: list[TableRow] = []
    for (benchmark, model), part in answers.groupby(["benchmark", "model"], sort=False):
        known = common_questions(named_families(part, families or {}))
        try:
            found = prediction_errors(known)
        except InvalidInput as error:
            raise InvalidInput(
                f"{logs.name}, {model}: {error} (--family NAME=PATTERN says which belong together)"
            ) from error
        errors += _error_rows((str(benchmark), str(model)), found)
        for (label, k), lines in chosen[chosen["benchmark"] == benchmark].groupby(["label", "k"], sort=False):
            made = predict(known, lines, found[0])
            keys = (str(benchmark), str(model), f"{label}, K = {k}")
            same = known[known["question_id"].isin(lines["question_id"])]
            expected.append(TableRow(keys, tuple(_prediction_values(made, same))))
    who = lengths_text(min_seconds)
    return [_expected_table(expected, who), _error_table(errors, who)]


def _expected_table(rows: Sequence[TableRow], who: str) -> Table:
    return Table(
        name="predicted",
        title=f"Expected accuracy (no model was run), {who}",
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


def _error_table(rows: Sequence[TableRow], who: str) -> Table:
    return Table(
        name="prediction_error",
        title=f"Error of the expected accuracy (points), {who}",
        key_titles=("Benchmark", "Model", "Measures"),
        columns=("Families left out", "By family", "One run left out"),
        rows=tuple(rows),
        notes=(
            "Distance of expected and true accuracy, the mean over families; the first line is used. One run left out: "
            "its variants stay in the logs, which flatters.",
        ),
    )


def _error_rows(keys: tuple[str, str], errors: Sequence[PredictionError]) -> Iterator[TableRow]:
    for error in errors:
        by_family = ", ".join(f"{family} {100 * value:.1f}" for family, value in error.by_family.items())
        yield TableRow((*keys, error.name), (Value(ours=100 * error.mean), by_family, Value(ours=100 * error.one_run)))


def _prediction_values(made: Prediction, known: pd.DataFrame) -> Iterator[Value | str]:
    if made.value is None or made.low is None or made.high is None:
        yield Value()
    else:
        yield Value(ours=100 * made.value, low=100 * made.low, high=100 * made.high)
    yield str(made.questions)
    of_runs = 100 * known.groupby("run")["score"].mean()
    yield f"{of_runs.min():.1f} to {of_runs.max():.1f}" if of_runs.size else ""
    yield made.outside
