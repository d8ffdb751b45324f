"""Frames at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from focus_eval.core.types import VideoInfo
from focus_eval.samplers.base import Choice, FrameSampler, Role, SelectionRequest
from focus_eval.samplers.expected_pulls import ExpectedPulls


@dataclass(frozen=True, kw_only=True)
class Random(FrameSampler):
    """`k` frames uniformly without replacement: the control every sampler has to beat."""

    name: ClassVar[str] = "random"
    source: ClassVar[str] = "control"
    role: ClassVar[Role] = "control"
    needs_encoder: ClassVar[bool] = False

    def choose(self, request: SelectionRequest) -> Choice:
        """Return random frames, each once."""
        return Choice(keyframes=request.rng.choice(request.video.n_frames, request.n_wanted, replace=False))

    def expected_pulls(self, video: VideoInfo, *, k: int) -> ExpectedPulls | None:
        """Return no pulls."""
        return ExpectedPulls()
