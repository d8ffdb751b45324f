"""Packs the data of the question browser into the page.

The page holds a small index of all questions, read at once, and details in chunks of questions: JSON, gzip, base64.
A chunk is unpacked when one of its questions is opened, so a page of thousands opens at once.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from focus_eval.report.page.charts import colours_of
from focus_eval.report.page.question_details import question_detail
from focus_eval.report.page.thumbnails import Pictures, Thumbnails
from focus_eval.report.recall import recall_within
from focus_eval.report.run import Run, labels_of, sampler_order
from focus_eval.rows.records import AnswerRow, SelectionRow
from focus_eval.types import frozen_floats

CHUNK_QUESTIONS = 40
# A keyframe this near shows the evidence.
NEAR_SECONDS = 2.0
MOST_SERIES_SHOWN = 5
_WELL_KNOWN = ("uniform", "topk", "aks", "focus", "focus_released")
RIGHT, WRONG, PARTLY, UNPARSED, ERROR, MISSING, CHOSEN, UNSCORED = "r", "w", "p", "u", "e", "-", "c", "n"


@dataclass(frozen=True)
class Series:
    """One column of verdicts: a sampler's frames shown to a model, or the frames alone, on every benchmark.

    Args:
        k: frames asked for.
        base: the name without K: what stays the same when the reader switches K.
        ids: selection and cell id by benchmark; the cell's is "" where no model answered.
    """

    name: str
    label: str
    css: str
    model: str
    k: int
    base: str
    ids: Mapping[str, tuple[str, str]]


@dataclass(frozen=True)
class Browser:
    """The packed browser.

    Args:
        index: what the page reads at once, JSON values only.
        chunks: base64 of gzip of JSON, `CHUNK_QUESTIONS` questions each.
        pictured: questions with thumbnails.
    """

    index: Mapping[str, Any]
    chunks: Sequence[str]
    pictured: int = 0


def pack_browser(run: Run, *, thumbnails: Thumbnails | None = None, thumbnail_bytes: int = 12_000_000) -> Browser:
    """Return the browser of all questions of `run`.

    Args:
        thumbnails: images of frames of a video.
        thumbnail_bytes: most bytes of images in the page; every question gets its share.
    """
    all_series = all_series_of(run)
    selections = {(row.benchmark, row.question_id, row.selection_id): row for row in run.selections}
    answers = {row.key: row for row in run.answers}
    questions = list(dict.fromkeys((row.benchmark, row.question_id) for row in run.selections))
    ids_of = {key: [series.ids.get(key[0], ("", "")) for series in all_series] for key in questions}
    rows_of = {key: [selections.get((*key, selection_id)) for selection_id, _ in ids_of[key]] for key in questions}
    pictures = Pictures(thumbnails, budget_bytes=thumbnail_bytes, n_questions=len(questions))
    shown = _shown(all_series)
    for number, key in enumerate(questions):
        pictures.add(number, _pictured_rows(rows_of[key], shown))
    lines, details = [], []
    for number, key in enumerate(questions):
        answered = [answers.get((*key, cell_id)) for _, cell_id in ids_of[key]]
        lines.append(_line(rows_of[key], answered))
        details.append(question_detail(rows_of[key], answered, pictures.taken.get(number, {})))
    index = {
        "series": [
            {"name": series.name, "base": series.base, "k": series.k, "css": series.css, "shown": is_shown}
            for series, is_shown in zip(all_series, shown, strict=True)
        ],
        "pair": _first_pair(all_series),
        "near": NEAR_SECONDS,
        "chunk": CHUNK_QUESTIONS,
        "buckets": _buckets(run),
        "questions": lines,
    }
    return Browser(index, [_packed(part) for part in _parts(details)], len(pictures.taken))


def all_series_of(run: Run) -> list[Series]:
    """Return the series of `run`, uniform first; model, K and seed are named where there are several.

    A sampler's frames on two benchmarks are one series: a cell's id differs by benchmark, the configuration does not.
    """
    labels = labels_of(run.selections)
    chosen = {row.selection_id: row for row in run.selections}
    classes = colours_of(run)
    several_models = len({row.model for row in run.answers}) > 1
    several_seeds = len({row.seed for row in run.selections}) > 1
    several_k = len({row.k for row in run.selections}) > 1
    cells: Iterable[tuple[str, str, str, str]] = dict.fromkeys(
        (row.benchmark, row.selection_id, row.cell_id, row.model) for row in run.answers
    )
    if not run.answers:
        cells = dict.fromkeys((row.benchmark, row.selection_id, "", "") for row in run.selections)
    ids: dict[tuple[str, int, str, int], dict[str, tuple[str, str]]] = {}
    for benchmark, selection_id, cell_id, model in cells:
        if selection_id in chosen:
            row = chosen[selection_id]
            series = (model, row.k, labels[selection_id], row.seed)
            ids.setdefault(series, {})[benchmark] = (selection_id, cell_id)
    all_series = []
    for model, k, label, seed in sorted(ids, key=_series_order):
        rest = [model] if several_models else []
        rest += [f"seed {seed}"] if several_seeds else []
        all_series.append(
            Series(
                name=", ".join([label, *([f"K={k}"] if several_k else []), *rest]),
                label=label,
                css=classes[label],
                model=model,
                k=k,
                base=", ".join([label, *rest]),
                ids=ids[model, k, label, seed],
            )
        )
    return all_series


def _series_order(series: tuple[str, int, str, int]) -> tuple[str, int, int, str, int]:
    model, k, label, seed = series
    return (model, k, *sampler_order(label), seed)


def json_for_script(value: Any) -> str:
    """Return JSON that may stand inside a script element whatever texts it holds."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # "</script" and "<!--" end or change the element; the two separators are line ends to old JavaScript.
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _shown(all_series: Sequence[Series]) -> list[bool]:
    """Which series the page draws until its reader chooses: all of a few, else the best known ones."""
    bases = list(dict.fromkeys(series.base for series in all_series))
    if len(bases) <= MOST_SERIES_SHOWN + 1:
        return [True] * len(all_series)
    known = list(dict.fromkeys(series.base for series in all_series if series.label in _WELL_KNOWN))
    first = (known + [base for base in bases if base not in known])[:MOST_SERIES_SHOWN]
    return [series.base in first for series in all_series]


def _first_pair(all_series: Sequence[Series]) -> list[str]:
    """The two series that the page compares until its reader chooses: focus with uniform, where they are there."""
    bases = list(dict.fromkeys(series.base for series in all_series))
    by_label = {series.label: series.base for series in reversed(all_series)}
    second = by_label.get("uniform", bases[0])
    others = [base for base in bases if base != second] or [second]
    return [by_label.get("focus", others[-1]), second]


def _pictured_rows(rows: Sequence[SelectionRow | None], shown: Sequence[bool]) -> list[SelectionRow]:
    """The selections whose frames are pictured, each once, those drawn at first before the others."""
    order = sorted(range(len(rows)), key=lambda i: not shown[i])
    unique = {row.selection_id: row for row in (rows[i] for i in order) if row is not None and not row.error}
    return list(unique.values())


def _line(rows: Sequence[SelectionRow | None], answered: Sequence[AnswerRow | None]) -> list[Any]:
    first = _first(rows)
    verdicts = "".join(_verdict(row, answer) for row, answer in zip(rows, answered, strict=True))
    recalls = [None if row is None else _recall_percent(row) for row in rows]
    return [
        first.question_id,
        first.benchmark,
        first.bucket,
        first.query,
        verdicts,
        round(first.duration_seconds),
        recalls if any(recall is not None for recall in recalls) else None,
    ]


def _recall_percent(row: SelectionRow) -> int | None:
    """Share of the evidence with a keyframe within `NEAR_SECONDS`, in percent; None where nothing can be said."""
    if row.error is not None or not row.evidence_seconds:
        return None
    return round(100 * float(recall_within(frozen_floats(row.evidence_seconds), row.times_seconds, (NEAR_SECONDS,))[0]))


def _verdict(row: SelectionRow | None, answer: AnswerRow | None) -> str:
    if answer is None:
        return MISSING if row is None else ERROR if row.error else CHOSEN
    if answer.error is not None:
        return ERROR
    if answer.is_unparsed:
        return UNPARSED
    if answer.score is None:
        return UNSCORED
    return RIGHT if answer.score == 1 else WRONG if answer.score == 0 else PARTLY


def _first(rows: Sequence[SelectionRow | None]) -> SelectionRow:
    return next(row for row in rows if row is not None)


def _buckets(run: Run) -> list[str]:
    present = {row.bucket for row in run.selections}
    ordered = [item for item in ("short", "medium", "long") if item in present]
    return ordered + sorted(present - set(ordered) - {""})


def _parts(details: list[dict[str, Any]]) -> Iterable[list[dict[str, Any]]]:
    for start in range(0, len(details), CHUNK_QUESTIONS):
        yield details[start : start + CHUNK_QUESTIONS]


def _packed(part: list[dict[str, Any]]) -> str:
    text = json.dumps(part, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=6, mtime=0)).decode()
