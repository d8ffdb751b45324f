"""Which frames does FOCUS choose when it pulls until the best arms are certain? (Algorithm 1)"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from focus_eval.core.options import option
from focus_eval.core.types import FloatArray, VideoInfo
from focus_eval.samplers.bandit import Arms, best_first, top_set
from focus_eval.samplers.base import Choice, SelectionRequest
from focus_eval.samplers.expected_pulls import ExpectedPulls
from focus_eval.samplers.focus import Focus, choice_of_best_arms
from focus_eval.samplers.two_stage import pull_into_arms


@dataclass(frozen=True, kw_only=True)
class FocusIterative(Focus):
    """Pull the most uncertain arm in dispute until pessimism inside and optimism outside leave the top set as it is.

    An arm pulled whole is known exactly: its radius is 0. The facts say why pulling stopped: "stable" or "max_pulls".
    When it stopped stable and every mean lies within its radius, the final arms are the true top set.

    Args:
        max_pulls: no further pulls from here on; "auto" as many as `focus` makes with the same options, None no
            limit but the frames there are. The `pulls_per_arm` first pulls of every arm are made in any case.
    """

    name: ClassVar[str] = "focus_iterative"
    source: ClassVar[str] = "FOCUS (Zhu et al., ICLR 2026), Algorithm 1"

    max_pulls: int | Literal["auto"] | None = option("auto", at_least=1)

    def choose(self, request: SelectionRequest) -> Choice:
        """Run Algorithm 1, then draw frames as `focus` does."""
        limit = self.planned_pulls(request.video)
        arms = self.coarse(request)
        n_final = self.n_final_arms(len(arms.clips))
        n_rounds = 0
        while (disputed := _disputed(arms, n_final, radius := _radius(arms))).any() and request.ledger.n_pulls < limit:
            arm = int(np.argmax(np.where(disputed, radius, -1.0)))
            arms = self._pull_arm(arms, arm, min(self.pulls_per_arm, limit - request.ledger.n_pulls), request)
            n_rounds += 1
        choice = choice_of_best_arms(arms, n_final, request, temperature=self.temperature)
        facts = {"stopped": "max_pulls" if disputed.any() else "stable", "rounds": n_rounds, **choice.facts}
        return replace(choice, clips=arms.reports(radius, final=best_first(arms.mean)[:n_final]), facts=facts)

    def planned_pulls(self, video: VideoInfo) -> int:
        """Return the most pulls allowed; a stable top set needs fewer."""
        if self.max_pulls == "auto":
            return super().planned_pulls(video)
        first = self.planned_coarse_pulls(self.clips(video))
        return video.n_frames if self.max_pulls is None else min(video.n_frames, max(first, self.max_pulls))

    def expected_pulls(self, video: VideoInfo, *, k: int) -> ExpectedPulls | None:
        """Return None: which arm is pulled next depends on what was pulled before."""
        return None

    def _pull_arm(self, arms: Arms, arm: int, n: int, request: SelectionRequest) -> Arms:
        frames = np.arange(arms.clips.starts[arm], arms.clips.stops[arm])
        free = frames[~request.ledger.is_pulled(frames)]
        return pull_into_arms(arms, request.rng.choice(free, min(n, free.size), replace=False), request.ledger)


def _disputed(arms: Arms, n: int, radius: FloatArray) -> NDArray[np.bool_]:
    """Return which arms leave or enter the top set once its means are lowered and all others raised by the radius."""
    top = top_set(arms.mean, n)
    return np.not_equal(top, top_set(arms.mean + np.where(top, -radius, radius), n))


def _radius(arms: Arms) -> FloatArray:
    """Return the Bernstein radius, 0 where every frame was pulled, `(n_arms,)`."""
    radius = arms.radius
    is_whole = arms.n_pulls == arms.clips.sizes
    return np.where(is_whole, 0.0, radius) if is_whole.any() else radius
