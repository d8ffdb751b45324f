"""Computes the sign-flip test over videos, corrected for skew, and the interval of differences it does not reject."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from focus_eval.core.types import FloatArray, IntArray

# Exact test up to this many differing videos: 2**14 = 16,384 sign assignments.
EXACT_UP_TO_VIDEOS = 14
DRAWS = 20_000
# Draws for an interval, whose ends are printed with one decimal.
INTERVAL_DRAWS = 4_000
SEED = 20260101
# Least number of videos for an interval. If fewer than this many of them have a difference other than 0, the interval
# is computed exactly.
MIN_VIDEOS = 5
# Weight of a video added to those observed; an average video weighs 1.
ADDED_VIDEO_WEIGHT = 0.5
_VIDEOS_AT_ONCE = 64
# Blocks of so many runs and draws fit the processor's cache.
_RUNS_AT_ONCE, _DRAWS_AT_ONCE = 32, 2048
# Up to this share of the assignments it is faster to compute each statistic than those of a whole block.
_SPARSE_SHARE = 0.05
# Intervals for bounds of the statistic, up to this total in square roots of the sum of squares.
_N_INTERVALS, _MAX_TOTAL = 64, 4.0
_HALVINGS = 16
# A simulated test draws the first number of sign assignments, or more if the second number would not lie beyond the
# level that is adjusted for the number of tests.
_FINDING_DRAWS, _DRAWS_BEYOND = 400, 10


def sign_flip_p(
    sums: ArrayLike, *, weights: ArrayLike | None = None, draws: int = DRAWS, seed: int = SEED
) -> tuple[float, bool]:
    """Return the two-sided p-value of the sign-flip test over videos that the mean is 0, and True if it is exact.

    The p-value is the share of sign assignments whose statistic is at least as far from 0 as the observed one. Up to 14
    videos with a difference all assignments count, else random ones and the observed one (Phipson and Smyth 2010).

    The test is valid if each video's difference is as likely to have the other sign. Equal means do not imply that, so
    the statistic is studentised and corrected for skew (Hall 1992). With skewed differences, or if a few videos have
    most of the questions, the test holds its level for many videos, and nearly so for few (docs/statistics.md).

    Args:
        sums: each video's part of the mean difference, shape `(n_videos,)`.
        weights: each video's share of the questions, sum 1, shape `(n_videos,)`; None for equal shares.
        draws: number of random assignments if not all are counted.
    """
    values = np.asarray(sums, dtype=np.float64)
    shares = np.full(values.size, 1 / values.size) if weights is None else np.asarray(weights, dtype=np.float64)
    differing = int(np.count_nonzero(np.abs(values) > 1e-12))
    if differing == 0:
        return 1.0, True
    flips = SignFlips(values, shares, draws=None if differing <= EXACT_UP_TO_VIDEOS else draws, seed=seed)
    return flips.p_value(), differing <= EXACT_UP_TO_VIDEOS


class SignFlips:
    """The sign-flip test of any mean, with the same assignments of signs for all means.

    Args:
        sums, weights: as in `sign_flip_p`. The test of the mean `m` flips the signs of `sums[v] - m * weights[v]`.
        draws: number of random assignments. None takes every assignment to the videos with a difference, and then only
            the mean 0 can be tested.
    """

    def __init__(self, sums: FloatArray, weights: FloatArray, *, draws: int | None, seed: int = SEED) -> None:
        s, w = sums, weights
        columns = np.stack([s, w, s * w, w * w, s**3, s * s * w, s * w * w, w**3], axis=1)
        if draws is None:
            totals = _all_flips(columns[np.abs(s) > 1e-12])
        else:
            totals = np.concatenate([columns.sum(axis=0)[np.newaxis], _random_flips(columns, draws, seed)])
        self._totals = np.ascontiguousarray(totals.T)
        self._sums, self._weights = s, w

    def statistics(self, mean: float = 0.0) -> FloatArray:
        """Return the statistic for `mean` under each assignment, the observed one first, shape `(draws + 1,)`.

        The statistic is Hall's (1992) monotone cubic of `t`, the total over its cluster-robust error. To first order it
        has no skew.
        """
        s, w, sw, w2, s3, s2w, sw2, w3 = self._totals
        cubes = s3 - 3 * mean * s2w + 3 * mean**2 * sw2 - mean**3 * w3
        parts = self._sums - mean * self._weights
        return _corrected(s - mean * w, sw - mean * w2, cubes, sw2 - mean * w3, parts=parts, shares=self._weights)

    def p_value(self, mean: float = 0.0) -> float:
        """Return the two-sided p-value of the test that the mean is `mean`."""
        return _share_as_far(np.abs(self.statistics(mean)))

    def p_above(self, mean: float) -> float:
        """Return the one-sided p-value of the hypothesis that the mean is at most `mean`; small if it is above."""
        return _share_as_far(self.statistics(mean))

    def p_below(self, mean: float) -> float:
        """Return the one-sided p-value of the hypothesis that the mean is at least `mean`; small if it is below."""
        return _share_as_far(-self.statistics(mean))

    def interval(self, value: float, *, level: float) -> tuple[float, float]:
        """Return low and high end, within [-1, 1], of the means that are not rejected.

        Args:
            value: a mean that is not rejected, as the observed one.
            level: level of the interval, e.g. 0.95.
        """
        return self._end(value, -1.0, 1 - level), self._end(value, 1.0, 1 - level)

    def _end(self, inside: float, outside: float, alpha: float) -> float:
        """The end of the interval between a mean inside it and one outside, found by bisection."""
        if self.p_value(outside) > alpha:
            return outside
        for _ in range(_HALVINGS):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if self.p_value(middle) > alpha else (inside, middle)
        return outside


def effective_number(shares: FloatArray) -> float:
    """Return the effective number of videos: how many with equal numbers of questions give a mean of the same variance.

    Args:
        shares: each video's share of the questions; they sum to 1.
    """
    return 1 / float(shares @ shares)


def has_few_effective_videos(shares: FloatArray) -> bool:
    """Return True if a few videos have so many of the questions that intervals of differences need widening.

    Intervals that are not widened cover 94 % or more if the effective number is at least half of the videos, and 88 %
    if it is a tenth of them.
    """
    return bool(effective_number(shares) < shares.size / 2)


def with_half_videos(sums: FloatArray, shares: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return parts and shares with the two half videos that an interval adds (see `statistics.difference_estimate`).

    Args:
        sums: each video's part of the mean difference, shape `(..., n_videos)`.
        shares: each video's share of the questions, sum 1, shape `(n_videos,)`.
    """
    largest = np.abs(sums).max(axis=-1, keepdims=True)
    if has_few_effective_videos(shares):
        # A small video's deviation could have occurred in a large one.
        largest = np.maximum(largest, np.abs(sums / shares).max(axis=-1, keepdims=True) / effective_number(shares))
    imagined = ADDED_VIDEO_WEIGHT * largest
    share = ADDED_VIDEO_WEIGHT / shares.size
    return np.concatenate([sums, imagined, -imagined], axis=-1), np.append(shares, [share, share])


def findings(sums: FloatArray, shares: FloatArray, *, level: float, tests: int = 1) -> NDArray[np.bool_]:
    """Return True for each of many runs whose difference gets an arrow, shape `(n_runs,)`.

    The test rejects 0 at `level / tests`, which is Holm's level for the smallest p of a table, and the interval at
    1 - `level` leaves 0 out.

    Args:
        sums, shares: as in `rejections`.
        tests: number of tests of the table.
    """
    draws = max(_FINDING_DRAWS, int(_DRAWS_BEYOND * tests / level))
    has_arrow: NDArray[np.bool_] = np.count_nonzero(np.abs(sums) > 1e-12, axis=1) >= MIN_VIDEOS
    has_arrow[has_arrow] = rejections(sums[has_arrow], shares, level=level / tests, draws=draws)
    widened_sums, widened_shares = with_half_videos(sums[has_arrow], shares)
    has_arrow[has_arrow] = rejections(widened_sums, widened_shares, level=level, draws=_FINDING_DRAWS)
    return has_arrow


def rejections(sums: FloatArray, weights: FloatArray, *, level: float, draws: int) -> NDArray[np.bool_]:
    """Return True for each of many runs in which the test that the mean is 0 rejects it at `level`, shape `(n_runs,)`.

    All runs share the random assignments, so that thousands of simulated tests take about a second (see `power`).

    Args:
        sums: as in `sign_flip_p`, a line for each run, shape `(n_runs, n_videos)`.
        weights: the same for all runs, shape `(n_videos,)`.
    """
    is_rejected = np.zeros(len(sums), dtype=bool)
    # If few videos differ, random draws can give a p below the smallest one of an exact test, 2 / 2**n_differing. Do
    # not reject unless that one is at most `level`.
    n_differing = np.count_nonzero(np.abs(sums) > 1e-12, axis=1)
    open_runs = np.flatnonzero(2.0 ** (1 - n_differing) <= level)
    if not open_runs.size:
        return is_rejected
    parts = sums[open_runs]
    observed = np.stack([parts, parts * weights, parts**3, parts * weights**2]).sum(axis=2, keepdims=True)
    distance = np.abs(_corrected(*observed, parts=parts, shares=weights))[:, 0]
    # Begin with the clearest differences, so that the runs of a block are alike (see `_n_as_far`).
    order = np.argsort(-distance, kind="stable")
    open_runs, distance = open_runs[order], distance[order]
    totals = _least_totals(sums[open_runs], weights, distance)
    signs, counts = _shared_signs(weights.size, draws), np.zeros(open_runs.size, dtype=np.int64)
    for start in range(0, draws + 1, _DRAWS_AT_ONCE):
        block = signs[:, start : start + _DRAWS_AT_ONCE].astype(np.float64)
        for at in range(0, open_runs.size, _RUNS_AT_ONCE):
            part = slice(at, at + _RUNS_AT_ONCE)
            counts[part] += _n_as_far(sums[open_runs[part]], weights, block, distance[part], totals[part])
        # Further draws only add to the counts: leave out each run that has too many for its p-value to be at `level`.
        is_open = counts / (draws + 1) <= level
        distance, totals = distance[is_open], totals[is_open]
        open_runs, counts = open_runs[is_open], counts[is_open]
    is_rejected[open_runs] = True
    return is_rejected


@lru_cache(maxsize=4)
def _shared_signs(n_videos: int, draws: int) -> NDArray[np.int8]:
    """The signs of the observed assignment, all 1, and of `draws` random ones, shape `(n_videos, draws + 1)`."""
    signs = np.random.default_rng(SEED).choice(np.array([-1, 1], dtype=np.int8), (n_videos, draws + 1))
    signs[:, 0] = 1
    return signs


def _n_as_far(
    parts: FloatArray, shares: FloatArray, signs: FloatArray, distance: FloatArray, least_totals: FloatArray
) -> IntArray:
    """The number of assignments whose statistic is at least `distance` from 0, shape `(n_runs,)`.

    Args:
        parts: each video's part of the mean difference, shape `(n_runs, n_videos)`.
        shares: each video's share of the questions, shape `(n_videos,)`.
        signs: shape `(n_videos, n_assignments)`.
        distance: of each run's observed statistic, shape `(n_runs,)`.
        least_totals: from `_least_totals`.
    """
    least = (distance - 1e-9 * (1 + distance))[:, np.newaxis]
    total, cubed, squared = parts @ signs, parts**3, shares**2
    may_reach = np.abs(total) >= least_totals[:, np.newaxis]
    # Of a clear difference few assignments may reach the distance, and only these need the statistic.
    if np.count_nonzero(may_reach) > _SPARSE_SHARE * may_reach.size:
        crossed, cubes, doubled = (parts * shares) @ signs, cubed @ signs, (parts * squared) @ signs
        is_as_far = np.abs(_corrected(total, crossed, cubes, doubled, parts=parts, shares=shares)) >= least
        return np.asarray(np.count_nonzero(is_as_far, axis=1))
    run, at = np.divmod(np.flatnonzero(may_reach), signs.shape[1])  # faster than `nonzero`
    of_run, flips = parts[run], signs.T[at]
    signed, cubes = of_run * flips, np.einsum("nv,nv->n", cubed[run], flips)
    columns = np.stack([total[run, at], signed @ shares, cubes, signed @ squared])[:, :, np.newaxis]
    is_as_far = np.abs(_corrected(*columns, parts=of_run, shares=shares)) >= least[run]
    return np.bincount(run[is_as_far[:, 0]], minlength=len(parts))


def _least_totals(parts: FloatArray, shares: FloatArray, distance: FloatArray) -> FloatArray:
    """A total for each run below which no assignment gives a statistic as far from 0 as `distance`, shape `(n_runs,)`.

    Arguments as in `_n_as_far`. Bounds the statistic for totals in small intervals, from 0 on: a total above 0 gives at
    most the statistic of the least variance and the largest skew, and at least -1/6.
    """
    squares = (parts**2).sum(axis=1, keepdims=True)
    edges = np.linspace(0, _MAX_TOTAL, _N_INTERVALS + 1) * np.sqrt(squares)
    low, high = edges[:, :-1], edges[:, 1:]
    # The sum over part * share differs from `share` times the total by at most `slack`.
    share = float(shares @ shares)
    slack = np.abs(parts) @ np.abs(shares - share)[:, np.newaxis]
    variance = np.maximum(squares - 2 * slack * high - share * high**2, 1e-12 * squares)
    third = (np.abs(parts) ** 3).sum(axis=1, keepdims=True) - 3 * low * (parts**2 @ shares)[:, np.newaxis]
    third += 3 * high**2 * (np.abs(parts) @ shares**2)[:, np.newaxis]
    skew, t = np.clip(third / variance**1.5, 0, 1), high / np.sqrt(variance)
    # From t = 9 on a skew below 0 may give a larger statistic.
    may_reach = (
        (_hall_cubic(t, skew) > (1 - 1e-6) * distance[:, np.newaxis]) | (t > 9) | (distance[:, np.newaxis] < 0.2)
    )
    first = np.where(may_reach.any(axis=1), may_reach.argmax(axis=1), _N_INTERVALS)
    return np.asarray((1 - 1e-6) * edges[np.arange(len(parts)), first])


def _corrected(
    total: FloatArray,
    crossed: FloatArray,
    cubes: FloatArray,
    doubled: FloatArray,
    *,
    parts: FloatArray,
    shares: FloatArray,
) -> FloatArray:
    """Return the total over its cluster-robust error, corrected for skew, under each assignment of signs.

    Args:
        total, crossed, cubes, doubled: sums over videos of part, part * share, part**3 and part * share**2 with their
            signs, shape `(..., n_assignments)`.
        parts: each video's part of the mean, less that of the tested mean, shape `(..., n_videos)`.
        shares: each video's share of the questions, shape `(n_videos,)`.
    """
    squares = (parts**2).sum(axis=-1, keepdims=True)
    variance = squares - 2 * total * crossed + total**2 * float(shares @ shares)
    variance = np.maximum(variance, 1e-12 * squares)
    third = cubes - 3 * total * (parts**2 @ shares)[..., np.newaxis]
    third += total**2 * (3 * doubled - total * float((shares**3).sum()))
    error = np.sqrt(variance)
    skew, t = np.clip(third / (variance * error), -1, 1), total / error
    return _hall_cubic(t, skew)


def _hall_cubic(t: FloatArray, skew: FloatArray) -> FloatArray:
    """Hall's cubic of `t`, for a statistic of this skew."""
    # Powers above the second are ten times slower than products.
    bend = skew * t
    return np.asarray(t + bend * t / 3 + bend * bend * t / 27 + skew / 6)


def _share_as_far(statistics: FloatArray) -> float:
    """The share of `statistics` that are at least as large as the first, up to rounding errors."""
    return float((statistics >= statistics[0] - 1e-9 * (1 + abs(statistics[0]))).mean())


def _all_flips(columns: FloatArray) -> FloatArray:
    """Return each column's total under every assignment of signs to the n lines, `(2**n, n_columns)`.

    The first row has no sign flipped.
    """
    totals = np.zeros((1, columns.shape[1]))
    for line in columns:
        totals = np.concatenate([totals + line, totals - line])
    return totals


def _random_flips(columns: FloatArray, draws: int, seed: int) -> FloatArray:
    """Each column's total under `draws` random assignments of signs to the lines, `(draws, n_columns)`."""
    rng = np.random.default_rng(seed)
    totals = np.zeros((draws, columns.shape[1]))
    for at in range(0, len(columns), _VIDEOS_AT_ONCE):
        lines = columns[at : at + _VIDEOS_AT_ONCE]
        octets = rng.integers(0, 256, (draws, -(-len(lines) // 8)), dtype=np.uint8)
        for place, octet in enumerate(octets.T):
            # Eight signs form a byte: look its total up in a table. The first line is the highest bit.
            eight = np.zeros((8, columns.shape[1]))
            eight[: len(lines) - 8 * place] = lines[8 * place : 8 * place + 8]
            totals += _all_flips(eight[::-1]).take(octet, axis=0)
    return totals
