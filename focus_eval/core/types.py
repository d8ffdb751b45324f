"""Videos as samplers see them, and the selections that samplers return."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from focus_eval.core.errors import InvalidInput

# One RGB picture, (height, width, 3).
Picture = NDArray[np.uint8]
IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

# What is fed when a selection is short: exactly what was chosen, or what the AKS evaluation code would feed.
FramePolicy = Literal["exact", "aks"]
# How an answer's text is read: an option named without doubt, or lmms-eval's own rules with their random guess.
AnswerParsing = Literal["strict", "lmms_eval"]
# Below this correlation with the main encoder a scan tells nothing of where to look.
WEAKEST_RHO = 0.15
# What a plan reckons: text of about so many characters, and a square of so many pixels on a side, take one token.
CHARACTERS_A_TOKEN, PIXELS_A_TOKEN = 4, 28
# Whether the questions of one video draw their coarse pulls each for itself, or once for all.
CoarseSeed = Literal["question", "video"]


def frozen_ints(values: ArrayLike) -> IntArray:
    """Return a read-only 1-D int64 copy of `values`.

    Raises:
        InvalidInput: values that are not integers; 0.9 is not frame 0.
    """
    given = np.asarray(values).reshape(-1)
    if given.size and given.dtype.kind not in "iu":
        raise InvalidInput(f"frame indices must be integers, got {given[0]!r} ({given.dtype})")
    array = given.astype(np.int64)
    array.setflags(write=False)
    return array


def frozen_floats(values: ArrayLike) -> FloatArray:
    """Return a read-only 1-D float64 copy of `values`."""
    array = np.array(values, dtype=np.float64).reshape(-1)
    array.setflags(write=False)
    return array


def whole_number(value: Any, what: str, *, at_least: int = 1) -> int:
    """Return `value` as an int.

    Raises:
        InvalidInput: a value that is not a whole number (True, 2.5, "8"), or one below `at_least`; names `what` it is.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise InvalidInput(f"{what} must be an integer, got {value!r}")
    if value < at_least:
        raise InvalidInput(f"{what} must be at least {at_least}, got {value}")
    return int(value)


def finite_seconds(values: ArrayLike, what: str) -> FloatArray:
    """Return times as float64, `(n,)`.

    Raises:
        InvalidInput: values that are not finite numbers; names `what` they are.
    """
    try:
        times = np.asarray(values, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError):
        times = np.array([np.nan])
    if not np.isfinite(times).all():
        raise InvalidInput(f"{what} must be finite numbers of seconds, got {values!r:.80}")
    return times


def usable_path(value: Any, what: str) -> Path:
    """Return `value` as a path that this system could hold, whether or not it is there.

    Raises:
        InvalidInput: not a path, or one that cannot be.
    """
    if not isinstance(value, (str, Path)):
        raise InvalidInput(f"{what} must be a path, got {value!r}")
    try:
        os.lstat(value)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:  # too long a name, no permission, a NUL
        raise InvalidInput(f"{what} {str(value)[:80]!r}: {getattr(error, 'strerror', error)}") from error
    return Path(value)


@dataclass(frozen=True)
class VideoInfo:
    """Length and rate of a video: all a sampler knows of it besides relevance.

    Args:
        n_frames: frames in presentation order, at least 1.
        fps: average rate in frames per second, above 0.
        sync_frames: ascending indices the codec can start decoding from; None where unknown.
        reference_frames: ascending indices of frames that others may refer to; None where unknown or not asked for.

    Raises:
        InvalidInput: a count, a rate or one of these frames outside its range.
    """

    n_frames: int
    fps: float
    sync_frames: IntArray | None = field(default=None, compare=False)
    reference_frames: IntArray | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_frames", whole_number(self.n_frames, "the number of frames of a video"))
        is_number = isinstance(self.fps, (int, float, np.integer, np.floating)) and not isinstance(self.fps, bool)
        if not (is_number and np.isfinite(self.fps) and self.fps > 0):
            raise InvalidInput(f"a frame rate must be a finite number above 0, got {self.fps!r}")
        for name in ("sync_frames", "reference_frames"):
            if (given := getattr(self, name)) is None:
                continue
            frames = frozen_ints(given)
            if frames.size and (frames[0] < 0 or frames[-1] >= self.n_frames or (np.diff(frames) <= 0).any()):
                raise InvalidInput(f"{name.replace('_', ' ')} must ascend within [0, {self.n_frames})")
            object.__setattr__(self, name, frames)

    @property
    def duration_seconds(self) -> float:
        """Length in seconds: `n_frames / fps`."""
        return self.n_frames / self.fps

    def frames_every(self, seconds: float) -> IntArray:
        """Return frames `round(j * seconds * fps)` of `[0, n_frames)`, ascending, each once, at least frame 0.

        Raises:
            InvalidInput: seconds that are not above 0.
        """
        step = seconds * self.fps
        if not step > 0:
            raise InvalidInput(f"seconds between frames must be above 0, got {seconds}")
        frames = np.unique(np.rint(np.arange(math.ceil(self.n_frames / step)) * step).astype(np.int64))
        return frames[frames < self.n_frames]


@dataclass(frozen=True)
class ClipReport:
    """What a bandit sampler learned of the clip `[start, stop)`; mean and radius are None where it never pulled."""

    start: int
    stop: int
    n_pulls: int = 0
    mean: float | None = None
    radius: float | None = None
    is_final: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.stop:
            raise InvalidInput(f"a clip needs 0 <= start < stop, got [{self.start}, {self.stop})")


@dataclass(frozen=True)
class TimedText:
    """What is said or shown in writing from `start_seconds` to `stop_seconds` of a video."""

    start_seconds: float
    stop_seconds: float
    text: str


@dataclass(frozen=True, eq=False)
class TextPulls:
    """Frames pulled for another text than the question's, in pull order, and their relevance to it, both `(n,)`."""

    text: str
    frames: IntArray
    relevance: FloatArray


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The keyframes of one question, what was pulled to find them, and who chose.

    Args:
        keyframes: frames shown to the model, ascending ints in `[0, video.n_frames)`; unique unless the
            sampler's text says that it may repeat a frame.
        video: the video they belong to.
        k: keyframes asked for.
        sampler: registered name of the sampler.
        options: every option of the sampler, defaults included.
        pulled_frames, pulled_relevance: of the question's own text, shape `(n,)`, in pull order.
        text_pulls: the same of other texts.
        looked_frames: frames whose pictures the sampler looked at itself, in that order, `(n,)`.
        asked: what it asked a model, as `samplers.asking.Asked`; {} where it asked none.
        scanned_frames: what the scan encoder saw, ascending, `(n_scanned,)`; empty where there is none.
        scales: one factor in (0, 1] per keyframe, by which to shrink width and height; None: full size for all.
        clips: the arms of a bandit sampler, ascending; empty for others.
        facts: what the sampler reports beyond that (why it stopped, a named fallback), JSON values only.
        seconds_apart: processor seconds of the choice in a process of the sampler's own; 0 for samplers of this one.
    """

    keyframes: tuple[int, ...]
    video: VideoInfo
    k: int
    sampler: str
    options: Mapping[str, Any]
    pulled_frames: IntArray
    pulled_relevance: FloatArray
    scales: tuple[float, ...] | None = None
    clips: tuple[ClipReport, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    scanned_frames: IntArray = field(default_factory=lambda: frozen_ints([]))
    seconds_apart: float = field(default=0.0, compare=False)
    text_pulls: tuple[TextPulls, ...] = ()
    looked_frames: IntArray = field(default_factory=lambda: frozen_ints([]))
    asked: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
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
        """Frames scored for this question; one that was scored for two texts counts twice."""
        return int(self.pulled_frames.size + sum(other.frames.size for other in self.text_pulls))

    @property
    def encoded_frames(self) -> IntArray:
        """The distinct frames that were scored for any text, ascending, `(n,)`."""
        return np.unique(np.concatenate([self.pulled_frames, *(other.frames for other in self.text_pulls)]))

    @property
    def n_scanned(self) -> int:
        """Frames the scan encoder saw for this question; not pulls."""
        return int(self.scanned_frames.size)

    @property
    def frames_scored(self) -> float:
        """Share of the video's frames that were scored, in [0, 1]."""
        return self.n_pulls / self.video.n_frames

    @property
    def is_scored(self) -> NDArray[np.bool_]:
        """Which keyframes have a relevance of their own, shape `(n_keyframes,)`."""
        return np.isin(self.keyframes, self.pulled_frames[np.isfinite(self.pulled_relevance)])

    @property
    def relevance(self) -> FloatArray:
        """Relevance of each keyframe in [0, 1], shape `(n_keyframes,)`; NaN where no frame was scored.

        A keyframe that was not scored (`is_scored`) gets the value on the line between the nearest scored frames.
        """
        known = np.flatnonzero(np.isfinite(self.pulled_relevance))
        if not known.size:
            return np.full(len(self.keyframes), np.nan)
        known = known[np.argsort(self.pulled_frames[known], kind="stable")]
        values: FloatArray = np.interp(self.keyframes, self.pulled_frames[known], self.pulled_relevance[known])
        return values
