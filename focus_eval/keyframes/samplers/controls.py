"""Frames at random, none at all, and those at the annotated evidence: control, floor and ceiling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import VideoInfo
from focus_eval.keyframes.samplers.base import Choice, FrameSampler, Role, SelectionRequest
from focus_eval.keyframes.samplers.expected_pulls import ExpectedPulls


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


@dataclass(frozen=True, kw_only=True)
class Blind(FrameSampler):
    """No frame at all: the floor, reached by language alone.

    A model that requires a video gets one black frame, and the row records that.
    """

    name: ClassVar[str] = "blind"
    source: ClassVar[str] = "control without frames"
    draws: ClassVar[bool] = False
    role: ClassVar[Role] = "floor"
    needs_encoder: ClassVar[bool] = False
    may_return_fewer: ClassVar[bool] = True

    def choose(self, request: SelectionRequest) -> Choice:
        """Return no keyframes."""
        return Choice(keyframes=np.empty(0, dtype=np.int64))


@dataclass(frozen=True, kw_only=True)
class Oracle(FrameSampler):
    """The frames at the annotated evidence and no other: a ceiling that no fair sampler reaches.

    Fewer moments than `k` give fewer keyframes; of more moments, `k` at equal steps are taken. Each moment gives its
    nearest frame at the video's average rate.
    """

    name: ClassVar[str] = "oracle"
    source: ClassVar[str] = "the benchmark's own annotation of evidence"
    draws: ClassVar[bool] = False
    role: ClassVar[Role] = "ceiling"
    needs_encoder: ClassVar[bool] = False
    needs_evidence: ClassVar[bool] = True
    may_return_fewer: ClassVar[bool] = True

    def choose(self, request: SelectionRequest) -> Choice:
        """Return the frames nearest to the annotated moments; raise InvalidInput if the question has none."""
        video, moments = request.video, np.sort(np.asarray(request.evidence_seconds, dtype=float))
        if moments.size == 0:
            raise InvalidInput("oracle needs annotated evidence, and this question has none; leave oracle out here")
        frames = np.unique(np.clip(np.rint(moments * video.fps).astype(np.int64), 0, video.n_frames - 1))
        positions = np.linspace(0, frames.size - 1, min(request.k, frames.size)).astype(np.int64)
        return Choice(keyframes=frames[positions], facts={"evidence_frames": int(frames.size)})
