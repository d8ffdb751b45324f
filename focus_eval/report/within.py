"""What does a frame nearer to the evidence add to the same question's answer? Each question is its own control."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from focus_eval.benchmarks.evidence import NEAR_SECONDS, RECALL_SECONDS
from focus_eval.core.errors import InvalidInput, unknown_name
from focus_eval.report.clustered import Coefficient, clustered_fit, deviations, indicators
from focus_eval.report.evidence import evidence_answers, lengths_text
from focus_eval.report.nearness import MEASURES
from focus_eval.report.recall import recall_column
from focus_eval.report.run import Run
from focus_eval.report.table import Table, TableRow, Value

# All that a selection's rows are measured by; those fitted together are one of each kind.
NEAR_RECALL = recall_column(NEAR_SECONDS)
ALL_MEASURES = (*(recall_column(distance) for distance in RECALL_SECONDS), *MEASURES)
TOGETHER = (NEAR_RECALL, *MEASURES)
# Frames within 5 s of the one moment: first and last of each group; the last group has no end.
FRAME_GROUPS = ((0, 0), (1, 1), (2, 3), (4, 7), (8, 15), (16, None))
# A rank correlation over fewer runs says nothing.
FEWEST_RUNS = 5


@dataclass(frozen=True, kw_only=True)
class MeasureEffect:
    """What one measure of a selection adds to the score of the same question.

    Args:
        alone: points of score for one unit of the measure, question and run effects taken out.
        question_only: the same without run effects: what differs between whole runs counts too.
        together: with the other measures of `TOGETHER` (or all that were named) in the fit; None where it is not one.
        correlation: of the deviations of score and measure from the question's means, in [-1, 1].
    """

    measure: str
    alone: Coefficient
    question_only: Coefficient
    together: Coefficient | None
    correlation: float


def measure_effects(
    answers: pd.DataFrame, measures: Sequence[str], *, together: Sequence[str] | None = None
) -> list[MeasureEffect]:
    """Return the effect of each measure within questions, alone and together, clustered by video.

    Each question is compared with itself under the selections of several runs: how hard it is does not matter. Run
    effects take out what a run does to all questions alike.

    Args:
        answers: columns question_id, video, run, score and `measures`; one line per question and run.
        together: the measures of one common fit; by default all.

    Raises:
        InvalidInput: fewer than two runs, a line without a value, or a measure that does not vary within questions.
    """
    lines = _compared_lines(answers, measures)
    common = list(measures if together is None else together)
    fitted = dict(zip(common, within_fit(lines, common), strict=True)) if len(common) > 1 else {}
    effects = []
    for measure in measures:
        group = np.unique(lines["question_id"].to_numpy(dtype=str), return_inverse=True)[1]
        moved = deviations(lines[["score", measure]].to_numpy(dtype=np.float64), group)
        effects.append(
            MeasureEffect(
                measure=measure,
                alone=within_fit(lines, [measure])[0],
                question_only=within_fit(lines, [measure], run_effects=False)[0],
                together=fitted.get(measure),
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
    kept: pd.DataFrame = answers[runs > 1]
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


def within_answers(run: Run, *, min_seconds: float = 0.0) -> pd.DataFrame:
    """Return the answers of `run` with evidence as `measure_effects` takes them, and their columns model and family.

    One line per question and run, the mean over its seeds. A run is a selection at its K; its family is the sampler,
    whatever its options: the variants of one method resemble each other.
    """
    lines = evidence_answers(run, min_seconds=min_seconds)
    lines = lines.assign(run=lines["label"] + ", K = " + lines["k"].astype(str), family=lines["sampler"])
    kept = ["benchmark", "model", "run", "family", "k", "question_id", "video", "bucket", "moments", "score"]
    parts = [
        mean_over_seeds(part[[*kept, *ALL_MEASURES]], ["score", *ALL_MEASURES])
        for _, part in lines.groupby(["benchmark", "model"], sort=False)
    ]
    return pd.concat(parts, ignore_index=True)


def within_tables(run: Run, *, min_seconds: float = 180.0, measures: Sequence[str] = ()) -> list[Table]:
    """Return the effects within questions of each benchmark and model, and answers by the number of near frames.

    Args:
        measures: of `ALL_MEASURES`, alone and all together; by default all, and one of each kind together.

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
    who = lengths_text(min_seconds)
    return [_effect_table(parts, measures, who), *_frame_table(parts, who)]


def _effect_table(parts: Sequence[tuple[tuple[str, ...], pd.DataFrame]], measures: Sequence[str], who: str) -> Table:
    rows, notes = [], []
    for key, part in parts:
        together = measures or TOGETHER
        for effect in measure_effects(part, measures or ALL_MEASURES, together=together):
            rows.append(TableRow((*key, MEASURES.get(effect.measure, effect.measure)), tuple(_effect_values(effect))))
        notes += [_basis(key, part), *_over_runs(key, part)]
    return Table(
        name="evidence_within_questions",
        title=f"What a unit of each measure adds to the same question (points), {who}",
        key_titles=("Benchmark", "Model", "Measure"),
        columns=("Alone", "Together", "Question effects only", "Correlation"),
        rows=tuple(rows),
        notes=(
            "Each question is compared with itself under several runs (question effects); run effects take out what a "
            "run does to all questions alike. In brackets 95 % intervals: t, clustered by video (CR2).",
            "Together: in one fit; what a measure says beyond the others. Correlation: of score and measure, each less "
            "its question's mean. Figures hold for this benchmark and model.",
            *notes,
        ),
    )


def _effect_values(effect: MeasureEffect) -> Iterator[Value]:
    for coefficient in (effect.alone, effect.together, effect.question_only):
        yield Value.of(None if coefficient is None else coefficient.estimate(), is_difference=True)
    yield Value(ours=effect.correlation, digits=3)


def _basis(key: tuple[str, ...], part: pd.DataFrame) -> str:
    families = part.groupby("family")["run"].nunique()
    of = ", ".join(f"{family} {count}" for family, count in families.items())
    return (
        f"{', '.join(key)}: {len(part):,} answers to {part['question_id'].nunique():,} questions on "
        f"{part['video'].nunique():,} videos; runs by sampler: {of}."
    )


def _over_runs(key: tuple[str, ...], part: pd.DataFrame) -> Iterator[str]:
    means = part.groupby("run")[["score", NEAR_RECALL]].mean()
    if len(means) >= FEWEST_RUNS:
        found = means["score"].corr(means[NEAR_RECALL], method="spearman")
        runs = f"rank correlation over {len(means)} runs of accuracy and mean {NEAR_RECALL}"
        yield f"{', '.join(key)}: {runs}: {found:.2f}."


def _frame_table(parts: Sequence[tuple[tuple[str, ...], pd.DataFrame]], who: str) -> list[Table]:
    """Answers by the number of frames near the one moment; none where no question has a single moment."""
    found = [(key, deviation_by_frames(part)) for key, part in parts]
    rows = tuple(
        TableRow((*key, name), (Value(ours=100 * mean, is_difference=True), f"{count:,}"))
        for key, groups in found
        for name, mean, count in groups
    )
    table = Table(
        name="evidence_by_frames",
        title=f"Answers by the number of frames within 5 s of the one moment, {who}",
        key_titles=("Benchmark", "Model", "Frames"),
        columns=("Less the question's mean (points)", "Answers"),
        rows=rows,
        notes=("Questions with one annotated moment: mean score less the question's mean over all runs.",),
    )
    return [table] if rows else []
