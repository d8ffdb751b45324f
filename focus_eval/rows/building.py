"""Builds the rows: every `SelectionRow` and `AnswerRow` of the package is made here.

Selections come from a sampler, a file, published frames or rows made before; answers from a model or a published file.
All of them say the same about the question and about who chose, whether or not a selection came of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from focus_eval.rows.records import AnswerRow, SelectionRow, error_line
from focus_eval.types import VideoInfo

BucketOf = Callable[[float], str]


class AskedQuestion(Protocol):
    """The part of a benchmark's `Question` that names it."""

    @property
    def benchmark(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def query(self) -> str: ...
    @property
    def video(self) -> str: ...
    @property
    def duration_seconds(self) -> float | None: ...


class RowQuestion(AskedQuestion, Protocol):
    """The part of a benchmark's `Question` that goes into rows."""

    @property
    def options(self) -> tuple[str, ...]: ...
    @property
    def answer(self) -> str | None: ...
    @property
    def bucket(self) -> str | None: ...
    @property
    def evidence_seconds(self) -> tuple[float, ...]: ...
    @property
    def category(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class Chooser:
    """Who chose the frames: what a row says of it whatever the question. The fields are those of a `SelectionRow`."""

    selection_id: str
    sampler: str
    k: int
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    changed_options: Mapping[str, Any] = field(default_factory=dict)
    encoder: str = ""
    encoder_revision: str = ""
    role: str = "sampler"


@dataclass(frozen=True, kw_only=True)
class CellNames:
    """How a run's answers are called: a hash over all that can change them, and a readable name."""

    cell_id: str
    cell: str


def selection_row(
    question: RowQuestion,
    chooser: Chooser,
    *,
    video: VideoInfo,
    keyframes: Sequence[int],
    times_seconds: Sequence[float],
    measured_seconds: float | None = None,
    bucket_of: BucketOf | None = None,
    **found: Any,
) -> SelectionRow:
    """Return the row of a question that has a selection.

    Args:
        measured_seconds: length of the video where the benchmark states none; by default that of `video`.
        bucket_of: length bucket of a duration in seconds, for questions that do not state their own.
        found: any other fields of a `SelectionRow`: query, scales, pulled_frames, clips, facts, seconds, ...
    """
    measured = video.duration_seconds if measured_seconds is None else measured_seconds
    duration = measured if question.duration_seconds is None else question.duration_seconds
    return SelectionRow(
        **{
            **_of_question(question, chooser, duration, bucket_of),
            **found,
            "n_frames": video.n_frames,
            "fps": video.fps,
            "keyframes": list(keyframes),
            "times_seconds": list(times_seconds),
        }
    )


def failed_selection_row(
    question: RowQuestion, chooser: Chooser, error: BaseException, *, bucket_of: BucketOf | None = None, **found: Any
) -> SelectionRow:
    """Return the row that records why a question has no selection; `found` as in `selection_row`."""
    fixed = _of_question(question, chooser, question.duration_seconds, bucket_of)
    return SelectionRow(**{**fixed, **found, "error": error_line(error)})


def answer_row(
    question: RowQuestion,
    names: CellNames,
    *,
    model: str,
    frames_asked: int,
    selection: SelectionRow | None,
    fed_frames: Sequence[int],
    **said: Any,
) -> AnswerRow:
    """Return the row of one model's answer, or of the error that prevented it.

    Args:
        selection: None where the wrapper sampled by itself; `said` then has its selection_id and frames_fed.
        fed_frames: indices of the frames that the model was given, in order.
        said: any other fields of an `AnswerRow`: answer, parsed, score, metric, seconds, error, ...
    """
    return AnswerRow(
        **{
            "benchmark": question.benchmark,
            "question_id": question.id,
            "video": question.video,
            "cell_id": names.cell_id,
            "cell": names.cell,
            "model": model,
            "bucket": (question.bucket if selection is None else selection.bucket) or "",
            "frames_asked": frames_asked,
            "frames_chosen": 0 if selection is None else len(selection.keyframes),
            "frames_fed": len(fed_frames),
            "fed_frames": list(fed_frames),
            "correct_answer": question.answer,
            "category": question.category,
            **({} if selection is None else {"selection_id": selection.selection_id}),
            **said,
        }
    )


def _of_question(
    question: RowQuestion, chooser: Chooser, duration_seconds: float | None, bucket_of: BucketOf | None
) -> dict[str, Any]:
    """Return the fields that a row has whether or not a selection came of it."""
    bucket = bucket_of(duration_seconds) if bucket_of and duration_seconds else ""
    return {
        **asdict(chooser),
        "benchmark": question.benchmark,
        "question_id": question.id,
        "video": question.video,
        "query": question.query,
        "bucket": question.bucket or bucket,
        "duration_seconds": duration_seconds or 0.0,
        "evidence_seconds": list(question.evidence_seconds),
        "option_texts": list(question.options),
    }
