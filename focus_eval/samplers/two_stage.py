"""How does FOCUS look twice: at every arm, then closer at the promising ones?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from focus_eval.bandit.arms import Arms, best_first
from focus_eval.bandit.clips import Clips
from focus_eval.bandit.draws import draw_in_clips
from focus_eval.options import option
from focus_eval.samplers.arm_sampler import ArmSampler, pulled
from focus_eval.samplers.base import SelectionRequest
from focus_eval.types import FloatArray, IntArray, VideoInfo


@dataclass(frozen=True, kw_only=True)
class TwoStageSampler(ArmSampler):
    """The pulls of FOCUS, whatever is chosen from them (Algorithm 2, steps 0 to 3).

    Args:
        seconds_per_fine_pull: a promising arm gets one more pull for each of its seconds, over this.
    """

    seconds_per_fine_pull: float = option(1.0, above=0)

    def looked_at(self, request: SelectionRequest) -> tuple[Arms, IntArray]:
        """Return the arms after coarse and fine pulls, and which arms were pulled closer, ascending."""
        arms = self.coarse(request)
        promising = np.sort(best_first(arms.mean + self.exploration(arms))[: self.n_chosen_arms(len(arms.clips))])
        return self.fine(arms, promising, request), promising

    def exploration(self, arms: Arms) -> FloatArray:
        """Return what is added to the means to choose the promising arms, `(n_arms,)` (step 2)."""
        return arms.radius

    def fine(self, arms: Arms, promising: IntArray, request: SelectionRequest) -> Arms:
        """Return the arms after `fine_pulls_per_arm` more pulls of each promising one, in one batch (step 3)."""
        closer = Clips(arms.clips.starts[promising], arms.clips.stops[promising])
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
