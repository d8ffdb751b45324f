"""How small a difference between two samplers can a number of questions show, and how many videos would it take?"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from focus_eval.core.errors import InvalidInput
from focus_eval.report.statistics import standard_error

POWER, LEVEL = 0.8, 0.05
# Uniform and AKS on LongVideoBench val, Qwen2.5-VL-7B, 32 frames: the share of questions that one of them alone has
# right, and how far the differences of one video go together (docs/field.md).
PUBLISHED_DISCORDANCE, PUBLISHED_DESIGN_EFFECT = 0.21, 1.07
PUBLISHED_SOURCE = "uniform and AKS, Qwen2.5-VL-7B, LongVideoBench val"


@dataclass(frozen=True, kw_only=True)
class PowerBasis:
    """What the power of a paired comparison depends on.

    Args:
        questions, videos: asked; at least two videos.
        variance: of the difference of two scores of one question; with right and wrong answers, about the share of
            questions that one sampler alone has right.
        design_effect: how much more the mean varies than with questions of as many different videos; 1 where the
            differences of one video do not go together.
    """

    questions: int
    videos: int
    variance: float
    design_effect: float = 1.0

    def __post_init__(self) -> None:
        if not (2 <= self.videos <= self.questions):
            raise InvalidInput(f"power needs two videos and a question for each, got {self.videos}, {self.questions}")
        if not (0 < self.variance <= 1 and self.design_effect > 0):
            raise InvalidInput(
                f"power needs a discordance above 0 and at most 1 and a design effect above 0, got {self.variance:g} "
                f"and {self.design_effect:g}"
            )

    @property
    def least_difference(self) -> float:
        """Return the difference that a two-sided test at 5 % finds with 80 % power (Bloom 1995), as a share."""
        from scipy.special import stdtrit

        error = np.sqrt(self.variance * self.design_effect / self.questions)
        freedom = self.videos - 1
        return float((stdtrit(freedom, 1 - LEVEL / 2) + stdtrit(freedom, POWER)) * error)


def seen_basis(differences: ArrayLike, videos: list[str]) -> PowerBasis | None:
    """Return what the power of a comparison that was made rests on; None where nothing differs, or of one video.

    Args:
        differences: `b - a` per question, shape `(n,)`.
    """
    values = np.asarray(differences, dtype=np.float64)
    variance, n_videos = float(values.var()), len(set(videos))
    if variance <= 0 or n_videos < 2:
        return None
    effect = standard_error(values, videos) ** 2 * values.size / variance
    if effect <= 0:
        return None
    return PowerBasis(questions=values.size, videos=n_videos, variance=variance, design_effect=effect)


def videos_needed(basis: PowerBasis, difference: float) -> int:
    """Return how many videos like those of `basis`, with as many questions each, can show `difference`.

    Raises:
        InvalidInput: a difference that is not above 0.
    """
    if not difference > 0:
        raise InvalidInput(f"a difference to be shown must be above 0, got {difference:g}")
    per_video = basis.questions / basis.videos

    def least(videos: int) -> float:
        return replace(basis, videos=videos, questions=max(videos, round(videos * per_video))).least_difference

    high = 2
    while least(high) > difference:
        high *= 2
    low = high // 2 if high > 2 else 2
    while low < high:  # the least number that shows it
        middle = (low + high) // 2
        low, high = (low, middle) if least(middle) <= difference else (middle + 1, high)
    return high


def power_sentence(basis: PowerBasis, *, points: tuple[float, ...] = (2.0, 1.0), source: str = "") -> str:
    """Return e.g. "1337 questions on 753 videos show a difference of 3.6 points or more (80 % power, ...); ..."."""
    parts = []
    for wanted in points:
        more = videos_needed(basis, wanted / 100) - basis.videos
        parts.append(f"{wanted:g} need {more:,} more videos" if more > 0 else f"{wanted:g} need no more videos")
    basis_text = f"; discordance {100 * basis.variance:.0f} %" + (f": {source}" if source else "")
    return (
        f"{basis.questions:,} questions on {basis.videos:,} videos can show a difference of "
        f"{100 * basis.least_difference:.1f} points (80 % power{basis_text}); {', '.join(parts)}."
    )
