"""What accuracy is a model expected to reach from a selection, judging by its answers from other selections?

A question's expected score is its mean score over the runs, adjusted by how much nearer to the evidence the selection
is than those runs were. The error is measured by leaving out whole families of runs: the variants of one method
resemble each other, so leaving out a single one would make the error look too small. Without three families, or if
nobody says which runs are of one family, there is no error, and an expected accuracy has no interval.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
import pandas as pd

from focus_eval.bench.report.rendering import Table, TableRow, Value
from focus_eval.bench.report.run import Run
from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import FloatArray, IntArray
from focus_eval.external.evidence import lengths_text
from focus_eval.external.within import NEAR_RECALL, within_answers

# Named in advance and few: with three families, the best of many sets of measures would be best by chance.
COMBINATIONS: tuple[tuple[str, ...], ...] = (
    (NEAR_RECALL,),
    (NEAR_RECALL, "near_frames"),
    ("nearness",),
    ("nearness", "near_frames"),
)
# Used where no error between families can be measured; the set with the least error in research/docs/field.md.
DEFAULT_MEASURES = COMBINATIONS[1]
# Each family left out leaves two, which is the least that a slope can be learned from.
MIN_FAMILIES = 3
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
        value, low, high: expected accuracy in [0, 1] and its 95 % interval; None if `outside` is not "". Without an
            error between families the ends are None.
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
    if len(families) < MIN_FAMILIES:
        raise InvalidInput(
            f"{len(families)} families of runs ({', '.join(map(str, families))}): the error of an expected accuracy "
            f"needs answers from at least {MIN_FAMILIES} kinds of selection, to leave one out"
        )
    every_measure = list(dict.fromkeys(itertools.chain(*COMBINATIONS)))
    cube, family_of_run, _ = _cube(answers, every_measure)
    errors = []
    for measures in COMBINATIONS:
        places = [0, *(1 + every_measure.index(measure) for measure in measures)]
        errors.append(_error(cube[:, places], family_of_run, families, measures))
    return sorted(errors, key=lambda error: error.mean)


def predict(answers: pd.DataFrame, selection: pd.DataFrame, error: PredictionError | None) -> Prediction:
    """Return the accuracy expected from `selection`, judging by the answers to its questions.

    The interval is the expected accuracy plus and minus t times the root mean square error over families. t has one
    degree of freedom less than there are families: if families differed by independent normal errors, the errors of n
    families left out in turn would have as many as their deviations from a mean.

    Args:
        answers: as in `prediction_errors`, with the column k.
        selection: a line per question: question_id, k and the measures.
        error: error of the set of measures to use; None for `DEFAULT_MEASURES` and no interval.
    """
    from scipy.special import stdtrit

    measures = DEFAULT_MEASURES if error is None else error.measures
    shared = selection[selection["question_id"].isin(set(answers["question_id"]))]
    shared_answers = answers[answers["question_id"].isin(set(shared["question_id"]))]
    if shared.empty:
        return Prediction(questions=0, outside="no question in common with the logs")
    outside = _outside(shared_answers, shared, measures)
    if outside:
        return Prediction(questions=len(shared), outside=outside)
    value = float(expected_scores(shared_answers, shared, measures).mean())
    if error is None:
        return Prediction(questions=len(shared), value=value)
    reach = float(stdtrit(len(error.by_family) - 1, 0.975)) * error.root_mean_square
    low, high = max(0.0, value - reach), min(1.0, value + reach)
    return Prediction(questions=len(shared), value=value, low=low, high=high)


def expected_scores(answers: pd.DataFrame, selection: pd.DataFrame, measures: Sequence[str]) -> FloatArray:
    """Return the expected score of each line of `selection`, shape `(n,)`.

    The score is the question's mean score over the runs, plus slope times (measure - the question's mean measure) for
    each of `measures`. The slopes are fitted by least squares to deviations from the question's means, with equal
    weight for each family.
    """
    cube, families, questions = _cube(answers, measures)
    places = questions.get_indexer(pd.Index(selection["question_id"]))
    return _expected(cube, families, selection[list(measures)].to_numpy(dtype=np.float64).T, places)


def _cube(answers: pd.DataFrame, measures: Sequence[str]) -> tuple[FloatArray, IntArray, pd.Index]:
    """Return the score and `measures` of each run and question, the number of each run's family, and the questions.

    The first is of shape `(n_runs, 1 + n_measures, n_questions)`, the second `(n_runs,)`.
    """
    columns = ["score", *measures]
    wide = answers.pivot(index="run", columns="question_id", values=columns)
    family_of = answers.drop_duplicates("run").set_index("run")["family"].loc[wide.index]
    cube = wide.to_numpy(dtype=np.float64).reshape(len(wide), len(columns), -1)
    return cube, np.unique(family_of.astype(str), return_inverse=True)[1], wide["score"].columns


def _expected(cube: FloatArray, families: IntArray, values: FloatArray, places: IntArray | slice) -> FloatArray:
    """Return the expected scores of selections, shape `(..., n)`, from the answers in `cube` (see `_cube`).

    Args:
        values: measures of the selections, shape `(..., n_measures, n)`.
        places: question of each of the `n`, as a place in the cube.
    """
    means = cube.mean(axis=0)
    moved = (cube - means) / np.sqrt(np.bincount(families)[families])[:, np.newaxis, np.newaxis]
    products = np.tensordot(moved, moved, axes=([0, 2], [0, 2]))
    # The runs may show a measure alike, or two measures go together: the smallest of the equally good slopes.
    slopes = np.linalg.pinv(products[1:, 1:], rcond=1e-10, hermitian=True) @ products[1:, 0]
    return np.asarray(means[0, places] + np.einsum("m,...mn->...n", slopes, values - means[1:, places]))


def _error(
    cube: FloatArray, family_of_run: IntArray, families: Sequence[str], measures: tuple[str, ...]
) -> PredictionError:
    """Return the error of one set of measures, which `cube` holds, with each of `families` left out in turn."""
    distances = [_distances(cube, family_of_run, family_of_run == number) for number in range(len(families))]
    every_run = np.arange(len(cube))
    single_distances = [_distances(cube, every_run, every_run == run) for run in every_run]
    by_family = dict(zip(sorted(families), (float(np.abs(part).mean()) for part in distances), strict=True))
    return PredictionError(
        measures=measures,
        by_family={family: by_family[family] for family in families},
        root_mean_square=float(np.sqrt(np.mean([float((part**2).mean()) for part in distances]))),
        one_run=float(np.abs(np.concatenate(single_distances)).mean()),
    )


def _distances(cube: FloatArray, families: IntArray, is_left_out: np.ndarray) -> FloatArray:
    """Return expected minus true accuracy of each run that is left out, shape `(n_left_out,)`.

    Args:
        is_left_out: a mask over the runs of `cube`.
    """
    left_out = cube[is_left_out]
    kept_families = np.unique(families[~is_left_out], return_inverse=True)[1]
    expected = _expected(cube[~is_left_out], kept_families, left_out[:, 1:], slice(None))
    return np.asarray((expected - left_out[:, 0]).mean(axis=1))


def _outside(answers: pd.DataFrame, selection: pd.DataFrame, measures: Sequence[str]) -> str:
    """Return why the logs do not cover the selection (its K or a mean measure lies outside theirs); "" if they do."""
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
    """Return "low to high", or one text if both are equal."""
    return low if low == high else f"{low} to {high}"


def _measure_text(measure: str, value: float) -> str:
    """Return a measure's value as text: recall in percent, others with three decimals."""
    return f"{100 * value:.1f} %" if measure.startswith("recall@") else f"{value:.3f}"


def common_questions(answers: pd.DataFrame) -> pd.DataFrame:
    """Return the lines of `answers` whose question every run answered."""
    runs = answers.groupby("question_id")["run"].transform("nunique")
    shared_answers: pd.DataFrame = answers[runs == answers["run"].nunique()]
    return shared_answers


def named_families(answers: pd.DataFrame, patterns: Mapping[str, str]) -> pd.DataFrame:
    """Return `answers` with column family set to the name in `patterns` that fits the run; others keep theirs.

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
        families: patterns of `named_families`. If empty, nobody said which runs are of one family: no interval.
        min_seconds: shortest video that counts.

    Raises:
        InvalidInput: a benchmark and model with a single run.
    """
    answers = within_answers(logs, min_seconds=min_seconds)
    frame = selections.selection_frame
    measured = frame[frame[NEAR_RECALL].notna()]
    expected: list[TableRow] = []
    errors: list[TableRow] = []
    notes: list[str] = []
    for (benchmark, model), part in answers.groupby(["benchmark", "model"], sort=False):
        common = common_questions(named_families(part, families or {}))
        if common["run"].nunique() < 2:
            raise InvalidInput(f"{logs.name}, {model}: an expected accuracy needs answers from two selections")
        n_families = common["family"].nunique()
        notes.append(f"{model}: {_interval_note(n_families, bool(families))}")
        has_error = bool(families) and n_families >= MIN_FAMILIES
        errors_by_measures = prediction_errors(common) if has_error else []
        for error in errors_by_measures:
            by_family = ", ".join(f"{family} {100 * value:.1f}" for family, value in error.by_family.items())
            figures = (Value(ours=100 * error.mean), by_family, Value(ours=100 * error.one_run))
            errors.append(TableRow((str(benchmark), str(model), error.name), figures))
        for (label, k), lines in measured[measured["benchmark"] == benchmark].groupby(["label", "k"], sort=False):
            prediction = predict(common, lines, errors_by_measures[0] if errors_by_measures else None)
            keys = (str(benchmark), str(model), f"{label}, K = {k}")
            shared_answers = common[common["question_id"].isin(lines["question_id"])]
            expected.append(TableRow(keys, tuple(_prediction_values(prediction, shared_answers))))
    lengths = lengths_text(min_seconds)
    return [_expected_table(expected, lengths, notes), *([_error_table(errors, lengths)] if errors else [])]


def _interval_note(n_families: int, has_families: bool) -> str:
    """Return a sentence on what the interval rests on, or why there is none."""
    if not has_families:
        return (
            "no interval, because nothing says which runs are variants of one method (--family NAME=PATTERN; a run "
            "that no pattern fits is a family of its own)."
        )
    if n_families < MIN_FAMILIES:
        families = "one family" if n_families == 1 else f"{n_families} families"
        return f"no interval, because {families} of runs cannot show how far a further one may be off."
    if n_families == MIN_FAMILIES:
        return "the interval rests on three families: take it as a convention, not as a measured chance of 95 %."
    return f"the interval rests on {n_families} families."


def _expected_table(rows: Sequence[TableRow], lengths: str, interval_notes: Sequence[str]) -> Table:
    """Return the table of expected accuracies; `lengths` is a phrase on the videos for the title."""
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
            *interval_notes,
            "A selection outside what the logs cover gets no figure: another K, or a mean more than a tenth of the "
            "runs' range past its end.",
        ),
    )


def _error_table(rows: Sequence[TableRow], lengths: str) -> Table:
    """Return the table of prediction errors in points; `lengths` is a phrase on the videos for the title."""
    return Table(
        name="prediction_error",
        title=f"Error of the expected accuracy (points), {lengths}",
        key_titles=("Benchmark", "Model", "Measures"),
        columns=("Families left out", "By family", "One run left out"),
        rows=tuple(rows),
        notes=(
            "Distance of expected and true accuracy, the mean over families; the first line is used. One run left out: "
            "its variants stay in the logs, which makes its error look smaller.",
        ),
    )


def _prediction_values(prediction: Prediction, answers: pd.DataFrame) -> Iterator[Value | str]:
    """Yield the cells of one selection: expected accuracy, questions, range of the runs' accuracies, why not."""
    figures = (prediction.value, prediction.low, prediction.high)
    value, low, high = (None if share is None else 100 * share for share in figures)
    yield Value(ours=value, low=low, high=high)
    yield str(prediction.questions)
    of_runs = 100 * answers.groupby("run")["score"].mean()
    yield f"{of_runs.min():.1f} to {of_runs.max():.1f}" if of_runs.size else ""
    yield prediction.outside
