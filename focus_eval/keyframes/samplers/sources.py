"""Relevance, embeddings and pictures from arrays, to try samplers without a video."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from focus_eval.core.errors import AnswerError
from focus_eval.core.types import ExampleReplies, FloatArray, IntArray, Pixels, example_reply_to
from focus_eval.keyframes.samplers.base import EXAMPLE_REPLY
from focus_eval.keyframes.samplers.ledger import RelevanceSource

_DIMENSIONS = 8


class ArraySource(RelevanceSource):
    """Source of relevance, embeddings and pictures from arrays that records its calls.

    Args:
        relevance: of every frame, `(n_frames,)`.
        seed: seeds the random embeddings and noise.
    """

    name = "world"

    def __init__(self, relevance: FloatArray, *, seed: int = 0) -> None:
        """Keep the relevance of every frame and begin with no recorded calls."""
        self.values = np.asarray(relevance, dtype=float)
        self.calls: list[IntArray] = []
        self.scans: list[IntArray] = []
        self.other_pulls = 0
        self.reply: ExampleReplies = ""
        self.kinds: set[str] = set()  # the optional outputs, such as logits, that were requested
        self._seed = seed
        self.query: FloatArray = np.random.default_rng([seed, 1]).normal(size=_DIMENSIONS)

    @cached_property
    def vectors(self) -> FloatArray:
        """Embedding of every frame, `(n_frames, 8)`."""
        return np.random.default_rng(self._seed).normal(size=(self.values.size, _DIMENSIONS))

    def __call__(self, frames: IntArray) -> FloatArray:
        """Return the relevance of `frames`, and record the call."""
        self.calls.append(frames)
        return self.values[frames]

    def logits(self, frames: IntArray) -> FloatArray:
        """Return relevance times 20 as logits, and record the call."""
        self.calls.append(frames)
        self.kinds.add("logits")
        return 20.0 * self.values[frames]

    def embeddings(self, frames: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return random embeddings of `frames`, `(n, 8)`, and of the query; record the call."""
        self.calls.append(frames)
        self.kinds.add("embeddings")
        return self.vectors[frames], self.query

    def relevance_and_logits(self, frames: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return relevance and logits of `frames`, and record one call."""
        self.calls.append(frames)
        return self.values[frames], 20.0 * self.values[frames]

    def relevance_to(self, frames: IntArray, text: str) -> FloatArray:
        """Return relevance to another text, `(n,)`: the question's relevance mixed with noise seeded by the text."""
        self.other_pulls += frames.size
        self.kinds.add("texts")
        noise = np.random.default_rng([self._seed, *text.encode()]).random(self.values.size)
        return 0.8 * self.values[frames] + 0.2 * noise[frames]

    def look(self, frames: IntArray, size: int | None) -> list[Pixels]:
        """Return pictures of 16 x 9 pixels whose colours follow the embeddings."""
        colours = np.nan_to_num(np.clip(128 + 40 * self.vectors[frames, :3], 0, 255)).astype(np.uint8)
        return [np.broadcast_to(colour, (9, 16, 3)) for colour in colours]

    def ask(self, text: str, images: Sequence[Pixels] = (), *, max_tokens: int = 1) -> str:
        """Return the example reply; raise AnswerError if relevance is NaN, like a model that does not answer."""
        if not np.isfinite(self.values).all():
            raise AnswerError("a model that does not answer")
        return example_reply_to(text, self.reply) or EXAMPLE_REPLY

    def yes(self, text: str, images: Sequence[Pixels]) -> FloatArray:
        """Return probabilities that follow from the pictures' colours, `(n,)`."""
        self.ask(text)
        return np.array([image.mean() / 255 for image in images])

    def scan(self, frames: IntArray) -> FloatArray:
        """Return logits of a cheap encoder, which follow relevance through noise, `(n,)`."""
        self.scans.append(frames)
        return 4.0 * self.values[frames] + np.random.default_rng(self._seed).normal(size=self.values.size)[frames]

    def relevance_and_embeddings(self, frames: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return relevance and embeddings of `frames`, and record one call."""
        self.calls.append(frames)
        return self.values[frames], self.vectors[frames]


def bumpy(n_frames: int, *, seed: int = 0) -> FloatArray:
    """Return relevance in [0, 1] with a few events and some noise, shape `(n_frames,)`."""
    generator = np.random.default_rng(seed)
    t = np.arange(n_frames) / n_frames
    trace: FloatArray = 0.2 + 0.05 * generator.random(n_frames)
    for _ in range(4):
        trace += generator.random() * np.exp(-(((t - generator.random()) / 0.03) ** 2))
    return np.clip(trace, 0.0, 1.0)
