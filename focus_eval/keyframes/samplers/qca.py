"""How many keyframes should each part of the video get, by question and content? QCA (ECCV 2026)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from focus_eval.core.options import option
from focus_eval.core.types import FloatArray, IntArray, VideoInfo
from focus_eval.keyframes.samplers.bandit import best_first
from focus_eval.keyframes.samplers.base import Choice, FrameSampler, SelectionRequest
from focus_eval.keyframes.samplers.uniform import empty_grid_reason, one_fps

CONTENT_TEMPERATURE = 0.5
LEAST_THRESHOLD = 1e-6
LEAST_LENGTH = 1e-8

Embeddings = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Qca(FrameSampler):
    """Divide `k` among equal segments by content and relevance; in each take relevant frames that differ.

    The authors compute distances in half precision on a GPU; here they are in float32. With fewer candidates than
    segments the authors' code fails; here the most relevant candidates are returned, and the facts say so.

    Args:
        segments: equal parts of the 1-fps candidates.
        gamma: smallest relevance of a candidate, as a share of the highest relevance in its segment.
        beta: weight of content against relevance when `k` is divided, in [0, 1].
        temperature: of the softmax over the segments' mean relevance.
    """

    name: ClassVar[str] = "qca"
    paper: ClassVar[str] = "https://github.com/hktk07/QCA"
    source: ClassVar[str] = "QCA (ECCV 2026), public code"
    draws: ClassVar[bool] = False
    needs_embeddings: ClassVar[bool] = True
    may_return_fewer: ClassVar[bool] = True

    segments: int = option(16, at_least=1)
    gamma: float = option(0.5, at_least=0, at_most=1)
    beta: float = option(0.5, at_least=0, at_most=1)
    temperature: float = option(1.0, above=0)

    def choose(self, request: SelectionRequest) -> Choice:
        """Score and embed the candidates; divide `k` among equal segments and take relevant, differing frames of each.

        Fewer candidates than segments give the most relevant ones.
        """
        candidates, k = one_fps(request.video), request.k
        n = int(candidates.size)
        facts = {"candidates": n}
        if n == 0:
            return Choice(keyframes=candidates, facts=facts)
        relevance, images = request.ledger.relevance_and_embeddings(candidates)
        assert images is not None  # `select` refuses encoders without embeddings, since `needs_embeddings` is set
        if n < self.segments:
            return Choice(keyframes=candidates[best_first(relevance)[:k]], facts={**facts, "fallback": "topk"})
        unit = images.astype(np.float32)
        unit /= np.linalg.norm(unit, axis=1, keepdims=True) + np.float32(LEAST_LENGTH)
        edges = segment_edges(n, self.segments)
        weights = self.beta * content_weights(unit, edges)
        weights = weights + (1 - self.beta) * query_weights(relevance, edges, self.temperature)
        budgets = segment_budgets(weights, np.diff(edges), k)
        parts = [
            start + relevant_and_far(relevance[start:stop], unit[start:stop], budget, self.gamma)
            for start, stop, budget in zip(edges[:-1].tolist(), edges[1:].tolist(), budgets.tolist(), strict=True)
        ]
        return Choice(keyframes=candidates[np.concatenate(parts)], facts={**facts, "budgets": budgets.tolist()})

    def count_pulls(self, video: VideoInfo, *, k: int, seed: int = 0) -> int:
        """Return the number of candidates, all of which are scored."""
        return int(one_fps(video).size)

    def infeasible_reason(self, video: VideoInfo, *, k: int) -> str | None:
        """Return a reason if the video is too short for a candidate; else None."""
        return empty_grid_reason(one_fps(video))


def segment_edges(n: int, segments: int) -> IntArray:
    """Return the starts of `segments` parts of `n` candidates, then `n`; the first `n % segments` are one longer."""
    sizes = np.full(segments, n // segments, dtype=np.int64) + (np.arange(segments) < n % segments)
    return np.concatenate([[0], np.cumsum(sizes)])


def content_weights(images: Embeddings, edges: IntArray) -> FloatArray:
    """Return each segment's weight by content, `(n_segments,)`, sum 1: high if varied and far from the video's mean.

    Args:
        images: unit embeddings `(n, d)`.
        edges: see `segment_edges`.
    """
    parts = np.split(images.astype(np.float64), edges[1:-1])
    distances = np.array([((part.mean(axis=0) - images.mean(axis=0, dtype=np.float64)) ** 2).sum() for part in parts])
    varied = np.array([part.var(axis=0, ddof=1).sum() if len(part) > 1 else 0.0 for part in parts])
    return softmax(softmax(distances, CONTENT_TEMPERATURE) + softmax(varied, CONTENT_TEMPERATURE), CONTENT_TEMPERATURE)


def query_weights(relevance: FloatArray, edges: IntArray, temperature: float) -> FloatArray:
    """Return each segment's weight by its mean relevance, `(n_segments,)`, sum 1."""
    return softmax(np.array([part.mean() for part in np.split(relevance, edges[1:-1])]), temperature)


def softmax(values: FloatArray, temperature: float) -> FloatArray:
    """Return `exp(values / temperature)`, scaled to sum to 1, shape `(n,)`."""
    powers = np.exp((values - values.max()) / temperature)
    shares: FloatArray = powers / powers.sum()
    return shares


def segment_budgets(weights: FloatArray, sizes: IntArray, k: int) -> IntArray:
    """Return the number of frames from each segment, `(n_segments,)`, at most its size; sum `min(k, sum(sizes))`.

    First, frames are divided by largest remainders, at most as many per segment as the smallest one has. The frames
    that are left are given to the segments in order of weight.
    """
    smallest, n = int(sizes.min()), weights.size
    guaranteed = min(k, smallest * n)
    exact = weights / weights.sum() * guaranteed
    budgets: IntArray = np.floor(exact).astype(np.int64)
    by_weight = best_first(weights)
    for order in (best_first(exact - budgets), *([by_weight] * smallest)):
        deficient = order[budgets[order] < smallest]
        budgets[deficient[: max(0, guaranteed - int(budgets.sum()))]] += 1
    budgets = np.minimum(budgets, sizes)
    for at in by_weight:
        budgets[at] += min(int(sizes[at] - budgets[at]), min(k, int(sizes.sum())) - int(budgets.sum()))
    return budgets


def relevant_and_far(relevance: FloatArray, images: Embeddings, n: int, gamma: float) -> IntArray:
    """Return at most `n` frames of a segment, ascending: relevant enough, and far from one another.

    Args:
        relevance: shape `(n_frames,)`.
        images: unit embeddings `(n_frames, d)`.
        gamma: required share of the highest relevance at first; halved until `n` frames reach it.
    """
    if n == 0:
        return np.empty(0, dtype=np.int64)
    anchor, highest = int(relevance.argmax()), float(relevance.max())
    threshold = gamma * highest if highest > 0 else highest
    enough = np.flatnonzero(relevance >= threshold)
    while enough.size < min(n, relevance.size) and threshold > LEAST_THRESHOLD:
        threshold /= 2
        enough = np.flatnonzero(relevance >= threshold)
    if enough.size <= n:
        return enough
    points = images[enough]
    squared = (points**2).sum(axis=1)
    positions = [int(np.searchsorted(enough, anchor))]
    nearest = np.full(enough.size, np.inf, dtype=np.float32)
    while len(positions) < n:
        last = positions[-1]
        nearest = np.minimum(nearest, squared + squared[last] - 2 * (points @ points[last]))
        nearest[positions] = -1
        if nearest.max() < 0:
            break
        positions.append(int(nearest.argmax()))
    return np.sort(enough[positions])
