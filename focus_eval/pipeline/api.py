"""Chooses keyframes of one video file, outside any benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from focus_eval.benchmarks.question import Question
from focus_eval.core.errors import SelectionMismatch
from focus_eval.core.types import ClipReport, Selection, VideoInfo, frozen_floats, frozen_ints
from focus_eval.encoders.protocol import AnyScorer
from focus_eval.encoders.registry import make_encoder
from focus_eval.pipeline.selector import Selector
from focus_eval.rows.records import SelectionRow
from focus_eval.samplers.base import FrameSampler
from focus_eval.samplers.registry import make_sampler

if TYPE_CHECKING:
    from focus_eval.encoders.store import RelevanceStore


def select_keyframes(
    path: str | Path,
    *,
    query: str,
    k: int,
    sampler: str | FrameSampler = "focus",
    encoder: str | AnyScorer = "offline",
    seed: int = 0,
    store: RelevanceStore | None = None,
    backend: str = "pyav",
) -> Selection:
    """Return the selection of `k` keyframes of the video at `path` for `query`.

    `sampler` and `encoder` are names, with options or without ("focus:alpha=0.1"), or made objects; a sampler that
    never pulls loads no encoder.

    Raises:
        FocusEvalError: a file, an option or a relevance that is not as it must be; the message says what to do.
    """
    made = make_sampler(sampler) if isinstance(sampler, str) else sampler
    if isinstance(encoder, str) and made.needs_encoder:
        encoder = make_encoder(encoder)
    selector = Selector(
        sampler=made,
        encoder=None if isinstance(encoder, str) else encoder,
        k=k,
        seed=seed,
        store=store,
        backend=backend,
    )
    return selection_of(selector.select(query_question(path, query), Path(path)))


def query_question(path: str | Path, query: str) -> Question:
    """Return the question of a single query on a single file, outside any benchmark."""
    return Question(benchmark="video", id=query, query=query, options=(), video=str(path), answer=None)


def selection_of(row: SelectionRow) -> Selection:
    """Return the `Selection` that `row` records.

    Raises:
        SelectionMismatch: a row that records an error instead.
    """
    if row.error is not None:
        raise SelectionMismatch(f"{row.benchmark} {row.question_id}: no selection, {row.error}")
    relevance = [np.nan if value is None else value for value in row.pulled_relevance]
    return Selection(
        keyframes=tuple(row.keyframes),
        video=VideoInfo(row.n_frames, row.fps),
        k=row.k,
        sampler=row.sampler,
        options=row.options,
        pulled_frames=frozen_ints(row.pulled_frames),
        pulled_relevance=frozen_floats(relevance),
        scales=None if row.scales is None else tuple(row.scales),
        clips=tuple(ClipReport(*clip) for clip in row.clips),
        facts=row.facts,
    )
