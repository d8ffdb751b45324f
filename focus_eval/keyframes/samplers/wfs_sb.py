"""Which frames represent the video's chapters? WFS-SB, boundaries by wavelets (Chen et al., CVPR 2026)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from focus_eval.core.errors import MissingDependency
from focus_eval.core.extras import install_command
from focus_eval.core.options import option
from focus_eval.core.types import FloatArray, IntArray, VideoInfo
from focus_eval.keyframes.samplers.bandit import best_first
from focus_eval.keyframes.samplers.base import Choice, FrameSampler, SelectionRequest
from focus_eval.keyframes.samplers.coverage import unit_rows
from focus_eval.keyframes.samplers.expected_pulls import ExpectedPulls
from focus_eval.keyframes.samplers.uniform import even_frames, one_fps

# Constants of the authors' benchmark configuration.
LEAST_PEAK_DISTANCE = 5
PEAK_DISTANCE_SHARE = 0.02
PEAK_PROMINENCE_SHARE = 0.05
SEGMENT_WEIGHTS = (0.4, 0.2, 0.3, 0.1)  # of length, mean, maximum and variance
LEAST_IMPORTANCE = 0.05
FORGETTING_FRAMES = 10.0  # without embeddings, similarity falls to 1/e over this many candidates


@dataclass(frozen=True, kw_only=True)
class WfsSb(FrameSampler):
    """Split the 1-fps candidates at peaks of the relevance's coarsest wavelet detail; divide `k` among the segments.

    Relevance is the encoder's own, not scaled over the video; frames are compared by its embeddings, or by their
    distance in time if it has none. With fewer candidates than `k` this is `uniform`, named in the facts.

    Args:
        balance: weight of relevance against similarity to frames already chosen in the segment, in [0, 1].
    """

    name: ClassVar[str] = "wfs_sb"
    paper: ClassVar[str] = "wfs_sb"
    source: ClassVar[str] = "WFS-SB (Chen et al., CVPR 2026), public code"
    draws: ClassVar[bool] = False
    version: ClassVar[int] = 2

    balance: float = option(0.5, at_least=0, at_most=1)

    def choose(self, request: SelectionRequest) -> Choice:
        """Score the candidates, split them where relevance changes, and share `k` among the important segments.

        If there are fewer candidates than `k`, choose evenly spaced frames.
        """
        candidates = one_fps(request.video)
        n, k = int(candidates.size), request.k
        if n < k:
            facts = {"candidates": n, "fallback": "uniform"}
            return Choice(keyframes=even_frames(request.video, k), facts=facts)
        relevance, images = request.ledger.relevance_and_embeddings(candidates)
        images = None if images is None else unit_rows(images)
        peaks = boundaries(relevance)
        if peaks.size == 0:
            return Choice(keyframes=candidates[half_even_half_best(relevance, k)], facts={"candidates": n, "peaks": 0})
        edges = np.concatenate([[0], peaks, [n]])
        segments = np.stack([edges[:-1], edges[1:]], axis=1)
        importance = segment_importance(segments, relevance)
        is_kept = important(importance)
        budgets = segment_budgets(importance[is_kept], k)
        positions = self.choose_in_segments(segments[is_kept], budgets, relevance, images)
        positions = self.trim_or_grow(k, positions, relevance, images)
        facts = {"candidates": n, "peaks": int(peaks.size), "segments": int(is_kept.sum())}
        return Choice(keyframes=candidates[positions], facts=facts)

    def choose_in_segments(
        self, segments: IntArray, budgets: IntArray, relevance: FloatArray, images: FloatArray | None
    ) -> IntArray:
        """Return the candidates chosen within each segment, as many as its budget, ascending."""
        parts = [np.empty(0, dtype=np.int64)]
        for (start, stop), budget in zip(segments.tolist(), budgets.tolist(), strict=True):
            inside = slice(start, stop)
            first = np.array([start + int(relevance[inside].argmax())])
            if budget > 0:
                parts.append(self.grow_selection(first, min(budget, stop - start), inside, relevance, images))
        return np.sort(np.concatenate(parts))

    def grow_selection(
        self, selected: IntArray, n: int, candidates: slice, relevance: FloatArray, images: FloatArray | None
    ) -> IntArray:
        """Return `selected`, all among `candidates`, extended by the best of these one by one until there are `n`."""
        value = self.balance * (2.0 * relevance[candidates] - 1.0)
        likeness = similarity(images, candidates, selected).max(axis=1)
        is_free = np.ones(value.shape, dtype=bool)
        is_free[selected - candidates.start] = False
        for _ in range(n - selected.size):
            gain = np.where(is_free, value - (1.0 - self.balance) * likeness, -np.inf)
            best = int(gain.argmax())
            is_free[best] = False
            selected = np.append(selected, candidates.start + best)
            likeness = np.maximum(likeness, similarity(images, candidates, selected[-1:])[:, 0])
        return selected

    def expected_pulls(self, video: VideoInfo, *, k: int) -> ExpectedPulls | None:
        """Return the candidates, which every question pulls; none if they are fewer than `k`."""
        candidates = one_fps(video)
        return ExpectedPulls(fixed=candidates if candidates.size >= k else candidates[:0])

    def trim_or_grow(self, k: int, selected: IntArray, relevance: FloatArray, images: FloatArray | None) -> IntArray:
        """Return `k` candidates, ascending: the most relevant of `selected`, or `selected` and additions from all."""
        if selected.size > k:
            selected = selected[best_first(2.0 * relevance[selected] - 1.0)[:k]]
        elif selected.size < k:
            selected = self.grow_selection(selected, k, slice(0, relevance.size), relevance, images)
        return np.sort(selected)


def similarity(images: FloatArray | None, first: slice, second: IntArray) -> FloatArray:
    """Return the similarity of each candidate of the range `first` to each of `second`, `(n_first, n_second)`.

    The cosine of their unit embeddings `images` `(n, d)`, or `exp(-distance / 10)` without any.
    """
    if images is None:
        alike: FloatArray = np.exp(-np.abs(np.arange(first.start, first.stop)[:, None] - second) / FORGETTING_FRAMES)
        return alike
    # Slices are views; indexing by a list would copy the embeddings for each keyframe.
    cosines: FloatArray = images[first] @ images[second].T
    return cosines


def boundaries(relevance: FloatArray) -> IntArray:
    """Return the starts of new segments: peaks of the absolute coarsest wavelet detail, ascending.

    Args:
        relevance: shape `(n,)`, n at least 1.
    """
    from scipy.signal import find_peaks

    change = np.abs(coarsest_detail(relevance))
    distance = max(LEAST_PEAK_DISTANCE, int(PEAK_DISTANCE_SHARE * relevance.size))
    peaks, _ = find_peaks(
        change,
        height=change.mean() + 0.5 * change.std(),
        distance=distance,
        prominence=PEAK_PROMINENCE_SHARE * (change.max() - change.min()),
    )
    return np.asarray(peaks, dtype=np.int64)


def coarsest_detail(relevance: FloatArray) -> FloatArray:
    """Return the db4 detail at level `clip(floor(log2 n - 3), 1, highest)` alone, reconstructed, shape `(n,)`.

    Raises:
        MissingDependency: PyWavelets is not installed.
    """
    try:
        import pywt
    except ImportError as error:
        raise MissingDependency(f"sampler 'wfs_sb' needs PyWavelets: {install_command('wavelets')}") from error
    n = relevance.size
    highest = pywt.dwt_max_level(n, pywt.Wavelet("db4"))
    level = 1 if n <= 1 or highest <= 1 else min(max(1, math.floor(math.log2(n) - 3)), highest)
    approximation, detail, lengths = relevance, relevance, []
    for _ in range(level):
        lengths.append(approximation.size)
        approximation, detail = pywt.dwt(approximation, "db4", mode="symmetric")
    signal = pywt.idwt(None, detail, "db4", mode="symmetric")[: lengths[-1]]
    for length in lengths[-2::-1]:
        signal = pywt.idwt(signal, None, "db4", mode="symmetric")[:length]
    reconstructed: FloatArray = signal
    return reconstructed


def half_even_half_best(relevance: FloatArray, k: int) -> IntArray:
    """Return `k` candidates, ascending: `k // 2` evenly spaced ones and the most relevant others.

    Of equally relevant candidates the later one is taken.
    """
    even = np.linspace(0, relevance.size - 1, k // 2).astype(np.int64)
    best = np.argsort(relevance, kind="stable")[::-1]
    positions = np.concatenate([np.unique(even), best[~np.isin(best, even)]])
    return np.sort(positions[:k])


def segment_importance(segments: IntArray, relevance: FloatArray) -> FloatArray:
    """Return `.4 length/n + .2 mean + .3 max + .1 var/(var(r) + 1e-8)` of every segment, `(n_segments,)`.

    Args:
        segments: `[start, stop)` of each, `(n_segments, 2)`.
    """
    length, mean, high, variance = SEGMENT_WEIGHTS
    spread = relevance.var() + 1e-8
    inside = [relevance[start:stop] for start, stop in segments.tolist()]
    return np.array(
        [
            length * (r.size / relevance.size) + mean * r.mean() + high * r.max() + variance * (r.var() / spread)
            for r in inside
        ]
    )


def important(importance: FloatArray) -> NDArray[np.bool_]:
    """Return a mask of the segments to keep, `(n_segments,)`.

    At most three segments are all kept; of more, those whose importance is not far below the mean.
    """
    if importance.size <= 3:
        return np.ones(importance.shape, dtype=bool)
    is_important = importance >= max(LEAST_IMPORTANCE, importance.mean() - 1.2 * importance.std())
    return is_important if is_important.any() else np.ones(importance.shape, dtype=bool)


def segment_budgets(importance: FloatArray, k: int) -> IntArray:
    """Return the number of frames per segment, `(n_segments,)`: `k` in proportion to the softmax of importance.

    Fractions are rounded by largest remainders.
    """
    weights = np.exp(importance - importance.max())
    exact = k * (weights / weights.sum())
    budgets: IntArray = np.floor(exact).astype(np.int64)
    largest_rest = np.argsort(exact - budgets, kind="stable")[::-1]
    budgets[largest_rest[: k - int(budgets.sum())]] += 1
    return budgets
