"""Videos of every length and rate, and what a sampler may see of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from focus_eval.types import FloatArray, IntArray, VideoInfo

Pattern = Literal["events", "ties", "flat 0", "flat 0.5", "flat 1", "not a number"]


class World:
    """A pull answered from arrays, that remembers its calls.

    Args:
        relevance: of every frame, `(n_frames,)`.
        seed, n_dimensions: of the embeddings, which are random.
    """

    name = "world"

    def __init__(self, relevance: FloatArray, *, seed: int = 0, n_dimensions: int = 8) -> None:
        self.values = np.asarray(relevance, dtype=float)
        self.calls: list[IntArray] = []
        self.kinds: set[str] = set()  # of pulls that an encoder may not have
        self._seed = seed
        self._n_dimensions = n_dimensions
        self.query: FloatArray = np.random.default_rng([seed, 1]).normal(size=n_dimensions)

    @cached_property
    def vectors(self) -> FloatArray:
        """Embedding of every frame, `(n_frames, n_dimensions)`."""
        return np.random.default_rng(self._seed).normal(size=(self.values.size, self._n_dimensions))

    def __call__(self, frames: IntArray) -> FloatArray:
        """Return relevance, `(n,)`."""
        self.calls.append(frames)
        return self.values[frames]

    def logits(self, frames: IntArray) -> FloatArray:
        """Return 20 times relevance, `(n,)`."""
        self.calls.append(frames)
        self.kinds.add("logits")
        return 20.0 * self.values[frames]

    def embeddings(self, frames: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the embeddings of frames `(n, d)` and query `(d,)`."""
        self.calls.append(frames)
        self.kinds.add("embeddings")
        return self.vectors[frames], self.query

    def relevance_and_embeddings(self, frames: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return relevance `(n,)` and embeddings `(n, d)`."""
        self.calls.append(frames)
        return self.values[frames], self.vectors[frames]


@dataclass(frozen=True, order=True)
class Case:
    """One question about one video.

    Args:
        pattern: how relevance looks: four events in noise, four levels only, or the same everywhere.
        has_sync_frames: whether the video says where it can be decoded from.
    """

    n_frames: int
    k: int
    fps: float = 30.0
    pattern: Pattern = "events"
    seed: int = 0
    has_sync_frames: bool = False

    def __str__(self) -> str:
        frames = "1 frame" if self.n_frames == 1 else f"{self.n_frames} frames"
        relevance = "" if self.pattern == "events" else f", relevance {self.pattern}"
        sync = ", sync frames known" if self.has_sync_frames else ""
        return f"{frames} at {self.fps:g} fps, k = {self.k}{relevance}{sync}"

    @property
    def video(self) -> VideoInfo:
        """The video; sync frames lie at most 50 frames apart."""
        if not self.has_sync_frames:
            return VideoInfo(self.n_frames, self.fps)
        sync = np.unique(np.concatenate([np.arange(0, self.n_frames, 50), np.arange(0, self.n_frames, 130)]))
        return VideoInfo(self.n_frames, self.fps, sync)

    @property
    def evidence_seconds(self) -> tuple[float, ...]:
        """Moments for a ceiling: two of one frame, one at the end."""
        return (0.0, 0.2 / self.fps, (self.n_frames - 1) / self.fps)

    def world(self) -> World:
        """Return what a sampler may see."""
        if self.pattern == "events":
            return World(bumpy(self.n_frames, seed=self.seed), seed=self.seed)
        if self.pattern == "ties":
            return World(np.random.default_rng(self.seed).integers(0, 4, self.n_frames) / 3, seed=self.seed)
        world = World(np.full(self.n_frames, np.nan if self.pattern == "not a number" else float(self.pattern[5:])))
        if self.pattern == "not a number":
            world.vectors[:] = np.nan
        return world


def bumpy(n_frames: int, *, seed: int = 0) -> FloatArray:
    """Return relevance in [0, 1] with a few events and some noise, shape `(n_frames,)`."""
    generator = np.random.default_rng(seed)
    t = np.arange(n_frames) / n_frames
    trace: FloatArray = 0.2 + 0.05 * generator.random(n_frames)
    for _ in range(4):
        trace += generator.random() * np.exp(-(((t - generator.random()) / 0.03) ** 2))
    return np.clip(trace, 0.0, 1.0)


LENGTHS_AND_RATES = [
    (1, 0.1), (1, 30.0), (2, 24.0), (3, 60.0), (7, 25.0), (8, 25.0), (29, 29.97), (31, 29.97), (100, 1e6),
    (250, 24.0), (900, 0.2), (1000, 0.999), (1000, 1.0), (2500, 240.0), (7201, 30000 / 1001),
]  # fmt: skip
# K below, at and above the number of frames; relevance with events, with ties, the same everywhere.
CASES = tuple(
    sorted(
        {
            *(Case(n, k, fps) for n, fps in LENGTHS_AND_RATES for k in (1, 8, 64)),
            *(Case(n, k, fps) for n, fps in LENGTHS_AND_RATES[:8] for k in (n - 1, n, n + 1) if k > 0),
            *(Case(n, 16, pattern=pattern) for n in (1, 40, 3000) for pattern in ("flat 0", "flat 0.5", "flat 1")),
            *(Case(n, 8, 10.0, "ties", seed) for n in (20, 500) for seed in (1, 2)),
            *(Case(n, 8, 25.0, has_sync_frames=True) for n in (60, 4000)),
        }
    )
)
TEN_HOURS = Case(1_080_000, 64)
