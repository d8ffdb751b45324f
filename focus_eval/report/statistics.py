"""Means and paired differences with 95 % intervals clustered by video, and their tests (docs/statistics.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import FloatArray

# No interval rests on fewer videos, nor that of a difference on fewer videos that differ.
FEWEST_VIDEOS = 5
# Weight of an imagined video, in videos of average size.
IMAGINED_VIDEO = 0.5


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval, all in the unit of the scores (0-1), and what it rests on.

    Args:
        low, high: None where too few videos allow no interval.
    """

    value: float
    low: float | None
    high: float | None
    questions: int
    videos: int

    def __post_init__(self) -> None:
        if (self.low is None) != (self.high is None):
            raise InvalidInput("an interval has two ends")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise InvalidInput(f"an interval of width {self.high - self.low:g} says nothing")


@dataclass(frozen=True, kw_only=True)
class Tested:
    """A difference and the p of the test that it is 0, not adjusted.

    Args:
        p_value: None where nothing could be tested.
        is_exact: False where the p rests on random draws.
    """

    difference: Estimate
    p_value: float | None
    is_exact: bool = True


@dataclass(frozen=True)
class SeedSpread:
    """Mean over seeds and the sample standard deviation (n - 1), NaN for a single seed."""

    mean: float
    deviation: float
    seeds: int


def mean_estimate(
    scores: ArrayLike, videos: Sequence[object], *, strata: Sequence[str] | None = None, level: float = 0.95
) -> Estimate:
    """Return the mean of `scores` in [0, 1] with a t interval on the logit scale, clustered by video.

    The standard error is the cluster-robust one (each video one cluster, factor n / (n - 1)), carried to the logit
    scale by the delta method (Korn and Graubard 1998, compared there with others). It is too small where hardly any
    video is wrong, so the ends are the outer ones of this interval and of the same one with half an imagined video
    at one half added (the idea of Agresti and Coull 1998). Where all videos have the same mean no spread is seen:
    Wilson's interval for as many trials as there are videos.

    Args:
        scores: shape `(n,)`, n >= 1.
        videos: the video of each score, shape `(n,)`.
        strata: the task type of each score, shape `(n,)`: the mean is that of the types' means (see `stratum_weights`).

    Returns:
        Without an interval where there are fewer than 5 videos.

    Raises:
        InvalidInput: no scores, other lengths, scores outside [0, 1].
    """
    values = _checked(scores, videos, low=0.0)
    weights = stratum_weights(strata if strata is not None else [""] * values.size)
    value = min(1.0, max(0.0, float(weights @ values)))
    residuals, shares = _by_video(values, videos, weights, strata)
    n_videos = residuals.size
    if n_videos < FEWEST_VIDEOS:
        return Estimate(value, None, None, values.size, n_videos)
    if _spread(residuals) < 1e-12:
        from statsmodels.stats.proportion import proportion_confint

        low, high = proportion_confint(value * n_videos, n_videos, alpha=1 - level, method="wilson")
        return Estimate(value, float(low), float(high), values.size, n_videos)
    ends = [_logit_ends(value, _spread(residuals), n_videos, level), _shrunk_ends(value, residuals, shares, level)]
    return Estimate(value, min(low for low, _ in ends), max(high for _, high in ends), values.size, n_videos)


def difference_estimate(
    differences: ArrayLike, videos: Sequence[object], *, strata: Sequence[str] | None = None, level: float = 0.95
) -> Estimate:
    """Return the mean of paired `differences` in [-1, 1] with a t interval clustered by video.

    Two imagined half videos are added to the spread, at plus and minus half of the largest video's sum: with few
    videos that differ, what is seen of the spread is too little (Agresti and Min 2005 add half a pair to each kind).

    Args:
        differences: `b - a` per question, shape `(n,)`.
        videos, strata: as in `mean_estimate`.

    Returns:
        Without an interval where fewer than 5 videos have a difference.

    Raises:
        InvalidInput: as `mean_estimate`.
    """
    from scipy.special import stdtrit

    values = _checked(differences, videos, low=-1.0)
    weights = stratum_weights(strata if strata is not None else [""] * values.size)
    value = float(weights @ values)
    sums = video_sums(values, videos, strata=strata)
    n_videos = sums.size
    if np.count_nonzero(np.abs(sums) > 1e-12) < FEWEST_VIDEOS:
        return Estimate(value, None, None, values.size, n_videos)
    residuals, shares = _by_video(values, videos, weights, strata)
    added = IMAGINED_VIDEO / n_videos
    centre = value / (1 + 2 * added)
    imagined = IMAGINED_VIDEO * np.abs(sums).max()
    moved = np.array([*(residuals + (value - centre) * shares), imagined - centre * added, -imagined - centre * added])
    error = np.sqrt((moved**2).sum() * n_videos / (n_videos - 1)) / (1 + 2 * added)
    reach = float(stdtrit(n_videos - 1, (1 + level) / 2) * error)
    low, high = min(value, max(-1.0, centre - reach)), max(value, min(1.0, centre + reach))
    return Estimate(value, low, high, values.size, n_videos)


def stratum_weights(strata: Sequence[str]) -> FloatArray:
    """Return the weight of each question in the mean of task types, shape `(n,)`, sum 1.

    A stratum "a/b" is a part of "a": the parts of one type are averaged first, as VSI-Bench does with its three
    relative directions. With a single stratum every question weighs the same.
    """
    names = np.asarray(strata, dtype=str)
    whole = np.array([name.split("/")[0] for name in strata], dtype=str)
    weights = np.zeros(names.size)
    types = np.unique(whole)
    for kind in types:
        parts = np.unique(names[whole == kind])
        for part in parts:
            inside = names == part
            weights[inside] = 1 / (len(types) * len(parts) * np.count_nonzero(inside))
    return weights


def video_sums(differences: ArrayLike, videos: Sequence[object], *, strata: Sequence[str] | None = None) -> FloatArray:
    """Return each video's part of the mean difference, shape `(n_videos,)`, videos in the order of their names."""
    values = np.asarray(differences, dtype=np.float64)
    weights = stratum_weights(strata if strata is not None else [""] * values.size)
    return np.asarray(np.bincount(_clusters(videos), weights=weights * values), dtype=np.float64)


def standard_error(differences: ArrayLike, videos: Sequence[object], *, strata: Sequence[str] | None = None) -> float:
    """Return the cluster-robust standard error of the mean of `differences`; 0 where nothing varies."""
    values = _checked(differences, videos, low=-1.0)
    weights = stratum_weights(strata if strata is not None else [""] * values.size)
    residuals, _ = _by_video(values, videos, weights, strata)
    return _spread(residuals) if residuals.size > 1 else 0.0


def spread_over_seeds(values: Sequence[float]) -> SeedSpread:
    """Return mean and sample standard deviation of one figure over several seeds, at least one."""
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        raise InvalidInput("a spread over seeds needs at least one value")
    return SeedSpread(float(array.mean()), float(array.std(ddof=1)) if array.size > 1 else float("nan"), array.size)


def _checked(scores: ArrayLike, videos: Sequence[object], *, low: float) -> FloatArray:
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or values.size == 0 or values.size != len(videos):
        raise InvalidInput(f"an estimate needs scores and as many videos, got {values.shape} and {len(videos)}")
    if not ((values >= low) & (values <= 1.0)).all():
        raise InvalidInput(f"scores must be finite and in [{low:g}, 1]")
    return values


def _clusters(videos: Sequence[object]) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    return np.unique([str(video) for video in videos], return_inverse=True)[1]


def _by_video(
    values: FloatArray, videos: Sequence[object], weights: FloatArray, strata: Sequence[str] | None
) -> tuple[FloatArray, FloatArray]:
    """Each video's summed deviation from the mean (of its stratum), and its share of the weight: `(n_videos,)`."""
    _, stratum = np.unique(np.asarray(strata if strata is not None else [""] * values.size), return_inverse=True)
    means = np.bincount(stratum, weights=values) / np.bincount(stratum)
    clusters = _clusters(videos)
    residuals = np.bincount(clusters, weights=weights * (values - means[stratum]))
    return residuals.astype(np.float64), np.bincount(clusters, weights=weights).astype(np.float64)


def _spread(residuals: FloatArray) -> float:
    """The standard error of a mean from the videos' summed deviations."""
    n = residuals.size
    return float(np.sqrt((residuals**2).sum() * n / (n - 1)))


def _logit_ends(value: float, error: float, n_videos: int, level: float) -> tuple[float, float]:
    from scipy.special import expit, logit, stdtrit

    reach = stdtrit(n_videos - 1, (1 + level) / 2) * error / (value * (1 - value))
    return float(expit(logit(value) - reach)), float(expit(logit(value) + reach))


def _shrunk_ends(value: float, residuals: FloatArray, shares: FloatArray, level: float) -> tuple[float, float]:
    added = IMAGINED_VIDEO / residuals.size
    centre = (value + 0.5 * added) / (1 + added)
    moved = np.array([*(residuals + (value - centre) * shares), (0.5 - centre) * added])
    low, high = _logit_ends(centre, _spread(moved) / (1 + added), residuals.size, level)
    return min(low, value), max(high, value)


# Up to this many videos with a difference every assignment of signs is counted; 2**20 are a million.
EXACT_UP_TO_VIDEOS = 20
DRAWS = 100_000
SEED = 20260101
# Up to this many disagreements McNemar's test is the exact binomial one.
MCNEMAR_EXACT_UP_TO = 25


@dataclass(frozen=True, kw_only=True)
class PairedComparison(Tested):
    """Two samplers on the same questions: the mean of `b - a`, tested.

    Args:
        better_a, better_b: questions on which one of the two has the higher score.
        mcnemar: McNemar's p-value; None where a score is neither 0 nor 1, or is a mean over seeds.
        detectable: the smallest difference found with 80 % power; None where no spread is seen.
    """

    p_value: float
    better_a: int
    better_b: int
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
    error = standard_error(differences, videos, strata=strata)
    found = power_reach(len(set(map(str, videos))), power=power, level=level) * error
    return found if found > 0 else None


def power_reach(videos: int, *, power: float = 0.8, level: float = 0.05) -> float:
    """Return how many standard errors from 0 a difference lies that a test at `level` finds with `power`."""
    from scipy.special import stdtrit

    return float(stdtrit(videos - 1, 1 - level / 2) + stdtrit(videos - 1, power))


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
