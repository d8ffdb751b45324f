"""Tests of whether two samplers differ on the same questions: sign flips over videos, McNemar, Holm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from focus_eval.errors import InvalidInput
from focus_eval.report.statistics import Estimate, difference_estimate, standard_error, video_sums
from focus_eval.types import FloatArray

# Up to this many videos with a difference every assignment of signs is counted; 2**20 are a million.
EXACT_UP_TO_VIDEOS = 20
DRAWS = 100_000
SEED = 20260101
# Up to this many disagreements McNemar's test is the exact binomial one.
MCNEMAR_EXACT_UP_TO = 25


@dataclass(frozen=True, kw_only=True)
class PairedComparison:
    """Two samplers on the same questions.

    Args:
        difference: mean of `b - a`, with its interval.
        better_a, better_b: questions on which one of the two has the higher score.
        p_value: of the sign-flip test over videos; `is_exact` says whether all sign assignments were counted.
        mcnemar: McNemar's p-value; None where a score is neither 0 nor 1, or is a mean over seeds.
        detectable: the smallest difference found with 80 % power; None where no spread is seen.
    """

    difference: Estimate
    better_a: int
    better_b: int
    p_value: float
    is_exact: bool
    mcnemar: float | None
    detectable: float | None


def compare_paired(
    a: ArrayLike, b: ArrayLike, videos: Sequence[object], *, strata: Sequence[str] | None = None, seeds: int = 1
) -> PairedComparison:
    """Return how sampler `b` differs from `a` on the same questions, in the same order.

    Args:
        a, b: score per question in [0, 1], the mean over its seeds, shape `(n,)`.
        videos: the video of each question, shape `(n,)`.
        strata: task types, where the mean is that of the types' means.
        seeds: how many seeds the scores are means of; McNemar's test needs a single one.

    Raises:
        InvalidInput: different numbers of scores, or scores outside [0, 1].
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape:
        raise InvalidInput(f"a paired comparison needs the same questions, got {first.size} and {second.size}")
    both = np.concatenate([first, second])
    if not ((both >= 0) & (both <= 1)).all():
        raise InvalidInput("scores must be finite and in [0, 1]")
    differences = second - first
    p_value, is_exact = sign_flip_p(video_sums(differences, videos, strata=strata))
    better_a, better_b = int((differences < -1e-12).sum()), int((differences > 1e-12).sum())
    is_right_or_wrong = seeds == 1 and bool(((both == 0) | (both == 1)).all())
    difference = difference_estimate(differences, videos, strata=strata)
    return PairedComparison(
        difference=difference,
        better_a=better_a,
        better_b=better_b,
        p_value=p_value,
        is_exact=is_exact,
        mcnemar=mcnemar_p(better_a, better_b) if is_right_or_wrong else None,
        detectable=None if difference.low is None else detectable_difference(differences, videos, strata=strata),
    )


def sign_flip_p(sums: ArrayLike, *, draws: int = DRAWS, seed: int = SEED) -> tuple[float, bool]:
    """Return the two-sided p-value of the sign-flip permutation test over videos, and whether it is exact.

    If the samplers are alike, each video's summed difference is as likely to have the other sign. The p-value is the
    share of sign assignments whose total is at least as far from 0 as the one seen: all of them up to 20 videos with
    a difference, else 100,000 random ones and the one seen (Phipson and Smyth 2010). Nothing is assumed about the
    questions of one video, about seeds or about partial credit.

    Args:
        sums: summed differences per video, shape `(n_videos,)`.
    """
    values = np.asarray(sums, dtype=np.float64)
    values = values[np.abs(values) > 1e-12]
    if values.size == 0:
        return 1.0, True
    # Equal totals differ by rounding.
    seen = abs(values.sum()) - 1e-9 * np.abs(values).sum()
    if values.size <= EXACT_UP_TO_VIDEOS:
        return float((np.abs(_all_flips(values)) >= seen).mean()), True
    as_far = int((np.abs(_random_flips(values, draws, seed)) >= seen).sum())
    return (as_far + 1) / (draws + 1), False


def mcnemar_p(only_a: int, only_b: int) -> float:
    """Return McNemar's two-sided p-value for the questions that only one sampler has right.

    Exact binomial up to 25 disagreements, else chi-square with continuity correction. It takes questions for
    independent, which those of one video are not.
    """
    if only_a + only_b == 0:
        return 1.0
    from statsmodels.stats.contingency_tables import mcnemar

    is_exact = only_a + only_b <= MCNEMAR_EXACT_UP_TO
    result = mcnemar([[0, only_a], [only_b, 0]], exact=is_exact, correction=not is_exact)
    return float(min(1.0, result.pvalue))


def holm(p_values: Sequence[float]) -> FloatArray:
    """Return Holm's adjusted p-values for the comparisons of one table, shape and order of `p_values`."""
    if not len(p_values):
        return np.zeros(0)
    from statsmodels.stats.multitest import multipletests

    return np.asarray(multipletests(p_values, method="holm")[1])


def detectable_difference(
    differences: ArrayLike,
    videos: Sequence[object],
    *,
    strata: Sequence[str] | None = None,
    power: float = 0.8,
    level: float = 0.05,
) -> float | None:
    """Return the minimum detectable difference: what a test at `level` finds with `power`, given the spread seen.

    `(t_(1 - level/2) + t_power)` times the standard error clustered by video, t with one degree of freedom less than
    videos (Bloom 1995). At the level of one comparison, before Holm.

    Returns:
        A difference above 0; None where nothing varies.
    """
    from scipy.special import stdtrit

    error = standard_error(differences, videos, strata=strata)
    freedom = len(set(map(str, videos))) - 1
    found = float((stdtrit(freedom, 1 - level / 2) + stdtrit(freedom, power)) * error)
    return found if found > 0 else None


def _all_flips(values: FloatArray) -> FloatArray:
    """The total under every assignment of signs, shape `(2**n,)`."""
    totals = np.zeros(1)
    for value in values:
        totals = np.concatenate([totals + value, totals - value])
    return totals


def _random_flips(values: FloatArray, draws: int, seed: int) -> FloatArray:
    """The total under `draws` random assignments of signs, shape `(draws,)`; eight videos share one random byte."""
    rng = np.random.default_rng(seed)
    padded = np.zeros(-(-values.size // 8) * 8)
    padded[: values.size] = values
    signs = 1.0 - 2.0 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, np.newaxis], axis=1)
    totals = np.zeros(draws)
    for eight in padded.reshape(-1, 8):
        totals += (signs @ eight)[rng.integers(0, 256, size=draws, dtype=np.uint8)]
    return totals
