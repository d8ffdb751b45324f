"""Control samplers at the mean cost of another sampler, by the number of frames they score."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from focus_eval.core.types import VideoInfo
from focus_eval.lab.simulation import NOMINAL_FPS, SamplerEntry, options_at
from focus_eval.lab.subprocess_sampler import make_apart

# Baselines that any scoring sampler must beat: all three score evenly spread frames, and differ in how they choose.
CONTROLS = ("even_diverse", "even_cover", "topk")
_STEPS = 3


def controls_at(
    cost: float, videos: Sequence[VideoInfo], *, k: int, names: Sequence[str] = CONTROLS
) -> list[SamplerEntry]:
    """Return the samplers `names` with options at which they score `cost` frames per video, on average over `videos`.

    The number of frames is proportional to a video's length. A control that always scores a minimum number of frames
    may cost more.

    Args:
        cost: in forward equivalents per video, above 0.
    """
    return [_control(name, cost, videos, k) for name in names]


def _control(name: str, cost: float, videos: Sequence[VideoInfo], k: int) -> SamplerEntry:
    """The sampler `name` with options at which it scores `cost` frames per video, on average over `videos`."""
    percent = 100 * cost / (NOMINAL_FPS * float(np.mean([video.duration_seconds for video in videos])))
    options = _options(name, percent)
    for _ in range(_STEPS):
        sampler = make_apart(name, **options)
        planned = float(np.mean([sampler.count_pulls(video, k=k) for video in videos]))
        percent *= cost / planned
        options = _options(name, percent)
    return SamplerEntry(sampler=name, options={**options}, k=[k])


def _options(name: str, percent: float) -> dict[str, float]:
    """The options at which the sampler scores `percent` of the frames, at most 100, to three digits."""
    # Three digits, since options appear in tables and folder names.
    return {option: float(f"{value:.3g}") for option, value in options_at(name, min(100.0, percent)).items()}
