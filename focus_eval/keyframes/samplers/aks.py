"""Where should keyframes be dense, where spread? Adaptive Keyframe Sampling (Tang et al., CVPR 2025)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from focus_eval.core.options import option
from focus_eval.core.types import FloatArray, IntArray, VideoInfo
from focus_eval.keyframes.samplers.bandit import best_first, min_max
from focus_eval.keyframes.samplers.base import Choice, FrameSampler, SelectionRequest
from focus_eval.keyframes.samplers.expected_pulls import ExpectedPulls
from focus_eval.keyframes.samplers.uniform import candidate_grid, empty_grid_reason


@dataclass(frozen=True, kw_only=True)
class SplitAndJudge(FrameSampler):
    """Split the candidates in halves until a segment's best frames stand out; keep the best of each kept segment.

    Relevance is scaled to [0, 1] over the whole video; constant relevance counts as 0. A segment of depth `d` gives
    `int(k / 2**d)` frames. If `k` is not a multiple of `2**d`, fewer than `k` frames are therefore returned.

    Args:
        t1: a segment is kept if the mean of its `k` best exceeds the mean of all by more than this ...
        t2: ... and its standard deviation is above this.
        max_depth: at this depth every segment is kept.
    """

    may_return_fewer: ClassVar[bool] = True

    t1: float = option(0.8)
    t2: float = option(-100.0)
    max_depth: int = option(5, at_least=0)

    def choose(self, request: SelectionRequest) -> Choice:
        """Score all candidates, split until segments stand out, and return the best frames of each kept segment.

        If there are fewer candidates than `k`, all of them are returned.
        """
        candidates = self.candidates(request.video)
        relevance = request.ledger.relevance(candidates)
        facts = {"candidates": int(candidates.size)}
        if candidates.size < request.k:
            return Choice(keyframes=candidates, facts=facts)
        segments = self._kept_segments(min_max(relevance), request.k)
        best = [start + best_first(values)[: int(request.k / 2**depth)] for start, depth, values in segments]
        return Choice(keyframes=candidates[np.concatenate(best)], facts={**facts, "segments": len(segments)})

    @abstractmethod
    def candidates(self, video: VideoInfo) -> IntArray:
        """Return the frames that are scored, ascending."""

    def expected_pulls(self, video: VideoInfo, *, k: int) -> ExpectedPulls | None:
        """Return the frames of `candidates`, which every question pulls whatever `k` is."""
        return ExpectedPulls(fixed=self.candidates(video))

    def infeasible_reason(self, video: VideoInfo, *, k: int) -> str | None:
        """Return the reason if a segment at `max_depth` would give no frame, or the grid is empty; else None."""
        n = int(self.candidates(video).size)
        if n >= k and k < 2**self.max_depth:
            deepest = k.bit_length() - 1
            return (
                f"a segment at max_depth={self.max_depth} gives int({k} / {2**self.max_depth}) = 0 frames; set "
                f"max_depth={deepest} or less, or k={2**self.max_depth} or more"
            )
        return empty_grid_reason(self.candidates(video))

    def _kept_segments(self, scores: FloatArray, k: int) -> list[tuple[int, int, FloatArray]]:
        """(start, depth, scores) of every kept segment; empty halves are left out."""
        segments: list[tuple[int, int, FloatArray]] = []
        waiting = [(0, 0, scores)]
        while waiting:
            start, depth, values = waiting.pop()
            if depth == self.max_depth or self._stands_out(values, k):
                segments.append((start, depth, values))
                continue
            half = values.size // 2
            halves = ((start, values[:half]), (start + half, values[half:]))
            waiting += [(first, depth + 1, part) for first, part in halves if part.size]
        return segments

    def _stands_out(self, values: FloatArray, k: int) -> bool:
        """True if the mean of the `k` best of `values` is over `t1` above that of all and the deviation over `t2`."""
        first = max(0, values.size - k)
        best = np.sort(np.partition(values, first)[first:])[::-1]
        gap = best.mean() - values.mean()
        return bool(gap > self.t1 and values.std() > self.t2)


@dataclass(frozen=True, kw_only=True)
class Aks(SplitAndJudge):
    """Adaptive Keyframe Sampling on the candidates of an even grid.

    Args:
        every_seconds: seconds between candidates; None for the published grid of one frame a second.
    """

    name: ClassVar[str] = "aks"
    paper: ClassVar[str] = "aks"
    source: ClassVar[str] = "AKS (Tang et al., CVPR 2025), public code"
    draws: ClassVar[bool] = False

    every_seconds: float | None = option(None, above=0)

    def candidates(self, video: VideoInfo) -> IntArray:
        """Return the frames of the grid of `every_seconds`, or of one frame a second."""
        return candidate_grid(video, self.every_seconds)


@dataclass(frozen=True, kw_only=True)
class AksDense(SplitAndJudge):
    """`aks` on every frame instead of one a second: the 255-hour row of FOCUS, table 3."""

    name: ClassVar[str] = "aks_dense"
    paper: ClassVar[str] = "aks"
    source: ClassVar[str] = "AKS without pre-filter, FOCUS table 3"
    draws: ClassVar[bool] = False

    def candidates(self, video: VideoInfo) -> IntArray:
        """Return every frame of the video."""
        return np.arange(video.n_frames)
