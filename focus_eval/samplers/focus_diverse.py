"""How much does FOCUS lose by drawing its keyframes at random?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from focus_eval.core.options import option
from focus_eval.samplers.base import Choice, Role, SelectionRequest
from focus_eval.samplers.coverage import diverse_best, fill_gaps
from focus_eval.samplers.two_stage import TwoStageSampler


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
