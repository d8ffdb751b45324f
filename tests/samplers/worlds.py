"""What a sampler may see in a test: relevance, logits and embeddings of every frame, and which were asked."""

from __future__ import annotations

import numpy as np


class World:
    """A pull answered from arrays, that remembers its calls."""

    def __init__(self, relevance, *, seed: int = 0, n_dimensions: int = 8) -> None:
        generator = np.random.default_rng(seed)
        self.values = np.asarray(relevance, dtype=float)
        self.vectors = generator.normal(size=(self.values.size, n_dimensions))
        self.query = generator.normal(size=n_dimensions)
        self.calls: list[np.ndarray] = []

    def __call__(self, frames):
        self.calls.append(frames)
        return self.values[frames]

    def logits(self, frames):
        self.calls.append(frames)
        return 20.0 * self.values[frames]

    def embeddings(self, frames):
        self.calls.append(frames)
        return self.vectors[frames], self.query

    def relevance_and_embeddings(self, frames):
        self.calls.append(frames)
        return self.values[frames], self.vectors[frames]


def bumpy(n_frames: int, *, seed: int = 0) -> np.ndarray:
    """Relevance in [0, 1] with a few events and some noise, shape `(n_frames,)`."""
    generator = np.random.default_rng(seed)
    t = np.arange(n_frames) / n_frames
    trace = 0.2 + 0.05 * generator.random(n_frames)
    for _ in range(4):
        trace += generator.random() * np.exp(-(((t - generator.random()) / 0.03) ** 2))
    return np.clip(trace, 0.0, 1.0)
