"""Counts and records every pull of a sampler, and what the encoder gave for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from focus_eval.errors import EncoderError
from focus_eval.samplers.promises import broken
from focus_eval.types import FloatArray, IntArray, VideoInfo, frozen_floats, frozen_ints

RelevanceFn = Callable[[IntArray], Any]


@runtime_checkable
class LogitSource(Protocol):
    """A pull that also gives an encoder's raw image-text logits."""

    def logits(self, frames: IntArray, /) -> FloatArray:
        """Return raw logits, shape `(n,)`."""
        ...


@runtime_checkable
class EmbeddingSource(Protocol):
    """A pull that also gives an encoder's embeddings of frames and of the query."""

    def embeddings(self, frames: IntArray, /) -> tuple[NDArray[np.float64], FloatArray]:
        """Return frame embeddings `(n, d)` and the query's embedding `(d,)`."""
        ...


@runtime_checkable
class RelevanceAndEmbeddingSource(EmbeddingSource, Protocol):
    """A pull that gives relevance and embeddings in one look at the frames."""

    def relevance_and_embeddings(self, frames: IntArray, /) -> tuple[FloatArray, NDArray[np.float64]]:
        """Return relevance `(n,)` and frame embeddings `(n, d)`."""
        ...


class Ledger:
    """The only way from a sampler to relevance: checks every pull and writes it down.

    A frame is pulled at most once; asking twice is the sampler's mistake. Relevance must be finite and in
    [0, 1]. Each of `relevance`, `logits` and `embeddings` counts one pull per frame.

    Args:
        pull: gives relevance of an int64 array of frames, shape `(n,)`; may also have `logits` and `embeddings`.
        video: bounds of the frame indices.
        budget: most pulls allowed; None for no limit.
    """

    def __init__(self, pull: RelevanceFn, video: VideoInfo, *, budget: int | None = None) -> None:
        self._pull = pull
        self._video = video
        self._budget = budget
        self._frames: list[IntArray] = []
        self._relevance: list[FloatArray] = []
        self._is_pulled = np.zeros(video.n_frames, dtype=bool)
        self._n_pulls = 0

    @property
    def n_pulls(self) -> int:
        """Frames pulled so far."""
        return self._n_pulls

    @property
    def frames(self) -> IntArray:
        """Frames in pull order, shape `(n_pulls,)`, read-only."""
        return frozen_ints(np.concatenate(self._frames) if self._frames else [])

    @property
    def relevances(self) -> FloatArray:
        """Relevance in pull order, shape `(n_pulls,)`; NaN where only logits or embeddings were asked."""
        return frozen_floats(np.concatenate(self._relevance) if self._relevance else [])

    def pulls_in_time(self) -> tuple[IntArray, FloatArray]:
        """Return the frames pulled so far, ascending, and their relevance, both `(n_pulls,)`."""
        order = np.argsort(self.frames, kind="stable")
        return self.frames[order], self.relevances[order]

    @property
    def unpulled(self) -> IntArray:
        """Frames never pulled so far, ascending."""
        return np.flatnonzero(~self._is_pulled)

    def is_pulled(self, frames: IntArray) -> NDArray[np.bool_]:
        """Return which of `frames` were pulled already, shape like `frames`."""
        return self._is_pulled[frames]

    def relevance(self, frames: IntArray) -> FloatArray:
        """Pull `frames` in one batch and return their relevance in [0, 1], shape `(n,)`.

        Raises:
            SamplerError: a frame out of range, repeated, or above the budget.
            EncoderError: relevance of the wrong shape, not finite, or outside [0, 1].
        """
        frames = self._checked(frames)
        if frames.size == 0:
            return frozen_floats([])
        values = np.asarray(self._pull(frames), dtype=np.float64)
        _check_values(values, frames, low=0.0, high=1.0)
        self._record(frames, values)
        return values

    def logits(self, frames: IntArray) -> FloatArray:
        """Pull `frames` in one batch and return the encoder's raw logits, shape `(n,)`.

        Raises:
            EncoderError: the encoder has no logits, or gave some that are not finite.
        """
        if not isinstance(self._pull, LogitSource):
            raise EncoderError(f"{_name_of(self._pull)} gives no raw logits; use one that does (clip, siglip)")
        frames = self._checked(frames)
        if frames.size == 0:
            return frozen_floats([])
        values = np.asarray(self._pull.logits(frames), dtype=np.float64)
        _check_values(values, frames, low=-np.inf, high=np.inf)
        self._record(frames, np.full(frames.shape, np.nan))
        return values

    def embeddings(self, frames: IntArray) -> tuple[NDArray[np.float64], FloatArray]:
        """Pull `frames`, at least one, in one batch and return their embeddings `(n, d)` and the query's `(d,)`.

        Raises:
            EncoderError: the encoder has no embeddings, or gave some of the wrong shape.
        """
        if not isinstance(self._pull, EmbeddingSource):
            raise EncoderError(f"{_name_of(self._pull)} gives no embeddings; use one that does (clip, siglip)")
        frames = self._checked(frames)
        images, query = self._pull.embeddings(frames)
        if images.shape != (frames.size, query.size) or not (np.isfinite(images).all() and np.isfinite(query).all()):
            raise EncoderError(f"embeddings of {frames.size} frames have shape {images.shape} or are not finite")
        self._record(frames, np.full(frames.shape, np.nan))
        return images, query

    def relevance_and_embeddings(self, frames: IntArray) -> tuple[FloatArray, NDArray[np.float64] | None]:
        """Pull `frames`, at least one, in one batch; return their relevance `(n,)` and, where there are, embeddings.

        One pull per frame. The embeddings `(n, d)` are None where the encoder has none.

        Raises:
            SamplerError, EncoderError: as `relevance` and `embeddings`.
        """
        if not isinstance(self._pull, EmbeddingSource):
            return self.relevance(frames), None
        frames = self._checked(frames)
        if isinstance(self._pull, RelevanceAndEmbeddingSource):
            relevance, images = self._pull.relevance_and_embeddings(frames)
        else:
            relevance, (images, _) = self._pull(frames), self._pull.embeddings(frames)
        values = np.asarray(relevance, dtype=np.float64)
        _check_values(values, frames, low=0.0, high=1.0)
        if images.ndim != 2 or images.shape[0] != frames.size or not np.isfinite(images).all():
            raise EncoderError(f"embeddings of {frames.size} frames have shape {images.shape} or are not finite")
        self._record(frames, values)
        return values, images

    def _checked(self, frames: IntArray) -> IntArray:
        frames = frozen_ints(frames)
        outside = (frames < 0) | (frames >= self._video.n_frames)
        if outside.any():
            raise broken("ledger", f"frame {frames[outside][0]} asked, video has {self._video.n_frames}")
        unique, counts = np.unique(frames, return_counts=True)
        repeated = np.concatenate([unique[counts > 1], frames[self._is_pulled[frames]]])
        if repeated.size:
            raise broken("ledger", f"frame {repeated[0]} pulled twice; keep what the ledger gave the first time")
        if self._budget is not None and self.n_pulls + frames.size > self._budget:
            raise broken("budget", f"{self.n_pulls + frames.size} pulls asked, the budget is {self._budget}")
        return frames

    def _record(self, frames: IntArray, relevance: FloatArray) -> None:
        self._is_pulled[frames] = True
        self._n_pulls += int(frames.size)
        self._frames.append(frames)
        self._relevance.append(frozen_floats(relevance))


def _check_values(values: FloatArray, frames: IntArray, *, low: float, high: float) -> None:
    if values.shape != frames.shape:
        raise EncoderError(f"{frames.size} frames asked, relevance came with shape {values.shape}")
    bad = ~np.isfinite(values) | (values < low) | (values > high)
    if bad.any():
        raise EncoderError(
            f"frame {frames[bad][0]}: relevance {values[bad][0]} is not a finite number in [{low}, {high}]"
        )


def _name_of(pull: RelevanceFn) -> str:
    return str(getattr(pull, "name", "") or getattr(pull, "__name__", type(pull).__name__))
