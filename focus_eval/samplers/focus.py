"""Which frames does FOCUS choose? The paper's two-stage bandit (Algorithm 2), as published."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from focus_eval.bandit.allocation import even_shares, within_capacity
from focus_eval.bandit.arms import Arms, best_first
from focus_eval.bandit.clips import Clips, nearest_pulled
from focus_eval.bandit.draws import draw_in_clips, min_max, softmax_draw
from focus_eval.options import option
from focus_eval.samplers.arm_sampler import ArmSampler, pulled
from focus_eval.samplers.base import Choice, SelectionRequest
from focus_eval.samplers.ledger import Ledger
from focus_eval.types import FloatArray, IntArray, VideoInfo


@dataclass(frozen=True, kw_only=True)
class Focus(ArmSampler):
    """Pull every clip a few times, pull the optimistic best closer, and draw keyframes in the clips of highest mean.

    What the paper leaves open (number of final arms, distribution of the draw, least counts) is the authors' public
    code's; where code and paper differ, this is the paper and `focus_released` the code.

    Args:
        seconds_per_fine_pull: a promising arm gets one more pull for each of its seconds, over this.
        temperature: of the softmax over relevance, scaled to [0, 1] within an arm.
    """

    name: ClassVar[str] = "focus"
    source: ClassVar[str] = "FOCUS (Zhu et al., ICLR 2026), Algorithm 2"

    seconds_per_fine_pull: float = option(1.0, above=0)
    temperature: float = option(0.06, above=0)

    def choose(self, request: SelectionRequest) -> Choice:
        """Run Algorithm 2."""
        arms = self.coarse(request)
        promising = best_first(arms.mean + self.exploration(arms))[: self.n_chosen_arms(len(arms.clips))]
        arms = self.fine(arms, promising, request)
        n_final = self.n_final_arms(len(arms.clips))
        choice = choice_of_best_arms(arms, n_final, request, temperature=self.temperature)
        return replace(choice, facts={"promising_arms": np.sort(promising).tolist(), **choice.facts})

    def exploration(self, arms: Arms) -> FloatArray:
        """Return what is added to the means to choose the promising arms, `(n_arms,)` (step 2)."""
        return arms.radius

    def fine(self, arms: Arms, promising: IntArray, request: SelectionRequest) -> Arms:
        """Return the arms after `fine_pulls_per_arm` more pulls of each promising one, in one batch (step 3)."""
        chosen = np.sort(promising)
        closer = Clips(arms.clips.starts[chosen], arms.clips.stops[chosen])
        n_each = self.fine_pulls_per_arm(request.video, arms.clips)
        frames = draw_in_clips(closer, request.ledger.unpulled, n_each, request.rng)
        return pulled(arms, frames, request.ledger)

    def fine_pulls_per_arm(self, video: VideoInfo, clips: Clips) -> int:
        """Return `z`: the mean length of an arm in seconds over `seconds_per_fine_pull`, rounded, at least 1.

        The same for all arms, so that the number of pulls follows from length and rate.
        """
        return max(1, math.floor(video.duration_seconds / len(clips) / self.seconds_per_fine_pull + 0.5))

    def planned_pulls(self, video: VideoInfo) -> int:
        """Return coarse and fine pulls; fewer are made only where promising arms run out of frames."""
        clips = self.clips(video)
        left = np.maximum(0, clips.sizes - self.pulls_per_arm)
        fine = np.minimum(self.fine_pulls_per_arm(video, clips), np.sort(left)[::-1][: self.n_chosen_arms(len(clips))])
        return self.planned_coarse_pulls(clips) + int(fine.sum())


def choice_of_best_arms(arms: Arms, n_final: int, request: SelectionRequest, *, temperature: float) -> Choice:
    """Draw `min(k, n_frames)` keyframes in the `n_final` arms of the highest mean (steps 4 and 5).

    Every frame takes the relevance of the nearest pulled frame of its arm (the earlier of two), scaled to [0, 1]
    within the arm. What an arm cannot give goes to the next best arm, final or not; the facts count the latter.
    """
    ranked = best_first(arms.mean)
    shares = within_capacity(even_shares(request.k, n_final), arms.clips.sizes[ranked])
    giving = np.flatnonzero(shares)
    frames, group = arms.clips.frames_of(ranked[giving])
    relevance = _interpolated(arms.clips, ranked[giving], request.ledger)
    drawn = softmax_draw(min_max(relevance, group), group, shares[giving], temperature=temperature, rng=request.rng)
    facts = {"overflow_arms": int((giving >= n_final).sum())} if (giving >= n_final).any() else {}
    return Choice(keyframes=frames[drawn], clips=arms.reports(arms.radius, final=ranked[:n_final]), facts=facts)


def _interpolated(clips: Clips, chosen: IntArray, ledger: Ledger) -> FloatArray:
    """Return the relevance of every frame of the `chosen` arms, one arm after the other, from the arm's own pulls."""
    frames, relevance = ledger.frames, ledger.relevances
    arm_of_pull = clips.arm_of(frames)
    parts = []
    for arm in chosen:
        is_here = arm_of_pull == arm
        inside = np.arange(clips.starts[arm], clips.stops[arm])
        parts.append(nearest_pulled(inside, frames[is_here], relevance[is_here]))
    return np.concatenate(parts)
