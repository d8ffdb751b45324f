"""How well would a sampler do that knows the annotated evidence?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from focus_eval.core.errors import InvalidInput
from focus_eval.samplers.base import Choice, FrameSampler, Role, SelectionRequest


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
