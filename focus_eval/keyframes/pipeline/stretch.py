"""Shows a sampler a part of a video, or all of it in even steps of time; the selection names frames of the file.

A sampler assumes that the number of a frame is proportional to its time. This is wrong if the frame rate varies (screen
recordings, phones): ten minutes of a still page may be sixty frames, and the next ten seconds six hundred.
`evened_part` shows the sampler what a screen shows: at each step of a constant rate the frame that is on screen, so
that a frame which stays on screen is repeated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from focus_eval.core.errors import InvalidInput
from focus_eval.core.options import checked_values, option
from focus_eval.core.types import (
    FloatArray,
    IntArray,
    Pixels,
    Selection,
    Timeline,
    VideoInfo,
    frozen_floats,
    frozen_ints,
)
from focus_eval.keyframes.samplers.ledger import LookFn, RelevanceSource


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """A part of a video by the file's own clock: frames with `start_seconds <= time < end_seconds`.

    Args:
        end_seconds: None for the end of the video.

    Raises:
        InvalidInput: a time below 0, or an end that is not after the start.
    """

    start_seconds: float = option(0.0, at_least=0)
    end_seconds: float | None = option(None, above=0)

    def __post_init__(self) -> None:
        """Check both times."""
        checked_values("the stretch of a video", self)
        if self.end_seconds is not None and self.end_seconds <= self.start_seconds:
            raise InvalidInput(f"a stretch from {self.start_seconds:g} s to {self.end_seconds:g} s has no frame")


@dataclass(frozen=True, kw_only=True, eq=False)
class VideoPart:
    """The frames of a video that a sampler is shown; the sampler numbers them from 0.

    Args:
        video: length and rate of the whole file.
        own_frames: frames of the file that lie in the part, ascending, each once.
        frames: frame of the file for each number that the sampler uses, ascending, `(n,)`; a frame is repeated for as
            long as it is on screen.
        fps: rate at which the sampler is shown these frames.
        clock: time of each frame of the file in seconds, `(n_frames,)`.
        facts: facts that are added to every selection from this part.
    """

    video: VideoInfo
    own_frames: IntArray
    frames: IntArray
    fps: float
    clock: FloatArray
    facts: Mapping[str, object]

    @property
    def n_frames(self) -> int:
        """Number of frames of the file in the part."""
        return self.own_frames.size

    @property
    def info(self) -> VideoInfo:
        """Length and rate of the part, as a sampler is given them."""
        kinds = {"sync_frames": self.video.sync_frames, "reference_frames": self.video.reference_frames}
        kinds_inside = {
            name: None if frames is None else np.searchsorted(self.frames, frames[np.isin(frames, self.frames)])
            for name, frames in kinds.items()
        }
        return VideoInfo(self.frames.size, self.fps, **kinds_inside)

    def without(self, damaged: IntArray) -> VideoPart:
        """Return the part as if the damaged frames had been cut out of it.

        They are not replaced by other frames, which a sampler would see as a long still picture. The fact
        "damaged_frames" holds the number of damaged frames in the part and the number of all its frames.

        Args:
            damaged: frames of the file that cannot be decoded.
        """
        is_whole = ~np.isin(self.own_frames, damaged)
        counts = [int((~is_whole).sum()), is_whole.size]
        return replace(
            self,
            own_frames=self.own_frames[is_whole],
            frames=self.frames[~np.isin(self.frames, damaged)],
            facts={**self.facts, "damaged_frames": counts},
        )

    def source(self, source: RelevanceSource) -> RelevanceSource:
        """Return a source of relevance that accepts frame numbers of the part."""
        return _PartSource(source, self.frames)

    def look(self, look: LookFn | None) -> LookFn | None:
        """Return a source of pictures that accepts frame numbers of the part; None if `look` is None."""
        if look is None:
            return None

        def pictures(frames: IntArray, size: int | None) -> list[Pixels]:
            distinct, place = np.unique(self.frames[frames], return_inverse=True)
            pixels = look(distinct, size)
            return [pixels[at] for at in place.tolist()]

        return pictures

    def whole(self, selection: Selection) -> Selection:
        """Return the part's selection with frames of the whole video, each once.

        If several keyframes are the same frame of the file, the repetitions are replaced by the frames that are
        farthest in time from the others; the fact "on_screen_twice" counts them.
        """
        keyframes, scales = self._distinct_keyframes(selection)
        viewed_frames = self.frames[selection.looked_frames]
        pulled, relevance = _first_pulls(self.frames[selection.pulled_frames], selection.pulled_relevance)
        text_pulls = tuple(
            replace(pulls, frames=frames, relevance=values)
            for pulls in selection.text_pulls
            for frames, values in [_first_pulls(self.frames[pulls.frames], pulls.relevance)]
        )
        clips = tuple(
            replace(clip, start=int(self.frames[clip.start]), stop=int(self.frames[clip.stop - 1]) + 1)
            for clip in selection.clips
        )
        n_lost = len(selection.keyframes) - np.unique(self.frames[np.array(selection.keyframes, dtype=np.int64)]).size
        is_repeated = np.unique(selection.keyframes).size < len(selection.keyframes)
        facts = {"on_screen_twice": int(n_lost)} if n_lost and not is_repeated else {}
        return replace(
            selection,
            video=self.video,
            keyframes=tuple(keyframes.tolist()),
            scales=scales,
            pulled_frames=frozen_ints(pulled),
            pulled_relevance=frozen_floats(relevance),
            text_pulls=text_pulls,
            looked_frames=frozen_ints(viewed_frames[np.sort(np.unique(viewed_frames, return_index=True)[1])]),
            scanned_frames=frozen_ints(np.unique(self.frames[selection.scanned_frames])),
            clips=clips,
            facts={**selection.facts, **facts, **self.facts},
        )

    def _distinct_keyframes(self, selection: Selection) -> tuple[IntArray, tuple[float, ...] | None]:
        """Keyframes of the file, ascending, and their scales; each once unless the sampler repeats frames."""
        shown_keyframes = np.array(selection.keyframes, dtype=np.int64)
        keyframes = self.frames[shown_keyframes]
        if np.unique(shown_keyframes).size < shown_keyframes.size:
            return keyframes, selection.scales
        if selection.scales is not None:
            largest = dict.fromkeys(keyframes.tolist(), 0.0)
            for frame, scale in zip(keyframes.tolist(), selection.scales, strict=True):
                largest[frame] = max(largest[frame], scale)
            return np.array([*largest], dtype=np.int64), tuple(largest.values())
        distinct = np.unique(keyframes)
        if distinct.size == shown_keyframes.size:
            return distinct, None
        free_frames = np.setdiff1d(self.own_frames, distinct)
        seconds = self.clock[free_frames]
        keyframe_seconds = np.concatenate([[-np.inf], self.clock[distinct], [np.inf]])
        next_keyframe = np.searchsorted(keyframe_seconds, seconds)
        distance = np.minimum(seconds - keyframe_seconds[next_keyframe - 1], keyframe_seconds[next_keyframe] - seconds)
        while distinct.size < shown_keyframes.size and (distance >= 0).any():
            farthest = int(np.argmax(distance))
            distinct = np.append(distinct, free_frames[farthest])
            distance = np.minimum(distance, np.abs(seconds - seconds[farthest]))
            distance[farthest] = -1.0
        return np.sort(distinct), None


def rate_varies(clock: FloatArray, fps: float) -> bool:
    """Return True if the time of any frame differs from `frame / fps` by more than half of `1 / fps`.

    Args:
        clock: time of each frame in seconds, `(n_frames,)`.
    """
    return bool((np.abs(clock - np.arange(clock.size) / fps) > 0.5 / fps).any())


def whole_part(video: VideoInfo, clock: FloatArray) -> VideoPart:
    """Return all frames of a video as a part of it; `clock` as in `shown_part`."""
    frames = np.arange(video.n_frames)
    return VideoPart(video=video, own_frames=frames, frames=frames, fps=video.fps, clock=clock, facts={})


def shown_part(
    video: VideoInfo, clock: FloatArray, *, name: str, stretch: Stretch | None, timeline: Timeline
) -> VideoPart | None:
    """Return the part of a video that a sampler is shown; None if it is the whole video, unchanged.

    Args:
        clock: time of each frame in seconds, `(n_frames,)`.
        name: of the video, for errors.
        stretch: part of the video; None for all of it.
        timeline: "seconds" shows a video whose rate varies in even steps of time.

    Raises:
        InvalidInput: no frame lies in the stretch.
    """
    if timeline == "seconds" and rate_varies(clock, video.fps):
        return evened_part(video, clock, name=name, stretch=stretch or Stretch())
    if stretch is None:
        return None
    end = np.inf if stretch.end_seconds is None else stretch.end_seconds
    frames = np.flatnonzero((clock >= stretch.start_seconds) & (clock < end))
    if frames.size == 0:
        raise _no_frame(name, stretch, clock)
    first, stop = int(frames[0]), int(frames[-1]) + 1
    facts = {"stretch_frames": [first, stop]}
    frames = np.arange(first, stop)
    return VideoPart(video=video, own_frames=frames, frames=frames, fps=video.fps, clock=clock, facts=facts)


# Steps per second at which a sampler is shown a video whose rate varies; if its average rate is higher, that rate
# counts.
STEPS_PER_SECOND = 30


def evened_part(video: VideoInfo, clock: FloatArray, *, name: str, stretch: Stretch) -> VideoPart:
    """Return the frames on screen at even steps of the stretch, from the one on screen at its start.

    Args:
        clock: time of each frame in seconds, `(n_frames,)`.

    Raises:
        InvalidInput: the stretch begins after the end of the video.
    """
    fps = float(max(STEPS_PER_SECOND, math.ceil(video.fps)))
    start = stretch.start_seconds
    end = max(video.duration_seconds, float(clock[-1]) + 1 / fps)
    if start >= end:
        raise _no_frame(name, stretch, clock)
    end = min(end, end if stretch.end_seconds is None else stretch.end_seconds)
    times = start + np.arange(max(1, round((end - start) * fps))) / fps
    frames = np.maximum(np.searchsorted(clock, times + 1e-9, side="right") - 1, 0)
    first, stop = int(frames[0]), int(np.searchsorted(clock, end - 1e-9))
    facts: dict[str, object] = {"timeline": "seconds"}
    if stretch != Stretch():
        facts["stretch_frames"] = [first, stop]
    own_frames = np.arange(first, stop)
    return VideoPart(video=video, own_frames=own_frames, frames=frames, fps=fps, clock=clock, facts=facts)


def _no_frame(name: str, stretch: Stretch, clock: FloatArray) -> InvalidInput:
    end_text = "the end" if stretch.end_seconds is None else f"{stretch.end_seconds:g} s"
    return InvalidInput(
        f"{name}: no frame from {stretch.start_seconds:g} s to {end_text}; the last frame is at {clock.max():.2f} s"
    )


def _first_pulls(frames: IntArray, relevance: FloatArray) -> tuple[IntArray, FloatArray]:
    """Distinct frames in the order of their first pulls, and the relevance from these first pulls."""
    first = np.sort(np.unique(frames, return_index=True)[1])
    return frames[first], relevance[first]


def _of_distinct(function: Callable[[IntArray], FloatArray], frames: IntArray) -> FloatArray:
    """`function(frames)`, called with each frame once, ascending."""
    distinct, place = np.unique(frames, return_inverse=True)
    if distinct.size == frames.size:
        return function(frames)
    values: FloatArray = function(distinct)[place]
    return values


class _PartSource(RelevanceSource):
    """Relevance of a part's frames, from a source of the whole video, which is asked for each frame once."""

    def __init__(self, source: RelevanceSource, frames: IntArray) -> None:
        self.name = source.readable_name
        self._source = source
        self._frames = frames

    def gives(self, method: str) -> bool:
        return self._source.gives(method)

    def __call__(self, frames: IntArray) -> FloatArray:
        return _of_distinct(self._source, self._frames[frames])

    def logits(self, frames: IntArray) -> FloatArray:
        return _of_distinct(self._source.logits, self._frames[frames])

    def embeddings(self, frames: IntArray) -> tuple[NDArray[np.float64], FloatArray]:
        distinct, place = np.unique(self._frames[frames], return_inverse=True)
        images, query = self._source.embeddings(distinct)
        return images[place], query

    def relevance_and_logits(self, frames: IntArray) -> tuple[FloatArray, FloatArray]:
        distinct, place = np.unique(self._frames[frames], return_inverse=True)
        relevance, logits = self._source.relevance_and_logits(distinct)
        return relevance[place], logits[place]

    def relevance_and_embeddings(self, frames: IntArray) -> tuple[FloatArray, NDArray[np.float64]]:
        distinct, place = np.unique(self._frames[frames], return_inverse=True)
        relevance, images = self._source.relevance_and_embeddings(distinct)
        return relevance[place], images[place]

    def relevance_to(self, frames: IntArray, text: str) -> FloatArray:
        return _of_distinct(lambda distinct: self._source.relevance_to(distinct, text), self._frames[frames])
