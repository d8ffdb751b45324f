"""Tables of differences between two samplers, or two runs, on the same questions: accuracy and evidence recall."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from focus_eval.benchmarks.evidence import RECALL_SECONDS
from focus_eval.core.errors import InvalidInput, unknown_name
from focus_eval.report.measures import QuestionMeans, paired, question_means
from focus_eval.report.power import Discordance, more_videos_text, seen_discordance
from focus_eval.report.recall import recall_column
from focus_eval.report.run import Run, sampler_order
from focus_eval.report.statistics import PairedComparison, compare_paired
from focus_eval.report.table import TOO_FEW_NOTE, Cells, Table, Value, difference_table

BASELINES = ("uniform", "uniform_1fps")
TABLE_NAMES = ("against_baseline", "recall_against_baseline", "recall_pairs", "comparison")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two series of a comparison on the questions both answered; `where` says of which benchmark, model and K."""

    where: tuple[str, ...]
    a: str
    b: str
    compared: PairedComparison
    is_over_types: bool = False


def baseline_table(run: Run, *, baseline: str | None = None) -> Table | None:
    """Return the accuracy of every sampler of `run` against its baseline, per benchmark, model and K.

    Args:
        baseline: a sampler's name, or its label in the tables; uniform where the run has it.

    Returns:
        None where the run has no answers, or no baseline and none was named.

    Raises:
        UnknownName: no sampler of the run is called `baseline`.
    """
    if not run.answers:
        return None
    pairs = []
    for where, part, first, others in _against(run.answer_frame, ["benchmark", "model", "k"], run, baseline):
        pairs += _pairs(part, "score", [(first, other) for other in others if first], where)
    return comparison_table(pairs, name="against_baseline", title="Samplers on the same questions") if pairs else None


def not_compared(run: Run, *, baseline: str | None = None) -> tuple[str, ...]:
    """Return notes on the samplers that `baseline_table` leaves out: without a baseline, or without common questions.

    Raises:
        UnknownName: no sampler of the run is called `baseline`.
    """
    without: list[str] = []
    apart: list[str] = []
    for where, part, first, others in _against(run.answer_frame, ["benchmark", "model", "k"], run, baseline):
        place = f"{where[0]}, {where[1]}, K {where[2]}"
        if not first:
            without += [place] if len(others) > 1 else []
            continue
        asked = {label: set(question_means(rows, "score").keys) for label, rows in part.groupby("label")}
        alone = [label for label in others if not asked[first] & asked[label]]
        apart += [f"{', '.join(alone)} ({place})"] if alone else []
    notes = []
    if without:
        name = baseline or BASELINES[0]
        notes.append(f"Not compared, because {name} was not run: {'; '.join(without)}. --baseline names another.")
    if apart:
        notes.append(f"Not compared, because no question has a score of it and of the baseline: {'; '.join(apart)}.")
    return tuple(notes)


def recall_tables(run: Run, *, baseline: str | None = None) -> list[Table]:
    """Return paired evidence recall: every sampler against the baseline, and all other pairs of samplers.

    One line per benchmark, K and distance. Selections only: a difference of recall shows before any model answers.

    Raises:
        UnknownName: no sampler of the run is called `baseline`.
    """
    against: list[Pair] = []
    between: list[Pair] = []
    for place, part, first, others in _against(run.selection_frame, ["benchmark", "k"], run, baseline):
        for distance in RECALL_SECONDS:
            column, where = recall_column(distance), (*place, f"{distance:g} s")
            against += _pairs(part, column, [(first, label) for label in others if first], where)
            between += _pairs(part, column, list(itertools.combinations(others, 2)), where)
    made = []
    for pairs, name, title in (
        (against, "recall_against_baseline", "Evidence recall on the same questions"),
        (between, "recall_pairs", "Evidence recall, every other two samplers"),
    ):
        if pairs:
            made.append(comparison_table(pairs, name=name, title=title, keys=("Benchmark", "K", "Within"), of="recall"))
    return made


def run_comparison(a: Run, b: Run) -> Table:
    """Return how the answers of run `b` differ from those of run `a`, cell by cell, on the same questions.

    Cells are matched by benchmark, model, K and sampler; where each run has one cell of a benchmark, these two are
    compared whatever they are.

    Raises:
        InvalidInput: no question answered in both.
    """
    keys = ["benchmark", "model", "k", "label"]
    if not a.answers or not b.answers:
        raise InvalidInput(f"{a.name if not a.answers else b.name}: has no answers to compare")
    cells_a, cells_b = (
        {tuple(map(str, where)): part for where, part in run.answer_frame.groupby(keys, sort=False)} for run in (a, b)
    )
    matched = [(where, where) for where in cells_a if where in cells_b]
    if not matched and len(cells_a) == len(cells_b) == 1:
        matched = [(where, other) for where in cells_a for other in cells_b if where[0] == other[0]]
    pairs = []
    for item, other in matched:
        part_a, part_b = cells_a[item], cells_b[other]
        name_a, name_b = _names(part_a, part_b)
        pair = _pair(question_means(part_a, "score"), question_means(part_b, "score"), name_a, name_b, item[:3])
        pairs += [pair] if pair else []
    if not pairs:
        raise InvalidInput(f"{a.name} and {b.name} have no cell and question in common")
    title = f"{b.name} against {a.name} on the same questions"
    table = comparison_table(pairs, name="comparison", title=title)
    asked = [line for item, other in matched for line in _asked_otherwise(a, cells_a[item], b, cells_b[other])]
    return replace(table, notes=(*table.notes, *dict.fromkeys(asked)))


def _asked_otherwise(a: Run, part_a: pd.DataFrame, b: Run, part_b: pd.DataFrame) -> Iterator[str]:
    """Say where what a model was sent first differs between two cells in more than the question."""
    first, second = (run.prompts.get(part["cell"].iloc[0], {}) for run, part in ((a, part_a), (b, part_b)))
    if not first or not second:
        return
    # Texts of different questions differ anyway.
    skipped = {"question_id"} | ({"text"} if first["question_id"] != second["question_id"] else set())
    for name in [name for name in {**first, **second} if name not in skipped]:
        if first.get(name) != second.get(name):
            said = f"{a.name} {_short(name, first, second)}; {b.name} {_short(name, second, first)}"
            yield f"{part_a['model'].iloc[0]} was asked otherwise, {name}: {said}."


def _short(name: str, record: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return the value of a field of a prompt's record; of a mapping what differs from `other`'s, of a text its end."""
    value = record.get(name, "nothing")
    if isinstance(value, Mapping):
        theirs = other.get(name) or {}
        value = {key: item for key, item in value.items() if theirs.get(key) != item}
    return repr(value[-120:]) if name == "text" else str(value)


def run_discordance(run: Run) -> Discordance:
    """Return how far the answers of two samplers of `run` differ: the medians over its pairs of samplers.

    Raises:
        InvalidInput: no two samplers that answered the same questions differently.
    """
    found = []
    for _, part in run.answer_frame.groupby(["benchmark", "model", "k"]) if run.answers else ():
        means = {label: question_means(rows, "score") for label, rows in part.groupby("label")}
        for a, b in itertools.combinations(means.values(), 2):
            first, second = paired(a, b)
            seen = seen_discordance(second.values - first.values, first.videos) if first.keys else None
            found += [seen] if seen is not None else []
    if not found:
        raise InvalidInput(f"{run.name}: no two samplers whose answers differ; state a share (--discordance 0.2)")
    return Discordance(
        share=float(np.median([seen.share for seen in found])),
        video_correlation=float(np.median([seen.video_correlation for seen in found])),
        source=f"{len(found)} pairs of samplers in {run.name}",
    )


def comparison_table(
    pairs: Sequence[Pair],
    *,
    name: str,
    title: str,
    keys: Sequence[str] = ("Benchmark", "Model", "K"),
    of: str = "accuracy",
) -> Table:
    """Return the table of `pairs`, p-values adjusted over all of them by Holm's method; `of` names what differs."""
    has_mcnemar = of == "accuracy" and any(pair.compared.mcnemar is not None for pair in pairs)
    last = ("McNemar p", "Detectable") if has_mcnemar else ("Detectable",)
    return difference_table(
        [((*pair.where, pair.a, pair.b), _cells(pair.compared)) for pair in pairs],
        name=name,
        title=title,
        key_titles=(*keys, "A", "B"),
        columns=("B − A (points)", "Questions", "Better A / B", "p", "p (Holm)", *last),
        notes=tuple(_notes(pairs, of, has_mcnemar)),
    )


def baseline_labels(run: Run, baseline: str | None) -> tuple[str, ...]:
    """Return the labels of `run` that a baseline may have, the preferred ones first.

    Raises:
        UnknownName: `baseline` is given and no sampler of the run has it as name or label.
    """
    if baseline is None:
        return BASELINES
    frame = run.selection_frame
    samplers = {} if frame.empty else dict(zip(frame["label"], frame["sampler"], strict=True))
    named = [label for label, sampler in samplers.items() if baseline in (label, sampler)]
    if not named:
        raise unknown_name("baseline", baseline, sorted({*samplers, *samplers.values()}))
    return tuple(sorted(named, key=sampler_order))


def _against(
    frame: pd.DataFrame, keys: list[str], run: Run, baseline: str | None
) -> Iterator[tuple[tuple[str, ...], pd.DataFrame, str, list[str]]]:
    """Yield each group of lines with the label of its baseline, "" where it has none, and all other labels in order."""
    wanted = baseline_labels(run, baseline)
    for where, part in () if frame.empty else frame.groupby(keys):
        labels = set(part["label"])
        first = next((name for name in wanted if name in labels), "")
        yield tuple(map(str, where)), part, first, sorted(labels - {first}, key=sampler_order)


def _cells(compared: PairedComparison) -> Cells:
    return {
        "B − A (points)": compared,
        "Questions": str(compared.difference.questions),
        "Better A / B": f"{compared.better_a} / {compared.better_b}",
        "McNemar p": Value.of_p(compared.mcnemar),
        "Detectable": Value() if compared.detectable is None else Value(ours=100 * compared.detectable),
    }


def _notes(pairs: Sequence[Pair], of: str, has_mcnemar: bool) -> Iterable[str]:
    yield (
        f"B − A: difference of {of} in points on the questions both have, each question its mean over seeds; 95 % "
        "interval: sign flips over videos."
    )
    over_types = sorted({pair.where[0] for pair in pairs if pair.is_over_types})
    if over_types:
        yield f"{' and '.join(over_types)}: the difference of the means over task types."
    if has_mcnemar:
        yield "McNemar p: where every score is 0 or 1 from one seed; it takes questions of one video for independent."
    yield "Better A / B: questions on which that sampler has the higher score, undivided."
    yield (
        "Detectable: minimum detectable difference (80 % power) in points, from the spread over videos seen here, "
        "before Holm."
    )
    shown = [pair.compared for pair in pairs if pair.compared.detectable is not None]
    worst = max(shown, key=lambda compared: compared.detectable or 0.0, default=None)
    if worst is not None and worst.detectable is not None:
        more = more_videos_text(worst.detectable, worst.difference.videos)
        yield f"Power (80 %): in the line with the largest spread, {more}."
    if any(pair.compared.difference.low is None for pair in pairs):
        yield TOO_FEW_NOTE


def _pairs(part: pd.DataFrame, column: str, names: Sequence[tuple[str, str]], where: tuple[str, ...]) -> list[Pair]:
    means = {label: question_means(rows, column) for label, rows in part.groupby("label")}
    found = (_pair(means[a], means[b], a, b, where) for a, b in names)
    return [pair for pair in found if pair is not None]


def _pair(a: QuestionMeans, b: QuestionMeans, name_a: str, name_b: str, where: tuple[str, ...]) -> Pair | None:
    """The comparison on the questions that both have; None where there is none."""
    first, second = paired(a, b)
    if not first.keys:
        return None
    seeds = max(a.seeds, b.seeds)
    compared = compare_paired(first.values, second.values, first.videos, strata=first.strata, seeds=seeds)
    return Pair(where=where, a=name_a, b=name_b, compared=compared, is_over_types=first.strata is not None)


def _names(a: pd.DataFrame, b: pd.DataFrame) -> list[str]:
    """The labels of two cells, with their encoders where these differ: within each run there may be but one."""
    labels = [str(part["label"].iloc[0]) for part in (a, b)]
    encoders = [str(part["encoder"].iloc[0]) for part in (a, b)]
    if encoders[0] == encoders[1]:
        return labels
    named = zip(labels, encoders, strict=True)
    return [f"{label} ({item})" if item and f"({item})" not in label else label for label, item in named]
