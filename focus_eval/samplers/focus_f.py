"""How much does FOCUS lose if its pulls are spread evenly, without arms?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from focus_eval.core.types import VideoInfo
from focus_eval.samplers.bandit import min_max, nearest_pulled, softmax_draw
from focus_eval.samplers.base import Choice, SelectionRequest
from focus_eval.samplers.coverage import even_frames
from focus_eval.samplers.expected_pulls import ExpectedPulls
from focus_eval.samplers.focus import Focus


@dataclass(frozen=True, kw_only=True)
class FocusF(Focus):
    """As many pulls as `focus` makes with these options, evenly spaced from first to last frame; then one draw.

    Every frame takes the relevance of the nearest pulled one, scaled to [0, 1] over the video; one softmax over all.
    """

    name: ClassVar[str] = "focus_f"
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
