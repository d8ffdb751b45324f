"""How well do the pulls of FOCUS do with a choice that covers the most estimated evidence?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from focus_eval.samplers.bandit import equal_clips
from focus_eval.samplers.base import Choice, Role, SelectionRequest
from focus_eval.samplers.even_cover import covering_choice
from focus_eval.samplers.two_stage import TwoStageSampler


@dataclass(frozen=True, kw_only=True)
class FocusCover(TwoStageSampler):
    """The pulls of `focus`; keyframes are chosen as in `even_cover`."""

    name: ClassVar[str] = "focus_cover"
    source: ClassVar[str] = "focus-eval; the pulls of FOCUS with the choice of even_cover"
    role: ClassVar[Role] = "control"

    def choose(self, request: SelectionRequest) -> Choice:
        """Pull as `focus`; return the keyframes that cover the most evidence estimated from the pulls."""
        arms, promising = self.pull_arms(request)
        frames, relevance = request.ledger.pulls_in_time()
        choice = covering_choice(frames, relevance, equal_clips(request.video.n_frames, 1), request, {})
        return self.with_arms(choice, arms, promising)
