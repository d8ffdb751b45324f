"""How much does FOCUS lose without its fine stage, arms or radii, or with another choice from the same pulls?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from focus_eval.core.options import option
from focus_eval.core.types import FloatArray, VideoInfo
from focus_eval.keyframes.samplers.bandit import (
    Arms,
    best_first,
    equal_clips,
    min_max,
    nearest_pulled,
    softmax_draw,
    within_capacity,
)
from focus_eval.keyframes.samplers.base import Choice, Role, SelectionRequest
from focus_eval.keyframes.samplers.coverage import diverse_best, fill_gaps
from focus_eval.keyframes.samplers.even_cover import covering_choice
from focus_eval.keyframes.samplers.expected_pulls import ExpectedPulls
from focus_eval.keyframes.samplers.focus import ArmSampler, Focus, TwoStageSampler
from focus_eval.keyframes.samplers.uniform import even_frames


@dataclass(frozen=True, kw_only=True)
class FocusC(ArmSampler):
    """Coarse pulls only; keyframes are drawn uniformly from all frames of the final arms together.

    If the final arms hold fewer than `k` frames, all their frames are taken, and the rest is drawn from the next best
    arm, and so on.
    """

    name: ClassVar[str] = "focus_c"
    paper: ClassVar[str] = "focus"
    source: ClassVar[str] = "FOCUS (Zhu et al., ICLR 2026), ablation with the coarse stage alone"

    def choose(self, request: SelectionRequest) -> Choice:
        """Pull coarse; draw keyframes uniformly from the frames of the best arms."""
        arms = self.coarse(request)
        ranked = best_first(arms.mean)
        n_final = self.n_final_arms(len(arms.clips))
        final, other_arms = ranked[:n_final], ranked[n_final:]
        inside, _ = arms.clips.frames_of(final)
        drawn = [request.rng.choice(inside, min(request.k, inside.size), replace=False)]
        extra_frames = within_capacity(np.array([request.k - drawn[0].size]), arms.clips.sizes[other_arms])
        for arm, n in zip(other_arms[extra_frames > 0], extra_frames[extra_frames > 0], strict=True):
            drawn.append(request.rng.choice(np.arange(arms.clips.starts[arm], arms.clips.stops[arm]), n, replace=False))
        facts = {"overflow_arms": int((extra_frames > 0).sum())} if extra_frames.any() else {}
        return Choice(keyframes=np.concatenate(drawn), clips=arms.reports(arms.radius, final=final), facts=facts)

    def planned_pulls(self, video: VideoInfo) -> int:
        """Return the coarse pulls, the only ones."""
        return self.planned_coarse_pulls(self.clips(video))


@dataclass(frozen=True, kw_only=True)
class FocusF(Focus):
    """As many pulls as `focus` makes with these options, evenly spaced from first to last frame; then one draw.

    Every frame takes the relevance of the nearest pulled frame, scaled to [0, 1] over the video. The keyframes are
    drawn with a single softmax over all frames.
    """

    name: ClassVar[str] = "focus_f"
    paper: ClassVar[str] = "focus"
    source: ClassVar[str] = "FOCUS (Zhu et al., ICLR 2026), ablation with the fine stage alone"

    def choose(self, request: SelectionRequest) -> Choice:
        """Pull even frames; draw keyframes from the whole video by the relevance of the nearest pull."""
        pulled = even_frames(request.video, self.planned_pulls(request.video))
        frames = np.arange(request.video.n_frames)
        relevance = min_max(nearest_pulled(frames, pulled, request.ledger.relevance(pulled)))
        whole_video = np.zeros(frames.size, dtype=np.int64)
        n_drawn = np.array([request.n_wanted])
        drawn = softmax_draw(relevance, whole_video, n_drawn, temperature=self.temperature, rng=request.rng)
        return Choice(keyframes=frames[drawn])

    def expected_pulls(self, video: VideoInfo, *, k: int) -> ExpectedPulls | None:
        """Return the even frames, which every question pulls."""
        return ExpectedPulls(fixed=even_frames(video, self.planned_pulls(video)))


@dataclass(frozen=True, kw_only=True)
class FocusM(Focus):
    """`focus` whose promising arms are those of the highest mean: a radius of 0 in step 3."""

    name: ClassVar[str] = "focus_m"
    paper: ClassVar[str] = "focus"
    source: ClassVar[str] = "FOCUS (Zhu et al., ICLR 2026), ablation without Bernstein radius"

    def exploration(self, arms: Arms) -> FloatArray:
        """Return 0 for every arm: no radius is added to its mean."""
        return np.zeros(len(arms.clips))


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
