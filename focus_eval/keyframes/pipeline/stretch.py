"""Chooses from a stretch of a video: the sampler sees its frames alone; the selection names those of the file."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from focus_eval.core.errors import InvalidInput
from focus_eval.core.options import checked_values, option
from focus_eval.core.types import FloatArray, IntArray, Selection, VideoInfo, frozen_ints
from focus_eval.keyframes.samplers.ledger import LookFn, RelevanceFn, RelevanceSource


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

    def part_of(self, video: VideoInfo, clock: FloatArray, *, name: str) -> VideoPart:
        """Return the frames of this stretch.

        Args:
            clock: time of each frame in seconds, `(n_frames,)`.
            name: of the video, for errors.

        Raises:
            InvalidInput: no frame lies in the stretch.
        """
        end = np.inf if self.end_seconds is None else self.end_seconds
        frames = np.flatnonzero((clock >= self.start_seconds) & (clock < end))
        if frames.size == 0:
            end_text = "the end" if self.end_seconds is None else f"{self.end_seconds:g} s"
            raise InvalidInput(
                f"{name}: no frame from {self.start_seconds:g} s to {end_text}; the last frame is at "
                f"{clock.max():.2f} s"
            )
        return VideoPart(video=video, first=int(frames[0]), stop=int(frames[-1]) + 1)


@dataclass(frozen=True, kw_only=True)
class VideoPart:
    """The frames `[first, stop)` of a video, which a sampler counts from 0."""

    video: VideoInfo
    first: int
    stop: int

    @property
    def info(self) -> VideoInfo:
        """Length and rate of the part, as a sampler is given them."""
        kinds = {"sync_frames": self.video.sync_frames, "reference_frames": self.video.reference_frames}
        kinds_inside = {
            name: None if frames is None else frames[(frames >= self.first) & (frames < self.stop)] - self.first
            for name, frames in kinds.items()
        }
        return VideoInfo(self.stop - self.first, self.video.fps, **kinds_inside)

    def source(self, source: RelevanceSource) -> RelevanceSource:
        """Return a source of relevance that takes the part's frames."""
        return _PartSource(source, self.first)

    def scan(self, scan: RelevanceFn | None) -> RelevanceFn | None:
        """Return a scan that takes the part's frames; None for None."""
        return None if scan is None else (lambda frames: scan(frames + self.first))

    def look(self, look: LookFn | None) -> LookFn | None:
        """Return a source of pictures that takes the part's frames; None for None."""
        return None if look is None else (lambda frames, size: look(frames + self.first, size))

    def whole(self, selection: Selection) -> Selection:
        """Return the part's selection with frames of the whole video."""
        first = self.first
        clips = (replace(clip, start=clip.start + first, stop=clip.stop + first) for clip in selection.clips)
        return replace(
            selection,
            video=self.video,
            keyframes=tuple(frame + first for frame in selection.keyframes),
            pulled_frames=frozen_ints(selection.pulled_frames + first),
            text_pulls=tuple(replace(pulls, frames=pulls.frames + first) for pulls in selection.text_pulls),
            looked_frames=frozen_ints(selection.looked_frames + first),
            scanned_frames=frozen_ints(selection.scanned_frames + first),
            clips=tuple(clips),
            facts={**selection.facts, "stretch_frames": [first, self.stop]},
        )


class _PartSource(RelevanceSource):
    """Relevance of a part's frames, from a source of the whole video."""

    def __init__(self, source: RelevanceSource, first: int) -> None:
        self.name = source.readable_name
        self._source = source
        self._first = first

    def gives(self, method: str) -> bool:
        return self._source.gives(method)

    def __call__(self, frames: IntArray) -> FloatArray:
        return self._source(frames + self._first)

    def logits(self, frames: IntArray) -> FloatArray:
        return self._source.logits(frames + self._first)

    def embeddings(self, frames: IntArray) -> tuple[NDArray[np.float64], FloatArray]:
        return self._source.embeddings(frames + self._first)

    def relevance_and_logits(self, frames: IntArray) -> tuple[FloatArray, FloatArray]:
        return self._source.relevance_and_logits(frames + self._first)

    def relevance_and_embeddings(self, frames: IntArray) -> tuple[FloatArray, NDArray[np.float64]]:
        return self._source.relevance_and_embeddings(frames + self._first)

    def relevance_to(self, frames: IntArray, text: str) -> FloatArray:
        return self._source.relevance_to(frames + self._first, text)
