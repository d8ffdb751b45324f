"""What do frames at random give?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from focus_eval.samplers.base import Choice, FrameSampler
from focus_eval.samplers.ledger import Ledger
from focus_eval.types import VideoInfo


@dataclass(frozen=True, kw_only=True)
class Random(FrameSampler):
    """`k` frames uniformly without replacement: the control every sampler has to beat."""

    name: ClassVar[str] = "random"
    source: ClassVar[str] = "control"
    needs_scorer: ClassVar[bool] = False

    def choose(
        self, video: VideoInfo, *, k: int, ledger: Ledger, rng: np.random.Generator, coarse_rng: np.random.Generator
    ) -> Choice:
        """Draw the frames."""
        return Choice(keyframes=rng.choice(video.n_frames, min(k, video.n_frames), replace=False))
