"""What do even pulls give at the cost of FOCUS, without its second look?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from focus_eval.core.options import option
from focus_eval.core.types import FloatArray, IntArray, VideoInfo
from focus_eval.samplers.bandit import best_first
from focus_eval.samplers.base import Choice, Role, SelectionRequest
from focus_eval.samplers.coverage import EvenPulls, diverse_best, fill_gaps, one_in_each_stratum


@dataclass(frozen=True, kw_only=True)
class EvenTopK(EvenPulls):
    """One pull at random in each of as many equal strata as `focus` plans pulls; the `k` most relevant frames.

    The control that a second, closer look has to beat. If `k` exceeds the number of pulls, the middles of the widest
    gaps are added, and the facts count them.

    Args:
        budget_of, pulls, every_seconds: number of pulls; by default as many as `focus` plans.
    """

    name: ClassVar[str] = "even_topk"
    source: ClassVar[str] = "focus-eval; control at equal cost"
    role: ClassVar[Role] = "control"

    def choose(self, request: SelectionRequest) -> Choice:
        """Pull one random frame in each of equal strata.

        Return the best `k`, and middles of gaps if these are too few.
        """
        video = request.video
        frames = one_in_each_stratum(video, self.n_pulls(video, k=request.k), request.coarse_rng)
        relevance = request.ledger.relevance(frames)
        return fill_gaps(self.best(frames, relevance, min(request.k, frames.size), video), request)

    def best(self, frames: IntArray, relevance: FloatArray, n: int, video: VideoInfo) -> IntArray:
        """Return the `n` most relevant frames, the earlier of equal ones."""
        return frames[best_first(relevance)[:n]]


@dataclass(frozen=True, kw_only=True)
class EvenDiverse(EvenTopK):
    """The pulls of `even_topk`, and a greedy choice with a penalty on frames near a chosen one.

    Args:
        diversity: penalty right beside a chosen frame, on relevance scaled to [0, 1] over the pulls.
        fading_seconds: distance over which the penalty falls to 1 / e.
    """

    name: ClassVar[str] = "even_diverse"

    diversity: float = option(0.5, at_least=0)
    fading_seconds: float = option(2.0, above=0)

    def best(self, frames: IntArray, relevance: FloatArray, n: int, video: VideoInfo) -> IntArray:
        """Return `n` pulled frames, relevant and apart from one another, in order of choice."""
        return diverse_best(
            frames, relevance, n, fps=video.fps, weight=self.diversity, fading_seconds=self.fading_seconds
        )
