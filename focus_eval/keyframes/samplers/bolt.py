"""How are frames drawn in proportion to relevance? BOLT's inverse transform sampling (Liu et al., CVPR 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from focus_eval.core.options import option
from focus_eval.core.types import VideoInfo
from focus_eval.keyframes.samplers.bandit import min_max
from focus_eval.keyframes.samplers.base import Choice, FrameSampler, SelectionRequest
from focus_eval.keyframes.samplers.uniform import empty_grid_reason, one_fps


@dataclass(frozen=True, kw_only=True)
class Bolt(FrameSampler):
    """Invert the cumulative sum of sharpened relevance of the 1-fps candidates at evenly spaced levels.

    With `n = min(k, n_frames)` the levels are `linspace(1/n, 1 - 1/n, n)`. Each level gives the first candidate at
    which the cumulative share of the sum reaches the level, so a frame may be chosen more than once. If relevance is
    constant, all candidates have equal weights.

    Args:
        power: sharpens relevance scaled to [0, 1]; 2.5 on LongVideoBench.
    """

    name: ClassVar[str] = "bolt"
    paper: ClassVar[str] = "bolt"
    source: ClassVar[str] = "BOLT (Liu et al., CVPR 2025)"
    draws: ClassVar[bool] = False
    version: ClassVar[int] = 2
    may_return_fewer: ClassVar[bool] = True
    may_repeat: ClassVar[bool] = True

    power: float = option(3.0, above=0)

    def choose(self, request: SelectionRequest) -> Choice:
        """Score one candidate a second; return those at even levels of the cumulative sharpened relevance."""
        candidates = one_fps(request.video)
        facts = {"candidates": int(candidates.size)}
        if candidates.size == 0:
            return Choice(keyframes=candidates, facts=facts)
        weights = min_max(request.ledger.relevance(candidates)) ** self.power
        if weights.sum() == 0:
            weights = np.ones(candidates.size)
        share = np.cumsum(weights / weights.sum())  # keep this order of operations: another could change the frames
        n = request.n_wanted
        reached = np.searchsorted(share, np.linspace(1 / n, 1 - 1 / n, n))
        return Choice(keyframes=candidates[np.minimum(reached, candidates.size - 1)], facts=facts)

    def infeasible_reason(self, video: VideoInfo, *, k: int) -> str | None:
        """Return a reason if the video is too short for a candidate; else None."""
        return empty_grid_reason(one_fps(video))
