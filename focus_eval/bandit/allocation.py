"""Divides the keyframes among the arms."""

from __future__ import annotations

import numpy as np

from focus_eval.types import IntArray


def even_shares(k: int, n: int) -> IntArray:
    """Return `n` shares of `k` that differ by one at most, the larger ones first, shape `(n,)`.

    That is `round(k / n)` everywhere, adjusted by one from the best arm down (or the worst up) until the sum is `k`.
    """
    share, rest = divmod(k, n)
    return np.full(n, share, dtype=np.int64) + (np.arange(n) < rest)


def within_capacity(shares: IntArray, capacities: IntArray) -> IntArray:
    """Return shares that no arm's capacity limits, `(n_arms,)`; the excess goes to the next best arm.

    Args:
        shares: asked of the arms in order of rank, `(n_shares,)`; arms of rank `n_shares` and beyond are asked none.
        capacities: frames of every arm in order of rank, `(n_arms,)`, `n_arms >= n_shares`.

    Walks down the ranks; what is left at the last arm goes round to the best arm again. The sum is
    `min(sum(shares), sum(capacities))`.
    """
    given = np.zeros_like(capacities)
    left = 0
    for rank in range(capacities.size):
        asked = int(shares[rank]) if rank < shares.size else 0
        if rank >= shares.size and left == 0:
            break
        given[rank] = min(asked + left, int(capacities[rank]))
        left += asked - int(given[rank])
    for rank in range(capacities.size):
        more = min(left, int(capacities[rank] - given[rank]))
        given[rank] += more
        left -= more
    return given
