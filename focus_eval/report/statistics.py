"""Means and paired differences with 95 % intervals clustered by video, and their tests (docs/statistics.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import FloatArray, IntArray
from focus_eval.report.sign_flips import INTERVAL_DRAWS, SignFlips, sign_flip_p

# No interval rests on fewer videos; where fewer differ, a difference's is that of how many do.
FEWEST_VIDEOS = 5
# Of every interval.
LEVEL = 0.95
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


def mean_estimate(scores: ArrayLike, videos: Sequence[object], *, strata: Sequence[str] | None = None) -> Estimate:
    """Return the mean of `scores` in [0, 1] with a t interval on the logit scale, clustered by video.

    The standard error is the delete-one-video jackknife's (CR3), within each task type where the mean is that of types,
    carried to the logit scale by the delta method (Korn and Graubard 1998, compared there with others). The degrees of
    freedom are those of the effective number of videos. It is too small where hardly any video is wrong, so the ends
    are the outer ones of this interval and of the same one with half an imagined video at one half added (the idea of
    Agresti and Coull 1998). Where all videos have the same mean no spread is seen: Wilson's interval for as many trials
    as there are videos.

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
    parts = _by_video(values, videos, weights, strata)
    n_videos = parts.residuals.size
    if n_videos < FEWEST_VIDEOS:
        return Estimate(value, None, None, values.size, n_videos)
    if parts.error < 1e-12:
        from statsmodels.stats.proportion import proportion_confint

        low, high = proportion_confint(value * n_videos, n_videos, alpha=1 - LEVEL, method="wilson")
        return Estimate(value, float(low), float(high), values.size, n_videos)
    ends = [_logit_ends(value, parts.error, parts.freedom), _shrunk_ends(value, parts)]
    return Estimate(value, min(low for low, _ in ends), max(high for _, high in ends), values.size, n_videos)


def difference_estimate(
    differences: ArrayLike, videos: Sequence[object], *, strata: Sequence[str] | None = None, level: float = LEVEL
) -> Estimate:
    """Return the mean of paired `differences` in [-1, 1] with the means that the sign-flip test does not reject.

    Two imagined half videos are added, at plus and minus half of the largest video's part: with few videos that
    differ, what is seen of the spread is too little (Agresti and Min 2005 add half a pair to each kind). Where fewer
    than 5 videos differ, the interval is that of how many do (Clopper and Pearson 1934).

    Args:
        differences: `b - a` per question, shape `(n,)`.
        videos, strata: as in `mean_estimate`.

    Returns:
        Without an interval where there are fewer than 5 videos.

    Raises:
        InvalidInput: as `mean_estimate`.
    """
    values = _checked(differences, videos, low=-1.0)
    sums, shares = _parts_of_difference(values, videos, strata)
    value = float(sums.sum())
    if sums.size < FEWEST_VIDEOS:
        return Estimate(value, None, None, values.size, sums.size)
    if _n_differing(sums) < FEWEST_VIDEOS:
        from statsmodels.stats.proportion import proportion_confint

        gained, lost = (
            proportion_confint(count, sums.size, alpha=1 - level, method="beta")[1] * shares.max() * sums.size
            for count in _gained_and_lost(sums)
        )
        return Estimate(value, max(-1.0, -float(lost)), min(1.0, float(gained)), values.size, sums.size)
    low, high = _flips(sums, shares).interval(value, level=level)
    return Estimate(value, low, high, values.size, sums.size)


def equivalence_p(differences: ArrayLike, videos: Sequence[object], *, margin: float) -> float:
    """Return the p of two one-sided tests that the mean difference lies beyond `margin` (Schuirmann 1987).

    Below 0.05 where the 90 % interval lies within the margin; made in the same way as the interval.

    Raises:
        InvalidInput: a margin that is not above 0, or as `mean_estimate`.
    """
    if not margin > 0:
        raise InvalidInput(f"an equivalence margin must be above 0, got {margin:g}")
    values = _checked(differences, videos, low=-1.0)
    sums, shares = _parts_of_difference(values, videos, None)
    if sums.size < FEWEST_VIDEOS:
        return 1.0
    if _n_differing(sums) < FEWEST_VIDEOS:
        from scipy.special import bdtr

        chance = min(1.0, margin / (float(shares.max()) * sums.size))
        return max(float(bdtr(count, sums.size, chance)) for count in _gained_and_lost(sums))
    flips = _flips(sums, shares)
    return max(flips.p_above(-margin), flips.p_below(margin))


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
    """Return the standard error of the mean of `differences` (CR3, clustered by video); 0 where nothing varies."""
    values = _checked(differences, videos, low=-1.0)
    weights = stratum_weights(strata if strata is not None else [""] * values.size)
    return _by_video(values, videos, weights, strata).error


def _checked(scores: ArrayLike, videos: Sequence[object], *, low: float) -> FloatArray:
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or values.size == 0 or values.size != len(videos):
        raise InvalidInput(f"an estimate needs scores and as many videos, got {values.shape} and {len(videos)}")
    if not ((values >= low) & (values <= 1.0)).all():
        raise InvalidInput(f"scores must be finite and in [{low:g}, 1]")
    return values


def _clusters(videos: Sequence[object]) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    return np.unique([str(video) for video in videos], return_inverse=True)[1]


@dataclass(frozen=True)
class _VideoParts:
    """What each video has in a mean.

    Args:
        residuals: summed deviation from the mean (of its task type), over what the mean took of it, `(n_videos,)`.
        shares: of the weight, sum 1, `(n_videos,)`.
        freedom: degrees of freedom of the spread.
    """

    residuals: FloatArray
    shares: FloatArray
    freedom: float

    @property
    def error(self) -> float:
        return float(np.sqrt(self.residuals @ self.residuals))


def _by_video(
    values: FloatArray, videos: Sequence[object], weights: FloatArray, strata: Sequence[str] | None
) -> _VideoParts:
    clusters = _clusters(videos)
    kinds = np.unique(np.asarray(strata if strata is not None else [""] * values.size), return_inverse=True)[1]
    stratum = _joined(kinds, clusters)
    total = np.bincount(stratum, weights=weights)
    means = np.bincount(stratum, weights=weights * values) / total
    # A cell: what a video has of one task type.
    cells, cell = np.unique(clusters * total.size + stratum, return_inverse=True)
    of_video, of_stratum = np.divmod(cells, total.size)
    share = np.bincount(cell, weights=weights) / total[of_stratum]
    n_cells = np.bincount(of_stratum)[of_stratum]
    deviations = np.bincount(cell, weights=weights * (values - means[stratum]))
    scaled = deviations * np.sqrt((n_cells - 1) / n_cells) / np.maximum(1 - share, 1e-12)
    effective = 1 / np.bincount(of_stratum, weights=share**2)
    spread = total**2 / effective
    freedom = spread.sum() ** 2 / (spread**2 / np.maximum(effective - 1, 1e-9)).sum()
    shares = np.asarray(np.bincount(clusters, weights=weights), dtype=np.float64)
    residuals = np.asarray(np.bincount(of_video, weights=scaled), dtype=np.float64)
    return _VideoParts(residuals, shares, min(shares.size - 1, float(freedom)))


def _joined(stratum: IntArray, clusters: IntArray) -> IntArray:
    """Return the strata with those of a single video put together: alone they would show no spread (Cochran 1977)."""
    cells = np.unique(np.stack([stratum, clusters]), axis=1)
    n_videos = np.bincount(cells[0])
    alone = np.flatnonzero(n_videos == 1)
    if alone.size == 0 or n_videos.size == 1:
        return stratum
    few = alone if alone.size > 1 else np.argsort(n_videos, kind="stable")[:2]
    return np.unique(np.where(np.isin(stratum, few), few[0], stratum), return_inverse=True)[1]


def _parts_of_difference(
    values: FloatArray, videos: Sequence[object], strata: Sequence[str] | None
) -> tuple[FloatArray, FloatArray]:
    """Return each video's part of the mean, and its share of the questions' weight, `(n_videos,)`."""
    return video_sums(values, videos, strata=strata), video_sums(np.ones(values.size), videos, strata=strata)


def _n_differing(sums: FloatArray) -> int:
    return sum(_gained_and_lost(sums))


def _gained_and_lost(sums: FloatArray) -> tuple[int, int]:
    return int((sums > 1e-12).sum()), int((sums < -1e-12).sum())


def _flips(sums: FloatArray, shares: FloatArray) -> SignFlips:
    """The sign-flip test with two imagined half videos."""
    imagined = IMAGINED_VIDEO * np.abs(sums).max()
    added = IMAGINED_VIDEO / sums.size
    return SignFlips(np.append(sums, [imagined, -imagined]), np.append(shares, [added, added]), draws=INTERVAL_DRAWS)


def _logit_ends(value: float, error: float, freedom: float) -> tuple[float, float]:
    from scipy.special import expit, logit, stdtrit

    reach = stdtrit(freedom, (1 + LEVEL) / 2) * error / (value * (1 - value))
    return float(expit(logit(value) - reach)), float(expit(logit(value) + reach))


def _shrunk_ends(value: float, parts: _VideoParts) -> tuple[float, float]:
    n_videos = parts.residuals.size
    added = IMAGINED_VIDEO / n_videos
    centre = (value + 0.5 * added) / (1 + added)
    imagined = (0.5 - centre) * added * np.sqrt(n_videos / (n_videos - 1))
    moved = np.array([*(parts.residuals + (value - centre) * parts.shares), imagined])
    error = float(np.sqrt(moved @ moved)) / (1 + added)
    low, high = _logit_ends(centre, error, parts.freedom)
    return min(low, value), max(high, value)


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
    sums, shares = _parts_of_difference(differences, videos, strata)
    p_value, is_exact = sign_flip_p(sums, weights=shares)
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
    # Not statsmodels' multipletests: each call collects the garbage of the whole process, seconds beside a large run.
    p = np.asarray(p_values, dtype=np.float64)
    order = p.argsort(kind="stable")
    adjusted = np.empty(p.size)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1)))
    return adjusted


def detectable_difference(
    differences: ArrayLike, videos: Sequence[object], *, strata: Sequence[str] | None = None
) -> float | None:
    """Return the minimum detectable difference: what a test at 5 % finds with 80 % power, given the spread seen.

    `power_reach` times the standard error clustered by video (Bloom 1995). At the level of one comparison, before Holm.

    Returns:
        A difference above 0; None where nothing varies.
    """
    error = standard_error(differences, videos, strata=strata)
    found = power_reach(len(set(map(str, videos)))) * error
    return found if found > 0 else None


def power_reach(videos: int) -> float:
    """Return how many standard errors from 0 a difference lies that a t test at 5 % finds with 80 % power."""
    from scipy.special import stdtrit

    return float(stdtrit(videos - 1, 1 - 0.05 / 2) + stdtrit(videos - 1, 0.8))
