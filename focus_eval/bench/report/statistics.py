"""Estimates and tests means and paired differences, with intervals clustered by video, and their power."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from focus_eval.bench.report.power import Spread
from focus_eval.bench.report.sign_flips import (
    ADDED_VIDEO_WEIGHT,
    INTERVAL_DRAWS,
    MIN_VIDEOS,
    SignFlips,
    effective_number,
    has_few_effective_videos,
    sign_flip_p,
    with_half_videos,
)
from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import FloatArray, IntArray

# Level of every interval.
LEVEL = 0.95
# Share of the sum of squares above which a single video visibly widens an interval.
LARGE_SHARE = 0.05

# Words in `Estimate.remark`.
DIFFER, FEW_EFFECTIVE = "differ", "few effective videos"


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval, in the unit of the scores (0-1), and its numbers of questions and videos.

    Args:
        low, high: ends of the interval; both None if there are too few videos for one.
        remark: what makes the interval wide, for print beside it; "" for an ordinary one.
        largest_video: share that the video with the largest difference has in the sum of squares over videos; None if
            that video does not widen the interval.
        unit: what a score is of, a question or a group of questions.
    """

    value: float
    low: float | None
    high: float | None
    questions: int
    videos: int
    remark: str = ""
    largest_video: float | None = None
    unit: str = "question"

    def __post_init__(self) -> None:
        """Raise InvalidInput for an interval with one end, or with ends that do not ascend."""
        if (self.low is None) != (self.high is None):
            raise InvalidInput("an interval has two ends")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise InvalidInput(f"an interval of width {self.high - self.low:g} has no extent")

    @property
    def leaves_out_zero(self) -> bool:
        """True if there is an interval and 0 is outside it."""
        return self.low is not None and self.high is not None and self.low * self.high > 0

    @property
    def shape(self) -> str:
        """Why the interval may hold 0 although p is small, e.g. "one of 12 videos has 31 % of the spread"."""
        if self.remark:
            return self.remark
        if self.largest_video is None:
            return "p is near 0.05"
        units = f"{self.unit}s" if self.videos == self.questions else "videos"
        return f"one of {self.videos} {units} has {100 * self.largest_video:.0f} % of the spread"


@dataclass(frozen=True, kw_only=True)
class Tested:
    """A difference and the p-value of the test that it is 0, not adjusted for other tests.

    Args:
        p_value: None if nothing could be tested.
        is_exact: False if the p-value was computed from random draws.
    """

    difference: Estimate
    p_value: float | None
    is_exact: bool = True


def mean_estimate(scores: ArrayLike, videos: Sequence[object], *, strata: Sequence[str] | None = None) -> Estimate:
    """Return the mean of `scores` in [0, 1] with a t interval on the logit scale, clustered by video.

    The standard error is the delete-one-video jackknife's (CR3), within each task type if `strata` are given. The delta
    method carries the error to the logit scale (Korn and Graubard 1998). The degrees of freedom
    are those of the effective number of videos. This interval is too narrow if hardly any video has a wrong answer. So
    it is computed a second time with half a video of mean 0.5 added (the idea of Agresti and Coull 1998), and the outer
    ends of the two are returned. If all videos have the same mean, the interval is Wilson's for one trial per video.

    Args:
        scores: shape `(n,)`, n >= 1.
        videos: the video of each score, shape `(n,)`.
        strata: the task type of each score, shape `(n,)`; the result is then the mean of the types' means (see
            `stratum_weights`). None for the mean over questions.

    Returns:
        The estimate, without an interval if there are fewer than 5 videos.

    Raises:
        InvalidInput: no scores, numbers of scores and videos that differ, or scores outside [0, 1].
    """
    values = _checked(scores, videos, low=0.0)
    weights = stratum_weights(strata if strata is not None else [""] * values.size)
    value = min(1.0, max(0.0, float(weights @ values)))
    parts = _by_video(values, videos, weights, strata)
    n_videos = parts.residuals.size
    if n_videos < MIN_VIDEOS:
        return Estimate(value, None, None, values.size, n_videos)
    if parts.error < 1e-12:
        low, high = _wilson_ends(value, n_videos)
        return Estimate(value, low, high, values.size, n_videos)
    ends = [_logit_ends(value, parts.error, parts.freedom), _shrunk_ends(value, parts)]
    return Estimate(value, min(low for low, _ in ends), max(high for _, high in ends), values.size, n_videos)


def difference_estimate(
    differences: ArrayLike,
    videos: Sequence[object],
    *,
    strata: Sequence[str] | None = None,
    level: float = LEVEL,
    unit: str = "question",
) -> Estimate:
    """Return the mean of paired `differences`; its interval holds the means that the sign-flip test does not reject.

    If few videos differ, their spread is underestimated. So the test gets two added videos, each with half the weight
    of an average video, at plus and minus half of the largest video's part (Agresti and Min 2005 add half a pair to
    each kind). If fewer than 5 videos differ, the interval is computed from their number (Clopper and Pearson 1934) and
    multiplied by the largest video's share of the questions over the mean share: that video may differ unseen.

    Args:
        differences: score of sampler b minus that of sampler a per question, in [-1, 1], shape `(n,)`.
        videos, strata: as in `mean_estimate`.
        level: level of the interval.
        unit: what a difference is of, a question or a group of questions.

    Returns:
        The estimate, without an interval if there are fewer than 5 videos.

    Raises:
        InvalidInput: as `mean_estimate`.
    """
    values = _checked(differences, videos, low=-1.0)
    sums, shares = _parts_of_difference(values, videos, strata)
    value = float(sums.sum())
    if sums.size < MIN_VIDEOS:
        return Estimate(value, None, None, values.size, sums.size, unit=unit)
    if _n_differing(sums) < MIN_VIDEOS:
        from scipy.special import betaincinv

        # The upper end of Clopper and Pearson's interval; it exists, because not all videos differ.
        gained, lost = (
            float(betaincinv(count + 1, sums.size - count, (1 + level) / 2) * shares.max() * sums.size)
            for count in _gained_and_lost(sums)
        )
        units = f"{unit}s" if sums.size == values.size else "videos"
        remark = f"{_n_differing(sums)} of {sums.size} {units} {DIFFER}"
        return Estimate(value, max(-1.0, -lost), min(1.0, gained), values.size, sums.size, remark, unit=unit)
    low, high = _flips(sums, shares).interval(value, level=level)
    few = has_few_effective_videos(shares)
    remark = f"{FEW_EFFECTIVE}: {effective_number(shares):.0f} of {sums.size}" if few else ""
    squares = sums**2 / float(sums @ sums)
    largest = float(squares.max()) if squares.max() >= LARGE_SHARE else None
    return Estimate(value, low, high, values.size, sums.size, remark, largest, unit)


def equivalence_p(
    differences: ArrayLike, videos: Sequence[object], *, margin: float, strata: Sequence[str] | None = None
) -> float:
    """Return the larger p-value of two one-sided tests: the mean is at most -`margin`, or at least `margin`.

    These are the tests of Schuirmann (1987) for equivalence.

    The p-value is below 0.05 if the 90 % interval of `difference_estimate` lies within plus and minus `margin`. It is 1
    with fewer than 5 videos.

    Args:
        strata: as in `mean_estimate`.

    Raises:
        InvalidInput: a margin that is not above 0, or as `mean_estimate`.
    """
    if not margin > 0:
        raise InvalidInput(f"an equivalence margin must be above 0, got {margin:g}")
    values = _checked(differences, videos, low=-1.0)
    sums, shares = _parts_of_difference(values, videos, strata)
    if sums.size < MIN_VIDEOS:
        return 1.0
    if _n_differing(sums) < MIN_VIDEOS:
        from scipy.special import bdtr

        chance = min(1.0, margin / (float(shares.max()) * sums.size))
        return max(float(bdtr(count, sums.size, chance)) for count in _gained_and_lost(sums))
    flips = _flips(sums, shares)
    return max(flips.p_above(-margin), flips.p_below(margin))


def stratum_weights(strata: Sequence[str]) -> FloatArray:
    """Return the weight of each question in the mean of task types, shape `(n,)`, sum 1.

    A stratum "a/b" is part b of type a. The parts of a type are averaged first, as VSI-Bench does with its three
    relative directions. With a single stratum all questions have the same weight.
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
    """Return each video's part of the mean difference, shape `(n_videos,)`, sorted by the video's name."""
    values = np.asarray(differences, dtype=np.float64)
    weights = stratum_weights(strata if strata is not None else [""] * values.size)
    return np.asarray(np.bincount(_clusters(videos), weights=weights * values), dtype=np.float64)


def standard_error(differences: ArrayLike, videos: Sequence[object], *, strata: Sequence[str] | None = None) -> float:
    """Return the standard error of the mean of `differences` (CR3, clustered by video); 0 if all are equal."""
    values = _checked(differences, videos, low=-1.0)
    weights = stratum_weights(strata if strata is not None else [""] * values.size)
    return _by_video(values, videos, weights, strata).error


def _checked(scores: ArrayLike, videos: Sequence[object], *, low: float) -> FloatArray:
    """`scores` as an array; refuses an empty list, another number than videos, or a score outside [low, 1]."""
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or values.size == 0 or values.size != len(videos):
        raise InvalidInput(f"an estimate needs scores and as many videos, got {values.shape} and {len(videos)}")
    if not ((values >= low) & (values <= 1.0)).all():
        raise InvalidInput(f"scores must be finite and in [{low:g}, 1]")
    return values


def _clusters(videos: Sequence[object]) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """The number of each question's video, from 0 on in the order of their names, shape `(n,)`."""
    return np.unique([str(video) for video in videos], return_inverse=True)[1]


@dataclass(frozen=True)
class _VideoParts:
    """The contribution of each video to a mean.

    Args:
        residuals: weighted sum of deviations from the mean (of the task type) over 1 - leverage, `(n_videos,)`.
        shares: share of the questions' weight, sum 1, `(n_videos,)`.
        freedom: degrees of freedom of the standard error.
    """

    residuals: FloatArray
    shares: FloatArray
    freedom: float

    @property
    def error(self) -> float:
        """Cluster-robust standard error of the mean (CR3)."""
        return float(np.sqrt(self.residuals @ self.residuals))


def _by_video(
    values: FloatArray, videos: Sequence[object], weights: FloatArray, strata: Sequence[str] | None
) -> _VideoParts:
    """Each video's contribution to the weighted mean of `values`, within task types if `strata` are given."""
    clusters = _clusters(videos)
    kinds = np.unique(np.asarray(strata if strata is not None else [""] * values.size), return_inverse=True)[1]
    stratum = _joined(kinds, clusters)
    total = np.bincount(stratum, weights=weights)
    stratum_means = np.bincount(stratum, weights=weights * values) / total
    # A cell is one (task type, video).
    cells, cell = np.unique(clusters * total.size + stratum, return_inverse=True)
    of_video, of_stratum = np.divmod(cells, total.size)
    share = np.bincount(cell, weights=weights) / total[of_stratum]
    n_cells = np.bincount(of_stratum)[of_stratum]
    deviations = np.bincount(cell, weights=weights * (values - stratum_means[stratum]))
    scaled = deviations * np.sqrt((n_cells - 1) / n_cells) / np.maximum(1 - share, 1e-12)
    effective = 1 / np.bincount(of_stratum, weights=share**2)
    spread = total**2 / effective
    freedom = spread.sum() ** 2 / (spread**2 / np.maximum(effective - 1, 1e-9)).sum()
    shares = np.asarray(np.bincount(clusters, weights=weights), dtype=np.float64)
    residuals = np.asarray(np.bincount(of_video, weights=scaled), dtype=np.float64)
    return _VideoParts(residuals, shares, min(shares.size - 1, float(freedom)))


def _joined(stratum: IntArray, clusters: IntArray) -> IntArray:
    """Return stratum numbers with all one-video strata merged, since each would have no spread (Cochran 1977).

    If only one stratum has a single video, it is merged with the next smallest.
    """
    cells = np.unique(np.stack([stratum, clusters]), axis=1)
    n_videos = np.bincount(cells[0])
    single_video = np.flatnonzero(n_videos == 1)
    if single_video.size == 0 or n_videos.size == 1:
        return stratum
    joined_strata = single_video if single_video.size > 1 else np.argsort(n_videos, kind="stable")[:2]
    return np.unique(np.where(np.isin(stratum, joined_strata), joined_strata[0], stratum), return_inverse=True)[1]


def _parts_of_difference(
    values: FloatArray, videos: Sequence[object], strata: Sequence[str] | None
) -> tuple[FloatArray, FloatArray]:
    """Each video's part of the mean, and its share of the questions' weight, shape `(n_videos,)` each."""
    return video_sums(values, videos, strata=strata), video_sums(np.ones(values.size), videos, strata=strata)


def _n_differing(sums: FloatArray) -> int:
    return sum(_gained_and_lost(sums))


def _gained_and_lost(sums: FloatArray) -> tuple[int, int]:
    return int((sums > 1e-12).sum()), int((sums < -1e-12).sum())


def _flips(sums: FloatArray, shares: FloatArray) -> SignFlips:
    """The sign-flip test with the two added half videos of `difference_estimate`."""
    return SignFlips(*with_half_videos(sums, shares), draws=INTERVAL_DRAWS)


def _wilson_ends(share: float, n: int) -> tuple[float, float]:
    """The ends of Wilson's 95 % interval of a share of `n` trials."""
    from scipy.special import ndtri

    reach = float(ndtri((1 + LEVEL) / 2))
    centre, square = share + reach**2 / (2 * n), 1 + reach**2 / n
    distance = reach * np.sqrt(share * (1 - share) / n + reach**2 / (4 * n**2))
    return max(0.0, float((centre - distance) / square)), min(1.0, float((centre + distance) / square))


def _logit_ends(value: float, error: float, freedom: float) -> tuple[float, float]:
    """The ends of the 95 % t interval of a mean `value` with standard error `error`, on the logit scale."""
    from scipy.special import expit, logit, stdtrit

    reach = stdtrit(freedom, (1 + LEVEL) / 2) * error / (value * (1 - value))
    return float(expit(logit(value) - reach)), float(expit(logit(value) + reach))


def _shrunk_ends(value: float, parts: _VideoParts) -> tuple[float, float]:
    """`_logit_ends` with half a video of mean 0.5 added."""
    n_videos = parts.residuals.size
    imagined_share = ADDED_VIDEO_WEIGHT / effective_number(parts.shares)
    centre = (value + 0.5 * imagined_share) / (1 + imagined_share)
    imagined = (0.5 - centre) * imagined_share * np.sqrt(n_videos / (n_videos - 1))
    moved = np.array([*(parts.residuals + (value - centre) * parts.shares), imagined])
    error = float(np.sqrt(moved @ moved)) / (1 + imagined_share)
    return _logit_ends(centre, error, parts.freedom)


@dataclass(frozen=True, kw_only=True)
class PairedComparison(Tested):
    """Two samplers on the same questions: the tested mean of `b - a`.

    Args:
        better_a, better_b: number of questions on which a, or b, has the higher score.
        spread: None if nothing varies, or there is no interval.
    """

    p_value: float
    better_a: int
    better_b: int
    spread: Spread | None = field(default=None, repr=False)

    def detectable(self, *, tests: int = 1) -> float | None:
        """Return the smallest difference that gets an arrow in 80 % of runs, in a table of `tests` tests.

        None without a spread, or if these questions can show no difference.
        """
        return None if self.spread is None else self.spread.least_difference(tests=tests)


def compare_paired(
    a: ArrayLike,
    b: ArrayLike,
    videos: Sequence[object],
    *,
    strata: Sequence[str] | None = None,
    unit: str = "question",
) -> PairedComparison:
    """Return the tested mean of `b - a`, for two samplers' scores on the same questions.

    Args:
        a, b: score per question in [0, 1], the mean over its seeds, shape `(n,)`, in the same order.
        videos: the video of each question, shape `(n,)`.
        strata: as in `mean_estimate`.
        unit: as in `difference_estimate`.

    Raises:
        InvalidInput: different numbers of scores, or scores outside [0, 1].
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape:
        raise InvalidInput(f"a paired comparison needs the same questions, got {first.size} and {second.size}")
    all_scores = np.concatenate([first, second])
    if not ((all_scores >= 0) & (all_scores <= 1)).all():
        raise InvalidInput("scores must be finite and in [0, 1]")
    differences = second - first
    sums, shares = _parts_of_difference(differences, videos, strata)
    p_value, is_exact = sign_flip_p(sums, weights=shares)
    better_a, better_b = int((differences < -1e-12).sum()), int((differences > 1e-12).sum())
    difference = difference_estimate(differences, videos, strata=strata, unit=unit)
    return PairedComparison(
        difference=difference,
        better_a=better_a,
        better_b=better_b,
        p_value=p_value,
        is_exact=is_exact,
        spread=None if difference.low is None else _spread(differences, videos, strata),
    )


def holm(p_values: Sequence[float]) -> FloatArray:
    """Return the p-values of one table's comparisons adjusted by Holm's method, in the order of `p_values`."""
    p = np.asarray(p_values, dtype=np.float64)
    order = p.argsort(kind="stable")
    adjusted = np.empty(p.size)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1)))
    return adjusted


def detectable_difference(
    differences: ArrayLike, videos: Sequence[object], *, strata: Sequence[str] | None = None
) -> float | None:
    """Return the smallest difference above 0 that gets an arrow in 80 % of runs, in a table of this one test.

    Discordance and correlation within videos are measured on `differences` (see `power.Spread`).

    Returns:
        None if nothing varies, or if these questions could show no difference that their discordance allows.
    """
    spread = _spread(_checked(differences, videos, low=-1.0), videos, strata)
    return None if spread is None else spread.least_difference()


def _spread(values: FloatArray, videos: Sequence[object], strata: Sequence[str] | None) -> Spread | None:
    """The spread of differences; None if all are equal."""
    weights = stratum_weights(strata if strata is not None else [""] * values.size)
    error = standard_error(values, videos, strata=strata)
    if error <= 0:
        return None
    square, absolute = float(weights @ values**2), float(weights @ np.abs(values))
    return Spread(clusters=_clusters(videos), weights=weights, share=square, size=square / absolute, error=error)
