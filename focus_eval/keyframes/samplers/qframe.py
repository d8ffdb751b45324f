"""Which frames deserve which resolution? Q-Frame (Zhang et al., ICCV 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from focus_eval.core.options import option
from focus_eval.core.types import FloatArray, IntArray, VideoInfo
from focus_eval.keyframes.samplers.bandit import best_first
from focus_eval.keyframes.samplers.base import Choice, FrameSampler, SelectionRequest
from focus_eval.keyframes.samplers.expected_pulls import ExpectedPulls
from focus_eval.keyframes.samplers.uniform import at_most_one_fps, empty_grid_reason


@dataclass(frozen=True, kw_only=True)
class QFrame(FrameSampler):
    """Rank candidates by log-softmax of the raw logits plus Gumbel noise; better ranks keep more pixels.

    The paper gives the sizes for the token budget of 8 frames: ranks 1-4 at 1/2 of width and height, the next 8 at 1/4,
    the next 32 at 1/8. Here the numbers of ranks grow in proportion to `k`: `k // 2`, `k` and `4 * k`, as far as there
    are candidates. The sampler therefore returns more than `k` frames, each with its scale.

    Args:
        n_candidates: limit on the number of candidates, evenly spaced; shorter videos have one candidate a second.
        temperature: divisor of the logits.
        fixed_frames: return the `k` best at full size instead.
    """

    name: ClassVar[str] = "qframe"
    paper: ClassVar[str] = "qframe"
    source: ClassVar[str] = "Q-Frame (Zhang et al., ICCV 2025)"
    needs_logits: ClassVar[bool] = True
    may_return_fewer: ClassVar[bool] = True
    may_return_more: ClassVar[bool] = True

    n_candidates: int = option(128, at_least=1)
    temperature: float = option(0.8, above=0)
    fixed_frames: bool = option(False)

    def choose(self, request: SelectionRequest) -> Choice:
        """Rank the candidates by noisy logits; return the best `k` at full size, or more frames in three sizes."""
        candidates = self.candidates(request.video)
        logits = request.ledger.logits(candidates) / self.temperature
        # Rank by logits instead of their log-softmax: the two differ by a constant, which changes no rank.
        ranked = candidates[best_first(logits + request.rng.gumbel(size=logits.size))]
        facts = {"candidates": int(candidates.size)}
        if self.fixed_frames:
            return Choice(keyframes=ranked[: request.k], facts=facts)
        scales = self.scales(request.k)[: ranked.size]
        return Choice(keyframes=ranked[: scales.size], scales=scales, facts=facts)

    def infeasible_reason(self, video: VideoInfo, *, k: int) -> str | None:
        """Return a reason if the video is too short for a candidate; else None."""
        return empty_grid_reason(self.candidates(video))

    def expected_pulls(self, video: VideoInfo, *, k: int) -> ExpectedPulls | None:
        """Return the candidates as pulls, and the number of keyframes; None if the video gives no candidate."""
        n_ranks, candidates = k if self.fixed_frames else self.scales(k).size, self.candidates(video)
        if not candidates.size:
            return None
        return ExpectedPulls(fixed=candidates, n_keyframes=min(n_ranks, candidates.size))

    def candidates(self, video: VideoInfo) -> IntArray:
        """Return the frames that are ranked, ascending."""
        return at_most_one_fps(video, self.n_candidates)

    def scales(self, k: int) -> FloatArray:
        """Return the scale of each rank, the largest first."""
        return np.repeat([1 / 2, 1 / 4, 1 / 8], [k // 2, k, 4 * k])
