"""The data of the page's question browser.

The page reads a small index of all questions when it opens. Details are in chunks of several questions, as base64 of
gzipped JSON. A chunk is unpacked only when one of its questions is opened, so a page of thousands opens fast.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from focus_eval.bench.benchmarks.question import NEAR_SECONDS, in_order
from focus_eval.bench.report.page.charts import styles_of_run
from focus_eval.bench.report.page.thumbnails import Pictures, Thumbnails, evidence_frames
from focus_eval.bench.report.recall import recall_within
from focus_eval.bench.report.run import Run, rows_in_order, sampler_order
from focus_eval.core.types import frozen_floats
from focus_eval.keyframes.rows.records import AnswerRow, SelectionRow

Question = tuple[str, str]
Ids = Mapping[Question, Sequence[tuple[str, str]]]


def rows_by_question(
    run: Run, ids_of: Ids
) -> Iterator[tuple[Question, list[SelectionRow | None], list[AnswerRow | None]]]:
    """Yield each question with its selections and answers, in the order of `ids_of`.

    All parts of a run list their questions in about the same order, so only a few rows of each part are in memory.

    Args:
        ids_of: (benchmark, question id) -> pairs of a selection id and a cell id. A row that does not exist is None.
    """
    selections = rows_in_order(run.selections, [(*key, row_id) for key, ids in ids_of.items() for row_id, _ in ids])
    answers = rows_in_order(run.answers, [(*key, row_id) for key, ids in ids_of.items() for _, row_id in ids])
    for (key, ids), (_, rows), (_, replies) in zip(ids_of.items(), selections, answers, strict=True):
        yield key, [rows.get((*key, row_id)) for row_id, _ in ids], [replies.get((*key, row_id)) for _, row_id in ids]


# If there are more pulls, draw the most relevant one of each of this many bins.
MAX_PULLS_DRAWN = 300


def question_detail(
    rows: Sequence[SelectionRow | None], answers: Sequence[AnswerRow | None], pictures: Mapping[str, str]
) -> dict[str, object]:
    """Return what the page shows of one question, as JSON values: video, options, evidence, pictures, each series."""
    present_rows = [row for row in rows if row is not None]
    first = next((row for row in present_rows if row.error is None), present_rows[0])
    first_answer = next((answer for answer in answers if answer is not None), None)
    # True if times of pulls, clips or evidence pictures come from the mean frame rate.
    is_evidence_pictured = bool(pictures and present_rows[0].evidence_seconds)
    is_at_mean_rate = is_evidence_pictured and all(row.frame_seconds is None for row in present_rows)
    is_at_mean_rate |= any(row.frame_seconds is None and (row.pulled_frames or row.clips) for row in present_rows)
    return {
        "video": first.video,
        "seconds": None if first.duration_seconds is None else round(first.duration_seconds, 2),
        "evidence": [round(time, 2) for time in first.evidence_seconds],
        "evidence_frames": evidence_frames([first, *present_rows]),
        "mean_rate": is_at_mean_rate,
        "options": first.option_texts,
        "correct": first_answer.correct_answer if first_answer else None,
        "pictures": dict(pictures),
        "series": [
            None if row is None else _series_detail(row, answer) for row, answer in zip(rows, answers, strict=True)
        ],
    }


def _series_detail(row: SelectionRow, answer: AnswerRow | None) -> dict[str, object]:
    """Data of one series and question for the page: frames, times, pulls, clips and answer."""
    detail: dict[str, object] = {
        "k": row.k,
        "frames": row.keyframes or [],
        "times": [round(time, 2) for time in row.times_seconds or ()],
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
    """`[times, relevance]` of at most `MAX_PULLS_DRAWN` scored frames, in time order; times in seconds."""
    relevance = np.array(row.pulled_relevance, dtype=np.float64)
    is_known = ~np.isnan(relevance)
    if not is_known.any() or row.info is None:
        return [[], []]
    frames, relevance = np.array(row.pulled_frames)[is_known], relevance[is_known]
    order = np.argsort(frames)
    frames, relevance = frames[order], relevance[order]
    if frames.size > MAX_PULLS_DRAWN:
        best_first = np.lexsort([-relevance, frames * MAX_PULLS_DRAWN // row.info.n_frames])
        _, firsts = np.unique((frames * MAX_PULLS_DRAWN // row.info.n_frames)[best_first], return_index=True)
        frames, relevance = frames[best_first[firsts]], relevance[best_first[firsts]]
    return [np.round(row.seconds_of(frames), 1).tolist(), np.round(relevance, 2).tolist()]


def _clips(row: SelectionRow) -> list[list[float | int | None]]:
    """The clips of a row as [start, stop, mean, radius, is final], the first two in seconds."""
    return [
        [
            *np.round(row.seconds_of([start, stop]), 1).tolist(),
            None if mean is None else round(mean, 3),
            None if radius is None else round(radius, 3),
            int(bool(is_final)),
        ]
        for start, stop, _, mean, radius, is_final in row.clips
    ]


CHUNK_QUESTIONS = 40
# Limit of the total size of all images embedded in a page.
MAX_THUMBNAIL_BYTES = 12_000_000
# Limit of questions: a larger page (about 1 KB per question) exceeds the memory of a phone's browser.
MAX_QUESTIONS = 20_000
MAX_SERIES_SHOWN = 5
_WELL_KNOWN = ("uniform", "topk", "aks", "focus", "focus_released")
RIGHT, WRONG, PARTLY, UNPARSED, ERROR, MISSING, FRAMES_ONLY, UNSCORED = "r", "w", "p", "u", "e", "-", "c", "n"


@dataclass(frozen=True)
class Series:
    """One column of verdicts: a model's answers from a sampler's frames, or the frames alone, on every benchmark.

    Args:
        k: requested frames.
        base: the name without K, which stays the same when the reader switches K.
        ids: (selection id, cell id) by benchmark; the cell id is "" if no model answered.
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
        index: data that the page reads when it opens, JSON values only.
        chunks: base64 of gzip of JSON, `CHUNK_QUESTIONS` questions each.
        pictured: questions with thumbnails.
        n_questions: number of questions of the run; the browser holds the first `MAX_QUESTIONS`.
    """

    index: Mapping[str, Any]
    chunks: Sequence[str]
    pictured: int = 0
    n_questions: int = 0


def pack_browser(
    run: Run, *, thumbnails: Thumbnails | None = None, thumbnail_bytes: int | None = MAX_THUMBNAIL_BYTES
) -> Browser:
    """Return the browser of the questions of `run`, the first `MAX_QUESTIONS` of them.

    Args:
        thumbnails: function that returns images of a video's frames.
        thumbnail_bytes: limit of the bytes of images in the page, which the questions share; None if images are linked.
    """
    all_series = all_series_of(run)
    in_series = {row_id for series in all_series for row_id, _ in series.ids.values()}
    frame = run.selection_frame
    all_questions = frame.loc[frame["selection_id"].isin(in_series), ["benchmark", "question_id"]].drop_duplicates()
    questions = list(all_questions[:MAX_QUESTIONS].itertuples(index=False, name=None))
    ids_of = {key: [series.ids.get(key[0], ("", "")) for series in all_series] for key in questions}
    pictures = Pictures(thumbnails, budget_bytes=thumbnail_bytes, n_questions=len(questions))
    is_shown_by_series = _shown(all_series)
    pictures.make_ahead(_pictured_rows(rows, is_shown_by_series) for _, rows, _ in rows_by_question(run, ids_of))
    lines: list[list[object]] = []
    chunks: list[str] = []
    details: list[dict[str, object]] = []
    for number, (_, rows, answers) in enumerate(rows_by_question(run, ids_of)):
        pictures.add(number, _pictured_rows(rows, is_shown_by_series))
        lines.append(_line(rows, answers))
        details.append(question_detail(rows, answers, pictures.taken.get(number, {})))
        if len(details) == CHUNK_QUESTIONS or number == len(questions) - 1:
            text = json.dumps(details, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            # No timestamp, so that equal values give equal bytes.
            chunks.append(base64.b64encode(gzip.compress(text.encode(), compresslevel=6, mtime=0)).decode())
            details = []
    index = {
        "series": [
            {"name": series.name, "base": series.base, "k": series.k, "css": series.css, "shown": is_shown}
            for series, is_shown in zip(all_series, is_shown_by_series, strict=True)
        ],
        "pair": _first_pair(all_series),
        "near": NEAR_SECONDS,
        "chunk": CHUNK_QUESTIONS,
        "buckets": in_order(run.selection_frame["bucket"]),
        "questions": lines,
    }
    return Browser(index, chunks, pictured=len(pictures.taken), n_questions=len(all_questions))


def all_series_of(run: Run) -> list[Series]:
    """Return the series of `run` by model, then K, then sampler with uniform first; their names are unique.

    A configuration on two benchmarks is one series, although its cell ids differ.
    """
    labels = run.labels
    row_by_id = {row.selection_id: row for row in run.variants}
    styles = styles_of_run(run)
    several_models = len(run.models) > 1
    several_seeds = len({row.seed for row in run.variants}) > 1
    several_k = len({row.k for row in run.variants}) > 1
    cells = list(
        dict.fromkeys((benchmark, row_id, cell_id, model) for benchmark, row_id, cell_id, _, model in run.cells)
    )
    answered = {benchmark for benchmark, *_ in cells}
    chosen_by = run.selection_frame[["benchmark", "selection_id"]].drop_duplicates()
    # An unfinished run may have selections that no model has answered yet.
    cells += [
        (benchmark, selection_id, "", model)
        for benchmark, selection_id in chosen_by.itertuples(index=False, name=None)
        if benchmark not in answered
        for model in run.models or [""]
    ]
    ids: dict[tuple[str, int, str, int], dict[str, tuple[str, str]]] = {}
    for benchmark, selection_id, cell_id, model in cells:
        if selection_id in row_by_id:
            row = row_by_id[selection_id]
            series = (model, row.k, labels[selection_id], row.seed)
            ids.setdefault(series, {})[benchmark] = (selection_id, cell_id)
    all_series = []
    for model, k, label, seed in sorted(ids, key=_series_order):
        distinctions = [model] if several_models else []
        distinctions += [f"seed {seed}"] if several_seeds else []
        all_series.append(
            Series(
                name=", ".join([label, *([f"K={k}"] if several_k else []), *distinctions]),
                label=label,
                css=styles[label].css,
                model=model,
                k=k,
                base=", ".join([label, *distinctions]),
                ids=ids[model, k, label, seed],
            )
        )
    return all_series


def _series_order(series: tuple[str, int, str, int]) -> tuple[str, int, int, str, int]:
    """The sort key of a series (model, K, label, seed): labels by `sampler_order`."""
    model, k, label, seed = series
    return (model, k, *sampler_order(label), seed)


def json_for_script(value: object) -> str:
    """Return `value` as JSON that is safe inside a script element, with any texts in it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Escape "<", because "</script" and "<!--" would end or change the script element, and escape two separators that
    # old JavaScript reads as line ends.
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _shown(all_series: Sequence[Series]) -> list[bool]:
    """A mask of the series that the page draws when it opens: all if they are few, else the best-known samplers."""
    bases = list(dict.fromkeys(series.base for series in all_series))
    if len(bases) <= MAX_SERIES_SHOWN + 1:
        return [True] * len(all_series)
    well_known = list(dict.fromkeys(series.base for series in all_series if series.label in _WELL_KNOWN))
    first = (well_known + [base for base in bases if base not in well_known])[:MAX_SERIES_SHOWN]
    return [series.base in first for series in all_series]


def _first_pair(all_series: Sequence[Series]) -> list[str]:
    """The bases of the two series that the page compares first: focus and uniform where the run has them."""
    bases = list(dict.fromkeys(series.base for series in all_series))
    by_label = {series.label: series.base for series in reversed(all_series)}
    second = by_label.get("uniform", bases[0])
    candidates = [base for base in bases if base != second] or [second]
    focus = by_label.get("focus", second)  # if the run lacks uniform, `second` may be focus itself
    return [focus if focus != second else candidates[-1], second]


def _pictured_rows(rows: Sequence[SelectionRow | None], is_shown_by_series: Sequence[bool]) -> list[SelectionRow]:
    """The distinct selections that get thumbnails; selections drawn when the page opens come first."""
    order = sorted(range(len(rows)), key=lambda i: not is_shown_by_series[i])
    unique = {row.selection_id: row for row in (rows[i] for i in order) if row is not None and not row.error}
    return list(unique.values())


def _line(rows: Sequence[SelectionRow | None], answers: Sequence[AnswerRow | None]) -> list[object]:
    """Return one question's line in the page's list: id, benchmark, bucket, query, verdicts, seconds, recalls.

    `verdicts` has a character per series (see `_verdict`). Recalls are in percent; None if no series has a recall.
    """
    first = next(row for row in rows if row is not None)
    verdicts = "".join(_verdict(row, answer) for row, answer in zip(rows, answers, strict=True))
    recalls = [None if row is None else _recall_percent(row) for row in rows]
    return [
        first.question_id,
        first.benchmark,
        first.bucket,
        first.query,
        verdicts,
        None if first.duration_seconds is None else round(first.duration_seconds),
        recalls if any(recall is not None for recall in recalls) else None,
    ]


def _recall_percent(row: SelectionRow) -> int | None:
    """Evidence recall within `NEAR_SECONDS` in percent, at equal pixels; None if it is unknown."""
    if row.error is not None or not row.evidence_seconds or row.times_seconds is None:
        return None
    evidence = frozen_floats(row.evidence_seconds)
    return round(100 * float(recall_within(evidence, row.times_seconds, (NEAR_SECONDS,), scales=row.scales)[0]))


def _verdict(row: SelectionRow | None, answer: AnswerRow | None) -> str:
    """The character that marks a series' result on one question, such as `RIGHT`, `UNPARSED` or `MISSING`."""
    if answer is None:
        return MISSING if row is None else ERROR if row.error else FRAMES_ONLY
    if answer.error is not None:
        return ERROR
    if answer.is_unparsed:
        return UNPARSED
    if answer.score is None:
        return UNSCORED
    return RIGHT if answer.score == 1 else WRONG if answer.score == 0 else PARTLY
