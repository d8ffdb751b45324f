"""The types that every package shares: questions, videos as samplers see them, and selections."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from string import ascii_uppercase
from typing import Literal
from urllib.request import url2pathname

import numpy as np
from numpy.typing import ArrayLike, NDArray

from focus_eval.core.errors import InvalidInput

# RGB: one picture (height, width, 3), or several (n, height, width, 3).
Pixels = NDArray[np.uint8]
IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

# Which frames a model is fed if a selection has fewer than K: exactly the chosen ones, or those that the evaluation
# code of AKS would feed.
FramePolicy = Literal["exact", "aks"]
# Pixels of a video: as the file stores them, or as a screen shows them (see `video.colour`).
PixelForm = Literal["stored", "display"]
# What a sampler counts in a video whose frame rate varies: frames, as published code does, or equal steps of time.
Timeline = Literal["frames", "seconds"]
# How an answer's text is read: "strict" accepts only an option that is named without doubt; "lmms_eval" applies the
# rules of lmms-eval, which guess at random if no option is found.
AnswerParsing = Literal["strict", "lmms_eval"]
# One reply to every prompt; or several replies, each by a phrase that identifies the prompts it answers.
ExampleReplies = str | Mapping[str, str]
# Whether coarse pulls are drawn anew for each question, or once per video and shared by its questions.
CoarseSeed = Literal["question", "video"]


def frozen_ints(values: ArrayLike) -> IntArray:
    """Return a read-only 1-D int64 copy of `values`.

    Raises:
        InvalidInput: values that are not integers; floats are refused, so that 0.9 does not become frame 0.
    """
    flat = np.asarray(values).reshape(-1)
    if flat.size and flat.dtype.kind not in "iu":
        raise InvalidInput(f"frame indices must be integers, got {flat[0]!r} ({flat.dtype})")
    array = flat.astype(np.int64)
    array.setflags(write=False)
    return array


def frozen_floats(values: ArrayLike) -> FloatArray:
    """Return a read-only 1-D float64 copy of `values`."""
    array = np.array(values, dtype=np.float64).reshape(-1)
    array.setflags(write=False)
    return array


def whole_number(value: object, label: str, *, at_least: int = 1) -> int:
    """Return `value` as an int.

    Raises:
        InvalidInput: `value` is not a whole number (True, 2.5, "8"), or is below `at_least`; the message calls it
            `label`.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise InvalidInput(f"{label} must be an integer, got {value!r}")
    if value < at_least:
        raise InvalidInput(f"{label} must be at least {at_least}, got {value}")
    return int(value)


def example_reply_to(prompt: str, replies: ExampleReplies) -> str:
    """Return the reply to `prompt`: the first of `replies` whose phrase the prompt contains; "" if none matches."""
    if isinstance(replies, str):
        return replies
    return next((reply for phrase, reply in replies.items() if phrase in prompt), "")


def finite_seconds(values: ArrayLike, label: str) -> FloatArray:
    """Return times as float64, `(n,)`.

    Raises:
        InvalidInput: values that are not finite numbers; the message calls them `label`.
    """
    try:
        times = np.asarray(values, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError):
        times = np.array([np.nan])
    if not np.isfinite(times).all():
        raise InvalidInput(f"{label} must be finite numbers of seconds, got {values!r:.80}")
    return times


def usable_path(value: object, label: str) -> Path:
    """Return `value` as a path that is valid on this system, whether or not it exists; file:///x.mp4 is /x.mp4.

    Raises:
        InvalidInput: not a path, an empty text, or a path that is not valid here.
    """
    if not isinstance(value, (str, Path)):
        raise InvalidInput(f"{label} must be a path, got {value!r}")
    if value == "":
        raise InvalidInput(f"{label}: the path is empty (a variable that is not set?)")
    value = local_path(value)
    try:
        os.lstat(value)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:  # name too long, no permission, or a NUL in it
        raise InvalidInput(f"{label} {str(value)[:80]!r}: {getattr(error, 'strerror', error)}") from error
    return Path(value)


def local_path(value: str | Path) -> Path:
    """Return `value` as a path; a `file:` address gives the path in it."""
    # One slash is accepted too, because `Path("file:///x")` becomes "file:/x".
    address = re.fullmatch(r"file:(?://(?:localhost)?)?(/.*)", str(value), re.DOTALL)
    return Path(url2pathname(address[1])) if address else Path(value)


def checked_query(query: str, *, noun: str = "query", purpose: str = "to look for") -> str:
    """Return `query` without surrounding blanks.

    Args:
        noun, purpose: what messages call it, and what it is for.

    Raises:
        InvalidInput: an empty query, or text that is not valid Unicode (a lone surrogate).
    """
    text = query.strip()
    if not text:
        raise InvalidInput(f"the {noun} is empty: say what {purpose}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"the {noun} is not valid text: character {error.start} is a lone surrogate") from error
    return text


@dataclass(frozen=True)
class VideoInfo:
    """Length and frame rate of a video: all that a sampler knows about the video besides relevance.

    >>> VideoInfo(n_frames=3000, fps=30.0).duration_seconds
    100.0

    Args:
        n_frames: frames in presentation order, at least 1.
        fps: average rate in frames per second, above 0.
        sync_frames: ascending indices the codec can start decoding from; None if unknown.
        reference_frames: ascending indices of frames that others may refer to; None if unknown or not requested.

    Raises:
        InvalidInput: `n_frames`, `fps` or one of the listed frames is outside its range.
    """

    n_frames: int
    fps: float
    sync_frames: IntArray | None = field(default=None, compare=False)
    reference_frames: IntArray | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Check and freeze the fields; raise InvalidInput for a bad length or rate, or frames outside the video."""
        object.__setattr__(self, "n_frames", whole_number(self.n_frames, "the number of frames of a video"))
        is_number = isinstance(self.fps, (int, float, np.integer, np.floating)) and not isinstance(self.fps, bool)
        if not (is_number and np.isfinite(self.fps) and self.fps > 0):
            raise InvalidInput(f"a frame rate must be a finite number above 0, got {self.fps!r}")
        for name in ("sync_frames", "reference_frames"):
            if (values := getattr(self, name)) is None:
                continue
            frames = frozen_ints(values)
            if frames.size and (frames[0] < 0 or frames[-1] >= self.n_frames or (np.diff(frames) <= 0).any()):
                raise InvalidInput(f"{name.replace('_', ' ')} must ascend within [0, {self.n_frames})")
            object.__setattr__(self, name, frames)

    @property
    def duration_seconds(self) -> float:
        """Length in seconds: `n_frames / fps`."""
        return self.n_frames / self.fps

    def frames_at(self, times_seconds: Iterable[float]) -> list[int]:
        """Return the frame nearest to each time, at the average rate; the last frame for a time past the end."""
        return [min(int(time * self.fps + 0.5), self.n_frames - 1) for time in times_seconds]

    def frames_every(self, seconds: float) -> IntArray:
        """Return a frame every `seconds`: `round(j * seconds * fps)`, j = 0, 1, .., below `n_frames`, each once.

        Raises:
            InvalidInput: seconds that are not above 0.
        """
        step = seconds * self.fps
        if not step > 0:
            raise InvalidInput(f"seconds between frames must be above 0, got {seconds}")
        frames = np.unique(np.rint(np.arange(math.ceil(self.n_frames / step)) * step).astype(np.int64))
        return frames[frames < self.n_frames]


@dataclass(frozen=True, kw_only=True)
class Question:
    """One question of a benchmark about one video.

    Args:
        benchmark: its name.
        id: unique within the benchmark.
        query: the bare question for the encoder: no options, no instructions.
        options: option texts in order; empty for open questions.
        video: path of the file relative to the benchmark's video folder; questions with equal `video` share it.
        answer: the correct option letter, or the value of an open question; None if the split hides it.
        duration_seconds: the length stated in the annotation; None if none is stated.
        bucket: the length bucket stated in the annotation; None if it follows from the seconds.
        evidence_seconds: times of the annotated evidence.
        evidence_intervals: the annotated evidence as (start, stop) in seconds, if it is given as intervals.
        evidence_scenes: scene number of each interval, if several intervals may form one scene; else empty.
        n_evidence_dropped: number of annotated times past the end of the video, which were left out.
        evidence_unread: why the annotated evidence cannot be read; "" if it can, or if there is none.
        category: the benchmark's question type; "" if it has none.
        fps: the frame rate stated in the annotation; None if none is stated.
        subtitles: subtitle file, relative to the parent of the video folder; "" if the benchmark has none.
        subtitles_offset_seconds: time on the subtitles' clock at which the video begins.
        group: kind and structure of the group of questions that is scored as one; () if single questions are scored.
    """

    benchmark: str
    id: str
    query: str
    options: tuple[str, ...]
    video: str
    answer: str | None
    duration_seconds: float | None = None
    bucket: str | None = None
    evidence_seconds: tuple[float, ...] = ()
    evidence_intervals: tuple[tuple[float, float], ...] = ()
    evidence_scenes: tuple[int, ...] = ()
    n_evidence_dropped: int = 0
    evidence_unread: str = ""
    category: str = ""
    fps: float | None = None
    subtitles: str = ""
    subtitles_offset_seconds: float = 0.0
    group: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise InvalidInput if id, video or query is empty."""
        if not self.id or not self.video or not self.query.strip():
            raise InvalidInput(f"{self.benchmark}: a question needs an id, a video and a query, got id {self.id!r}")

    @property
    def content_key(self) -> str:
        """Digest of video, text, options and correct answer (see `content_key`)."""
        return content_key(self.video, self.query, self.options, self.answer or "")


_FILE_SUFFIX = re.compile(r"\.[a-z][a-z0-9]{1,4}$")
_OPTION_LABEL = re.compile(r"^\(?[a-z0-9](?:\)|[.:])\s*(?=\S)")


@lru_cache(maxsize=65536)
def content_key(video: str, text: str, options: tuple[str, ...] = (), answer: str = "") -> str:
    """Return "QUESTION-ANSWER", two hexadecimal digests that identify a question by its content.

    Differences in how files write the same question are ignored: case, white space and Unicode form, the folder and
    suffix of the video, and the letters before options.
    """
    name = _FILE_SUFFIX.sub("", folded(video.replace("\\", "/").rpartition("/")[2]))
    texts = [_OPTION_LABEL.sub("", folded(option)) for option in options]
    question = json.dumps([name, folded(text), texts], separators=(",", ":"))
    digests = [hashlib.sha256(part.encode()).hexdigest() for part in (question, folded(answer))]
    return f"{digests[0][:16]}-{digests[1][:8]}"


def folded(text: str) -> str:
    """Return `text` in Unicode form NFKC, without case, each run of white space as one blank, for comparisons."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def query_text(question: Question, form: str = "question") -> str:
    """Return the text that an encoder compares frames with.

    Args:
        form: "question" (what FOCUS and AKS use), "question_and_options" (the question, then one line per option), or a
            template that contains `{question}` and optionally `{options}`.

    Raises:
        InvalidInput: `form` is none of these.
    """
    check_query_form(form)
    if form == "question":
        return question.query
    options = "\n".join(f"{letter}. {text}" for letter, text in zip(ascii_uppercase, question.options, strict=False))
    if form == "question_and_options":
        return f"{question.query}\n{options}".rstrip()
    return form.replace("{question}", question.query).replace("{options}", options)


def check_query_form(form: str) -> None:
    """Raise InvalidInput for a `form` that is neither known nor a template with `{question}`, or has another field."""
    if form in ("question", "question_and_options"):
        return
    if "{question}" not in form:
        raise InvalidInput(
            f'query must be "question", "question_and_options" or a template with {{question}}, got {form!r}'
        )
    unknown = sorted(set(re.findall(r"\{\w*\}", form)) - {"{question}", "{options}"})
    if unknown:
        raise InvalidInput(f"query {form!r}: a template has {{question}} and {{options}}, not {', '.join(unknown)}")


@dataclass(frozen=True)
class ClipReport:
    """Statistics of a bandit sampler about the clip `[start, stop)`; mean and radius are None without pulls."""

    start: int
    stop: int
    n_pulls: int = 0
    mean: float | None = None
    radius: float | None = None
    is_final: bool = False

    def __post_init__(self) -> None:
        """Raise InvalidInput unless `0 <= start < stop`."""
        if not 0 <= self.start < self.stop:
            raise InvalidInput(f"a clip needs 0 <= start < stop, got [{self.start}, {self.stop})")


@dataclass(frozen=True)
class TimedText:
    """Subtitle of a video from `start_seconds` to `stop_seconds`."""

    start_seconds: float
    stop_seconds: float
    text: str


@dataclass(frozen=True, eq=False)
class TextPulls:
    """Frames pulled for another text than the question, in pull order, and their relevance to it, both `(n,)`."""

    text: str
    frames: IntArray
    relevance: FloatArray


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The keyframes of one question, the frames pulled to find them, and the sampler.

    >>> video, pull = VideoInfo(100, 10.0), lambda frames: frames / 100
    >>> selection = make_sampler("topk").select(video, k=2, pull=pull, rng=np.random.default_rng(0))
    >>> selection.keyframes, selection.n_pulls, selection.share_scored
    ((80, 90), 10, 0.1)

    Args:
        keyframes: frames shown to the model, ascending ints in `[0, video.n_frames)`; unique unless the sampler
            declares that it may repeat a frame.
        video: the video they belong to.
        k: requested keyframes.
        sampler: registered name of the sampler.
        options: every option of the sampler, defaults included.
        pulled_frames, pulled_relevance: frames pulled for the question's own text, in pull order, and their relevance,
            both `(n,)`.
        text_pulls: frames pulled for other texts, and their relevance.
        looked_frames: frames whose pictures the sampler looked at itself, in the order of looking, `(n,)`.
        model_usage: counts of the model's use, with the names of `samplers.asking.ModelUsage`; {} without a model.
        scanned_frames: frames shown to the scan encoder, ascending, `(n_scanned,)`; empty without one.
        scales: one factor in (0, 1] per keyframe, by which to shrink width and height; None: full size for all.
        clips: the arms of a bandit sampler, ascending; empty for others.
        facts: further facts from the sampler (why it stopped, a named fallback), JSON values only.
        seconds_apart: processor seconds that a sampler used in its own process; 0 for a sampler that runs in this
            process.
    """

    keyframes: tuple[int, ...]
    video: VideoInfo
    k: int
    sampler: str
    options: Mapping[str, object]
    pulled_frames: IntArray
    pulled_relevance: FloatArray
    scales: tuple[float, ...] | None = None
    clips: tuple[ClipReport, ...] = ()
    facts: Mapping[str, object] = field(default_factory=dict)
    scanned_frames: IntArray = field(default_factory=lambda: frozen_ints([]))
    seconds_apart: float = field(default=0.0, compare=False)
    text_pulls: tuple[TextPulls, ...] = ()
    looked_frames: IntArray = field(default_factory=lambda: frozen_ints([]))
    model_usage: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Freeze the keyframes; raise InvalidInput unless they ascend in the video and scales and pulls fit."""
        frames = frozen_ints(self.keyframes)
        if frames.size and (frames.min() < 0 or frames.max() >= self.video.n_frames):
            raise InvalidInput(f"{self.sampler}: a keyframe lies outside [0, {self.video.n_frames})")
        if (np.diff(frames) < 0).any():
            raise InvalidInput(f"{self.sampler}: keyframes must ascend")
        if self.scales is not None and len(self.scales) != len(self.keyframes):
            raise InvalidInput(f"{self.sampler}: {len(self.scales)} scales for {len(self.keyframes)} keyframes")
        if self.scales is not None and not all(0 < scale <= 1 for scale in self.scales):
            raise InvalidInput(f"{self.sampler}: every scale must be above 0 and at most 1, got {self.scales}")
        if self.pulled_frames.shape != self.pulled_relevance.shape:
            raise InvalidInput(f"{self.sampler}: pulled frames and their relevance differ in length")

    @property
    def n_pulls(self) -> int:
        """Number of frames scored for this question; a frame scored for two texts counts twice."""
        return int(self.pulled_frames.size + sum(pulls.frames.size for pulls in self.text_pulls))

    @property
    def encoded_frames(self) -> IntArray:
        """Distinct frames scored for any text, ascending, `(n,)`."""
        return np.unique(np.concatenate([self.pulled_frames, *(pulls.frames for pulls in self.text_pulls)]))

    @property
    def n_scanned(self) -> int:
        """Number of frames that the scan encoder saw for this question; they are not pulls."""
        return int(self.scanned_frames.size)

    @property
    def share_scored(self) -> float:
        """Number of pulls divided by the number of frames; above 1 if frames are scored for several texts."""
        return self.n_pulls / self.video.n_frames

    @property
    def is_scored(self) -> NDArray[np.bool_]:
        """Mask `(n_keyframes,)`: True for a keyframe that was pulled itself and has finite relevance."""
        return np.isin(self.keyframes, self.pulled_frames[np.isfinite(self.pulled_relevance)])

    @property
    def relevance(self) -> FloatArray:
        """Relevance of each keyframe in [0, 1], shape `(n_keyframes,)`; NaN if no frame was scored.

        A keyframe that was not scored (see `is_scored`) gets the value interpolated between the nearest scored frames.
        """
        scored = np.flatnonzero(np.isfinite(self.pulled_relevance))
        if not scored.size:
            return np.full(len(self.keyframes), np.nan)
        scored = scored[np.argsort(self.pulled_frames[scored], kind="stable")]
        values: FloatArray = np.interp(self.keyframes, self.pulled_frames[scored], self.pulled_relevance[scored])
        return values
