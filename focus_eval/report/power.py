"""Which difference between two samplers can be detected, and how many videos does a difference need?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from focus_eval.core.errors import InvalidInput
from focus_eval.report.statistics import power_reach, standard_error

# Differences that a reader asks about: published gains are mostly 1 to 3 points.
TARGET_POINTS = (2.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class Discordance:
    """Disagreement of two samplers' scores, and correlation of their differences within a video.

    Args:
        share: variance over questions of the difference of the two scores, above 0, at most 1. With right and wrong
            answers it is about the share of questions that only one of the samplers has right.
        video_correlation: correlation of the differences of two questions about one video, in [-1, 1].
        source: samplers, model and benchmark that both numbers were measured on.
    """

    share: float
    video_correlation: float = 0.0
    source: str = ""

    def __post_init__(self) -> None:
        """Raise InvalidInput for a share outside (0, 1] or a correlation outside [-1, 1]."""
        if not (0 < self.share <= 1 and -1 <= self.video_correlation <= 1):
            raise InvalidInput(
                f"a discordance is a share of the questions, above 0 and at most 1, got {self.share:g} with a "
                f"correlation of {self.video_correlation:g}"
            )


# Measured by scripts/field.py on public logs (docs/field.md); with other samplers .21 to .24, and .01 to .13.
PUBLISHED = Discordance(
    share=0.21, video_correlation=0.06, source="uniform and AKS, Qwen2.5-VL-7B, LongVideoBench, 32 frames"
)


def seen_discordance(differences: ArrayLike, videos: Sequence[object]) -> Discordance | None:
    """Return the discordance observed in paired differences.

    None if all differences are equal, or if there are fewer than two videos.

    Args:
        differences: score of sampler b minus that of sampler a per question, shape `(n,)`.
        videos: video of each question, shape `(n,)`.
    """
    values = np.asarray(differences, dtype=np.float64)
    variance = float(values.var())
    if variance <= 0 or len(set(map(str, videos))) < 2:
        return None
    effect = standard_error(values, videos) ** 2 * values.size / variance
    repeats = _weighted_size(np.unique([str(video) for video in videos], return_counts=True)[1]) - 1
    correlation = 0.0 if repeats <= 0 else float(np.clip((effect - 1) / repeats, -1, 1))
    return Discordance(share=min(1.0, variance), video_correlation=correlation)


def least_difference(questions_per_video: Sequence[int], discordance: Discordance) -> float:
    """Return the smallest difference in [0, 1] that a two-sided test at 5 % finds with 80 % power (Bloom 1995).

    Args:
        questions_per_video: number of questions of each video, above 0; at least two videos.

    Raises:
        InvalidInput: fewer than two videos, or a video without a question.
    """
    counts = np.asarray(questions_per_video, dtype=np.float64)
    if counts.size < 2 or not (counts > 0).all():
        raise InvalidInput(f"power needs questions about at least two videos, got {counts.size}")
    effect = max(0.0, 1 + (_weighted_size(counts) - 1) * discordance.video_correlation)
    return power_reach(counts.size) * float(np.sqrt(discordance.share * effect / counts.sum()))


def videos_needed(detectable: float, videos: int, difference: float) -> int:
    """Return the number of videos needed to detect `difference`, if `videos` videos of the kind detect `detectable`.

    Raises:
        InvalidInput: a difference that is not above 0, or fewer than two videos.
    """
    if not (difference > 0 and detectable > 0 and videos >= 2):
        raise InvalidInput(
            f"power needs differences above 0 and two videos, got {difference:g}, {detectable:g}, {videos}"
        )
    spread = detectable / power_reach(videos) * np.sqrt(videos)

    def shows(number: int) -> bool:
        """Return True if `number` videos detect the difference."""
        return bool(power_reach(number) * spread / np.sqrt(number) <= difference * (1 + 1e-12))

    low, high = 2, 2
    while not shows(high):
        low, high = high, 2 * high
    while low < high:  # the least number that shows it
        middle = (low + high) // 2
        low, high = (low, middle) if shows(middle) else (middle + 1, high)
    return high


def more_videos_text(detectable: float, videos: int) -> str:
    """Return e.g. "to show 2 points takes 1,716 more videos like these, 1 point 9,117".

    Args:
        detectable: difference in [0, 1] that the present `videos` videos can detect.
    """
    more_videos = [max(0, videos_needed(detectable, videos, points / 100) - videos) for points in TARGET_POINTS]
    first, *later_counts = (f"{count:,}" if count else "no" for count in more_videos)
    later_texts = [f", {points:g} point {count}" for points, count in zip(TARGET_POINTS[1:], later_counts, strict=True)]
    return f"to show {TARGET_POINTS[0]:g} points takes {first} more videos like these{''.join(later_texts)}"


def _weighted_size(counts: ArrayLike) -> float:
    """Return the mean over questions of the number of questions about the same video, the question included."""
    sizes = np.asarray(counts, dtype=np.float64)
    return float((sizes**2).sum() / sizes.sum())
