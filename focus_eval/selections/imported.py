"""One imported selection, and the frames of a video that it means."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from focus_eval.errors import InvalidInput, SelectionMismatch
from focus_eval.types import VideoInfo


@dataclass(frozen=True, kw_only=True)
class PublishedAnswer:
    """What a model answered from a published selection.

    Args:
        letter: the option it named; None where none could be read.
        correct_letter, is_correct: as the file states them; None where it does not.
    """

    letter: str | None
    correct_letter: str | None = None
    is_correct: bool | None = None


@dataclass(frozen=True, kw_only=True)
class ImportedSelection:
    """The keyframes somebody chose for one question: frame indices, or times where the file states seconds.

    Args:
        question_id: id within the benchmark.
        sampler: who chose: the name in a row of ours, else the format ("aks", "bolt", ...).
        keyframes: ascending frame indices; a frame may repeat (BOLT's may). None where the file states seconds.
        times_seconds: ascending times; None where unknown. At least one of the two is there.
        benchmark, video: "" where the file does not say and no questions were given.
        k: frames asked for; the number chosen where the file does not say.
        n_frames, fps: length and rate as the file states them; 0 where it does not.
        pulled_frames, pulled_relevance: what was scored, in pull order; relevance None where not recorded.
        clips: `[start, stop, n_pulls, mean, radius, is_final]` per arm, as in a `SelectionRow`.
        scales: shrink factor per keyframe or None.
        answered: the model's answer, where the file has it; not part of the Parquet file.
        where: file and row it came from, for messages.
    """

    question_id: str
    sampler: str
    keyframes: tuple[int, ...] | None = None
    times_seconds: tuple[float, ...] | None = None
    benchmark: str = ""
    video: str = ""
    k: int = 0
    n_frames: int = 0
    fps: float = 0.0
    pulled_frames: tuple[int, ...] = ()
    pulled_relevance: tuple[float | None, ...] = ()
    clips: tuple[tuple[Any, ...], ...] = ()
    scales: tuple[float, ...] | None = None
    answered: PublishedAnswer | None = field(default=None, compare=False)
    where: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        stated = self.times_seconds if self.keyframes is None else self.keyframes
        if stated is None:
            raise InvalidInput(f"{self._name}: a selection needs frame indices or times")
        for what, values in (("frame", self.keyframes), ("time", self.times_seconds)):
            if values and values[0] < 0:
                raise SelectionMismatch(f"{self._name}: {what} {values[0]} is below 0")
            if values and any(later < earlier for earlier, later in pairwise(values)):
                raise SelectionMismatch(f"{self._name}: {what}s must ascend")
        if self.scales is not None and len(self.scales) != len(stated):
            raise SelectionMismatch(f"{self._name}: {len(self.scales)} scales for {len(stated)} frames")
        if len(self.pulled_frames) != len(self.pulled_relevance):
            raise SelectionMismatch(f"{self._name}: pulled frames and their relevance differ in length")
        if self.k == 0:
            object.__setattr__(self, "k", len(stated))

    @property
    def n_keyframes(self) -> int:
        """Frames chosen, repeats counted."""
        return len(self.keyframes if self.keyframes is not None else self.times_seconds or ())

    def frames_in(self, video: VideoInfo) -> tuple[int, ...]:
        """Return the ascending frame indices of this selection in `video`.

        A time means the frame nearest to it at the video's average rate.

        Raises:
            SelectionMismatch: a frame or time past the end; names the row.
        """
        if self.keyframes is not None:
            if self.keyframes and self.keyframes[-1] >= video.n_frames:
                raise SelectionMismatch(f"{self._name}: frame {self.keyframes[-1]} asked, video has {video.n_frames}")
            return self.keyframes
        times = self.times_seconds or ()
        if times and times[-1] > video.duration_seconds:
            raise SelectionMismatch(
                f"{self._name}: {times[-1]:g} s asked, video has {video.duration_seconds:.2f} s; frame indices?"
            )
        return tuple(min(int(time * video.fps + 0.5), video.n_frames - 1) for time in times)

    def times_at(self, fps: float) -> tuple[float, ...]:
        """Return the times of the keyframes in seconds, `frame / fps` where the file states frames.

        Raises:
            InvalidInput: frames, but no rate above 0.
        """
        if self.keyframes is None:
            return self.times_seconds or ()
        if fps <= 0:
            raise InvalidInput(f"{self._name}: frame indices need the video's rate to become times")
        return tuple(frame / fps for frame in self.keyframes)

    @property
    def _name(self) -> str:
        return f"{self.where} ({self.question_id})" if self.where else self.question_id


def selections_hash(selections: Mapping[str, ImportedSelection]) -> str:
    """Return 16 hexadecimal digits over all that can change what a replay shows: ids, frames, times, scales."""
    content = [
        [key, selection.keyframes, selection.times_seconds if selection.keyframes is None else None, selection.scales]
        for key, selection in sorted(selections.items())
    ]
    return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()[:16]
