"""Which frames represent the video's chapters? WFS-SB, boundaries by wavelets (Chen et al., CVPR 2026)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from focus_eval.bandit.allocation import within_capacity
from focus_eval.bandit.arms import best_first
from focus_eval.bandit.draws import min_max
from focus_eval.errors import MissingDependency
from focus_eval.samplers.base import Choice, FrameSampler, SelectionRequest
from focus_eval.samplers.candidates import one_fps
from focus_eval.samplers.embeddings import unit_rows
from focus_eval.samplers.options import option
from focus_eval.types import FloatArray, IntArray, VideoInfo


@dataclass(frozen=True, kw_only=True)
class WfsSb(FrameSampler):
    """Split the 1-fps candidates where the coarsest wavelet detail of their relevance peaks, then share `k` out.

    Relevance is the cosine of frame and query embedding, scaled to [0, 1] over the video. Fewer candidates than
    `k`: all of them. The text leaves open what its quantities are measured in: peaks are the local maxima of the
    detail's absolute value, a segment's length counts as its share of the candidates, and a share that exceeds a
    segment goes to the next heaviest.

    Args:
        balance: of relevance against similarity to frames already chosen in the segment, in [0, 1].
    """

    name: ClassVar[str] = "wfs_sb"
    source: ClassVar[str] = "WFS-SB (Chen et al., CVPR 2026)"
    needs_embeddings: ClassVar[bool] = True
    may_return_fewer: ClassVar[bool] = True

    balance: float = option(0.5, at_least=0, at_most=1)

    def choose(self, request: SelectionRequest) -> Choice:
        """Pull embeddings of every candidate, split, share out, choose inside."""
        candidates = one_fps(request.video)
        if candidates.size == 0:
            return Choice(keyframes=candidates, facts={"candidates": 0})
        images, query = request.ledger.embeddings(candidates)
        images = unit_rows(images)
        relevance = min_max(images @ unit_rows(query[None])[0])
        segments = np.split(np.arange(candidates.size), boundaries(relevance))
        shares = segment_shares(segments, relevance, min(request.k, candidates.size))
        chosen = [
            segment[diverse_best(images[segment], relevance[segment], int(share), balance=self.balance)]
            for segment, share in zip(segments, shares, strict=True)
        ]
        facts = {"candidates": int(candidates.size), "segments": len(segments)}
        return Choice(keyframes=candidates[np.concatenate(chosen)], facts=facts)

    def count_pulls(self, video: VideoInfo, *, k: int, seed: int = 0) -> int:
        """Return the number of candidates."""
        return int(one_fps(video).size)


def boundaries(relevance: FloatArray) -> IntArray:
    """Return where new segments begin: peaks of the db4 detail at level `clip(floor(log2 n - 3), 1, max)`, ascending.

    Args:
        relevance: shape `(n,)`; a signal too short for one level has no boundary.

    Raises:
        MissingDependency: PyWavelets is not installed.
    """
    try:
        import pywt
    except ImportError as error:
        raise MissingDependency("sampler wfs_sb needs PyWavelets: pip install 'focus-eval[wavelets]'") from error
    highest = pywt.dwt_max_level(relevance.size, pywt.Wavelet("db4"))
    if highest == 0:
        return np.empty(0, dtype=np.int64)
    level = min(max(1, math.floor(math.log2(relevance.size) - 3)), highest)
    coefficients = pywt.wavedec(relevance, "db4", level=level)
    only_coarsest = [part if i == 1 else np.zeros_like(part) for i, part in enumerate(coefficients)]
    change = np.abs(pywt.waverec(only_coarsest, "db4")[: relevance.size])
    return 1 + np.flatnonzero((change[1:-1] > change[:-2]) & (change[1:-1] >= change[2:]))


def segment_shares(segments: list[IntArray], relevance: FloatArray, k: int) -> IntArray:
    """Return how many of `k` frames each segment gives: softmax of the weights, largest remainder; `(n_segments,)`.

    The weight is `0.4 length + 0.2 mean + 0.3 max + 0.1 variance`.
    """
    inside = [relevance[segment] for segment in segments]
    weight = np.array([0.4 * r.size / relevance.size + 0.2 * r.mean() + 0.3 * r.max() + 0.1 * r.var() for r in inside])
    exact = k * np.exp(weight - weight.max()) / np.exp(weight - weight.max()).sum()
    shares = np.floor(exact).astype(np.int64)
    shares[best_first(exact - shares)[: k - int(shares.sum())]] += 1
    heaviest = best_first(weight)
    given: IntArray = np.empty_like(shares)
    given[heaviest] = within_capacity(shares[heaviest], np.array([r.size for r in inside])[heaviest])
    return given


def diverse_best(images: FloatArray, relevance: FloatArray, n: int, *, balance: float) -> IntArray:
    """Return `n` positions by maximal marginal relevance (Carbonell and Goldstein 1998), in order of choice, `(n,)`.

    Args:
        images: unit embeddings `(n_frames, d)`.
        relevance: `(n_frames,)`.
        balance: 1 for relevance alone, 0 for difference from the chosen frames alone.
    """
    chosen = np.empty(n, dtype=np.int64)
    is_free = np.ones(relevance.size, dtype=bool)
    similarity = np.zeros(relevance.size)
    for step in range(n):
        value = balance * relevance - (1 - balance) * similarity
        chosen[step] = best = int(np.argmax(np.where(is_free, value, -np.inf)))
        is_free[best] = False
        to_best = images @ images[best]
        similarity = to_best if step == 0 else np.maximum(similarity, to_best)
    return chosen
