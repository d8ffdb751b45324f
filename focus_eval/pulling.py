"""How does a pull become relevance: from the store where it is known, else decoded and encoded?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from focus_eval.costs import Meter
from focus_eval.scoring.kept import KeptFeatures
from focus_eval.scoring.scorer import GivesEmbeddings, GivesLogits, Scorer
from focus_eval.types import FloatArray, IntArray
from focus_eval.video.reader import Pixels, VideoReader

if TYPE_CHECKING:
    from focus_eval.scoring.store import RelevanceStore


class Progress(Protocol):
    """Is told how many frames will be scored, and of each batch that was."""

    def expect(self, n_pulls: int) -> None:
        """Called once, before the first pull."""
        ...

    def advance(self, n_pulls: int) -> None:
        """Called after each batch."""
        ...


@dataclass(kw_only=True)
class VideoSession:
    """One open video, its scorer, and what is already known of its frames.

    Args:
        key: fingerprint of the video's content; "" where there is no store.
        kept: features of a scorer that stores none, for the next question of the video.
        batch_size: frames encoded at once; bounds the pixels held in memory.
    """

    reader: VideoReader
    scorer: Scorer
    store: RelevanceStore | None = None
    key: str = ""
    kept: KeptFeatures | None = None
    batch_size: int = 32
    meter: Meter = field(default_factory=Meter)

    @property
    def scorer_key(self) -> str:
        """Identity of the numbers this scorer gives."""
        return f"{self.scorer.name} {self.scorer.revision}"


class Pull:
    """Relevance of one video's frames to one query, as a sampler's ledger wants it.

    Has `logits` and `embeddings` exactly where the scorer has them. `forwards` counts the encoder forwards
    really made; frames that came from the store are not among them.
    """

    def __init__(self, session: VideoSession, query: str, *, progress: Progress | None = None) -> None:
        self.name = session.scorer.name
        self.forwards = 0
        self._session = session
        self._query = query
        self._advance = progress.advance if progress else _ignore
        if isinstance(session.scorer, GivesLogits):
            self.logits = self._logits
        if isinstance(session.scorer, GivesEmbeddings):
            self.embeddings = self._embeddings

    def __call__(self, frames: IntArray) -> FloatArray:
        """Return relevance in [0, 1], shape `(n,)`."""
        session = self._session
        if session.store is None or session.scorer.stores_embeddings:
            return self._from_features(frames, lambda features: session.scorer.relevance(features, self._query))
        values = session.store.relevance(session.scorer_key, session.key, self._query, frames)
        missing = np.isnan(values)
        self._advance(int((~missing).sum()))
        if missing.any():
            fresh = self._from_features(
                frames[missing], lambda features: session.scorer.relevance(features, self._query)
            )
            values[missing] = session.store.put_relevance(
                session.scorer_key, session.key, self._query, frames[missing], fresh
            )
        return values

    def _logits(self, frames: IntArray) -> FloatArray:
        scorer: Any = self._session.scorer
        return self._from_features(frames, lambda features: scorer.logits(features, self._query))

    def _embeddings(self, frames: IntArray) -> tuple[NDArray[np.float64], FloatArray]:
        scorer: Any = self._session.scorer
        images: dict[int, FloatArray] = {}
        query = np.empty(0)
        for part, features in self._features(frames):
            with self._session.meter.stage("encode"):
                embedded, query = scorer.embeddings(features, self._query)
            images.update(zip(part.tolist(), embedded, strict=True))
        return np.stack([images[frame] for frame in frames.tolist()]), query

    def _from_features(self, frames: IntArray, score: Callable[[Any], FloatArray]) -> FloatArray:
        values = np.full(frames.shape, np.nan)
        place = {frame: at for at, frame in enumerate(frames.tolist())}
        for part, features in self._features(frames):
            with self._session.meter.stage("encode"):
                values[[place[frame] for frame in part.tolist()]] = score(features)
        return values

    def _features(self, frames: IntArray) -> Iterator[tuple[IntArray, Any]]:
        """Yield frames with their features: stored ones first, then fresh ones in batches, ascending."""
        session = self._session
        if session.store is not None and session.scorer.stores_embeddings:
            found, stored = session.store.embeddings(session.scorer_key, session.key, frames)
            if found.any():
                self._advance(int(found.sum()))
                yield frames[found], stored
            frames = frames[~found]
        elif session.kept is not None:
            found, stored = session.kept.get(str(session.reader.path), frames)
            if found.any():
                self._advance(int(found.sum()))
                yield frames[found], stored
            frames = frames[~found]
        for part, pixels in self._batches(np.sort(frames)):
            with session.meter.stage("encode"):
                features = session.scorer.embed(pixels)
            self.forwards += part.size
            if session.store is not None and session.scorer.stores_embeddings:
                # Another process may have been first: all go on with what the store holds.
                features = session.store.put_embeddings(session.scorer_key, session.key, part, features)
            elif session.kept is not None:
                session.kept.put(str(session.reader.path), part, features)
            self._advance(part.size)
            yield part, features

    def _batches(self, frames: IntArray) -> Iterator[tuple[IntArray, Pixels]]:
        """Yield batches of decoded frames; a thread decodes the next one while the caller encodes."""
        session = self._session
        parts = [frames[at : at + session.batch_size] for at in range(0, frames.size, session.batch_size)]
        if not parts:
            return
        stream = session.reader.stream(frames)

        def decode(part: IntArray) -> tuple[Pixels, float]:
            started = time.perf_counter()
            pixels = np.stack([next(stream)[1] for _ in range(part.size)])
            return pixels, time.perf_counter() - started

        with ThreadPoolExecutor(max_workers=1) as pool:
            ahead = pool.submit(decode, parts[0])
            for part, following in zip(parts, [*parts[1:], None], strict=True):
                with session.meter.stage("idle"):
                    pixels, seconds = ahead.result()
                session.meter.add("decode", seconds)
                if following is not None:
                    ahead = pool.submit(decode, following)
                yield part, pixels


def _ignore(n_pulls: int) -> None:
    """Nobody watches."""
