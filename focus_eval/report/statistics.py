"""Means of scores and of paired differences, with 95 % intervals clustered by video (docs/statistics.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from focus_eval.errors import InvalidInput
from focus_eval.types import FloatArray

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
