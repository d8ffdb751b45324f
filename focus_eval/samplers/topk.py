"""Which frames of one a second are the most relevant?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from focus_eval.bandit.arms import best_first
from focus_eval.samplers.base import Choice, FrameSampler, SelectionRequest
from focus_eval.samplers.candidates import one_fps


@dataclass(frozen=True, kw_only=True)
class TopK(FrameSampler):
    """The `k` most relevant of the 1-fps candidates, the earlier of equal ones; all of them where they are fewer."""

    name: ClassVar[str] = "topk"
    source: ClassVar[str] = "Top-K baseline of FOCUS, table 2"
    may_return_fewer: ClassVar[bool] = True

    def choose(self, request: SelectionRequest) -> Choice:
        """Pull every candidate and keep the best."""
        candidates = one_fps(request.video)
        relevance = request.ledger.relevance(candidates)
        best = candidates[best_first(relevance)[: request.k]]
        return Choice(keyframes=best, facts={"candidates": int(candidates.size)})
