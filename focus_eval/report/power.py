"""How small a difference between two samplers can a number of questions show, and how many videos would it take?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from focus_eval.core.errors import InvalidInput
from focus_eval.report.statistics import power_reach, standard_error

# What a reader will want to know: published gains are mostly 1 to 3 points.
WANTED_POINTS = (2.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class Discordance:
    """How far two samplers' answers differ, before their accuracies do.

    Args:
        share: variance of the difference of two scores of one question; of right and wrong answers, about the share
            of questions that one sampler alone has right. Above 0, at most 1.
        video_correlation: of the differences of two questions about one video.
        source: where both are from.
    """

    share: float
    video_correlation: float = 0.0
    source: str = ""

    def __post_init__(self) -> None:
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
    """Return how far two series differ; None where nothing does.

    Args:
        differences: `b - a` per question, shape `(n,)`.
        videos: shape `(n,)`.
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
    """Return the difference that a two-sided test at 5 % finds with 80 % power (Bloom 1995), as a share.

    Args:
        questions_per_video: at least two videos with a question.
    """
    counts = np.asarray(questions_per_video, dtype=np.float64)
    if counts.size < 2 or not (counts > 0).all():
        raise InvalidInput(f"power needs questions about at least two videos, got {counts.size}")
    effect = max(0.0, 1 + (_weighted_size(counts) - 1) * discordance.video_correlation)
    return power_reach(counts.size) * float(np.sqrt(discordance.share * effect / counts.sum()))


def videos_needed(least: float, videos: int, difference: float) -> int:
    """Return how many videos it takes to show `difference`, where `videos` like them can show `least`.

    Raises:
        InvalidInput: a difference that is not above 0, or fewer than two videos.
    """
    if not (difference > 0 and least > 0 and videos >= 2):
        raise InvalidInput(f"power needs differences above 0 and two videos, got {difference:g}, {least:g}, {videos}")
    spread = least / power_reach(videos) * np.sqrt(videos)

    def shows(number: int) -> bool:
        return bool(power_reach(number) * spread / np.sqrt(number) <= difference * (1 + 1e-12))

    low, high = 2, 2
    while not shows(high):
        low, high = high, 2 * high
    while low < high:  # the least number that shows it
        middle = (low + high) // 2
        low, high = (low, middle) if shows(middle) else (middle + 1, high)
    return high


def more_videos_text(least: float, videos: int) -> str:
    """Return e.g. "2 points take 1,716 more videos like these, 1 point 9,117", where `videos` can show `least`."""
    needed = [max(0, videos_needed(least, videos, wanted / 100) - videos) for wanted in WANTED_POINTS]
    first, *rest = (f"{count:,}" if count else "no" for count in needed)
    others = [f", {wanted:g} point {count}" for wanted, count in zip(WANTED_POINTS[1:], rest, strict=True)]
    return f"{WANTED_POINTS[0]:g} points take {first} more videos like these{''.join(others)}"


def _weighted_size(counts: ArrayLike) -> float:
    """Questions that share the video of a question, itself counted, averaged over questions."""
    sizes = np.asarray(counts, dtype=np.float64)
    return float((sizes**2).sum() / sizes.sum())
