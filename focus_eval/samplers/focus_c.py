"""How much does FOCUS lose without its fine stage?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from focus_eval.core.types import VideoInfo
from focus_eval.samplers.bandit import best_first, within_capacity
from focus_eval.samplers.base import Choice, SelectionRequest
from focus_eval.samplers.two_stage import ArmSampler


@dataclass(frozen=True, kw_only=True)
class FocusC(ArmSampler):
    """Coarse pulls only; keyframes are drawn uniformly from all frames of the final arms together.

    If these hold fewer than `k` frames, all are taken and the rest is drawn from the next best arm, and so on.
    """

    name: ClassVar[str] = "focus_c"
    source: ClassVar[str] = "FOCUS (Zhu et al., ICLR 2026), ablation with the coarse stage alone"

    def choose(self, request: SelectionRequest) -> Choice:
        """Pull coarse; draw keyframes uniformly from the frames of the best arms."""
        arms = self.coarse(request)
        ranked = best_first(arms.mean)
        n_final = self.n_final_arms(len(arms.clips))
        final, other_arms = ranked[:n_final], ranked[n_final:]
        inside, _ = arms.clips.frames_of(final)
        drawn = [request.rng.choice(inside, min(request.k, inside.size), replace=False)]
        extra_frames = within_capacity(np.array([request.k - drawn[0].size]), arms.clips.sizes[other_arms])
        for arm, n in zip(other_arms[extra_frames > 0], extra_frames[extra_frames > 0], strict=True):
            drawn.append(request.rng.choice(np.arange(arms.clips.starts[arm], arms.clips.stops[arm]), n, replace=False))
        facts = {"overflow_arms": int((extra_frames > 0).sum())} if extra_frames.any() else {}
        return Choice(keyframes=np.concatenate(drawn), clips=arms.reports(arms.radius, final=final), facts=facts)

    def planned_pulls(self, video: VideoInfo) -> int:
        """Return the coarse pulls, the only ones."""
        return self.planned_coarse_pulls(self.clips(video))
