"""Which frames does FOCUS choose if it pulls until the best arms are certain? (Algorithm 1)"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from focus_eval.core.options import option
from focus_eval.core.types import FloatArray, VideoInfo
from focus_eval.keyframes.samplers.bandit import Arms, best_first, top_set
from focus_eval.keyframes.samplers.base import Choice, SelectionRequest
from focus_eval.keyframes.samplers.expected_pulls import Draw, ExpectedPulls
from focus_eval.keyframes.samplers.focus import Focus, choice_of_best_arms, pull_into_arms


@dataclass(frozen=True, kw_only=True)
class FocusIterative(Focus):
    """Pull the most uncertain disputed arm until no arm is disputed: the set of best arms is then stable.

    An arm is disputed if it would leave or enter the top set when the means of the top set are lowered by their radius
    and all other means are raised by theirs. The radius of an arm whose frames were all pulled is 0. The facts state
    why pulling stopped: "stable" or "max_pulls". If it stopped as "stable" and every true mean lies within its radius,
    the final arms are the true top set.

    Args:
        max_pulls: limit on the number of pulls; "auto": as many as `focus` makes with the same options; None: all
            frames. The first `pulls_per_arm` pulls of every arm are always made.
    """

    name: ClassVar[str] = "focus_iterative"
    paper: ClassVar[str] = "focus"
    source: ClassVar[str] = "FOCUS (Zhu et al., ICLR 2026), Algorithm 1"

    max_pulls: int | Literal["auto"] | None = option("auto", at_least=1)

    def choose(self, request: SelectionRequest) -> Choice:
        """Pull until the set of best arms is certain or `max_pulls` is reached; draw keyframes in the best arms."""
        limit = self.planned_pulls(request.video)
        arms = self.coarse(request)
        n_final = self.n_final_arms(len(arms.clips))
        n_rounds = 0
        while (arm := _most_uncertain(arms, n_final)) is not None and request.ledger.n_pulls < limit:
            frames = np.arange(arms.clips.starts[arm], arms.clips.stops[arm])
            free = frames[~request.ledger.is_pulled(frames)]
            n = min(self.pulls_per_arm, limit - request.ledger.n_pulls, free.size)
            arms = pull_into_arms(arms, request.rng.choice(free, n, replace=False), request.ledger)
            n_rounds += 1
        choice, radius = choice_of_best_arms(arms, n_final, request, temperature=self.temperature), _radius(arms)
        facts = {"stopped": "stable" if arm is None else "max_pulls", "rounds": n_rounds, **choice.facts}
        return replace(choice, clips=arms.reports(radius, final=best_first(arms.mean)[:n_final]), facts=facts)

    def planned_pulls(self, video: VideoInfo) -> int:
        """Return the largest number of pulls allowed; fewer are made if the top set is stable before."""
        if self.max_pulls == "auto":
            return super().planned_pulls(video)
        first = self.planned_coarse_pulls(self.clips(video))
        return video.n_frames if self.max_pulls is None else min(video.n_frames, max(first, self.max_pulls))

    def expected_pulls(self, video: VideoInfo, *, k: int) -> ExpectedPulls | None:
        """Return the coarse pulls and those of the arms that are pulled on constant relevance."""
        clips = self.clips(video)
        n_coarse = np.minimum(self.pulls_per_arm, clips.sizes)
        arms = replace(Arms.unpulled(clips), n_pulls=n_coarse, mean=np.full(len(clips), 0.5))
        n_final, n_left = self.n_final_arms(len(clips)), self.planned_pulls(video) - int(n_coarse.sum())
        while n_left > 0 and (arm := _most_uncertain(arms, n_final)) is not None:
            n_pulls = arms.n_pulls.copy()
            n_pulls[arm] += (n := min(self.pulls_per_arm, n_left, int(clips.sizes[arm] - n_pulls[arm])))
            arms, n_left = replace(arms, n_pulls=n_pulls), n_left - n
        edges = np.append(clips.starts, clips.stops[-1])
        fine_rates = (arms.n_pulls - n_coarse) / np.maximum(1, clips.sizes - n_coarse)
        return ExpectedPulls(coarse=Draw(edges, n_coarse / clips.sizes), later_draws=(Draw(edges, fine_rates),))


def _most_uncertain(arms: Arms, n_final: int) -> int | None:
    """The disputed arm of the largest radius; None if no arm is disputed."""
    radius = _radius(arms)
    # Disputed arms leave or enter the top set if the means of its arms fall by their radius and all others rise.
    top = top_set(arms.mean, n_final)
    disputed = top != top_set(arms.mean + np.where(top, -radius, radius), n_final)
    return int(np.argmax(np.where(disputed, radius, -1.0))) if disputed.any() else None


def _radius(arms: Arms) -> FloatArray:
    """The Bernstein radius, 0 for an arm whose frames were all pulled, `(n_arms,)`."""
    radius = arms.radius
    is_whole = arms.n_pulls == arms.clips.sizes
    return np.where(is_whole, 0.0, radius) if is_whole.any() else radius
