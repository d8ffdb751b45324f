"""How do a run's rows become a table?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from focus_eval.report.anchors import published_value, read_anchors
from focus_eval.report.layouts import KEY_TITLES, Column, Layout, layout_named
from focus_eval.report.run import Run, sampler_order
from focus_eval.report.statistics import mean_estimate, spread_over_seeds
from focus_eval.report.table import Counts, Figure, Table, TableRow, merge_notes

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
    placed: list[tuple[int, TableRow]] = []
    if not lines.empty:
        parts = lines.groupby(list(keys), sort=False, dropna=False)
        for values, part in sorted(parts, key=lambda one: _line_order(one[1])):
            placed.append(_row(run, shape, dict(zip(keys, values, strict=True)), part))
    placed += _published_only(shape, keys, {place for place, _ in placed})
    ordered = [row for _, row in sorted(placed, key=lambda one: one[0])]
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


def accuracy_figure(part: pd.DataFrame, *, published: float | None = None) -> Figure:
    """Return accuracy in percent over the answered questions of `part`, whose rows may come from several seeds.

    A question asked under several seeds counts once, with its mean score.
    """
    answered = part[part["is_answered"]]
    if answered.empty:
        return Figure(published=published)
    by_question = answered.groupby(["benchmark", "question_id"], sort=False).agg(
        score=("score", "mean"), video=("video", "first")
    )
    estimate = mean_estimate(by_question["score"].to_numpy(), by_question["video"].tolist())
    seeds = answered.groupby("seed")["score"].mean() if "seed" in answered else pd.Series([estimate.value])
    spread = spread_over_seeds([100 * value for value in seeds])
    return Figure(
        ours=100 * estimate.value,
        low=100 * estimate.low,
        high=100 * estimate.high,
        published=published,
        spread=spread.deviation if spread.seeds > 1 else None,
        seeds=spread.seeds,
    )


def counts_of(run: Run, part: pd.DataFrame) -> Counts:
    """Return what the figures over `part` (lines of answers, or of selections where no model answered) rest on."""
    n_seeds = part["seed"].nunique() if "seed" in part else 1
    expected = [run.expected_questions.get(name) for name in part["benchmark"].unique()]
    is_error = part["error"].notna()
    answered = "is_answered" in part
    below = part["is_below_k"] if answered else (~is_error & (part["n_keyframes"] < part["k"]))
    return Counts(
        questions=int(part.loc[~is_error, ["benchmark", "question_id"]].drop_duplicates().shape[0]),
        expected=sum(one for one in expected if one) if all(expected) else None,
        unparsed=int(part["is_unparsed"].sum()) if answered else 0,
        errors=int(is_error.sum()) // max(1, n_seeds),
        fallbacks=int(part["fallback"].notna().sum()) if answered else 0,
        below_k=int(below.sum()),
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


def _row(run: Run, shape: Layout, values: dict[str, Any], part: pd.DataFrame) -> tuple[int, TableRow]:
    """Return a line of ours and its place: that of the published line it stands beside, else after them all."""
    named = {**{name: part[name].iloc[0] for name in ("sampler", "benchmark") if name in part}, **values}
    published = read_anchors(shape.anchors).lines if shape.anchors else ()
    wanted = shape.anchor_key(named) if shape.anchors else {}
    place = next((i for i, line in enumerate(published) if wanted.items() <= line.items()), len(published))
    line = published[place] if place < len(published) else None
    figures = []
    for column in shape.columns:
        value = published_value(line, column.published) if column.published else None
        figures.append(_figure(run, column, _where(part, column.where), value))
    return place, TableRow(tuple(map(_key_text, values.values())), tuple(figures), counts_of(run, part))


def _figure(run: Run, column: Column, part: pd.DataFrame, published: float | None) -> Figure:
    if column.metric == "accuracy":
        return accuracy_figure(part, published=published) if "is_answered" in part else Figure(published=published)
    chosen = _selections(run, part)
    if chosen.empty:
        return Figure(published=published)
    if column.metric == "frames_scored":
        seen, total = chosen["n_pulls"].sum(), chosen["n_frames"].sum()
        return Figure(ours=100 * seen / total if total else None, published=published, digits=2)
    if column.metric == "hours":
        hours = chosen["select_seconds"].sum() / 3600 / chosen["seed"].nunique()
        comparable = runs_on_gpu(chosen) and all(run.pays_its_own[one] for one in chosen["selection_id"].unique())
        digits = 1 if hours >= 10 else 2 if hours >= 0.1 else 4
        return Figure(ours=hours, published=published if comparable else None, digits=digits)
    return _recall_figure(chosen, column.metric)


def _recall_figure(chosen: pd.DataFrame, metric: str) -> Figure:
    by_question = (
        chosen.dropna(subset=[metric]).groupby("question_id").agg(share=(metric, "mean"), video=("video", "first"))
    )
    if by_question.empty:
        return Figure()
    estimate = mean_estimate(by_question["share"].to_numpy(dtype=float), by_question["video"].tolist())
    return Figure(ours=100 * estimate.value, low=100 * estimate.low, high=100 * estimate.high)


def _selections(run: Run, part: pd.DataFrame) -> pd.DataFrame:
    """The selections behind lines of answers, each once whichever models were shown it."""
    frame = run.selection_frame
    if frame.empty or "selection_id" not in part:
        return frame
    keys = ["benchmark", "question_id", "selection_id"]
    wanted = part[keys].drop_duplicates()
    chosen: pd.DataFrame = frame.merge(wanted, on=keys)
    return chosen


def runs_on_gpu(chosen: pd.DataFrame) -> bool:
    """Whether all selections that pulled anything ran on a GPU: only then may hours be compared with the paper's."""
    devices = chosen.loc[chosen["n_pulls"] > 0, "select_device"]
    return bool(len(devices)) and all(str(one).startswith("cuda") for one in devices.unique())


def _where(part: pd.DataFrame, where: Mapping[str, str]) -> pd.DataFrame:
    for name, value in where.items():
        part = part[part[name] == value]
    return part


def _kept_columns(shape: Layout, rows: Sequence[TableRow]) -> list[tuple[int, str]]:
    """A layout of the paper whole; of the overview the columns with figures (no recall without evidence)."""
    if shape.anchors:
        return [(i, column.title) for i, column in enumerate(shape.columns)]
    has_ours = [
        any(isinstance(one := row.figures[i], Figure) and one.ours is not None for row in rows)
        for i in range(len(shape.columns))
    ]
    return [(i, column.title) for i, column in enumerate(shape.columns) if has_ours[i]]


def _with_device(columns: list[tuple[int, str]], run: Run) -> list[tuple[int, str]]:
    frame = run.selection_frame
    hours = "GPU hours" if frame.empty or runs_on_gpu(frame) else "Device-hours (cpu)"
    return [(i, hours if title == "Hours" else title) for i, title in columns]


def _published_only(shape: Layout, keys: Sequence[str], taken: set[int]) -> list[tuple[int, TableRow]]:
    """The published lines that no line of ours stands beside, each with its place."""
    rows = []
    for place, line in enumerate(read_anchors(shape.anchors).lines if shape.anchors else ()):
        if place in taken:
            continue
        texts = dict(zip(shape.keys, shape.published_keys(line), strict=True))
        texts["label"] = texts.get("sampler", "")
        figures = tuple(Figure(published=published_value(line, one.published)) for one in shape.columns)
        rows.append((place, TableRow(tuple(texts.get(key, "") for key in keys), figures)))
    return rows


def _notes(run: Run, shape: Layout, rows: Sequence[TableRow]) -> tuple[str, ...]:
    counts = [row.counts for row in rows if row.counts is not None]
    partial = [f"Partial run: {one.questions_text} questions." for one in counts if one.is_partial]
    notes = ["Brackets: 95 % interval, bootstrap over videos."]
    if shape.anchors:
        notes.append(
            f"Published: {read_anchors(shape.anchors).source}. A difference is emphasised only where the interval "
            "of ours leaves out the published figure, which is taken as exact."
        )
    if any(one.errors for one in counts):
        notes.append("Questions with an error have no answer and are not part of the accuracy; they are counted.")
    if any(one.unparsed for one in counts):
        notes.append("An answer that could not be parsed is wrong and counted.")
    if any(one.fallbacks for one in counts):
        notes.append("Fallbacks: the model was fed other frames than the chosen ones (frame_policy: aks).")
    if run.cut_queries:
        notes.append(
            "The encoder reads only the start of long questions: "
            + ", ".join(f"{encoder} cut {cut} of {asked}" for encoder, (cut, asked) in run.cut_queries.items())
            + "."
        )
    if any(isinstance(one, Figure) and one.seeds > 1 for row in rows for one in row.figures):
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


def _key_text(value: Any) -> str:
    if value is None or value != value:
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)
