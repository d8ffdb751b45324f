"""Which frames does FOCUS choose if its coarse pulls fall on frames that are cheap to decode?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from focus_eval.core.options import option
from focus_eval.core.types import IntArray, VideoInfo
from focus_eval.keyframes.samplers.bandit import Clips
from focus_eval.keyframes.samplers.base import Choice, SelectionRequest
from focus_eval.keyframes.samplers.expected_pulls import ExpectedPulls
from focus_eval.keyframes.samplers.focus import Focus


@dataclass(frozen=True, kw_only=True)
class FocusGop(Focus):
    """`focus` whose coarse pulls are drawn at sync frames or right after them, at most one in each sync group.

    A sync group runs from one sync frame to the next. Its frames show nearly one moment, so a second pull in it would
    add little. If an arm has fewer groups than pulls, or if the video's sync frames are not known, the arm's pulls are
    drawn from all its frames. The fact "arms_without_cheap_frames" counts these arms.

    Args:
        frames_after_sync: number of frames after a sync frame that count as cheap to decode.
    """

    name: ClassVar[str] = "focus_gop"
    paper: ClassVar[str] = ""
    source: ClassVar[str] = "focus-eval; FOCUS with pulls at sync frames"
    version: ClassVar[int] = 2

    frames_after_sync: int = option(2, at_least=0)

    def choose(self, request: SelectionRequest) -> Choice:
        """Choose as `focus` with cheap coarse pulls; a fact counts the arms that had too few cheap frames."""
        choice = super().choose(request)
        n_without = int(self._lacks_groups(request.video, self.clips(request.video)).sum())
        return replace(choice, facts={"arms_without_cheap_frames": n_without, **choice.facts})

    def expected_pulls(self, video: VideoInfo, *, k: int) -> ExpectedPulls | None:
        """Return the pulls of `focus` if no sync frames are known; else None, since they are known only after a run."""
        return super().expected_pulls(video, k=k) if video.sync_frames is None else None

    def coarse_candidates(self, request: SelectionRequest, clips: Clips) -> IntArray:
        """Return one cheap frame of every group, and all frames of arms that have too few groups, ascending."""
        may_draw = np.repeat(self._lacks_groups(request.video, clips), clips.sizes)
        may_draw[self._one_of_each_group(request, clips)] = True
        return np.flatnonzero(may_draw)

    def _one_of_each_group(self, request: SelectionRequest, clips: Clips) -> IntArray:
        """One frame of each sync group, drawn from the group's cheap frames that lie inside its arm."""
        sync = _sync_frames(request.video)
        # A group of pictures belongs to the arm that it begins in: keep its frame inside that arm.
        end_of_arm = clips.stops[clips.arm_of(sync)]
        n_left = np.minimum(np.append(sync[1:], request.video.n_frames), end_of_arm) - sync
        n_cheap = np.minimum(n_left, 1 + self.frames_after_sync)
        frames: IntArray = sync + request.coarse_rng.integers(0, n_cheap)
        return frames

    def _lacks_groups(self, video: VideoInfo, clips: Clips) -> NDArray[np.bool_]:
        """A mask of the arms with fewer sync groups than they get pulls, `(n_arms,)`."""
        sync = _sync_frames(video)
        n_groups = np.searchsorted(sync, clips.stops) - np.searchsorted(sync, clips.starts)
        return n_groups < np.minimum(self.pulls_per_arm, clips.sizes)


def _sync_frames(video: VideoInfo) -> IntArray:
    return np.empty(0, dtype=np.int64) if video.sync_frames is None else video.sync_frames
