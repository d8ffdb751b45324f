"""Tables of differences between two samplers, or two runs, on the same questions: accuracy and evidence recall."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from focus_eval.bench.benchmarks.question import RECALL_SECONDS
from focus_eval.bench.report.measures import (
    QuestionMeans,
    group_means,
    grouped_answers,
    paired,
    question_means,
    unnamed_video_notes,
)
from focus_eval.bench.report.power import more_videos_text
from focus_eval.bench.report.recall import recall_column
from focus_eval.bench.report.rendering import TOO_FEW_NOTE, Cells, Table, Value, difference_table
from focus_eval.bench.report.run import Run, sampler_order
from focus_eval.bench.report.statistics import PairedComparison, compare_paired, equivalence_p, holm
from focus_eval.core.errors import InvalidInput, unknown_name
from focus_eval.keyframes.rows.identity import Matches, QuestionKey, match_questions, with_answer

BASELINES = ("uniform", "uniform_1fps")
# The third name was used by an earlier version.
TABLE_NAMES = (
    "group_score",
    "against_baseline",
    "recall_against_baseline",
    "recall_pairs",
    "group_score_against_baseline",
)
CANNOT_BE_SHOWN = "none"
MAX_LISTED_GROUPS = 4


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Comparison of series `a` and `b` on shared questions; `group` holds its benchmark, K and the like.

    Args:
        p_equivalent: p-value of two one-sided tests that the difference is beyond a margin; None without a margin.
    """

    group: tuple[str, ...]
    a: str
    b: str
    compared: PairedComparison
    is_over_types: bool = False
    p_equivalent: float | None = None


def baseline_table(run: Run, *, baseline: str | None = None) -> Table | None:
    """Return the accuracy of every sampler of `run` against its baseline, per benchmark, model and K.

    Args:
        baseline: a sampler's name, or its label in the tables; uniform if the run has it.

    Returns:
        None if the run has no answers, or no baseline and none was named.

    Raises:
        UnknownName: no sampler of the run is called `baseline`.
    """
    if not run.answers:
        return None
    pairs = []
    for group, part, first, rivals in _baseline_groups(run.answer_frame, ["benchmark", "model", "k"], run, baseline):
        pairs += _pairs(part, "score", [(first, rival) for rival in rivals if first], group)
    if not pairs:
        return None
    title = f"Accuracy difference to {_baseline_text(pairs)}"
    table = comparison_table(pairs, name="against_baseline", title=title)
    return replace(table, notes=(*table.notes, *unnamed_video_notes(run.answer_frame)))


def group_baseline_table(run: Run, *, baseline: str | None = None) -> Table | None:
    """Return the group score of every sampler of `run` against its baseline, per benchmark, model and K.

    Returns:
        None if the run has no groups of questions with a score, or no baseline and none was named.

    Raises:
        UnknownName: no sampler of the run is called `baseline`.
    """
    cases: list[_GroupCase] = []
    keys = ["benchmark", "model", "k"]
    for group, part, first, rivals in _baseline_groups(grouped_answers(run), keys, run, baseline):
        facts = run.facts_of(group[0]).group_score
        if first and facts is not None:
            means = {label: group_means(rows, size=facts.size) for label, rows in part.groupby("label")}
            cases += [(group, (first, rival), (means[first], means[rival])) for rival in rivals]
    pairs, notes = _group_pairs(cases)
    if not pairs:
        return None
    title = f"Group score difference to {_baseline_text(pairs)}"
    table = comparison_table(pairs, name="group_score_against_baseline", title=title, of="group score", unit="group")
    return replace(table, notes=(*table.notes, *notes))


def not_compared(run: Run, *, baseline: str | None = None) -> tuple[str, ...]:
    """Return notes on samplers that `baseline_table` leaves out for lack of a baseline or of common questions.

    Raises:
        UnknownName: no sampler of the run is called `baseline`.
    """
    missing_baseline: list[str] = []
    without_overlap: list[str] = []
    for group, part, first, rivals in _baseline_groups(run.answer_frame, ["benchmark", "model", "k"], run, baseline):
        place = f"{group[0]}, {group[1]}, K {group[2]}"
        if not first:
            missing_baseline += [place] if len(rivals) > 1 else []
            continue
        questions_by_label = {label: set(question_means(rows, "score").keys) for label, rows in part.groupby("label")}
        unmatched = [label for label in rivals if not questions_by_label[first] & questions_by_label[label]]
        without_overlap += [f"{', '.join(unmatched)} ({place})"] if unmatched else []
    notes = []
    if missing_baseline:
        name = baseline or BASELINES[0]
        notes.append(
            f"Not compared, because {name} was not run: {'; '.join(missing_baseline)}. --baseline names another."
        )
    if without_overlap:
        notes.append(
            f"Not compared, because no question has a score of it and of the baseline: {'; '.join(without_overlap)}."
        )
    return tuple(notes)


def recall_table(run: Run, *, baseline: str | None = None) -> Table | None:
    """Return the paired evidence recall of every sampler against the baseline, one line per benchmark, K and distance.

    Uses selections only, so no model needs to have answered.

    Returns:
        None if the run has no evidence, or no baseline and none was named.

    Raises:
        UnknownName: no sampler of the run is called `baseline`.
    """
    pairs: list[Pair] = []
    for place, part, first, rivals in _baseline_groups(run.selection_frame, ["benchmark", "k"], run, baseline):
        for distance in RECALL_SECONDS if first else ():
            names = [(first, label) for label in rivals]
            pairs += _pairs(part, recall_column(distance), names, (*place, f"{distance:g} s"))
    if not pairs:
        return None
    title, keys = f"Evidence recall difference to {_baseline_text(pairs)}", ("Benchmark", "K", "Within")
    return comparison_table(pairs, name="recall_against_baseline", title=title, keys=keys, of="recall")


def run_comparison(a: Run, b: Run, *, margin: float | None = None) -> Table:
    """Return a table of the answers of run `b` minus those of run `a`, cell by cell, on the same questions.

    Cells are matched by benchmark, model, K and sampler. If each run has one unmatched cell of a benchmark, or one cell
    in all, these two are compared although their keys differ. Questions are paired by content (see `rows.identity`),
    and
    the notes count the unpaired ones.

    Args:
        margin: number of points above 0; also test that the difference is smaller than this
            (`statistics.equivalence_p`).

    Raises:
        InvalidInput: no question is answered in both runs, several cells could be compared (the message names them), or
            the margin is not above 0.
    """
    if not a.answers or not b.answers:
        raise InvalidInput(f"{a.name if not a.answers else b.name}: has no answers to compare")
    cells_a, cells_b = (_parts_by_cell(run.answer_frame) for run in (a, b))
    cell_pairs = _matched_cells(list(cells_a), list(cells_b))
    pairs, notes = [], []
    summaries: list[str] = []
    causes: list[str] = []
    n_paired = 0
    for key_a, key_b in cell_pairs:
        part_a, part_b = cells_a[key_a], cells_b[key_b]
        matches = match_questions([*question_keys(part_a).values()], [*question_keys(part_b).values()])
        summaries.append(matches.summary(a.name, b.name))
        n_paired += len(matches.pairs)
        name_a, name_b = _names(part_a, part_b)
        paired_part = _with_ids_of(part_a, part_b, matches)
        group = _shared_keys(key_a, key_b)
        mean_pair = (question_means(part_a, "score"), question_means(paired_part, "score"))
        pair = _pair(*mean_pair, name_a, name_b, group, margin=margin)
        if pair is not None:
            pairs.append(pair)
            if key_a[0] != key_b[0]:
                notes.append(f"{a.name} calls these questions {key_a[0]}, {b.name} {key_b[0]}: paired by content.")
            cell_text = f"{group[0]}, {group[1]}, K {group[2]}"
            notes += [f"{cell_text}: {summaries[-1]}.", *_prompt_notes(part_a, paired_part)]
            notes += _prompt_differences(a, part_a, b, part_b)
            if n_left_out := len(matches.pairs) - pair.compared.difference.questions:
                notes.append(
                    f"{cell_text}, {name_a}: {n_left_out:,} paired questions failed in a run, "
                    "or have no score, and are left out."
                )
        if matches.only_a or matches.only_b or matches.by_row:
            causes += [*_missing_documents(a, part_a), *_missing_documents(b, part_b)]
    if not pairs:
        reason = _uncompared_reason(a, list(cells_a), b, list(cells_b))
        reason = _unscored_reason(a, b) if n_paired else reason
        raise InvalidInput(f"{reason} ({'; '.join([*summaries, *causes])})" if summaries else reason)
    notes += [*unnamed_video_notes(a.answer_frame), *(f"{cause}." for cause in causes)]
    notes += _unmatched_notes(a, set(cells_a) - {key for key, _ in cell_pairs})
    notes += _unmatched_notes(b, set(cells_b) - {key for _, key in cell_pairs})
    title = f"Accuracy difference of {b.name} to {a.name}"
    table = comparison_table(pairs, name="comparison", title=title, margin=margin)
    return replace(table, notes=(*table.notes, *dict.fromkeys(notes)))


def group_comparison(a: Run, b: Run, *, margin: float | None = None) -> Table | None:
    """Return a table of the group scores of run `b` minus those of run `a`, for the cells that `run_comparison` pairs.

    Groups are paired by their questions.

    Args:
        margin: as in `run_comparison`.

    Returns:
        None if the runs share no group of questions with a score.
    """
    cells_a, cells_b = (_parts_by_cell(run.answer_frame) for run in (a, b))
    groups_a, groups_b = (_parts_by_cell(grouped_answers(run)) for run in (a, b))
    cases: list[_GroupCase] = []
    for key_a, key_b in _matched_cells([*cells_a], [*cells_b]):
        facts = a.facts_of(key_a[0]).group_score
        if facts is None or key_a not in groups_a or key_b not in groups_b:
            continue
        part_a, part_b = groups_a[key_a], groups_b[key_b]
        matches = match_questions([*question_keys(part_a).values()], [*question_keys(part_b).values()])
        if matches.pairs:
            name_a, name_b = _names(part_a, part_b)
            paired_part = _with_ids_of(part_a, part_b, matches)
            means = (group_means(part_a, size=facts.size), group_means(paired_part, size=facts.size))
            cases.append((_shared_keys(key_a, key_b), (name_a, name_b), means))
    pairs, notes = _group_pairs(cases, margin=margin)
    if not pairs:
        return None
    title = f"Group score difference of {b.name} to {a.name}"
    table = comparison_table(pairs, name="group_comparison", title=title, of="group score", unit="group", margin=margin)
    return replace(table, notes=(*table.notes, *notes))


# (keys of a table's line, names of the two series, scores of their groups)
_GroupCase = tuple[tuple[str, ...], tuple[str, str], tuple[QuestionMeans, QuestionMeans]]


def _group_pairs(cases: Iterable[_GroupCase], *, margin: float | None = None) -> tuple[list[Pair], tuple[str, ...]]:
    """The comparisons of group scores, and notes on the failed questions and the groups left out."""
    pairs, n_left_out = [], 0
    for group, names, means in cases:
        pair = _pair(*means, *names, group, margin=margin, unit="group")
        n_pairs = 0 if pair is None else pair.compared.difference.questions
        n_left_out = max(n_left_out, *(len(series.keys) - n_pairs for series in means))
        pairs += [] if pair is None else [pair]
    notes = ["A group is all questions about one video, with its official score; one that failed counts as wrong."]
    if n_left_out:
        notes.append(f"Groups without the same questions on both sides, left out: {n_left_out:,} at most in a line.")
    return pairs, tuple(notes)


def _parts_by_cell(frame: pd.DataFrame) -> dict[tuple[str, ...], pd.DataFrame]:
    """The lines of each cell of answers, by benchmark, model, K and label."""
    if frame.empty:
        return {}
    keys = ["benchmark", "model", "k", "label"]
    return {tuple(map(str, key)): part for key, part in frame.groupby(keys, sort=False)}


def _shared_keys(key_a: tuple[str, ...], key_b: tuple[str, ...]) -> tuple[str, ...]:
    """Benchmark, model and K of two cells for a line of a table."""
    return key_a[0], " / ".join(dict.fromkeys((key_a[1], key_b[1]))), _k_text(key_a[2], key_b[2])


def question_keys(part: pd.DataFrame) -> dict[str, QuestionKey]:
    """Return the identity of each question of a cell's answers, by its id."""
    # pandas stores a hidden split's missing answers as NaN.
    lines = part.drop_duplicates("question_id").fillna({"correct_answer": ""})
    columns = (lines[name] for name in ("question_id", "benchmark", "content", "correct_answer", "has_row_id"))
    return {
        question_id: QuestionKey(benchmark, question_id, with_answer(content, answer), is_row=bool(is_row))
        for question_id, benchmark, content, answer, is_row in zip(*columns, strict=True)
    }


def _matched_cells(
    cells_a: Sequence[tuple[str, ...]], cells_b: Sequence[tuple[str, ...]]
) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Pairs (key in a, key in b) of cells to compare; see `run_comparison`."""
    matched = [(key, key) for key in cells_a if key in cells_b]
    other_a, other_b = ([key for key in cells if (key, key) not in matched] for cells in (cells_a, cells_b))
    for benchmark in dict.fromkeys(key[0] for key in other_a):
        of_a, of_b = ([key for key in cells if key[0] == benchmark] for cells in (other_a, other_b))
        if len(of_a) == len(of_b) == 1:
            matched.append((of_a[0], of_b[0]))
    if not matched and len(cells_a) == len(cells_b) == 1:  # same questions under another task name
        matched = [(cells_a[0], cells_b[0])]
    return matched


def _with_ids_of(part_a: pd.DataFrame, part_b: pd.DataFrame, matches: Matches) -> pd.DataFrame:
    """The lines of `part_b` that have a pair, with ids and benchmark replaced by those of `part_a`."""
    ids_a, ids_b = (part["question_id"].drop_duplicates().tolist() for part in (part_a, part_b))
    id_of = {ids_b[to]: ids_a[at] for at, to in matches.pairs}
    paired_part = part_b[part_b["question_id"].isin(id_of)]
    return paired_part.assign(question_id=paired_part["question_id"].map(id_of), benchmark=part_a["benchmark"].iloc[0])


def _k_text(*values: str) -> str:
    """The K of two cells as text for a table: one number if both are equal, else both numbers; 0 is an unknown K."""
    return " / ".join("unknown" if value == "0" else value for value in dict.fromkeys(values))


def _prompt_notes(part_a: pd.DataFrame, part_b: pd.DataFrame) -> Iterator[str]:
    """Yield the number of questions for which two imported logs state different prompts."""
    prompts = part_a[["question_id", "prompt"]].merge(part_b[["question_id", "prompt"]], on="question_id")
    prompts = prompts[(prompts["prompt_x"] != "") & (prompts["prompt_y"] != "")]
    differing = prompts[prompts["prompt_x"] != prompts["prompt_y"]]
    if len(differing):
        first = differing["question_id"].iloc[0]
        yield f"The prompts of {len(differing):,} of {len(prompts):,} paired questions differ; the first is {first!r}."


def _missing_documents(run: Run, part: pd.DataFrame) -> Iterator[str]:
    """Yield a clause if a log has no documents: its questions pair only with those of logs without documents."""
    if not run.logs.get(part["cell"].iloc[0], {}).get("has_documents", True):
        yield f"{run.name} is a log without documents: its questions are known by their prompts alone"


def _unmatched_notes(run: Run, cells: Collection[tuple[str, ...]]) -> Iterator[str]:
    """Yield a sentence that lists the cells of `run` without a counterpart; nothing if there are none."""
    if cells:
        yield f"Not compared, because the other run has no such cell: {_cells_text(cells)} ({run.name})."


def _unscored_reason(a: Run, b: Run) -> str:
    """Why two runs with paired questions cannot be compared: no question has a score in both."""
    parts = []
    for run in (a, b):
        n_scored = sum(row.score is not None and row.error is None for row in run.answers)
        parts.append(f"{run.name} scores {n_scored:,} of {len(run.answers):,} answers")
    return f"no question of {a.name} and {b.name} has a score in both: {' and '.join(parts)}"


def _uncompared_reason(a: Run, cells_a: Sequence[tuple[str, ...]], b: Run, cells_b: Sequence[tuple[str, ...]]) -> str:
    """Why no cells of two runs can be compared: several cells match, or no cells have anything in common."""
    benchmarks = {key[0] for key in cells_a} & {key[0] for key in cells_b}
    for run, cells in ((a, cells_a), (b, cells_b)):
        alike = [key for key in cells if key[0] in benchmarks or not benchmarks]
        if len(alike) > 1:
            return f"{run.name}: {len(alike)} cells could be meant, name the file of one log: {_cells_text(alike)}"
    reason = f"{a.name} and {b.name} have no cell and question in common"
    if benchmarks:
        return reason
    return f"{reason}, but other benchmarks: {_cells_text(cells_a)}, and {_cells_text(cells_b)}"


def _cells_text(cells: Collection[tuple[str, ...]]) -> str:
    """The first few cells as text, grouped by benchmark, model and K: "focus, uniform (videomme, qwen, K 8)"."""
    labels_by_group: dict[str, list[str]] = {}
    for benchmark, model, k, label in sorted(cells):
        labels_by_group.setdefault(f"{benchmark}, {model}, K {_k_text(k)}", []).append(label)
    texts = [f"{', '.join(labels)} ({group})" for group, labels in labels_by_group.items()]
    n_more = sum(len(labels) for labels in [*labels_by_group.values()][MAX_LISTED_GROUPS:])
    return "; ".join([*texts[:MAX_LISTED_GROUPS], *([f"{n_more} more cells"] if n_more else [])])


def _baseline_text(pairs: Sequence[Pair]) -> str:
    """The label `a` shared by all pairs, else "the baseline"."""
    labels = {pair.a for pair in pairs}
    return labels.pop() if len(labels) == 1 else "the baseline"


def _prompt_differences(a: Run, part_a: pd.DataFrame, b: Run, part_b: pd.DataFrame) -> Iterator[str]:
    """Yield a sentence for each field but the question in which the first prompts of two cells differ."""
    first, second = (dict(run.prompts.get(part["cell"].iloc[0], {})) for run, part in ((a, part_a), (b, part_b)))
    for record in (first, second):
        if "text" in record:
            # Drop the size and hash of images, which differ whenever two samplers choose different frames.
            record["text"] = re.sub(r"<(image/\w+), [\d,]+ bytes, [0-9a-f]+", r"<\1", record["text"])
    if not first or not second:
        return
    # Skip the text if the prompts are of different questions: it differs anyway.
    skipped = {"question_id"} | ({"text"} if first["question_id"] != second["question_id"] else set())
    for name in [name for name in {**first, **second} if name not in skipped]:
        if first.get(name) != second.get(name):
            difference = f"{a.name} {_short(name, first, second)}; {b.name} {_short(name, second, first)}"
            yield f"{part_a['model'].iloc[0]} got different requests, {name}: {difference}."


def _short(name: str, record: Mapping[str, object], counterpart: Mapping[str, Any]) -> str:
    """Return field `name` of a prompt record as text for a message.

    A mapping is cut to the entries that differ from `counterpart`, and "text" to its end.
    """
    value = record.get(name, "nothing")
    if isinstance(value, Mapping):
        other_value = counterpart.get(name) or {}
        value = {key: item for key, item in value.items() if other_value.get(key) != item}
    return repr(value[-120:]) if name == "text" and isinstance(value, str) else str(value)


def comparison_table(
    pairs: Sequence[Pair],
    *,
    name: str,
    title: str,
    keys: Sequence[str] = ("Benchmark", "Model", "K"),
    of: str = "accuracy",
    unit: str = "question",
    margin: float | None = None,
) -> Table:
    """Return the table of `pairs`, with p-values adjusted over all of them (Holm); `of` names the measure.

    Args:
        unit: what a score is of, a question or a group.
        margin: the pairs were tested to differ by less than this number of points; None if they were not.
    """
    detectable = [pair.compared.detectable(tests=len(pairs)) for pair in pairs]
    counted = f"{unit.capitalize()}s"
    columns: tuple[str, ...] = ("B − A (points)", counted, "Better A / B", "p", "p (Holm)", "Detectable")
    equivalence_cells: list[Cells] = [{} for _ in pairs]
    notes = [*_notes(pairs, detectable, of, unit)]
    if margin is not None:
        column = f"p within ±{margin:g}"
        p_values = holm([1.0 if pair.p_equivalent is None else pair.p_equivalent for pair in pairs])
        equivalence_cells = [{column: Value.of_p(float(p_value))} for p_value in p_values]
        columns = (*columns, column)
        notes.append(
            f"{column}: two one-sided tests that the difference is {margin:g} points or more, adjusted by Holm over "
            "this column; below 0.05 the two are equivalent within the margin."
        )
    return difference_table(
        [
            ((*pair.group, pair.a, pair.b), _cells(pair.compared, difference, counted) | equivalence)
            for pair, difference, equivalence in zip(pairs, detectable, equivalence_cells, strict=True)
        ],
        name=name,
        title=title,
        key_titles=(*keys, "A", "B"),
        columns=columns,
        notes=tuple(notes),
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
    matching_labels = [label for label, sampler in samplers.items() if baseline in (label, sampler)]
    if not matching_labels:
        raise unknown_name("baseline", baseline, sorted({*samplers, *samplers.values()}))
    return tuple(sorted(matching_labels, key=sampler_order))


def _baseline_groups(
    frame: pd.DataFrame, keys: list[str], run: Run, baseline: str | None
) -> Iterator[tuple[tuple[str, ...], pd.DataFrame, str, list[str]]]:
    """Yield each group of lines with the label of its baseline ("" if it has none), and all other labels in order."""
    preferred = baseline_labels(run, baseline)
    for group, part in () if frame.empty else frame.groupby(keys):
        labels = set(part["label"])
        first = next((name for name in preferred if name in labels), "")
        yield tuple(map(str, group)), part, first, sorted(labels - {first}, key=sampler_order)


def _cells(compared: PairedComparison, detectable: float | None, counted: str) -> Cells:
    """The table cells of one comparison, by column; `counted` is the column of the number of questions."""
    no_difference = Value(text=CANNOT_BE_SHOWN if compared.spread is not None else "")
    return {
        "B − A (points)": compared,
        counted: str(compared.difference.questions),
        "Better A / B": f"{compared.better_a} / {compared.better_b}",
        "Detectable": no_difference if detectable is None else Value(ours=100 * detectable),
    }


def _notes(pairs: Sequence[Pair], detectable: Sequence[float | None], of: str, unit: str) -> Iterable[str]:
    """Yield the notes below a table of comparisons of the measure `of`, which is of a `unit`.

    Args:
        detectable: the detectable difference of each pair.
    """
    yield (
        f"B − A: difference of {of} in points over the {unit}s that both have, each with its mean over seeds; 95 % "
        "interval: sign flips over videos, with two half videos added."
    )
    over_types = sorted({pair.group[0] for pair in pairs if pair.is_over_types})
    if over_types:
        yield f"{' and '.join(over_types)}: the difference of the means over task types."
    yield f"Better A / B: {unit}s on which that sampler has the higher score."
    among = f" as one of {len(pairs)} that Holm adjusts" if len(pairs) > 1 else ""
    yield (
        f"Detectable: least difference, in points, that gets an arrow{among} in 80 % of runs, from the spread over "
        "videos seen here, if all videos gain alike."
    )
    if any(
        difference is None and pair.compared.spread is not None
        for pair, difference in zip(pairs, detectable, strict=True)
    ):
        yield (
            f"Detectable, {CANNOT_BE_SHOWN}: a difference cannot be shown with this many videos. Fewer than 80 % of "
            f"runs would show it even if every {unit} that differs did so in one direction."
        )
    stated_differences = [
        (difference, pair.compared.difference.videos)
        for pair, difference in zip(pairs, detectable, strict=True)
        if difference
    ]
    if stated_differences:
        worst, videos = max(stated_differences, key=lambda item: item[0])
        power_text = more_videos_text(worst, videos, tests=len(pairs))
        yield f"Power (80 %): in the line with the largest spread, {power_text}."
    if any(pair.compared.difference.low is None for pair in pairs):
        yield TOO_FEW_NOTE


def _pairs(part: pd.DataFrame, column: str, names: Sequence[tuple[str, str]], group: tuple[str, ...]) -> list[Pair]:
    """Return the comparison of each pair of labels in `part` by `column`.

    Pairs without common questions are left out.
    """
    means_by_label = {label: question_means(rows, column) for label, rows in part.groupby("label")}
    compared_pairs = (_pair(means_by_label[a], means_by_label[b], a, b, group) for a, b in names)
    return [pair for pair in compared_pairs if pair is not None]


def _pair(
    a: QuestionMeans,
    b: QuestionMeans,
    name_a: str,
    name_b: str,
    group: tuple[str, ...],
    *,
    margin: float | None = None,
    unit: str = "question",
) -> Pair | None:
    """The comparison on the shared questions, with `margin` in points; None if there are none."""
    first, second = paired(a, b)
    if not first.keys:
        return None
    compared = compare_paired(first.values, second.values, first.videos, strata=first.strata, unit=unit)
    differences, is_over_types = second.values - first.values, first.strata is not None
    p_equivalent = None
    if margin is not None:
        p_equivalent = equivalence_p(differences, first.videos, margin=margin / 100, strata=first.strata)
    return Pair(
        group=group, a=name_a, b=name_b, compared=compared, is_over_types=is_over_types, p_equivalent=p_equivalent
    )


def _names(a: pd.DataFrame, b: pd.DataFrame) -> list[str]:
    """The labels of two cells; each label includes the encoder if the two encoders differ."""
    labels = [str(part["label"].iloc[0]) for part in (a, b)]
    encoders = [str(part["encoder"].iloc[0]) for part in (a, b)]
    if encoders[0] == encoders[1]:
        return labels
    labelled = zip(labels, encoders, strict=True)
    return [f"{label} ({item})" if item and f"({item})" not in label else label for label, item in labelled]
