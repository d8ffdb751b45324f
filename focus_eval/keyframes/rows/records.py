"""Rows of selections and answers: their fields, and how they are built from parts.

Two kinds of rows, both append-only JSON lines: a `SelectionRow` holds the chosen frames and their cost; an `AnswerRow`
holds one model's answer from them. They are joined on (benchmark, question_id, selection_id), never on position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from focus_eval.core.errors import FocusEvalError, printable
from focus_eval.core.types import (
    ClipReport,
    FloatArray,
    Question,
    Selection,
    TextPulls,
    VideoInfo,
    frozen_floats,
    frozen_ints,
)

RowT = TypeVar("RowT", bound="SelectionRow | AnswerRow")
_NAN = float("nan")

# The sampler of rows that hold imported relevance and no selection.
SCORED = "scored"
# Stages of choosing frames. The seconds of blocking stages add up to the time that the device is held; concurrent
# stages run in other threads at the same time.
BLOCKING_STAGES = ("open", "scan", "encode", "ask", "select", "idle")
CONCURRENT_STAGES = ("decode", "preprocess")
# Usage of the model that a sampler asked: calls, images in them, tokens, and dollars paid.
LLM_USAGE = ("calls", "images", "input", "output", "dollars")
# Modes of decoding: all frames, only frames that others refer to, or only sync frames.
DECODE_MODES = ("all", "reference", "sync")


@dataclass(frozen=True, kw_only=True, slots=True)
class SelectionRow:
    """The selection of one question, or the error that prevented it.

    Args:
        selection_id: hash over all that can change the selection (sampler and options, encoder and revision, k, seed).
        bucket: length bucket of the benchmark, e.g. "short".
        duration_seconds: the length stated by the benchmark, else that of the file; None if unknown.
        n_frames, fps: length and rate of the video; None if unknown.
        keyframes, times_seconds: ascending frames and their presentation times; None if a log does not state them.
        scales: shrink factor per keyframe or None.
        pulled_frames, pulled_relevance: pulled frames and their relevance, in pull order; a relevance is None if only
            the logit was pulled.
        text_pulls: `[text, frames, relevance]` of each other text that frames were scored for, in pull order.
        looked_frames: frames whose pictures the sampler looked at itself, in that order; not pulls.
        clips: `[start, stop, n_pulls, mean, radius, is_final]` per arm.
        frame_seconds: if the frame rate varies, `[frame, seconds]` by the file's own clock, for pulls, ends of clips
            and frames at the evidence; [] if every frame is within half a frame of `frame / fps`; None if the clock is
            not known.
        forwards: encoder forwards actually made for this question; other scores came from the store or from another
            question of the video. `n_scored` is the paper's count.
        seconds: by stage. `BLOCKING_STAGES` add up to the wall-clock time that the device was held for this question
            (its share, if several were served at once); `CONCURRENT_STAGES` ran in other threads meanwhile. `device`:
            seconds that the device computed, by its own clock; `decode_cpu`: processor seconds of all threads that
            decoded. Both are right in sums over a run.
        gmacs: 10^9 multiply-adds by part (see `encoders.cost`): "image", "keys" and "scan_image" once a frame, "fusion"
            once a frame and question; {} if unknown.
        decoded: frames that the decoder gave out for this question, those passed through included, by the option that
            chose them: "all", "reference", "sync"; {} if the reader does not count.
        encoded: share of the distinct "main" and "scan" frames, if those lists are not kept (see `report.cost`).
        evidence_seconds: times of the annotated evidence; empty if the benchmark has none.
        evidence_intervals: annotated evidence as `[start, stop]` in seconds, or `[start, stop, scene]` if several
            intervals may form one scene.
        option_texts: the question's options in order (A, B, ..); empty for open questions.
        changed_options: those of `options` that are not the sampler's defaults.
        n_pulls: number of scored frames, if `pulled_frames` is not kept (simulations); else None.
        scan_encoder, scan_encoder_revision: the second, cheap encoder; "" if there is none.
        scanned_frames, n_scanned: frames that the scan encoder saw, ascending, or their number if the list is not kept;
            they are no pulls.
        scan_forwards: like `forwards`, for the scan encoder.
        llm, llm_revision: the model that the sampler asked; "" if it asks none.
        asked: usage of a model by sampler or encoder: "calls" and "images" sent, "input" and "output" tokens if the
            service states them, "replayed" calls answered from the store, "requests" and "dollars" spent,
            "without_temperature" and "without_seed" replies whose service refuses that setting; {} without one.
        role: "sampler", "control", "ceiling" (sees the annotation) or "floor" (sees no frame).
        error: one line, None on success.
    """

    benchmark: str
    question_id: str
    video: str
    query: str
    selection_id: str
    sampler: str
    options: dict[str, Any]
    encoder: str
    encoder_revision: str
    k: int
    seed: int
    bucket: str
    duration_seconds: float | None
    n_frames: int | None = None
    fps: float | None = None
    keyframes: list[int] | None = field(default_factory=list)
    times_seconds: list[float] | None = field(default_factory=list)
    scales: list[float] | None = None
    pulled_frames: list[int] = field(default_factory=list)
    pulled_relevance: list[float | None] = field(default_factory=list)
    clips: list[list[Any]] = field(default_factory=list)
    frame_seconds: list[list[float]] | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    forwards: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    device: str = ""
    gmacs: dict[str, float] = field(default_factory=dict)
    decoded: dict[str, int] = field(default_factory=dict)
    encoded: dict[str, float] = field(default_factory=dict)
    evidence_seconds: list[float] = field(default_factory=list)
    evidence_intervals: list[list[float]] = field(default_factory=list)
    option_texts: list[str] = field(default_factory=list)
    changed_options: dict[str, Any] = field(default_factory=dict)
    n_pulls: int | None = None
    role: str = "sampler"
    scan_encoder: str = ""
    scan_encoder_revision: str = ""
    scanned_frames: list[int] = field(default_factory=list)
    n_scanned: int | None = None
    scan_forwards: int = 0
    llm: str = ""
    llm_revision: str = ""
    asked: dict[str, float] = field(default_factory=dict)
    text_pulls: list[list[Any]] = field(default_factory=list)
    looked_frames: list[int] = field(default_factory=list)
    error: str | None = None

    @property
    def frames_scanned(self) -> int:
        """Number of frames that the scan encoder saw for this question, whether the row lists or only counts them."""
        return len(self.scanned_frames) if self.n_scanned is None else self.n_scanned

    @property
    def n_scored(self) -> int:
        """Number of pulls of this question, whether the row lists or only counts them.

        A frame scored for two texts counts twice.
        """
        if self.n_pulls is not None:
            return self.n_pulls
        return len(self.pulled_frames) + sum(len(frames) for _, frames, _ in self.text_pulls)

    @property
    def encoded_frames(self) -> set[int]:
        """Distinct frames scored for any text; empty if the row only counts them."""
        return {*self.pulled_frames}.union(*(frames for _, frames, _ in self.text_pulls))

    @property
    def info(self) -> VideoInfo | None:
        """Length and rate of the video; None if unknown."""
        return None if self.n_frames is None or self.fps is None else VideoInfo(self.n_frames, self.fps)

    def seconds_of(self, frames: ArrayLike) -> FloatArray:
        """Return times of pulls or ends of clips by the file's own clock; by the mean rate if the clock is unknown."""
        fps = self.fps or 1.0
        if not self.frame_seconds:
            return np.asarray(frames) / fps
        seconds_by_frame = {int(frame): seconds for frame, seconds in self.frame_seconds}
        return np.array([seconds_by_frame.get(int(frame), frame / fps) for frame in np.asarray(frames)])

    @property
    def selection(self) -> Selection | None:
        """The selection that `known_selection` flattened; None if choosing failed or the frames are unknown.

        Also None for a row that counts its pulls without listing them.

        Raises:
            InvalidInput: invalid frames, such as one past the end, in rows of other programs.
        """
        is_counted = bool(self.n_pulls or self.n_scanned)
        if self.error is not None or self.keyframes is None or self.info is None or is_counted:
            return None
        return Selection(
            keyframes=tuple(self.keyframes),
            video=self.info,
            k=self.k,
            sampler=self.sampler,
            options=self.options,
            pulled_frames=frozen_ints(self.pulled_frames),
            pulled_relevance=frozen_floats([_NAN if value is None else value for value in self.pulled_relevance]),
            text_pulls=tuple(
                TextPulls(text, frozen_ints(frames), frozen_floats(relevance))
                for text, frames, relevance in self.text_pulls
            ),
            looked_frames=frozen_ints(self.looked_frames),
            scanned_frames=frozen_ints(self.scanned_frames),
            scales=None if self.scales is None else tuple(self.scales),
            clips=tuple(ClipReport(*clip) for clip in self.clips),
            facts=self.facts,
        )

    @property
    def key(self) -> tuple[str, str, str]:
        """Benchmark, question id and selection id, which identify the row."""
        return (self.benchmark, self.question_id, self.selection_id)

    def without_pulls(self) -> SelectionRow:
        """Return the row without its lists of pulls, which take most of the memory."""
        return replace(
            self,
            n_pulls=self.n_scored,
            pulled_frames=[],
            pulled_relevance=[],
            text_pulls=[],
            clips=[],
            n_scanned=self.frames_scanned or None,
            scanned_frames=[],
            frame_seconds=None,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerRow:
    """The answer of one model to one question from the frames it was fed, or the error that prevented it.

    Args:
        cell_id: hash over all that can change the answer (selection, model and revision, policies, prompt).
        frames_asked: requested keyframes, k.
        frames_chosen: number of keyframes of the selection; None if a log does not state it.
        frames_fed: number of frames that reached the model; None if a log does not state it.
        fallback: why other frames than the chosen ones were fed (`frame_policy: aks`, a black frame), else None.
        answer: the model's text, verbatim.
        parsed: the option letter or value read from it; None if none could be read.
        correct_answer: letter or value.
        score: 0-1, or the benchmark's partial credit (VSI-Bench); None if the task is not scored here.
        category: the benchmark's question type, "" if it has none.
        metric: the task's own metric that gave the score; "" if the answer was read here.
        is_cut: True if the answer ends while the model is still thinking; nothing is read from it.
        tokens: input, output and image tokens if the model reports them.
        error: one line, None on success; a row with an error has no answer.
        prompt_note: why the prompt may not fit the shown frames, or that the video has no subtitles; "" otherwise.
    """

    benchmark: str
    question_id: str
    video: str
    selection_id: str
    cell_id: str
    cell: str
    model: str
    bucket: str
    frames_asked: int
    frames_chosen: int | None
    frames_fed: int | None
    fed_frames: list[int] = field(default_factory=list)
    fallback: str | None = None
    answer: str | None = None
    parsed: str | None = None
    correct_answer: str | None = None
    score: float | None = 0.0
    category: str = ""
    metric: str = ""
    is_cut: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    device: str = ""
    error: str | None = None
    prompt_note: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """Benchmark, question id and cell id, which identify the row."""
        return (self.benchmark, self.question_id, self.cell_id)

    @property
    def is_unparsed(self) -> bool:
        """True if no option could be read from the answer; it counts as wrong unless lmms-eval guessed."""
        return self.error is None and self.parsed is None

    @property
    def is_readable(self) -> bool:
        """True if the model gave a text that is not blank, and an answer could be read from it."""
        return self.error is None and self.parsed is not None and bool(self.answer and self.answer.strip())


def values_of(row: SelectionRow | AnswerRow) -> dict[str, object]:
    """Return the fields of a row by name, in their order; not copies."""
    return {name: getattr(row, name) for name in row.__slots__}


def error_line(error: BaseException) -> str:
    """Return the message of `error` as one printable line for a row.

    Errors of other packages get their type before it.
    """
    text = printable(" ".join(str(error).split()))
    return text if isinstance(error, FocusEvalError) and text else f"{type(error).__name__}: {text}".rstrip(": ")


# The functions below build all rows: those of samplers, of files and of logs.

BucketOf = Callable[[float], str]


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Origin of a selection: the fields of a `SelectionRow` that are the same for every question of a run.

    Args:
        selection_id: hash over all that can change a selection (`rows.identity.selection_identity`).
    """

    selection_id: str
    sampler: str
    k: int
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    changed_options: Mapping[str, Any] = field(default_factory=dict)
    encoder: str = ""
    encoder_revision: str = ""
    scan_encoder: str = ""
    scan_encoder_revision: str = ""
    llm: str = ""
    llm_revision: str = ""
    role: str = "sampler"


@dataclass(frozen=True, kw_only=True)
class CellNames:
    """Id and readable name of a cell; the id is a hash over all that can change its answers."""

    cell_id: str
    cell: str


def forward_gmacs(gmacs: Mapping[str, float]) -> float | None:
    """Return 10^9 multiply-adds of one forward of the main encoder, from a row's `gmacs`; None if not stated.

    A forward is an image, or a pair of image and text for an encoder that reads both together.
    """
    return gmacs.get("image") or gmacs.get("fusion")


@dataclass(frozen=True, kw_only=True)
class SelectionCost:
    """Cost of choosing the frames of one question; the fields are those of a `SelectionRow`."""

    forwards: int = 0
    scan_forwards: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    decoded: Mapping[str, int] = field(default_factory=dict)
    asked: Mapping[str, float] = field(default_factory=dict)
    gmacs: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class KnownSelection:
    """The part of a row that says which frames were chosen and scored, as JSON values.

    The fields are those of a `SelectionRow`; `known_selection` gives that of a sampler's selection.

    Args:
        video: length and rate; None if unknown.
    """

    video: VideoInfo | None = None
    keyframes: list[int] | None = field(default_factory=list)
    times_seconds: list[float] | None = field(default_factory=list)
    frame_seconds: list[list[float]] | None = None
    scales: list[float] | None = None
    pulled_frames: list[int] = field(default_factory=list)
    pulled_relevance: list[float | None] = field(default_factory=list)
    text_pulls: list[list[Any]] = field(default_factory=list)
    looked_frames: list[int] = field(default_factory=list)
    scanned_frames: list[int] = field(default_factory=list)
    clips: list[list[Any]] = field(default_factory=list)
    n_pulls: int | None = None
    n_scanned: int | None = None
    encoded: dict[str, float] = field(default_factory=dict)


def known_selection(
    selection: Selection,
    *,
    times_seconds: list[float],
    frame_seconds: list[list[float]] | None = None,
    keep_pulls: bool = True,
) -> KnownSelection:
    """Return a sampler's selection as a part of a row; `SelectionRow.selection` restores it.

    Args:
        times_seconds, frame_seconds: as in a `SelectionRow`.
        keep_pulls: False to store the numbers of scored and scanned frames instead of the lists.
    """
    known_part = KnownSelection(
        video=selection.video,
        keyframes=list(selection.keyframes),
        times_seconds=times_seconds,
        frame_seconds=frame_seconds,
        scales=None if selection.scales is None else list(selection.scales),
        looked_frames=selection.looked_frames.tolist(),
    )
    if not keep_pulls:
        # Count distinct frames: a frame that was compared with several texts was encoded only once.
        encoded = {"main": float(selection.encoded_frames.size), "scan": float(selection.n_scanned)}
        return replace(
            known_part,
            n_pulls=selection.n_pulls,
            n_scanned=selection.n_scanned or None,
            encoded=encoded if selection.text_pulls else {},
        )
    return replace(
        known_part,
        pulled_frames=selection.pulled_frames.tolist(),
        # Write None for NaN, which JSON does not have.
        pulled_relevance=[None if value != value else value for value in selection.pulled_relevance.tolist()],
        text_pulls=[[pulls.text, pulls.frames.tolist(), pulls.relevance.tolist()] for pulls in selection.text_pulls],
        clips=[list(astuple(clip)) for clip in selection.clips],
        scanned_frames=selection.scanned_frames.tolist(),
    )


def selection_row(
    question: Question,
    origin: Origin,
    selection: KnownSelection | None = None,
    *,
    query: str | None = None,
    cost: SelectionCost | None = None,
    facts: Mapping[str, Any] | None = None,
    device: str = "",
    measured_seconds: float | None = None,
    bucket_of: BucketOf | None = None,
    error: BaseException | None = None,
) -> SelectionRow:
    """Return the row of a question from its parts.

    Args:
        selection: None if choosing failed.
        query: text that frames were compared with; by default the question's.
        measured_seconds: length of the video for a benchmark that states none; by default that of `selection`.
        bucket_of: length bucket of a duration in seconds, for questions that do not state their own.
        error: why choosing failed; None if it did not.
    """
    frames = vars(selection or KnownSelection())
    video: VideoInfo | None = frames["video"]
    if measured_seconds is None and video is not None:
        measured_seconds = video.duration_seconds
    duration = measured_seconds if question.duration_seconds is None else question.duration_seconds
    intervals: list[list[Any]] = [list(interval) for interval in question.evidence_intervals]
    if question.evidence_scenes:
        intervals = [[*ends, scene] for ends, scene in zip(intervals, question.evidence_scenes, strict=True)]
    return SelectionRow(
        **vars(origin),
        **vars(cost or SelectionCost()),
        **{name: value for name, value in frames.items() if name != "video"},
        benchmark=question.benchmark,
        question_id=question.id,
        video=question.video,
        query=question.query if query is None else query,
        bucket=question.bucket or (bucket_of(duration) if bucket_of and duration else ""),
        duration_seconds=duration,
        n_frames=None if video is None else video.n_frames,
        fps=None if video is None else video.fps,
        facts={**(facts or {}), **({"group": list(question.group)} if question.group else {})},
        device=device,
        evidence_seconds=list(question.evidence_seconds),
        evidence_intervals=intervals,
        option_texts=list(question.options),
        error=None if error is None else error_line(error),
    )


def stated_row(question_id: str, origin: Origin, **fields: object) -> SelectionRow:
    """Return the row of a question from a published file; fields that the file lacks are empty or None."""
    unknown = {"benchmark": "", "video": "", "query": "", "bucket": "", "duration_seconds": None}
    return SelectionRow(**{**vars(origin), **unknown, **fields, "question_id": question_id})


def answer_row(
    question: Question,
    names: CellNames,
    *,
    model: str,
    frames_asked: int,
    selection: SelectionRow | None,
    fed_frames: Sequence[int],
    **fields: Any,
) -> AnswerRow:
    """Return the row of one model's answer, or of the error that prevented it.

    Args:
        selection: None if the wrapper sampled by itself; `fields` then have its selection_id and frames_fed.
        fed_frames: indices of the frames that the model was given, in order.
        fields: others of an `AnswerRow`: answer, parsed, score, metric, seconds, error, ...
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
            "frames_chosen": 0 if selection is None else len(selection.keyframes or ()),
            "frames_fed": len(fed_frames),
            "fed_frames": list(fed_frames),
            "correct_answer": question.answer,
            "category": question.category,
            **({} if selection is None else {"selection_id": selection.selection_id}),
            **fields,
        }
    )
