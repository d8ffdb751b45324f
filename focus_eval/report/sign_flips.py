"""The sign-flip test over videos, corrected for skew, and the means that it does not reject."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from focus_eval.core.types import FloatArray

# Up to this many videos with a difference every assignment of signs is counted; 2**14 are 16,384.
EXACT_UP_TO_VIDEOS = 14
DRAWS = 20_000
# An interval's ends need no third digit.
INTERVAL_DRAWS = 4_000
SEED = 20260101
_VIDEOS_AT_ONCE = 64
_HALVINGS = 16


def sign_flip_p(
    sums: ArrayLike, *, weights: ArrayLike | None = None, draws: int = DRAWS, seed: int = SEED
) -> tuple[float, bool]:
    """Return the two-sided p-value of the sign-flip test over videos that the mean is 0, and whether it is exact.

    The share of sign assignments whose statistic is at least as far from 0 as the one seen: all of them up to 14
    videos with a difference, else random ones and the one seen (Phipson and Smyth 2010). Exact where every video's
    difference is as likely to have the other sign. Equal means do not imply that, so the statistic is studentised and
    freed of its skew (Hall 1992): where differences are skewed, or a few videos have most of the questions, the test
    holds its level as videos grow, and nearly so with few (docs/statistics.md).

    Args:
        sums: each video's part of the mean difference, shape `(n_videos,)`.
        weights: each video's share of the questions, sum 1, shape `(n_videos,)`; None: all alike.
    """
    values = np.asarray(sums, dtype=np.float64)
    shares = np.full(values.size, 1 / values.size) if weights is None else np.asarray(weights, dtype=np.float64)
    differing = int(np.count_nonzero(np.abs(values) > 1e-12))
    if differing == 0:
        return 1.0, True
    flips = SignFlips(values, shares, draws=None if differing <= EXACT_UP_TO_VIDEOS else draws, seed=seed)
    return flips.p_value(), differing <= EXACT_UP_TO_VIDEOS


class SignFlips:
    """The test's statistic under every drawn assignment of signs, for any mean that is to be tested.

    Args:
        sums, weights: as in `sign_flip_p`; the part that video v has in a mean `m` is `sums[v] - m * weights[v]`.
        draws: None counts every assignment to the videos with a difference, for the mean 0 only.
    """

    def __init__(self, sums: FloatArray, weights: FloatArray, *, draws: int | None, seed: int = SEED) -> None:
        s, w = sums, weights
        columns = np.stack([s, w, s * w, w * w, s**3, s * s * w, s * w * w, w**3], axis=1)
        if draws is None:
            self._totals = _all_flips(columns[np.abs(s) > 1e-12])
        else:
            self._totals = np.concatenate([columns.sum(axis=0)[np.newaxis], _random_flips(columns, draws, seed)])
        self._sums, self._weights = s, w

    def statistics(self, mean: float = 0.0) -> FloatArray:
        """Return the statistic of the test of `mean` under each assignment, the one seen first, shape `(draws + 1,)`.

        `t` is the total over its cluster-robust error; Hall's (1992) monotone cubic of it has no skew to first order.
        """
        s, w, sw, w2, s3, s2w, sw2, w3 = self._totals.T
        parts, shares = self._sums - mean * self._weights, self._weights
        total, crossed = s - mean * w, sw - mean * w2
        cubes = s3 - 3 * mean * s2w + 3 * mean**2 * sw2 - mean**3 * w3
        squares = float(parts @ parts)
        variance = squares - 2 * total * crossed + total**2 * float(shares @ shares)
        variance = np.maximum(variance, 1e-12 * squares)
        third = cubes - 3 * total * float(shares @ parts**2)
        third += 3 * total**2 * (sw2 - mean * w3) - total**3 * float((shares**3).sum())
        skew = np.clip(third / variance**1.5, -1, 1)
        t = total / np.sqrt(variance)
        return np.asarray(t + skew * t**2 / 3 + skew**2 * t**3 / 27 + skew / 6)

    def p_value(self, mean: float = 0.0) -> float:
        """Return the two-sided p of the test of `mean`."""
        return _share_as_far(np.abs(self.statistics(mean)))

    def p_above(self, mean: float) -> float:
        """Return the p of the one-sided test against a mean of at most `mean`: small where it is clearly above."""
        return _share_as_far(self.statistics(mean))

    def p_below(self, mean: float) -> float:
        """Return the p of the one-sided test against a mean of at least `mean`."""
        return _share_as_far(-self.statistics(mean))

    def interval(self, value: float, *, level: float) -> tuple[float, float]:
        """Return the ends, within [-1, 1], of the means around `value` that are not rejected."""
        return self._end(value, -1.0, 1 - level), self._end(value, 1.0, 1 - level)

    def _end(self, inside: float, outside: float, alpha: float) -> float:
        if self.p_value(outside) > alpha:
            return outside
        for _ in range(_HALVINGS):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if self.p_value(middle) > alpha else (inside, middle)
        return outside


def _share_as_far(found: FloatArray) -> float:
    """The share of statistics at least as large as the first; equal ones differ by rounding."""
    return float((found >= found[0] - 1e-9 * (1 + abs(found[0]))).mean())


def _all_flips(columns: FloatArray) -> FloatArray:
    """The totals of each column under every assignment of signs to its lines, `(2**n, n_columns)`; as seen first."""
    totals = np.zeros((1, columns.shape[1]))
    for line in columns:
        totals = np.concatenate([totals + line, totals - line])
    return totals


def _random_flips(columns: FloatArray, draws: int, seed: int) -> FloatArray:
    """The totals of each column under `draws` random assignments of signs to its lines, `(draws, n_columns)`."""
    rng = np.random.default_rng(seed)
    totals = np.zeros((draws, columns.shape[1]))
    for at in range(0, len(columns), _VIDEOS_AT_ONCE):
        lines = columns[at : at + _VIDEOS_AT_ONCE]
        bits = np.unpackbits(rng.integers(0, 256, (draws, -(-len(lines) // 8)), dtype=np.uint8), axis=1)
        totals += (1.0 - 2.0 * bits[:, : len(lines)]) @ lines
    return totals
