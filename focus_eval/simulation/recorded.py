"""Makes traces of the relevance that a run stored in its rows: the demo's, or a user's own encoder's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from focus_eval.bandit.clips import nearest_pulled
from focus_eval.errors import InvalidInput
from focus_eval.rows.records import SelectionRow
from focus_eval.rows.storage import load_rows
from focus_eval.types import FloatArray, IntArray, VideoInfo, frozen_floats, frozen_ints

# A trace with wider gaps than this says nothing of events of a second.
WIDEST_MEAN_GAP_SECONDS = 1.1


@dataclass(frozen=True, eq=False)
class RecordedTrace:
    """One question of a run; a frame has the relevance of the nearest frame that was scored.

    Args:
        frames, values: what was scored, ascending, `(n,)`.
    """

    benchmark: str
    question_id: str
    video: str
    bucket: str
    info: VideoInfo
    evidence_seconds: tuple[float, ...]
    frames: IntArray
    values: FloatArray

    def relevance(self, frames: IntArray) -> FloatArray:
        """Return the recorded relevance nearest to each of `frames`, shape `(n,)`."""
        return nearest_pulled(frames, self.frames, self.values)


def recorded_traces(folder: Path) -> list[RecordedTrace]:
    """Return one trace per question of the run in `folder` that has evidence, in the order of benchmark and id.

    Everything that any sampler of the run scored for a question is put together.

    Raises:
        InvalidInput: no such run, several encoders or forms of query, no evidence, or fewer scores than one a second of
            video.
    """
    parts = sorted((folder / "selections").iterdir()) if (folder / "selections").is_dir() else []
    by_question: dict[tuple[str, str], list[SelectionRow]] = {}
    for part in parts:
        for row in load_rows(part, SelectionRow):
            if row.error is None and row.pulled_frames and row.evidence_seconds:
                by_question.setdefault((row.benchmark, row.question_id), []).append(row)
    if not by_question:
        raise InvalidInput(f"{folder}: no rows with scored frames and evidence; name a run that keeps what it scored")
    encoders = {f"{row.encoder} {row.encoder_revision}" for rows in by_question.values() for row in rows}
    if len(encoders) > 1:
        raise InvalidInput(f"{folder}: relevance of several encoders ({', '.join(sorted(encoders))}); narrow the run")
    return [_trace(rows, folder) for _, rows in sorted(by_question.items())]


def _trace(rows: Sequence[SelectionRow], folder: Path) -> RecordedTrace:
    known: dict[int, float] = {}
    if len({row.query for row in rows}) > 1:
        raise InvalidInput(f"{folder}: {rows[0].question_id} was scored for several queries; narrow the run to one")
    for row in rows:
        known.update({f: r for f, r in zip(row.pulled_frames, row.pulled_relevance, strict=True) if r is not None})
    if len(known) * WIDEST_MEAN_GAP_SECONDS < row.n_frames / row.fps:
        raise InvalidInput(
            f"{folder}: {row.question_id} has {len(known)} scored frames in {row.n_frames / row.fps:.0f} s; a trace "
            "needs one a second: run topk with every_seconds=0.5 first"
        )
    frames = sorted(known)
    return RecordedTrace(
        benchmark=row.benchmark,
        question_id=row.question_id,
        video=row.video,
        bucket=row.bucket,
        info=VideoInfo(row.n_frames, row.fps),
        evidence_seconds=tuple(row.evidence_seconds),
        frames=frozen_ints(frames),
        values=frozen_floats([known[frame] for frame in frames]),
    )
