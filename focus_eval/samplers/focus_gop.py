"""Which frames does FOCUS choose when it pulls coarsely only where decoding is cheap?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from focus_eval.bandit.clips import Clips
from focus_eval.samplers.base import Choice, SelectionRequest
from focus_eval.samplers.focus import Focus
from focus_eval.samplers.options import option
from focus_eval.types import IntArray, VideoInfo


@dataclass(frozen=True, kw_only=True)
class FocusGop(Focus):
    """`focus` whose coarse pulls are drawn among the sync frames and the frames right after them.

    An arm with fewer such frames than pulls is drawn from all its frames; so is every arm of a video whose sync
    frames are not known. The facts say how many arms that were.

    Args:
        frames_after_sync: frames right after a sync frame that count as cheap to reach.
    """

    name: ClassVar[str] = "focus_gop"
    source: ClassVar[str] = "focus-eval; FOCUS with pulls at sync frames"

    frames_after_sync: int = option(2, at_least=0)

    def choose(self, request: SelectionRequest) -> Choice:
        """Run Algorithm 2 with coarse pulls among cheap frames."""
        choice = super().choose(request)
        n_without = int(self._lacks_cheap(self.clips(request.video), self._cheap_frames(request.video)).sum())
        return replace(choice, facts={"arms_without_cheap_frames": n_without, **choice.facts})

    def coarse_candidates(self, video: VideoInfo, clips: Clips) -> IntArray:
        """Return the cheap frames, and all frames of arms that have too few of them, ascending."""
        cheap = self._cheap_frames(video)
        may_draw = np.repeat(self._lacks_cheap(clips, cheap), clips.sizes)
        may_draw[cheap] = True
        return np.flatnonzero(may_draw)

    def _cheap_frames(self, video: VideoInfo) -> IntArray:
        if video.sync_frames is None:
            return np.empty(0, dtype=np.int64)
        near = video.sync_frames[:, None] + np.arange(1 + self.frames_after_sync)
        return np.unique(near[near < video.n_frames])

    def _lacks_cheap(self, clips: Clips, cheap: IntArray) -> NDArray[np.bool_]:
        n_cheap = np.searchsorted(cheap, clips.stops) - np.searchsorted(cheap, clips.starts)
        return n_cheap < np.minimum(self.pulls_per_arm, clips.sizes)
