"""Recorded relevance of real questions, replayed in simulations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from focus_eval.bench.rows.store import StoredRows
from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import FloatArray, IntArray, VideoInfo, frozen_floats, frozen_ints
from focus_eval.keyframes.rows.records import SCORED, SelectionRow
from focus_eval.keyframes.samplers.bandit import nearest_pulled

# Largest mean gap between scored frames: a trace with a larger gap cannot show events of one second.
WIDEST_MEAN_GAP_SECONDS = 1.1


@dataclass(frozen=True, eq=False)
class RecordedTrace:
    """Recorded relevance of one question; a frame has the relevance of the nearest scored frame.

    Args:
        frames, values: scored frames, ascending, and their relevance, `(n,)`.
        is_cosine: True if relevance is `(1 + cosine) / 2`, False if it is a probability.
        is_published: True if the relevance was imported for the benchmark's own questions, so that rows of a simulation
            may be compared with the benchmark's answers.
        scan: the trace of the same question from a scan encoder; None if there is none.
    """

    benchmark: str
    question_id: str
    video: str
    bucket: str
    info: VideoInfo
    evidence_seconds: tuple[float, ...]
    frames: IntArray
    values: FloatArray
    is_cosine: bool = False
    is_published: bool = False
    scan: RecordedTrace | None = None

    def relevance(self, frames: IntArray) -> FloatArray:
        """Return the recorded relevance nearest to each of `frames`, shape `(n,)`."""
        return nearest_pulled(frames, self.frames, self.values)


def recorded_traces(folder: Path) -> list[RecordedTrace]:
    """Return one trace per question of the run in `folder` that has evidence, in the order of benchmark and id.

    A trace joins the frames that all samplers of the run scored for its question.

    Raises:
        InvalidInput: there is no such run, it has several encoders or forms of query, no question has evidence, or a
            question has fewer scores than about one per second of video.
    """
    parts = sorted((folder / "selections").iterdir()) if (folder / "selections").is_dir() else []
    by_question: dict[tuple[str, str], list[SelectionRow]] = {}
    for part in parts:
        for row in StoredRows(part, SelectionRow):
            if row.error is None and row.pulled_frames and row.evidence_seconds:
                by_question.setdefault((row.benchmark, row.question_id), []).append(row)
    if not by_question:
        raise InvalidInput(f"{folder}: no rows with scored frames and evidence; name a run that keeps what it scored")
    encoders = {f"{row.encoder} {row.encoder_revision}" for rows in by_question.values() for row in rows}
    if len(encoders) > 1:
        raise InvalidInput(f"{folder}: relevance of several encoders ({', '.join(sorted(encoders))}); narrow the run")
    return [_trace(rows, folder) for _, rows in sorted(by_question.items())]


def scanned_traces(traces: Sequence[RecordedTrace], folder: Path) -> list[RecordedTrace]:
    """Return `traces` with the relevance of the run in `folder` as their traces of the scan encoder.

    Raises:
        InvalidInput: as `recorded_traces`, or a question that `folder` does not have.
    """
    scans = {trace.question_id: trace for trace in recorded_traces(folder)}
    missing = [trace.question_id for trace in traces if trace.question_id not in scans]
    if missing:
        raise InvalidInput(f"{folder}: nothing recorded for {len(missing)} questions, the first: {missing[0]}")
    return [replace(trace, scan=scans[trace.question_id]) for trace in traces]


def _trace(rows: Sequence[SelectionRow], folder: Path) -> RecordedTrace:
    """Return the trace of one question from all its rows.

    Raises InvalidInput if the rows have several queries, an unknown length, or fewer scored frames than about one a
    second.
    """
    if len({row.query for row in rows}) > 1:
        raise InvalidInput(f"{folder}: {rows[0].question_id} was scored for several queries; narrow the run to one")
    relevance_at = {
        frame: relevance
        for row in rows
        for frame, relevance in zip(row.pulled_frames, row.pulled_relevance, strict=True)
        if relevance is not None
    }
    row = rows[-1]  # the fields read below are equal in all rows of a question
    if row.info is None:
        raise InvalidInput(f"{folder}: the length of {row.video} is not known; a trace needs rows of a read video")
    if len(relevance_at) * WIDEST_MEAN_GAP_SECONDS < row.info.duration_seconds:
        raise InvalidInput(
            f"{folder}: {row.question_id} has {len(relevance_at)} scored frames in {row.info.duration_seconds:.0f} s; "
            "a trace needs one a second: run topk with every_seconds=0.5 first"
        )
    frames = sorted(relevance_at)
    return RecordedTrace(
        benchmark=row.benchmark,
        question_id=row.question_id,
        video=row.video,
        bucket=row.bucket,
        info=row.info,
        evidence_seconds=tuple(row.evidence_seconds),
        frames=frozen_ints(frames),
        values=frozen_floats([relevance_at[frame] for frame in frames]),
        is_cosine=bool(row.facts.get("is_cosine")),
        is_published=row.sampler == SCORED,
    )
