"""Which frames does FOCUS choose? The paper's two-stage bandit (Algorithm 2), as published.

`ArmSampler` and `TwoStageSampler` make the pulls that the paper's other samplers share: a few pulls of every arm, then
more pulls of the promising arms.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from focus_eval.core.options import option
from focus_eval.core.types import FloatArray, IntArray, VideoInfo
from focus_eval.keyframes.samplers.bandit import (
    Arms,
    Clips,
    best_first,
    draw_in_clips,
    equal_clips,
    even_shares,
    min_max,
    nearest_pulled,
    softmax_draw,
    within_capacity,
)
from focus_eval.keyframes.samplers.base import Choice, FrameSampler, SelectionRequest
from focus_eval.keyframes.samplers.expected_pulls import NO_FRAMES, Draw, ExpectedPulls
from focus_eval.keyframes.samplers.ledger import Ledger

MIN_ARMS = 8
MIN_CHOSEN_ARMS = 4
MAX_FINAL_ARMS = 32


@dataclass(frozen=True, kw_only=True)
class ArmSampler(FrameSampler):
    """Options and first steps that all samplers of the FOCUS paper share.

    Args:
        clip_seconds: greatest length of an arm, `l`; there are at least `min(8, n_frames)` arms.
        pulls_per_arm: number of coarse pulls of every arm, `q`; an arm with fewer frames has all its frames pulled.
        alpha: share of the arms that count as promising.
    """

    clip_seconds: float = option(16.0, above=0)
    pulls_per_arm: int = option(3, at_least=1)
    alpha: float = option(0.25, above=0, at_most=1)

    def clips(self, video: VideoInfo) -> Clips:
        """Return `M` consecutive clips that partition the video, equally long within a frame (Algorithm 2, step 0)."""
        desired = max(MIN_ARMS, _ceil(video.duration_seconds / self.clip_seconds))
        return equal_clips(video.n_frames, min(video.n_frames, desired))

    def coarse(self, request: SelectionRequest) -> Arms:
        """Pull `pulls_per_arm` frames of each arm in one batch and return the arms (step 1)."""
        clips = self.clips(request.video)
        candidates = self.coarse_candidates(request, clips)
        frames = draw_in_clips(clips, candidates, self.pulls_per_arm, request.coarse_rng)
        return pull_into_arms(Arms.unpulled(clips), frames, request.ledger)

    def coarse_candidates(self, request: SelectionRequest, clips: Clips) -> IntArray:
        """Return the frames that coarse pulls are drawn from, ascending; here all of `request.video`."""
        return np.arange(request.video.n_frames)

    def n_chosen_arms(self, n_arms: int) -> int:
        """Return the number of promising arms: `ceil(alpha * M)`, at least 4, at most `M`."""
        return min(n_arms, max(MIN_CHOSEN_ARMS, _ceil(self.alpha * n_arms)))

    def n_final_arms(self, n_arms: int) -> int:
        """Return the number of arms that keyframes come from: `m = clip(ceil(alpha * M), 4, 32)`, at most `M`.

        The bounds 4 and 32 are those of the authors' public code.
        """
        return min(MAX_FINAL_ARMS, self.n_chosen_arms(n_arms))

    def count_pulls(self, video: VideoInfo, *, k: int, seed: int = 0) -> int:
        """Return `planned_pulls`, which does not depend on relevance."""
        return self.planned_pulls(video)

    def expected_pulls(self, video: VideoInfo, *, k: int) -> ExpectedPulls | None:
        """Return the coarse pulls; see `FrameSampler.expected_pulls`."""
        clips = self.clips(video)
        rates = np.minimum(self.pulls_per_arm, clips.sizes) / clips.sizes
        return ExpectedPulls(coarse=Draw(np.append(clips.starts, clips.stops[-1]), rates))

    @abstractmethod
    def planned_pulls(self, video: VideoInfo) -> int:
        """Return the largest number of frames of `video` that the sampler may pull, known before the first pull."""

    def planned_coarse_pulls(self, clips: Clips) -> int:
        """Return the number of coarse pulls: `pulls_per_arm` of each arm, or all frames of a shorter one."""
        return int(np.minimum(self.pulls_per_arm, clips.sizes).sum())


def pull_into_arms(arms: Arms, frames: IntArray, ledger: Ledger) -> Arms:
    """Pull `frames` in one batch and return the arms with their relevance added."""
    return arms.with_pulls(frames, ledger.relevance(frames))


def _ceil(value: float) -> int:
    """`value` rounded up; a value that exceeds a whole number only by a rounding error becomes that number."""
    # Subtract more than the rounding error before rounding up: 0.07 * 100 gives 7.000000000000001.
    return math.ceil(value - 1e-9)


@dataclass(frozen=True, kw_only=True)
class TwoStageSampler(ArmSampler):
    """Base of samplers that make the pulls of FOCUS (Algorithm 2, steps 0 to 3) and choose keyframes in any way.

    Args:
        seconds_per_fine_pull: a promising arm gets one more pull per this many seconds of its length.
    """

    seconds_per_fine_pull: float = option(1.0, above=0)

    def pull_arms(self, request: SelectionRequest) -> tuple[Arms, IntArray]:
        """Return the arms after coarse and fine pulls, and the indices of the promising arms, ascending."""
        arms = self.coarse(request)
        promising = np.sort(best_first(arms.mean + self.exploration(arms))[: self.n_chosen_arms(len(arms.clips))])
        return self.fine(arms, promising, request), promising

    def with_arms(self, choice: Choice, arms: Arms, promising: IntArray) -> Choice:
        """Return `choice` with one report per arm, none marked final, and the fact "promising_arms"."""
        clips = arms.reports(arms.radius, final=NO_FRAMES)
        return replace(choice, clips=clips, facts={"promising_arms": promising.tolist(), **choice.facts})

    def exploration(self, arms: Arms) -> FloatArray:
        """Return the bonus that is added to each arm's mean when promising arms are chosen, `(n_arms,)` (step 2)."""
        return arms.radius

    def fine(self, arms: Arms, promising: IntArray, request: SelectionRequest) -> Arms:
        """Return the arms after `fine_pulls_per_arm` more pulls of each promising one, in one batch (step 3)."""
        closer = Clips(arms.clips.starts[promising], arms.clips.stops[promising])
        n_each = self.fine_pulls_per_arm(request.video, arms.clips)
        frames = draw_in_clips(closer, request.ledger.unpulled, n_each, request.rng)
        return pull_into_arms(arms, frames, request.ledger)

    def fine_pulls_per_arm(self, video: VideoInfo, clips: Clips) -> int:
        """Return `z`: an arm's mean length in seconds divided by `seconds_per_fine_pull`, rounded, at least 1.

        It is the same for all arms, so that the number of pulls follows from the video's length and rate.
        """
        return max(1, math.floor(video.duration_seconds / len(clips) / self.seconds_per_fine_pull + 0.5))

    def expected_pulls(self, video: VideoInfo, *, k: int) -> ExpectedPulls | None:
        """Return the coarse and the fine pulls; see `FrameSampler.expected_pulls`."""
        first = super().expected_pulls(video, k=k)
        if first is None or first.coarse is None:
            return None
        clips = self.clips(video)
        n_coarse = np.minimum(self.pulls_per_arm, clips.sizes)
        arms = replace(Arms.unpulled(clips), n_pulls=n_coarse, mean=np.full(len(clips), 0.5))
        promising = best_first(arms.mean + self.exploration(arms))[: self.n_chosen_arms(len(clips))]
        n_unpulled, rates = clips.sizes - n_coarse, np.zeros(len(clips))
        n_fine = np.minimum(self.fine_pulls_per_arm(video, clips), n_unpulled)
        rates[promising] = (n_fine / np.maximum(1, n_unpulled))[promising]
        return replace(first, later_draws=(Draw(first.coarse.edges, rates),))

    def planned_pulls(self, video: VideoInfo) -> int:
        """Return the number of coarse and fine pulls; fewer are made if promising arms run out of frames."""
        clips = self.clips(video)
        n_unpulled = np.maximum(0, clips.sizes - self.pulls_per_arm)
        fine = np.minimum(
            self.fine_pulls_per_arm(video, clips), np.sort(n_unpulled)[::-1][: self.n_chosen_arms(len(clips))]
        )
        return self.planned_coarse_pulls(clips) + int(fine.sum())


@dataclass(frozen=True, kw_only=True)
class Focus(TwoStageSampler):
    """Pull every clip a few times, pull the most promising ones again, and draw keyframes in the best clips.

    A promising clip has a high optimistic mean; a best clip has a high mean. Where the paper says nothing (number of
    final arms, distribution of the draw, minimum counts), this sampler follows the authors' public code. Where code and
    paper differ, it follows the paper; `focus_released` follows the code.

    Args:
        temperature: of the softmax over relevance, scaled to [0, 1] within an arm.
    """

    name: ClassVar[str] = "focus"
    paper: ClassVar[str] = "focus"
    source: ClassVar[str] = "FOCUS (Zhu et al., ICLR 2026), Algorithm 2"

    temperature: float = option(0.06, above=0)

    def choose(self, request: SelectionRequest) -> Choice:
        """Pull coarse and fine, then draw keyframes in the best arms."""
        arms, promising = self.pull_arms(request)
        n_final = self.n_final_arms(len(arms.clips))
        choice = choice_of_best_arms(arms, n_final, request, temperature=self.temperature)
        return replace(choice, facts={"promising_arms": promising.tolist(), **choice.facts})


def choice_of_best_arms(arms: Arms, n_final: int, request: SelectionRequest, *, temperature: float) -> Choice:
    """Draw `min(k, n_frames)` keyframes in the `n_final` arms of the highest mean (steps 4 and 5).

    Every frame takes the relevance of the nearest pulled frame of its arm (the earlier of two), scaled to [0, 1] within
    the arm. If an arm has too few frames, the arm with the next highest mean gives the missing keyframes, even if it is
    not final; the fact "overflow_arms" counts such arms.
    """
    ranked = best_first(arms.mean)
    shares = within_capacity(even_shares(request.k, n_final), arms.clips.sizes[ranked])
    giving = np.flatnonzero(shares)
    frames, group = arms.clips.frames_of(ranked[giving])
    relevance = _interpolated(arms.clips, ranked[giving], request.ledger)
    drawn = softmax_draw(min_max(relevance, group), group, shares[giving], temperature=temperature, rng=request.rng)
    facts = {"overflow_arms": int((giving >= n_final).sum())} if (giving >= n_final).any() else {}
    return Choice(keyframes=frames[drawn], clips=arms.reports(arms.radius, final=ranked[:n_final]), facts=facts)


def _interpolated(clips: Clips, arms: IntArray, ledger: Ledger) -> FloatArray:
    """The relevance of every frame of `arms`, arm after arm, from the arm's own pulls."""
    frames, relevance = ledger.frames, ledger.relevances
    arm_of_pull = clips.arm_of(frames)
    parts = []
    for arm in arms:
        is_here = arm_of_pull == arm
        inside = np.arange(clips.starts[arm], clips.stops[arm])
        parts.append(nearest_pulled(inside, frames[is_here], relevance[is_here]))
    return np.concatenate(parts)
