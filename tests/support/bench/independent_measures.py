"""Computes the figures of a report's columns from rows, by other code than the report's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from statistics import fmean, stdev
from typing import Any

from tests.support.bench.independent_costs import Cost, Key
from tests.support.bench.independent_formulas import mean_with_interval
from tests.support.bench.independent_rows import Row, Rows, belongs

BENCHMARKS = {
    "LongVideoBench": "longvideobench", "Video-MME": "videomme", "MLVU": "mlvu", "VSI-Bench": "vsibench",
}  # fmt: skip
BUCKETS = {"Short": "short", "Medium": "medium", "Long": "long"}
MACRO = ("mlvu", "vsibench")
COUNTS = ("questions", "unparsed", "errors", "fallbacks", "below K")

Metric = Callable[[list[tuple[Row | None, Row]]], tuple[float | None, float | None, float | None]]


def column_of(title: str, pairs: list[Any], costs: Mapping[Key, Cost]) -> tuple[list[Any], Metric | None]:
    """Return the pairs under a column's title, and what is computed from them; `costs` of the run's selections."""
    name, _, over = title.partition(", ")
    if title in ("Accuracy", "Overall"):
        return pairs, _accuracy
    if title in BUCKETS:
        return [pair for pair in pairs if (pair[0] or pair[1])["bucket"] == BUCKETS[title]], _accuracy
    if name in BENCHMARKS:
        inside = [pair for pair in pairs if pair[1]["benchmark"] == BENCHMARKS[name]]
        return inside, _macro if BENCHMARKS[name] in MACRO and not over else _accuracy
    if title == "Mean of task types":
        return pairs, _macro
    if title.startswith("Recall@"):
        seconds = float(title.removeprefix("Recall@").split(" ")[0])
        return pairs, lambda inside: _recall(inside, seconds)
    if title == "Frames scored (%)":
        return pairs, _frames_scored
    if title in ("GPU hours", "Device-hours (cpu)"):
        return pairs, lambda inside: _hours(inside, costs)
    if title == "Forward equivalents (%)":
        return pairs, lambda inside: _forwards(inside, costs)
    inside = [pair for pair in pairs if pair[1]["sampler"] == title]
    return inside, _accuracy if inside else None


def shown_pairs(line: Mapping[str, str], pairs: list[Any]) -> list[Any]:
    """Leave out what no column of the line can show: samplers of a table that has a column per sampler."""
    columns = [title for title in line if f"{title} low" in line]
    inside = [pair for title in columns for pair in column_of(title, pairs, {})[0]]
    kept_ids = {id(pair) for pair in inside}
    return [pair for pair in pairs if id(pair) in kept_ids]


def _accuracy(pairs: list[Any]) -> tuple[float | None, float | None, float | None]:
    return mean_with_interval(_question_scores(pairs), lambda _: "")


def _macro(pairs: list[Any]) -> tuple[float | None, float | None, float | None]:
    """Return the mean over question types with its interval; None for other benchmarks, and for several."""
    benchmarks = {selection["benchmark"] for _, selection in pairs}
    kinds = {key: kind for key, (_, _, kind) in _question_scores(pairs).items()}
    if len(benchmarks) != 1 or not benchmarks <= set(MACRO) or not all(kinds.values()):
        return None, None, None
    return mean_with_interval(_question_scores(pairs), lambda kind: kind)


def _question_scores(pairs: list[Any]) -> dict[tuple[str, str], tuple[float, str, str]]:
    """Return (mean score over seeds, video, task type) by question, of the answers that there are."""
    scores_by_question: dict[tuple[str, str], list[tuple[float, str, str]]] = defaultdict(list)
    for answer, selection in pairs:
        if answer is not None and answer["error"] is None:
            video = f"{selection['benchmark']}/{answer['video']}"
            key = (answer["benchmark"], answer["question_id"])
            scores_by_question[key].append((answer["score"], video, answer.get("category") or ""))
    return {key: (fmean(score for score, _, _ in scores), *scores[0][1:]) for key, scores in scores_by_question.items()}


def _recall(pairs: list[Any], seconds: float) -> tuple[float | None, float | None, float | None]:
    return mean_with_interval(_recalls(_selections(pairs), seconds), lambda _: "")


def _recalls(selections: Iterable[Row], seconds: float) -> dict[tuple[str, str], tuple[float, str, str]]:
    """Return (share of annotated moments with a keyframe within `seconds`, video, "") by question."""
    shares_by_question: dict[tuple[str, str], list[tuple[float, str]]] = defaultdict(list)
    for item in selections:
        if item["error"] is None and item["evidence_seconds"]:
            is_near = [
                any(abs(time - moment) <= seconds for time in item["times_seconds"])
                for moment in item["evidence_seconds"]
            ]
            shares_by_question[item["benchmark"], item["question_id"]].append(
                (fmean(is_near), f"{item['benchmark']}/{item['video']}")
            )
    return {key: (fmean(share for share, _ in shares), shares[0][1], "") for key, shares in shares_by_question.items()}


def _frames_scored(pairs: list[Any]) -> tuple[float | None, None, None]:
    """Return the frames scored in percent of the videos' frames, None without frames; it has no interval."""
    selections = _selections(pairs)
    total = sum(selection["n_frames"] or 0 for selection in selections)
    return (
        (100 * sum(len(selection["pulled_frames"]) for selection in selections) / total if total else None),
        None,
        None,
    )


def _forwards(pairs: list[Any], costs: Mapping[Key, Cost]) -> tuple[float | None, None, None]:
    """Return forward equivalents in percent of the videos' frames, None if a cost is unknown; no interval."""
    selections = _selections(pairs)
    total = sum(selection["n_frames"] or 0 for selection in selections)
    spent = [costs[_key(selection)].forwards for selection in selections]
    values = [value for value in spent if value is not None]
    return (100 * sum(values) / total if total and len(values) == len(spent) else None), None, None


def _hours(pairs: list[Any], costs: Mapping[Key, Cost]) -> tuple[float | None, None, None]:
    """Return the hours that the selections of one seed cost, None if a cost is unknown; no interval."""
    selections = _selections(pairs)
    spent = [costs[_key(selection)].seconds for selection in selections]
    values = [value for value in spent if value is not None]
    n_seeds = len({selection["seed"] for selection in selections})
    return (sum(values) / 3600 / n_seeds if values and len(values) == len(spent) else None), None, None


def _selections(pairs: Iterable[Any]) -> list[Row]:
    return list({_key(selection): selection for _, selection in pairs}.values())


def _key(selection: Row) -> Key:
    return selection["benchmark"], selection["question_id"], selection["selection_id"]


def spread_over_seeds(pairs: list[Any], metric: Metric) -> float | None:
    """Return the standard deviation of a figure over seeds, None if fewer than two seeds have it."""
    by_seed = [[pair for pair in pairs if pair[1]["seed"] == seed] for seed in {pair[1]["seed"] for pair in pairs}]
    values = [value for value in (metric(part)[0] for part in by_seed) if value is not None]
    return stdev(values) if len(values) > 1 else None


def row_counts(pairs: list[Any]) -> tuple[int, int, int, int, int]:
    """Return the numbers of a line's questions answered, answers not parsed, errors, fallbacks and short selections.

    An answer counts in place of its selection. Short selections have fewer than K frames.
    """
    rows = [(answer if answer is not None else selection, selection) for answer, selection in pairs]
    right = [(row, selection) for row, selection in rows if row["error"] is None]
    return (
        len({(row["benchmark"], row["question_id"]) for row, _ in right}),
        sum("parsed" in row and row["parsed"] is None for row, _ in right),
        len(rows) - len(right),
        sum(bool(row.get("fallback")) for row, _ in rows),
        sum(row.get("frames_chosen", len(selection["keyframes"])) < selection["k"] for row, selection in right),
    )


def paired_scores(line: Mapping[str, str], series: str, rows: Rows) -> dict[tuple[str, str], tuple[float, str, str]]:
    """Return score (or recall), video and task type by question, of one side of a comparison."""
    keys = {**line, "Sampler": series}
    if "Within" not in line:
        return _question_scores([pair for pair in rows.answers if belongs(pair, keys)])
    seconds = float(line["Within"].split(" ")[0])
    return _recalls([row for row in rows.selections.values() if belongs((None, row), keys)], seconds)
