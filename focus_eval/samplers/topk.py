"""Which frames of one a second are the most relevant?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from focus_eval.bandit.arms import best_first
from focus_eval.samplers.base import Choice, FrameSampler
from focus_eval.samplers.candidates import one_fps
from focus_eval.samplers.ledger import Ledger
from focus_eval.types import VideoInfo


@dataclass(frozen=True, kw_only=True)
class TopK(FrameSampler):
    """The `k` most relevant of the 1-fps candidates, the earlier of equal ones; all of them where they are fewer."""

    name: ClassVar[str] = "topk"
    source: ClassVar[str] = "Top-K baseline of FOCUS, table 2"
    may_return_fewer: ClassVar[bool] = True

    def choose(
        self, video: VideoInfo, *, k: int, ledger: Ledger, rng: np.random.Generator, coarse_rng: np.random.Generator
    ) -> Choice:
        """Pull every candidate and keep the best."""
        candidates = one_fps(video)
        relevance = ledger.relevance(candidates)
        return Choice(keyframes=candidates[best_first(relevance)[:k]], facts={"candidates": int(candidates.size)})
