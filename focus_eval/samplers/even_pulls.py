"""How are as many pulls as another sampler makes spread evenly over a video?"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np

from focus_eval.bandit.clips import equal_clips
from focus_eval.errors import InvalidInput
from focus_eval.options import option
from focus_eval.samplers.base import FrameSampler
from focus_eval.samplers.registry import make_sampler, parse_options
from focus_eval.types import IntArray, VideoInfo


@dataclass(frozen=True, kw_only=True)
class EvenPulls(FrameSampler):
    """The number of pulls, which one of three options says.

    Args:
        budget_of: a sampler and its options ("focus alpha=0.5"): as many pulls as it plans for the video.
        pulls: so many instead.
        every_seconds: one in so many seconds instead.
    """

    budget_of: str | None = option("focus")
    pulls: int | None = option(None, at_least=1)
    every_seconds: float | None = option(None, above=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        says = ("budget_of", "pulls", "every_seconds")
        given = [
            declared.name
            for declared in fields(self)
            if declared.name in says and getattr(self, declared.name) != declared.default
        ]
        if len(given) > 1:
            raise InvalidInput(f"sampler {self.name!r}: give {' or '.join(given)}, not both")
        if self.budget_of is not None:
            sampler_from_text(self.budget_of)

    def n_pulls(self, video: VideoInfo, *, k: int) -> int:
        """Return the number of pulls of `video`, at least 1, at most every frame."""
        if self.pulls is not None:
            n = self.pulls
        elif self.every_seconds is not None:
            n = math.ceil(video.duration_seconds / self.every_seconds)
        elif self.budget_of is not None:
            n = sampler_from_text(self.budget_of).count_pulls(video, k=k)
        else:
            n = self.default_pulls(video, k=k)
        return min(video.n_frames, max(1, n))

    def default_pulls(self, video: VideoInfo, *, k: int) -> int:
        """Return the number of pulls where no option says it: every frame."""
        return video.n_frames

    def count_pulls(self, video: VideoInfo, *, k: int, seed: int = 0) -> int:
        """Return `n_pulls`, which needs no run."""
        return self.n_pulls(video, k=k)


def one_in_each_stratum(video: VideoInfo, n: int, rng: np.random.Generator) -> IntArray:
    """Return one frame at random of each of `n` equal strata, ascending, `(n,)`, `n <= n_frames`."""
    strata = equal_clips(video.n_frames, n)
    frames: IntArray = strata.starts + rng.integers(0, strata.sizes)
    return frames


@lru_cache(maxsize=64)  # asked for every question; a sampler is frozen
def sampler_from_text(text: str) -> FrameSampler:
    """Return the sampler of "name option=value option=value".

    Raises:
        InvalidInput: a part that is no option; an unknown name or value as `make_sampler` says it.
    """
    name, *parts = text.split() or [""]
    if not name or not all("=" in part for part in parts):
        raise InvalidInput(f"{text!r} must be a sampler and its options: focus alpha=0.5")
    texts = dict(part.partition("=")[::2] for part in parts)
    return make_sampler(name, **parse_options(name, texts))
