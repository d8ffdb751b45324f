"""How much does a frame nearer to the evidence improve the answer to the same question?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from focus_eval.bench.benchmarks.question import NEAR_SECONDS, RECALL_SECONDS
from focus_eval.bench.report.recall import INTERVAL_MEASURES, MEASURES, recall_column
from focus_eval.bench.report.rendering import Table, TableRow, Value
from focus_eval.bench.report.run import Run
from focus_eval.core.errors import InvalidInput, unknown_name
from focus_eval.external.clustered import ClusteredDesign, Coefficient, deviations, indicators
from focus_eval.external.evidence import evidence_answers, lengths_text

# Measures of a selection's rows; a joint fit uses one of each kind.
NEAR_RECALL = recall_column(NEAR_SECONDS)
ALL_MEASURES = (*(recall_column(distance) for distance in RECALL_SECONDS), *MEASURES, *INTERVAL_MEASURES)
JOINT_MEASURES = (NEAR_RECALL, *MEASURES)
# Groups of answers by number of frames within 5 s of the question's moment: smallest and largest number of each group.
# The last group has no largest number.
FRAME_GROUPS = ((0, 0), (1, 1), (2, 3), (4, 7), (8, 15), (16, None))
# Least number of runs for a rank correlation: with fewer, the correlation means nothing.
MIN_RUNS = 5


@dataclass(frozen=True, kw_only=True)
class MeasureEffect:
    """The effect of one measure of a selection on the score of the same question.

    Args:
        separate: change of the score per unit of the measure, in a fit with question and run effects.
        question_only: coefficient in a fit with question effects but no run effects, so differences between runs count.
        joint: the coefficient of the joint fit with other measures; None if the measure is not part of it.
        correlation: correlation of score and measure after subtracting each question's mean, in [-1, 1].
    """

    measure: str
    separate: Coefficient
    question_only: Coefficient
    joint: Coefficient | None
    correlation: float


def measure_effects(
    answers: pd.DataFrame, measures: Sequence[str], *, joint_measures: Sequence[str] | None = None
) -> list[MeasureEffect]:
    """Return the effect of each measure within questions, alone and jointly, with errors clustered by video.

    Each question is compared with itself under the selections of several runs, so its difficulty does not matter. Run
    effects remove the effect of a run that is common to all its questions.

    Args:
        answers: columns question_id, video, run, score and `measures`; one line per question and run.
        joint_measures: measures of the joint fit; None for all.

    Raises:
        InvalidInput: fewer than two runs, a line without a value, or a measure that does not vary within questions.
    """
    lines = _compared_lines(answers, measures)
    common = list(measures if joint_measures is None else joint_measures)
    with_runs, questions_only = _design(lines), _design(lines, run_effects=False)
    joint_fit = dict(zip(common, _fit(with_runs, lines, common), strict=True)) if len(common) > 1 else {}
    group = np.unique(lines["question_id"].to_numpy(dtype=str), return_inverse=True)[1]
    effects = []
    for measure in measures:
        moved = deviations(lines[["score", measure]].to_numpy(dtype=np.float64), group)
        effects.append(
            MeasureEffect(
                measure=measure,
                separate=_fit(with_runs, lines, [measure])[0],
                question_only=_fit(questions_only, lines, [measure])[0],
                joint=joint_fit.get(measure),
                correlation=float(np.corrcoef(moved.T)[0, 1]),
            )
        )
    return effects


def _design(answers: pd.DataFrame, *, run_effects: bool = True) -> ClusteredDesign:
    """The design of all fits of `answers`: an effect per question and, with `run_effects`, per run."""
    controls = indicators(answers["run"].tolist()) if run_effects else None
    return ClusteredDesign(answers["video"].tolist(), groups=answers["question_id"].tolist(), controls=controls)


def _fit(design: ClusteredDesign, answers: pd.DataFrame, measures: Sequence[str]) -> list[Coefficient]:
    """The coefficient of each measure; raises InvalidInput, naming them, if they cannot be told apart."""
    try:
        return design.fit(answers["score"], answers[list(measures)])
    except InvalidInput as error:
        raise InvalidInput(
            f"{', '.join(measures)}: no effect can be told from that of questions and runs: the runs show the same "
            f"frames, or the measures go together ({error})"
        ) from error


def deviation_by_frames(answers: pd.DataFrame) -> list[tuple[str, float, int]]:
    """Return the mean deviation of scores from their question's mean, by number of frames within 5 s of the moment.

    Args:
        answers: as in `measure_effects`, with the columns moments and near_frames; only questions of one moment count.

    Returns:
        For each group with answers its name ("0", "2 to 3", "16 and more"), mean deviation in [-1, 1] and number of
        answers.
    """
    lines = answers[answers["moments"] == 1]
    moved = lines["score"] - lines.groupby("question_id")["score"].transform("mean")
    counts = np.rint(np.expm1(lines["near_frames"].to_numpy(dtype=np.float64)))
    deviations = []
    for first, last in FRAME_GROUPS:
        inside = (counts >= first) & (counts <= (np.inf if last is None else last))
        name = f"{first} and more" if last is None else f"{first}" if first == last else f"{first} to {last}"
        if inside.any():
            deviations.append((name, float(moved[inside].mean()), int(inside.sum())))
    return deviations


def _compared_lines(answers: pd.DataFrame, measures: Sequence[str]) -> pd.DataFrame:
    """The lines of the questions that at least two runs answered; refuses missing values and repeated lines."""
    empty = next((name for name in ("score", *measures) if answers[name].isna().any()), None)
    if empty is not None:
        raise InvalidInput(f"{empty}: not known of every answer; leave out those without evidence first")
    runs = answers.groupby("question_id")["run"].transform("nunique")
    compared: pd.DataFrame = answers[runs > 1]
    if compared.empty:
        raise InvalidInput("effects within questions need two runs with questions in common")
    is_repeated = compared.duplicated(["question_id", "run"])
    if is_repeated.any():
        first = compared[is_repeated].iloc[0]
        raise InvalidInput(f"{first['run']}: question {first['question_id']!r} stands twice; give its mean over seeds")
    return compared


def mean_over_seeds(answers: pd.DataFrame, values: Sequence[str]) -> pd.DataFrame:
    """Return one line per question and run, with the means over seeds of the columns `values`.

    Every other column has the value of the first seed.
    """
    keys = ["run", "question_id"]
    answers = answers.astype(dict.fromkeys(values, np.float64))  # a column of None alone would have dtype object
    if not answers.duplicated(keys).any():
        return answers.reset_index(drop=True)
    first_columns = {name: "first" for name in answers.columns if name not in (*keys, *values)}
    return answers.groupby(keys, sort=False, as_index=False).agg({**first_columns, **dict.fromkeys(values, "mean")})


def within_answers(run: Run, *, min_seconds: float = 0.0) -> pd.DataFrame:
    """Return the answers to questions with evidence in the form of `measure_effects`, with columns model and family.

    Each line holds the means over seeds of one question and run. The column run names a selection and its K, the column
    family the sampler without options.

    Args:
        min_seconds: leave out shorter videos.
    """
    lines = evidence_answers(run, min_seconds=min_seconds)
    lines = lines.assign(run=lines["label"] + ", K = " + lines["k"].astype(str), family=lines["sampler"])
    columns = ["benchmark", "model", "run", "family", "k", "question_id", "video", "bucket", "moments", "score"]
    parts = [
        mean_over_seeds(part[[*columns, *ALL_MEASURES]], ["score", *ALL_MEASURES])
        for _, part in lines.groupby(["benchmark", "model"], sort=False)
    ]
    return pd.concat(parts, ignore_index=True)


def within_tables(run: Run, *, min_seconds: float = 180.0, measures: Sequence[str] = ()) -> list[Table]:
    """Return a table of effects within questions by benchmark and model, and one of scores by number of near frames.

    The second table is left out if no question has a single moment.

    Args:
        min_seconds: leave out shorter videos.
        measures: names in `ALL_MEASURES`; each is fitted alone, then all jointly. If empty, every measure that all rows
            have is fitted alone, and `JOINT_MEASURES` are fitted jointly.

    Raises:
        InvalidInput: an unknown measure, or no model that answered from two selections.
    """
    for name in measures:
        if name not in ALL_MEASURES:
            raise unknown_name("measure", name, ALL_MEASURES)
    answers = within_answers(run, min_seconds=min_seconds)
    parts = [
        (tuple(map(str, key)), part)
        for key, part in answers.groupby(["benchmark", "model"], sort=False)
        if part["run"].nunique() > 1
    ]
    if not parts:
        raise InvalidInput(f"{run.name}: effects within questions need one model's answers from two selections")
    lengths = lengths_text(min_seconds)
    return [_effect_table(parts, measures, lengths), *_frame_table(parts, lengths)]


def _effect_table(
    parts: Sequence[tuple[tuple[str, ...], pd.DataFrame]], measures: Sequence[str], lengths: str
) -> Table:
    """The table of effects within questions, one row per benchmark, model and measure."""
    lines, notes = [], []
    for key, part in parts:
        joint_measures = measures or JOINT_MEASURES
        measured = [name for name in ALL_MEASURES if part[name].notna().all()]
        common = [name for name in joint_measures if name in measured]
        for effect in measure_effects(part, measures or measured, joint_measures=common):
            title = {**MEASURES, **INTERVAL_MEASURES}.get(effect.measure, effect.measure)
            fits = {"Alone": effect.separate, "Together": effect.joint, "Question effects only": effect.question_only}
            estimates = {column: None if fit is None else fit.estimate() for column, fit in fits.items()}
            cells = {column: Value.of(estimate, is_difference=True) for column, estimate in estimates.items()}
            lines.append(((*key, title), {**cells, "Correlation": Value(ours=effect.correlation, digits=3)}))
        notes += [_basis(key, part), *_over_runs(key, part)]
    return Table.of(
        lines,
        name="evidence_within_questions",
        title=f"What a unit of each measure adds to the same question (points), {lengths}",
        key_titles=("Benchmark", "Model", "Measure"),
        notes=(
            "Each question is compared with itself under several runs (question effects); run effects take out what a "
            "run does to all questions alike. In brackets 95 % intervals: t, clustered by video (CR2).",
            "Together: in one fit; what a measure says beyond the others. Correlation: of score and measure, each less "
            "its question's mean. Figures hold for this benchmark and model.",
            *notes,
        ),
    )


def _basis(key: tuple[str, ...], part: pd.DataFrame) -> str:
    """A note on the numbers of answers, questions, videos and runs of a benchmark and model."""
    families = part.groupby("family")["run"].nunique()
    of = ", ".join(f"{family} {count}" for family, count in families.items())
    return (
        f"{', '.join(key)}: {len(part):,} answers to {part['question_id'].nunique():,} questions on "
        f"{part['video'].nunique():,} videos; runs by sampler: {of}."
    )


def _over_runs(key: tuple[str, ...], part: pd.DataFrame) -> Iterator[str]:
    """Yield a note on the correlation of accuracy and recall over runs; none with fewer than 5 runs."""
    means_by_run = part.groupby("run")[["score", NEAR_RECALL]].mean()
    if len(means_by_run) >= MIN_RUNS:
        correlation = means_by_run["score"].corr(means_by_run[NEAR_RECALL], method="spearman")
        runs = f"rank correlation over {len(means_by_run)} runs of accuracy and mean {NEAR_RECALL}"
        yield f"{', '.join(key)}: {runs}: {correlation:.2f}."


def _frame_table(parts: Sequence[tuple[tuple[str, ...], pd.DataFrame]], lengths: str) -> list[Table]:
    """The table of scores by number of near frames; [] if no question has a single moment."""
    deviations = [(key, deviation_by_frames(part)) for key, part in parts]
    rows = tuple(
        TableRow((*key, name), (Value(ours=100 * mean, is_difference=True), f"{count:,}"))
        for key, groups in deviations
        for name, mean, count in groups
    )
    table = Table(
        name="evidence_by_frames",
        title=f"Answers by the number of frames within 5 s of the one moment, {lengths}",
        key_titles=("Benchmark", "Model", "Frames"),
        columns=("Less the question's mean (points)", "Answers"),
        rows=rows,
        notes=("Questions with one annotated moment: mean score less the question's mean over all runs.",),
    )
    return [table] if rows else []
