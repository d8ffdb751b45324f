"""Makes tables of a run's rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from focus_eval.report.anchors import published_value, read_anchors
from focus_eval.report.labels import sampler_order
from focus_eval.report.layouts import KEY_TITLES, Column, Layout, layout_named
from focus_eval.report.measures import (
    NOT_SCORED,
    accuracy_figure,
    counts_of,
    frames_scored_percent,
    hours_per_seed,
    recall_figure,
    runs_on_gpu,
    selections_of,
)
from focus_eval.report.run import Run
from focus_eval.report.settings import has_published_settings
from focus_eval.report.table import Figure, Table, TableRow, merge_notes
from focus_eval.report.task_means import MEANS_OVER_TYPES

# What may differ between lines although the layout does not name it; it is then named.
_HIDDEN_KEYS = ("model", "k", "label", "encoder")
_NO_ENCODER = "none"


def results_table(run: Run, layout: str | None = None) -> Table:
    """Return the table of `run`: the paper's layout that its matrix names, or the overview.

    Every figure stands with its 95 % interval, the published one and the difference; published lines that the run
    has no rows for are kept, so that the table has the paper's shape.

    Raises:
        UnknownName: no such layout.
        InvalidInput: rows that do not belong together.
    """
    shape = layout_named(layout or run.anchors or "overview")
    lines = _lines(run)
    if shape.benchmark and not lines.empty:
        lines = lines[lines["benchmark"] == shape.benchmark]
        lines = lines[_in_any_column(shape, lines)]
    keys = _keys(shape, lines)
    placed: list[tuple[float, TableRow]] = []
    if not lines.empty:
        parts = lines.groupby(list(keys), sort=False, dropna=False)
        for values, part in sorted(parts, key=lambda entry: _line_order(entry[1])):
            placed.append(_row(run, shape, dict(zip(keys, values, strict=True)), part))
    placed += _published_only(shape, keys, {place for place, _ in placed})
    ordered = [row for _, row in sorted(placed, key=lambda entry: entry[0])]
    columns = _with_device(_kept_columns(shape, ordered), run)
    rows = [TableRow(row.keys, tuple(row.figures[i] for i, _ in columns), row.counts) for row in ordered]
    return Table(
        name=shape.name,
        title=shape.title,
        key_titles=tuple(KEY_TITLES[key] for key in keys),
        columns=tuple(title for _, title in columns),
        rows=tuple(rows),
        notes=_notes(run, shape, rows),
    )


def _lines(run: Run) -> pd.DataFrame:
    lines: pd.DataFrame = (run.answer_frame if run.answers else run.selection_frame).copy()
    if "encoder" in lines:
        lines["encoder"] = lines["encoder"].replace("", _NO_ENCODER)
    return lines


def _in_any_column(shape: Layout, lines: pd.DataFrame) -> NDArray[np.bool_]:
    inside = np.zeros(len(lines), dtype=bool)
    for column in shape.columns:
        matches = np.ones(len(lines), dtype=bool)
        for name, value in column.where.items():
            matches &= (lines[name] == value).to_numpy(dtype=bool)
        inside |= matches
    return inside


def _line_order(part: pd.DataFrame) -> tuple[Any, ...]:
    first = part.iloc[0]
    return (*sampler_order(str(first["label"])), int(first["k"]))


def _keys(shape: Layout, lines: pd.DataFrame) -> tuple[str, ...]:
    keys = tuple(key for key in shape.keys if lines.empty or key in lines)
    where = {name for column in shape.columns for name in column.where}
    fixed = [*keys, *(name for name in (*where, "sampler") if name not in keys and name in lines)]
    for hidden in _HIDDEN_KEYS:
        if lines.empty or hidden in keys or hidden not in lines:
            continue
        told_apart = [name for name in fixed if name in lines]
        if lines.groupby(told_apart, dropna=False)[hidden].nunique(dropna=False).max() > 1:
            keys, fixed = (*keys, hidden), [*fixed, hidden]
    if "label" in keys and "sampler" in keys:
        keys = tuple("label" if key == "sampler" else key for key in keys if key != "label")
    return keys


def _row(run: Run, shape: Layout, values: dict[str, Any], part: pd.DataFrame) -> tuple[float, TableRow]:
    """Return a line of ours and its place: that of the published line it stands beside, else after them all.

    Where the settings differ from the published ones no published figure stands beside ours: the place is just before
    the published line.
    """
    named = {**{name: part[name].iloc[0] for name in ("sampler", "benchmark") if name in part}, **values}
    published = read_anchors(shape.anchors).lines if shape.anchors else ()
    wanted = shape.anchor_key(named) if shape.anchors else {}
    place = next((i for i, line in enumerate(published) if wanted.items() <= line.items()), len(published))
    line = published[place] if place < len(published) else None
    figures, is_beside = [], False
    wheres = {tuple(column.where.items()): column.where for column in shape.columns}
    parts = {key: _where(part, where) for key, where in wheres.items()}
    chosen = {key: selections_of(run, here) for key, here in parts.items()}
    for column in shape.columns:
        key = tuple(column.where.items())
        value = published_value(line, column.published) if column.published else None
        here = part if parts[key].empty else parts[key]
        if line and value is not None and not has_published_settings(shape.anchors, line, here, run.variants):
            value = None
        is_beside = is_beside or value is not None
        figures.append(_figure(run, column, parts[key], chosen[key], value))
    texts = {**values, "sampler": _sampler_text(part, values)} if "sampler" in values else values
    row = TableRow(tuple(map(_key_text, texts.values())), tuple(figures), counts_of(run, part))
    return place if is_beside or line is None else place - 0.5, row


def _sampler_text(part: pd.DataFrame, keys: Iterable[str]) -> str:
    """The sampler with its options that are not default and have no column among `keys`."""
    column = next((key for key in keys if key in ("alpha", "clip_seconds")), "")
    return " / ".join(sorted({text[column] for text in part["sampler_text"]}))


def _figure(run: Run, column: Column, part: pd.DataFrame, chosen: pd.DataFrame, published: float | None) -> Figure:
    if column.metric in ("accuracy", "task_mean"):
        if "is_answered" not in part:
            return Figure(published=published)
        return accuracy_figure(part, published=published, over_types=column.metric == "task_mean")
    if chosen.empty:
        return Figure(published=published)
    if column.metric == "frames_scored":
        return Figure(ours=frames_scored_percent(chosen), published=published, digits=2)
    if column.metric == "hours":
        hours = hours_per_seed(chosen)
        if hours is None:
            return Figure(published=None)
        paid = (run.pays_its_own[key] for key in zip(chosen["benchmark"], chosen["selection_id"], strict=True))
        comparable = runs_on_gpu(chosen) and all(paid)
        digits = 1 if hours >= 10 else 2 if hours >= 0.1 else 4
        return Figure(ours=hours, published=published if comparable else None, digits=digits)
    return recall_figure(chosen, column.metric)


def _where(part: pd.DataFrame, where: Mapping[str, str]) -> pd.DataFrame:
    for name, value in where.items():
        part = part[part[name] == value]
    return part


def _kept_columns(shape: Layout, rows: Sequence[TableRow]) -> list[tuple[int, str]]:
    """A layout of the paper whole; of the overview the columns with figures (no recall without evidence)."""
    if shape.anchors:
        return [(i, column.title) for i, column in enumerate(shape.columns)]
    has_ours = [
        any(isinstance(figure := row.figures[i], Figure) and (figure.ours is not None or figure.text) for row in rows)
        for i in range(len(shape.columns))
    ]
    return [(i, column.title) for i, column in enumerate(shape.columns) if has_ours[i]]


def _with_device(columns: list[tuple[int, str]], run: Run) -> list[tuple[int, str]]:
    frame = run.selection_frame
    hours = "GPU hours" if frame.empty or runs_on_gpu(frame) else "Device-hours (cpu)"
    return [(i, hours if title == "Hours" else title) for i, title in columns]


def _published_only(shape: Layout, keys: Sequence[str], taken: set[float]) -> list[tuple[float, TableRow]]:
    """The published lines that no line of ours stands beside, each with its place."""
    rows: list[tuple[float, TableRow]] = []
    for place, line in enumerate(read_anchors(shape.anchors).lines if shape.anchors else ()):
        if place in taken:
            continue
        texts = dict(zip(shape.keys, shape.published_keys(line), strict=True))
        texts["label"] = texts.get("sampler", "")
        figures = tuple(Figure(published=published_value(line, column.published)) for column in shape.columns)
        rows.append((place, TableRow(tuple(texts.get(key, "") for key in keys), figures)))
    return rows


def _notes(run: Run, shape: Layout, rows: Sequence[TableRow]) -> tuple[str, ...]:
    counts = [row.counts for row in rows if row.counts is not None]
    partial = [f"Partial run: {count.questions_text} questions." for count in counts if count.is_partial]
    notes = []
    figures = [figure for row in rows for figure in row.figures if isinstance(figure, Figure)]
    if any(figure.low is not None for figure in figures):
        notes.append("Brackets: 95 % interval, t on the logit scale, clustered by video.")
    if any(figure.has_too_few_videos for figure in figures):
        notes.append("Too few videos: fewer than 5 allow no interval.")
    if shape.anchors:
        notes.append(
            f"Published: {read_anchors(shape.anchors).source}. No test says whether ours differs: the answers behind "
            "a published figure are not published with it."
        )
        notes.append("A published figure stands beside lines of its own model, K, encoder and options only.")
    notes += _pivoted_options(run, shape)
    if any(column.metric == "task_mean" for column in shape.columns) and _reports_task_means(run):
        notes.append("Mean of task types: as MLVU and VSI-Bench are reported, over the types that were asked.")
    if any(figure.text == NOT_SCORED for figure in figures):
        notes.append("Not scored here: the task is not one of focus-eval's benchmarks; lmms-eval's results have it.")
    metrics = sorted({(row.benchmark, row.metric) for row in run.answers if row.metric})
    notes += [f"{benchmark}: scored by its task's own metric, {metric}." for benchmark, metric in metrics]
    if counts:
        notes.append("Questions are counted once; errors, unparsed, fallbacks and below K per question and seed.")
    if any(count.errors for count in counts):
        notes.append("A question that failed under a seed has no answer for that seed and is left out of its accuracy.")
    if any(count.unparsed for count in counts):
        notes.append(_unparsed_note(run))
    if any(count.fallbacks for count in counts):
        notes.append(
            "Fallbacks: the model was fed other frames than the chosen ones (frame_policy: aks), or a black one where "
            "none was chosen."
        )
    notes += run.mixed_versions
    if run.cut_queries:
        notes.append(
            "The encoder reads only the start of long questions: "
            + ", ".join(f"{encoder} cut {cut} of {asked}" for encoder, (cut, asked) in run.cut_queries.items())
            + "."
        )
    if any(figure.seeds > 1 for figure in figures):
        notes.append("±: standard deviation over seeds; the interval is that of the mean over seeds.")
    hours, frame = any(column.metric == "hours" for column in shape.columns), run.selection_frame
    if hours and not all(run.pays_its_own.values()):
        notes.append(
            "Hours are those really spent: a frame embedded for one line costs the others nothing. To compare samplers "
            "by hours, run them with share_frames: false."
        )
    if hours and not frame.empty and not runs_on_gpu(frame):
        notes.append("Hours on a CPU are not compared with the published GPU hours.")
    return merge_notes(partial, notes)


def _unparsed_note(run: Run) -> str:
    """What an answer that could not be read counts as: lmms-eval's own rules may guess, and a guess may be right."""
    frame = run.answer_frame
    n_scored = int((frame["is_unparsed"] & (frame["score"] > 0)).sum())
    guessed = f", but {n_scored} of this run got points from a rule of lmms-eval's, which may guess" if n_scored else ""
    return f"An answer that could not be parsed is wrong{guessed}."


def _pivoted_options(run: Run, shape: Layout) -> list[str]:
    """Notes where a column headed by a sampler's name holds it with other options than the default ones."""
    named = {column.where["sampler"] for column in shape.columns if "sampler" in column.where}
    frame = run.selection_frame
    if frame.empty or not named:
        return []
    shown = frame[frame["sampler"].isin(named) & (frame["label"] != frame["sampler"])]
    pairs = sorted(set(zip(shown["sampler"], shown["label"], strict=True)))
    return [f"{sampler} here: {label}." for sampler, label in pairs]


def _reports_task_means(run: Run) -> bool:
    return any(row.benchmark in MEANS_OVER_TYPES and row.category for row in run.answers)


def _key_text(value: Any) -> str:
    if value is None or value != value:
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)
