"""Packs the data of the question browser into the page.

The page holds a small index of all questions, read at once, and details in chunks of questions: JSON, gzip, base64.
A chunk is unpacked when one of its questions is opened, so a page of thousands opens at once.
"""

from __future__ import annotations

import base64
import gzip
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from focus_eval.report.page.charts import colours_of
from focus_eval.report.run import Run, labels_of, sampler_order
from focus_eval.rows.records import AnswerRow, SelectionRow

CHUNK_QUESTIONS = 40
# More pulls than this are drawn as that many bins, each with its highest relevance.
MOST_PULLS_DRAWN = 300
MOST_SERIES_SHOWN = 5
_WELL_KNOWN = ("uniform", "topk", "aks", "focus", "focus_released")
RIGHT, WRONG, PARTLY, UNPARSED, ERROR, MISSING, CHOSEN, UNSCORED = "r", "w", "p", "u", "e", "-", "c", "n"

# From the selections of one question to one image per keyframe: JPEG bytes to embed, or a path relative to the page.
Thumbnails = Callable[[Sequence[SelectionRow]], Mapping[int, "bytes | str"]]


@dataclass(frozen=True)
class Series:
    """One column of verdicts: a sampler's frames shown to a model, or the frames alone, on every benchmark.

    Args:
        ids: selection and cell id by benchmark; the cell's is "" where no model answered.
    """

    name: str
    label: str
    css: str
    model: str
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


@dataclass
class _Pictures:
    """Hands out thumbnails until the bytes are used up; a frame of a video is taken once."""

    make: Thumbnails | None
    budget_bytes: int
    taken: dict[int, dict[str, str]] = field(default_factory=dict)

    def add(self, number: int, rows: Sequence[SelectionRow]) -> None:
        """Take the pictures of question `number`, if they still fit."""
        if self.make is None or self.budget_bytes <= 0 or not rows:
            return
        found: dict[str, str] = {}
        for frame, image in self.make(rows).items():
            text = image if isinstance(image, str) else "data:image/jpeg;base64," + base64.b64encode(image).decode()
            found[str(frame)] = text
        self.budget_bytes -= sum(len(text) for text in found.values())
        if self.budget_bytes >= 0 and found:
            self.taken[number] = found


def pack_browser(run: Run, *, thumbnails: Thumbnails | None = None, thumbnail_bytes: int = 12_000_000) -> Browser:
    """Return the browser of all questions of `run`.

    Args:
        thumbnails: images of a selection's keyframes.
        thumbnail_bytes: most bytes of images in the page; questions get theirs in turn over the length buckets.
    """
    all_series = all_series_of(run)
    selections = {(row.benchmark, row.question_id, row.selection_id): row for row in run.selections}
    answers = {row.key: row for row in run.answers}
    questions = list(dict.fromkeys((row.benchmark, row.question_id) for row in run.selections))
    ids_of = {key: [series.ids.get(key[0], ("", "")) for series in all_series] for key in questions}
    rows_of = {key: [selections.get((*key, selection_id)) for selection_id, _ in ids_of[key]] for key in questions}
    pictures = _Pictures(thumbnails, thumbnail_bytes)
    if thumbnails is not None:
        for number in _in_turn([_first(rows_of[key]).bucket for key in questions]):
            unique = {row.selection_id: row for row in rows_of[questions[number]] if row is not None and not row.error}
            pictures.add(number, list(unique.values()))
    lines, details = [], []
    for number, key in enumerate(questions):
        answered = [answers.get((*key, cell_id)) for _, cell_id in ids_of[key]]
        lines.append(_line(rows_of[key], answered))
        details.append(_detail(rows_of[key], answered, pictures.taken.get(number, {})))
    index = {
        "series": [
            {"name": series.name, "css": series.css, "shown": shown}
            for series, shown in zip(all_series, _shown(all_series), strict=True)
        ],
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
    for model, k, label, seed in sorted(
        ids, key=lambda entry: (entry[0], entry[1], *sampler_order(entry[2]), entry[3])
    ):
        parts = [label]
        parts += [f"K={k}"] if several_k else []
        parts += [model] if several_models else []
        parts += [f"seed {seed}"] if several_seeds else []
        all_series.append(Series(", ".join(parts), label, classes[label], model, ids[model, k, label, seed]))
    return all_series


def json_for_script(value: Any) -> str:
    """Return JSON that may stand inside a script element whatever texts it holds."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # "</script" and "<!--" end or change the element; the two separators are line ends to old JavaScript.
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _shown(all_series: Sequence[Series]) -> list[bool]:
    """Which series the page draws until its reader chooses: all of a few, else the best known ones."""
    if len(all_series) <= MOST_SERIES_SHOWN + 1:
        return [True] * len(all_series)
    known = [i for i, series in enumerate(all_series) if series.label in _WELL_KNOWN]
    first = (known + [i for i in range(len(all_series)) if i not in known])[:MOST_SERIES_SHOWN]
    return [i in first for i in range(len(all_series))]


def _line(rows: Sequence[SelectionRow | None], answered: Sequence[AnswerRow | None]) -> list[Any]:
    first = _first(rows)
    verdicts = "".join(_verdict(row, answer) for row, answer in zip(rows, answered, strict=True))
    return [first.question_id, first.benchmark, first.bucket, first.query, verdicts]


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


def _detail(
    rows: Sequence[SelectionRow | None], answered: Sequence[AnswerRow | None], pictures: Mapping[str, str]
) -> dict[str, Any]:
    first = _first(rows)
    known = next((item for item in answered if item is not None), None)
    return {
        "video": first.video,
        "seconds": round(first.duration_seconds, 2),
        "evidence": [round(time, 2) for time in first.evidence_seconds],
        "correct": known.correct_answer if known else None,
        "pictures": dict(pictures),
        "series": [
            None if row is None else _series_detail(row, answer) for row, answer in zip(rows, answered, strict=True)
        ],
    }


def _series_detail(row: SelectionRow, answer: AnswerRow | None) -> dict[str, Any]:
    detail: dict[str, Any] = {
        "k": row.k,
        "frames": row.keyframes,
        "times": [round(time, 2) for time in row.times_seconds],
        "pulls": len(row.pulled_frames),
        "of": row.n_frames,
        "pulled": _pulled(row),
        "clips": _clips(row),
        "error": row.error,
    }
    if answer is not None:
        detail |= {
            "answer": answer.answer,
            "parsed": answer.parsed,
            "score": answer.score,
            "fed": answer.frames_fed,
            "asked": answer.frames_asked,
            "fallback": answer.fallback,
            "error": answer.error or row.error,
        }
    return detail


def _pulled(row: SelectionRow) -> list[list[float]]:
    """`[times, relevance]`, in time order, at most `MOST_PULLS_DRAWN` of them."""
    relevance = np.array(row.pulled_relevance, dtype=np.float64)
    known = ~np.isnan(relevance)
    if row.fps <= 0 or not known.any():
        return [[], []]
    frames, relevance = np.array(row.pulled_frames)[known], relevance[known]
    order = np.argsort(frames)
    frames, relevance = frames[order], relevance[order]
    if frames.size > MOST_PULLS_DRAWN:
        place = np.minimum((frames * MOST_PULLS_DRAWN / max(1, row.n_frames)).astype(int), MOST_PULLS_DRAWN - 1)
        best = np.full(MOST_PULLS_DRAWN, -1.0)
        np.maximum.at(best, place, relevance)
        kept = np.flatnonzero(best >= 0)
        frames, relevance = (kept + 0.5) * row.n_frames / MOST_PULLS_DRAWN, best[kept]
    return [np.round(frames / row.fps, 1).tolist(), np.round(relevance, 2).tolist()]


def _clips(row: SelectionRow) -> list[list[Any]]:
    fps = row.fps or 1.0
    return [
        [
            round(start / fps, 1),
            round(stop / fps, 1),
            None if mean is None else round(mean, 3),
            None if radius is None else round(radius, 3),
            int(bool(is_final)),
        ]
        for start, stop, _, mean, radius, is_final in row.clips
    ]


def _first(rows: Sequence[SelectionRow | None]) -> SelectionRow:
    return next(row for row in rows if row is not None)


def _buckets(run: Run) -> list[str]:
    present = {row.bucket for row in run.selections}
    ordered = [item for item in ("short", "medium", "long") if item in present]
    return ordered + sorted(present - set(ordered) - {""})


def _in_turn(buckets: Sequence[str]) -> list[int]:
    """Places of `buckets` so that every kind comes in turn."""
    queues = [[i for i, bucket in enumerate(buckets) if bucket == kind] for kind in dict.fromkeys(buckets)]
    return [place for turn in itertools.zip_longest(*queues) for place in turn if place is not None]


def _parts(details: list[dict[str, Any]]) -> Iterable[list[dict[str, Any]]]:
    for start in range(0, len(details), CHUNK_QUESTIONS):
        yield details[start : start + CHUNK_QUESTIONS]


def _packed(part: list[dict[str, Any]]) -> str:
    text = json.dumps(part, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=6, mtime=0)).decode()
