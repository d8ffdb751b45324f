"""The leaderboard of published selections: CSV files of recall by length, and the tables of docs/leaderboard.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from focus_eval.bench.benchmarks.question import BUCKETS, SLACK_SECONDS
from focus_eval.bench.report.recall import (
    SCALE_SECONDS,
    EvidenceCase,
    bounds,
    chance_of_hit,
    random_recall,
    scene_score,
)
from focus_eval.bench.report.rendering import Table, TableRow, Value, to_markdown
from focus_eval.bench.report.statistics import compare_paired, holm
from focus_eval.core.errors import InvalidInput
from focus_eval.core.files import write_text
from focus_eval.external.selection_layouts import SHORT, SHORT_SECONDS, TOLERANCES_SECONDS, ShownByQuestion, ShownFrames
from focus_eval_research.published import PublishedFile
from focus_eval_research.records import Record, RecordFile
from focus_eval_research.replayed import LONG_SECONDS, MEANS, Ground, Group, question_figures

BASELINES = ("random", "uniform")
# Selections of one K are compared with this one, or with uniform where it was not published at that K.
REFERENCE = "AKS"
UKSS = "UKSS"
# UKSS is a geometric mean, and not compared in pairs.
MEASURES = (*MEANS, UKSS)
# What the page shows; the CSV files have every measure.
SHOWN_MEASURES = ("within 2 s", UKSS)
SHOWN_DIFFERENCE = "within 2 s"
# Frames further away than this count as nothing: exp(-12) is 6 in a million.
FADED_SECONDS = 12 * SCALE_SECONDS
_MARKS = ("<!-- leaderboard -->", "<!-- end of leaderboard -->")


RECALLS = RecordFile(
    "by_length.csv",
    ("benchmark", "name", "k", "bucket", "questions", "frames", *MEASURES),
    ("benchmark", "name", "k", "bucket"),
    order=lambda record: (record["name"] not in BASELINES, record["name"]),
)
DIFFERENCES = RecordFile(
    "differences.csv",
    ("benchmark", "k", "name", "less", "questions", "measure", "value", "low", "high", "p", "p_holm"),
    ("benchmark", "k", "name", "less", "measure"),
    order=lambda record: (record["name"],),
)


def update_records(folder: Path, group: Group) -> None:
    """Put the records of one benchmark and K into the CSV files in `folder`."""
    ground, figures = group.ground, shown_figures(group)
    recalls = [
        record for name, measured in figures.items() for record in recall_records(ground, name, group.k, measured)
    ]
    RECALLS.update(folder, recalls)
    DIFFERENCES.update(folder, difference_records(ground, group.k, group.figures))


def shown_figures(group: Group) -> dict[str, pd.DataFrame]:
    """Return the `leaderboard_figures` of each selection of a group by name, and those of random frames.

    The expectation of random frames in scenes is not computed.
    """
    figures = {name: leaderboard_figures(group.ground, frames) for name, frames in group.frames.items()}
    return figures if group.ground.kind == "scenes" else {**figures, "random": random_figures(group.ground, group.k)}


def leaderboard_figures(ground: Ground, frames: ShownByQuestion) -> pd.DataFrame:
    """Return `question_figures`, the number of different frames, and UKSS for scenes; all 0 without a selection."""
    times = [frames.get(case.question_id, ShownFrames()).times for case in ground.cases]
    figures = question_figures(ground, frames).assign(frames=[len(set(seconds)) for seconds in times])
    if ground.kind == "scenes":
        scenes = [ground.scenes[case.question_id] for case in ground.cases]
        pairs = zip(scenes, times, strict=True)
        figures[UKSS] = [scene_score(of, seconds).ukss if len(seconds) else 0.0 for of, seconds in pairs]
    return figures


def random_figures(ground: Ground, k: int) -> pd.DataFrame:
    """Return the exact expectation of `leaderboard_figures` for `k` random frames; every scene is one interval."""
    lines = []
    for case in ground.cases:
        intervals = [interval for (interval,) in ground.scenes[case.question_id]]
        shares = random_recall(intervals, TOLERANCES_SECONDS, case, k)
        lines.append([*shares, random_nearness(intervals, case, k), min(k, case.n_frames)])
    return pd.DataFrame(lines, columns=[*MEANS, "frames"])


def random_nearness(evidence: ArrayLike, case: EvidenceCase, k: int) -> float:
    """Return the expected nearness to `evidence`, seconds `(n,)` or intervals `(n, 2)`, of random frames, exactly.

    The `min(k, n_frames)` frames are drawn without replacement from those of the video of `case`.
    """
    expected = []
    for start, end in zip(*bounds(evidence), strict=True):
        earlier = np.arange(np.floor((start - FADED_SECONDS) * case.fps), np.floor(start * case.fps) + 1)
        later = np.arange(np.floor(end * case.fps), (end + FADED_SECONDS) * case.fps)
        outside = np.concatenate([start - earlier / case.fps, later / case.fps - end])
        steps = np.unique(np.round(np.maximum(outside, 0), 9))
        chance = chance_of_hit(start - steps - SLACK_SECONDS, end + steps + SLACK_SECONDS, case, k)
        expected.append(float((np.diff(chance, prepend=0.0) * np.exp(-steps / SCALE_SECONDS)).sum()))
    return float(np.mean(expected))


def geometric_ukss(values: ArrayLike) -> float:
    """Return the geometric mean over questions of their UKSS, none below 0.01, as KFS-Bench states it."""
    return float(np.exp(np.log(np.maximum(values, 0.01)).mean()))


def buckets_of(ground: Ground) -> list[tuple[str, np.ndarray]]:
    """Return name and mask over the cases of each bucket: by the video's length, or by that of the intervals."""
    if ground.kind != "intervals":
        buckets = np.array([case.bucket for case in ground.cases])
        return [(name, buckets == name) for name in BUCKETS if (buckets == name).any()]
    longest = [max(stop - start for ((start, stop),) in ground.scenes[case.question_id]) for case in ground.cases]
    return [("all", np.ones(len(ground.cases), dtype=bool)), (SHORT, np.asarray(longest) <= SHORT_SECONDS)]


def recall_records(ground: Ground, name: str, k: int, figures: pd.DataFrame) -> list[dict[str, str]]:
    """Return the records of one selection in `by_length.csv`, one per bucket; measures that do not apply are "".

    Args:
        figures: `leaderboard_figures` of the selection.
    """
    records, measures = [], [*ground.means, *([UKSS] if UKSS in figures else [])]
    for bucket, is_inside in buckets_of(ground):
        bucket_means = figures[is_inside].mean()
        if UKSS in figures:
            bucket_means[UKSS] = geometric_ukss(figures[UKSS][is_inside])
        keys = {"benchmark": ground.benchmark, "name": name, "k": str(k), "bucket": bucket}
        counts = {"questions": str(int(is_inside.sum())), "frames": f"{bucket_means['frames']:.1f}"}
        texts = {measure: f"{bucket_means[measure]:.6f}" if measure in measures else "" for measure in MEASURES}
        records.append({**keys, **counts, **texts})
    return records


def difference_records(ground: Ground, k: int, figures: Mapping[str, pd.DataFrame]) -> list[dict[str, str]]:
    """Return the paired differences of the selections of one K to the reference, p adjusted over them by Holm.

    Args:
        figures: `question_figures` by name of the selection.
    """
    reference = REFERENCE if REFERENCE in figures else "uniform"
    is_long = ground.is_long
    videos = ground.videos_of(is_long)
    tests = [
        (name, measure, compare_paired(figures[reference][measure][is_long], figures[name][measure][is_long], videos))
        for name in sorted(figures)
        if name != reference
        for measure in ground.means
    ]
    adjusted = holm([test.p_value for _, _, test in tests])
    records = []
    for (name, measure, test), p_holm in zip(tests, adjusted, strict=True):
        value = test.difference
        low, high = ("" if end is None else f"{end:.4f}" for end in (value.low, value.high))
        keys = {"benchmark": ground.benchmark, "k": str(k), "name": name, "less": reference}
        texts = {"value": f"{value.value:.4f}", "low": low, "high": high}
        p_values = {"p": f"{test.p_value:.4f}", "p_holm": f"{p_holm:.4f}"}
        records.append({**keys, "questions": str(value.questions), "measure": measure, **texts, **p_values})
    return records


def update_page(page: Path, folder: Path, files: Sequence[PublishedFile]) -> None:
    """Replace the text between the leaderboard's marks in `page` by the tables of the CSV files in `folder`.

    Raises:
        InvalidInput: a page without the two marks.
    """
    head, start, old_text = page.read_text(encoding="utf-8").partition(_MARKS[0])
    _, end, foot = old_text.partition(_MARKS[1])
    if not start or not end:
        raise InvalidInput(f"{page}: lacks the lines {_MARKS[0]} and {_MARKS[1]} to put the table between")
    text = page_text(RECALLS.read(folder), DIFFERENCES.read(folder), files)
    write_text(page, f"{head}{start}\n{text.strip()}\n{end}{foot}")


def page_text(recalls: Sequence[Record], differences: Sequence[Record], files: Sequence[PublishedFile]) -> str:
    """Return the tables as Markdown, without short videos, random frames and the variants among `files`."""
    variants = {(item.benchmark, str(item.k), item.name) for item in files if item.variant}
    recalls = [
        row
        for row in recalls
        if row["bucket"] != BUCKETS[0]
        and row["name"] != "random"
        and (row["benchmark"], row["k"], row["name"]) not in variants
    ]
    differences = [row for row in differences if (row["benchmark"], row["k"], row["name"]) not in variants]
    settings = {
        (item.benchmark, str(item.k), item.name): f"{item.name}, {item.settings}" for item in files if item.settings
    }
    recalls, differences = ([_with_settings(row, settings) for row in rows] for rows in (recalls, differences))
    tables = [recall_table(rows, differences) for rows in _by_benchmark(recalls)]
    return "\n".join(to_markdown(table) for table in tables).replace("### ", "## ")


def _with_settings(row: Record, settings: Mapping[tuple[str, str, str], str]) -> Record:
    """Return `row` with the settings of the selections that it names."""
    names = {side: row[side] for side in ("name", "less") if side in row}
    return {**row, **{side: settings.get((row["benchmark"], row["k"], name), name) for side, name in names.items()}}


def _by_benchmark(rows: Sequence[Record]) -> list[list[Record]]:
    """Return the rows in one list per benchmark."""
    return [
        [row for row in rows if row["benchmark"] == name] for name in dict.fromkeys(row["benchmark"] for row in rows)
    ]


def recall_table(rows: Sequence[Record], differences: Sequence[Record]) -> Table:
    """Return the table of one benchmark: a line for each selection, a column for each bucket and measure.

    One more column has the paired difference to the reference of its K, in points, with interval and adjusted p.

    Args:
        differences: records of any benchmarks.
    """
    (benchmark,) = {row["benchmark"] for row in rows}
    buckets = list(dict.fromkeys(row["bucket"] for row in rows))
    measures = [measure for measure in SHOWN_MEASURES if any(row[measure] for row in rows)]
    row_by_line: dict[tuple[str, str], dict[str, Record]] = {}
    for row in rows:
        row_by_line.setdefault((row["k"], row["name"]), {})[row["bucket"]] = row
    differences = [row for row in differences if row["benchmark"] == benchmark]
    difference_by_keys = {(row["k"], row["name"], row["measure"]): _difference(row) for row in differences}
    lines = []
    for keys, row_by_bucket in row_by_line.items():
        percents = [_percent(row_by_bucket.get(bucket), measure) for bucket in buckets for measure in measures]
        points = difference_by_keys.get((*keys, SHOWN_DIFFERENCE), Value())
        lines.append(TableRow(keys, (_mean_frames(list(row_by_bucket.values())), *percents, points)))
    ks_by_reference: dict[str, list[str]] = {}
    for k, reference in dict.fromkeys((row["k"], row["less"]) for row in differences):
        ks_by_reference.setdefault(reference, []).append(k)
    references = [f"{reference} at K = {', '.join(ks)}" for reference, ks in ks_by_reference.items()]
    return Table(
        name=f"leaderboard_{benchmark}",
        title=f"Evidence in view of published selections (%), {benchmark}",
        key_titles=("K", "Selection"),
        columns=(
            "Frames",
            *(f"{bucket}, {measure}" for bucket in buckets for measure in measures),
            f"difference, {SHOWN_DIFFERENCE}",
        ),
        rows=tuple(lines),
        notes=(f"Differences: points, videos of {LONG_SECONDS:g} s and more, less {'; '.join(references)}.",),
    )


def _difference(row: Record) -> Value:
    value, low, high = (100 * float(row[name]) if row[name] else None for name in ("value", "low", "high"))
    return Value(ours=value, low=low, high=high, is_difference=True, p_adjusted=float(row["p_holm"]))


def _percent(row: Record | None, measure: str) -> str:
    """Return a share as percent with one decimal; "" without a value."""
    return f"{100 * float(row[measure]):.1f}" if row and row[measure] else ""


def _mean_frames(rows: Sequence[Record]) -> str:
    """Return the mean number of frames over all questions: of bucket "all", else weighted over the buckets."""
    rows = [row for row in rows if row["bucket"] == "all"] or rows
    frames = sum(float(row["frames"]) * int(row["questions"]) for row in rows)
    return f"{frames / sum(int(row['questions']) for row in rows):.1f}"
