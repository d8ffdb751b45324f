"""Which frames of an even grid, or of even pulls, are the most relevant?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from focus_eval.core.options import option
from focus_eval.core.types import FloatArray, IntArray, VideoInfo
from focus_eval.keyframes.samplers.bandit import best_first
from focus_eval.keyframes.samplers.base import Choice, FrameSampler, Role, SelectionRequest
from focus_eval.keyframes.samplers.coverage import EvenPulls, diverse_best, fill_gaps, one_in_each_stratum
from focus_eval.keyframes.samplers.uniform import candidate_grid, empty_grid_reason


@dataclass(frozen=True, kw_only=True)
class TopK(FrameSampler):
    """The `k` most relevant candidates, the earlier of equal ones; all of them if they are fewer.

    Args:
        every_seconds: seconds between candidates; None for the published grid of one frame a second.
    """

    name: ClassVar[str] = "topk"
    paper: ClassVar[str] = "focus"
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


@dataclass(frozen=True, kw_only=True)
class EvenTopK(EvenPulls):
    """The `k` most relevant of evenly spread pulls: one random frame in each of as many equal strata as pulls.

    This is the control that any second, closer look has to beat. If `k` exceeds the number of pulls, frames in the
    middle of the widest gaps are added, and the facts count them.

    Args:
        budget_of, pulls, every_seconds: number of pulls; by default as many as `focus` plans.
    """

    name: ClassVar[str] = "even_topk"
    source: ClassVar[str] = "focus-eval; control at equal cost"
    role: ClassVar[Role] = "control"

    def choose(self, request: SelectionRequest) -> Choice:
        """Pull one random frame in each of equal strata and return the best `k`; fill gaps if there are too few."""
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
        diversity: penalty directly beside a chosen frame, subtracted from relevance scaled to [0, 1] over the pulls.
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
