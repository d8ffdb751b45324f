"""What do even pulls give at the cost of FOCUS, with a penalty on keyframes close together?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from focus_eval.core.options import option
from focus_eval.core.types import FloatArray, IntArray, VideoInfo
from focus_eval.samplers.coverage import diverse_best
from focus_eval.samplers.even_topk import EvenTopK


@dataclass(frozen=True, kw_only=True)
class EvenDiverse(EvenTopK):
    """The pulls of `even_topk`, and a greedy choice with a penalty on frames near a chosen one.

    Args:
        diversity: penalty right beside a chosen frame, on relevance scaled to [0, 1] over the pulls.
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
