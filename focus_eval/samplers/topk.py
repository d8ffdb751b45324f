"""Which frames of an even grid are the most relevant?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from focus_eval.core.options import option
from focus_eval.core.types import VideoInfo
from focus_eval.samplers.bandit import best_first
from focus_eval.samplers.base import Choice, FrameSampler, SelectionRequest
from focus_eval.samplers.coverage import candidate_grid, empty_grid_reason


@dataclass(frozen=True, kw_only=True)
class TopK(FrameSampler):
    """The `k` most relevant candidates, the earlier of equal ones; all of them if they are fewer.

    Args:
        every_seconds: seconds between candidates; None for the published grid of one frame a second.
    """

    name: ClassVar[str] = "topk"
    source: ClassVar[str] = "Top-K baseline of FOCUS, table 2"
    draws: ClassVar[bool] = False
    may_return_fewer: ClassVar[bool] = True

    every_seconds: float | None = option(None, above=0)

    def choose(self, request: SelectionRequest) -> Choice:
        """Score all candidates and return the `k` most relevant."""
        candidates = candidate_grid(request.video, self.every_seconds)
        relevance = request.ledger.relevance(candidates)
        best = candidates[best_first(relevance)[: request.k]]
        return Choice(keyframes=best, facts={"candidates": int(candidates.size)})

    def infeasible_reason(self, video: VideoInfo, *, k: int) -> str | None:
        """Return a reason if the video is too short for a candidate; else None."""
        return empty_grid_reason(candidate_grid(video, self.every_seconds))
