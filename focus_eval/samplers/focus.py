"""Which frames does FOCUS choose? The paper's two-stage bandit (Algorithm 2), as published."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from focus_eval.core.options import option
from focus_eval.core.types import FloatArray, IntArray
from focus_eval.samplers import bandit
from focus_eval.samplers.base import Choice, SelectionRequest
from focus_eval.samplers.ledger import Ledger
from focus_eval.samplers.two_stage import TwoStageSampler


@dataclass(frozen=True, kw_only=True)
class Focus(TwoStageSampler):
    """Pull every clip a few times, pull the most promising ones again, and draw keyframes in the best clips.

    A promising clip has a high optimistic mean; a best clip has a high mean. What the paper leaves open (number of
    final arms, distribution of the draw, minimum counts) follows the authors' public code; where code and paper differ,
    this is the paper and `focus_released` the code.

    Args:
        temperature: of the softmax over relevance, scaled to [0, 1] within an arm.
    """

    name: ClassVar[str] = "focus"
    source: ClassVar[str] = "FOCUS (Zhu et al., ICLR 2026), Algorithm 2"

    temperature: float = option(0.06, above=0)

    def choose(self, request: SelectionRequest) -> Choice:
        """Pull coarse and fine, then draw keyframes in the best arms."""
        arms, promising = self.pull_arms(request)
        n_final = self.n_final_arms(len(arms.clips))
        choice = choice_of_best_arms(arms, n_final, request, temperature=self.temperature)
        return replace(choice, facts={"promising_arms": promising.tolist(), **choice.facts})


def choice_of_best_arms(arms: bandit.Arms, n_final: int, request: SelectionRequest, *, temperature: float) -> Choice:
    """Draw `min(k, n_frames)` keyframes in the `n_final` arms of the highest mean (steps 4 and 5).

    Every frame takes the relevance of the nearest pulled frame of its arm (the earlier of two), scaled to [0, 1] within
    the arm. An arm's shortfall goes to the next arm by mean, final or not; the facts count the latter.
    """
    ranked = bandit.best_first(arms.mean)
    shares = bandit.within_capacity(bandit.even_shares(request.k, n_final), arms.clips.sizes[ranked])
    giving = np.flatnonzero(shares)
    frames, group = arms.clips.frames_of(ranked[giving])
    relevance = _interpolated(arms.clips, ranked[giving], request.ledger)
    drawn = bandit.softmax_draw(
        bandit.min_max(relevance, group), group, shares[giving], temperature=temperature, rng=request.rng
    )
    facts = {"overflow_arms": int((giving >= n_final).sum())} if (giving >= n_final).any() else {}
    return Choice(keyframes=frames[drawn], clips=arms.reports(arms.radius, final=ranked[:n_final]), facts=facts)


def _interpolated(clips: bandit.Clips, arms: IntArray, ledger: Ledger) -> FloatArray:
    """Return the relevance of every frame of `arms`, arm after arm, from the arm's own pulls."""
    frames, relevance = ledger.frames, ledger.relevances
    arm_of_pull = clips.arm_of(frames)
    parts = []
    for arm in arms:
        is_here = arm_of_pull == arm
        inside = np.arange(clips.starts[arm], clips.stops[arm])
        parts.append(bandit.nearest_pulled(inside, frames[is_here], relevance[is_here]))
    return np.concatenate(parts)
