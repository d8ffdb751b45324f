"""Collects what the page shows of one question once it is opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from focus_eval.report.page.thumbnails import evidence_frames
from focus_eval.rows.records import AnswerRow, SelectionRow

# More pulls than this are drawn as that many bins, each with its highest relevance.
MOST_PULLS_DRAWN = 300


def question_detail(
    rows: Sequence[SelectionRow | None], answered: Sequence[AnswerRow | None], pictures: Mapping[str, str]
) -> dict[str, Any]:
    """Return what the page shows of one question: video, options, evidence, pictures, and every series."""
    chosen = [row for row in rows if row is not None]
    first = next((row for row in chosen if row.error is None), chosen[0])
    known = next((answer for answer in answered if answer is not None), None)
    return {
        "video": first.video,
        "seconds": round(first.duration_seconds, 2),
        "evidence": [round(time, 2) for time in first.evidence_seconds],
        "evidence_frames": evidence_frames(first),
        "options": first.option_texts,
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
