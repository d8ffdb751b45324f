"""Videos as a selector needs them: length, the times of frames, their relevance and their pictures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import FloatArray, IntArray, VideoInfo
from focus_eval.keyframes.encoders.base import Encoder
from focus_eval.keyframes.pipeline.relevance import (
    EncoderUse,
    FrameServer,
    OnPulls,
    VideoRelevance,
    VideoSession,
    pictures_of,
)
from focus_eval.keyframes.pipeline.timing import Meter
from focus_eval.keyframes.samplers.ledger import LookFn, RelevanceSource

if TYPE_CHECKING:
    from focus_eval.keyframes.video.reader import VideoReader


class VideoSource(ABC):
    """A video that frames are chosen from.

    Attributes:
        path: path of the file; it need not exist if the file is not read.
        info: length and rate.
        is_read: True if times and pixels come from the file.
        on_pulls: is called after each batch of pulls; None if nobody follows them.
    """

    path: Path
    info: VideoInfo
    is_read: bool = True
    on_pulls: OnPulls | None = None

    @property
    def counts_decoded(self) -> bool:
        """True if the number of decoded frames is known."""
        return False

    @property
    def reference_frames(self) -> IntArray | None:
        """Frames that other frames refer to, ascending; None if they are not known."""
        return None

    def damaged_frames(self) -> IntArray:
        """Return the frames that cannot be decoded, ascending; this may decode the whole video."""
        return np.zeros(0, dtype=np.int64)

    @property
    @abstractmethod
    def clock(self) -> FloatArray:
        """Time of each frame in seconds, `(n_frames,)`."""

    @abstractmethod
    def relevance(self, use: EncoderUse, query: str, *, meter: Meter) -> RelevanceSource:
        """Return the relevance of the frames to `query`.

        Raises:
            InvalidInput: the encoder needs pixels, and the video is not read.
        """

    @abstractmethod
    def look(self, encoder: Encoder | None, *, batch_size: int, meter: Meter) -> LookFn | None:
        """Return a function that gives pictures of frames; None without pictures.

        Args:
            encoder: draws the pictures of a simulated video.
            batch_size: frames decoded at once.
        """


@dataclass(kw_only=True, eq=False)
class OpenVideo(VideoSource):
    """An open video file, which stays open.

    Args:
        server: serves several questions about the video together; None for one question alone.
    """

    reader: VideoReader
    server: FrameServer | None = None
    on_pulls: OnPulls | None = None

    def __post_init__(self) -> None:
        """Take path and length from the reader."""
        self.path, self.info = self.reader.path, self.reader.info

    @property
    def counts_decoded(self) -> bool:
        return hasattr(self.reader, "n_decoded")

    @property
    def reference_frames(self) -> IntArray | None:
        frames: IntArray | None = getattr(self.reader, "reference_frames", None)
        return frames

    def damaged_frames(self) -> IntArray:
        server = self.server
        return self.reader.damaged_frames(progress=lambda _: None if server is None else server.check_stopped())

    @cached_property
    def clock(self) -> FloatArray:
        return self.reader.frame_times(np.arange(self.info.n_frames))

    def relevance(self, use: EncoderUse, query: str, *, meter: Meter) -> RelevanceSource:
        if not use.encoder.reads_frames:
            return _recorded(use, self.path, query)
        return VideoRelevance(use.on(self.reader, server=self.server, meter=meter), query, on_pulls=self.on_pulls)

    def look(self, encoder: Encoder | None, *, batch_size: int, meter: Meter) -> LookFn | None:
        start_session = partial(
            VideoSession, reader=self.reader, batch_size=batch_size, meter=meter, server=self.server
        )
        return partial(pictures_of, start_session)


@dataclass(kw_only=True, eq=False)
class UnreadVideo(VideoSource):
    """A video of known length whose file is never opened: for samplers that never pull, or recorded relevance."""

    path: Path
    info: VideoInfo
    is_read = False

    @cached_property
    def clock(self) -> FloatArray:
        return np.arange(self.info.n_frames) / self.info.fps

    def relevance(self, use: EncoderUse, query: str, *, meter: Meter) -> RelevanceSource:
        if use.encoder.reads_frames:
            raise InvalidInput(f"encoder {use.encoder.name!r} needs the frames of {self.path}, not only its length")
        return _recorded(use, self.path, query)

    def look(self, encoder: Encoder | None, *, batch_size: int, meter: Meter) -> LookFn | None:
        return encoder.pictures_of if encoder is not None and encoder.overrides("pictures_of") else None


def _recorded(use: EncoderUse, video: Path, query: str) -> RelevanceSource:
    """Relevance from an encoder that reads no frames."""
    features = use.encoder.features_of(video, query) if use.needs_features else None
    return _ByIndex(use.encoder, video, query) if features is None else features


class _ByIndex(RelevanceSource):
    """Relevance of frames by their index, from an encoder that reads no frames."""

    def __init__(self, encoder: Encoder, video: Path, query: str) -> None:
        self.name = encoder.name
        self._encoder, self._video, self._query = encoder, video, query

    def __call__(self, frames: IntArray) -> FloatArray:
        return self._encoder.relevance_of(self._video, frames, self._query)

    def relevance_to(self, frames: IntArray, text: str) -> FloatArray:
        return self._encoder.relevance_of(self._video, frames, text)
