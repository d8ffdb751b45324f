"""What do the pulls of FOCUS give with another choice of keyframes?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from focus_eval.core.options import option
from focus_eval.samplers.bandit import equal_clips
from focus_eval.samplers.base import Choice, Role, SelectionRequest
from focus_eval.samplers.coverage import diverse_best, fill_gaps
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


@dataclass(frozen=True, kw_only=True)
class FocusDiverse(TwoStageSampler):
    """The pulls of `focus`; keyframes are chosen greedily among all pulled frames, as in `even_diverse`.

    Args:
        diversity, fading_seconds: as in `even_diverse`.
    """

    name: ClassVar[str] = "focus_diverse"
    source: ClassVar[str] = "focus-eval; the pulls of FOCUS with another choice"
    role: ClassVar[Role] = "control"

    diversity: float = option(0.5, at_least=0)
    fading_seconds: float = option(2.0, above=0)

    def choose(self, request: SelectionRequest) -> Choice:
        """Pull as `focus`; return pulled frames, relevant and apart from one another."""
        arms, promising = self.pull_arms(request)
        frames, relevance = request.ledger.pulls_in_time()
        keyframes = diverse_best(
            frames,
            relevance,
            min(request.k, frames.size),
            fps=request.video.fps,
            weight=self.diversity,
            fading_seconds=self.fading_seconds,
        )
        return self.with_arms(fill_gaps(keyframes, request), arms, promising)
