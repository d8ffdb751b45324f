"""Draws frames without replacement, from many arms at once."""

from __future__ import annotations

import numpy as np

from focus_eval.bandit.clips import Clips
from focus_eval.types import FloatArray, IntArray


def draw_in_clips(clips: Clips, free: IntArray, n_each: int, rng: np.random.Generator) -> IntArray:
    """Return `n_each` frames of `free` in each clip, drawn uniformly without replacement, ascending.

    Args:
        free: frames that may be drawn, ascending, `(n_free,)`; a clip with fewer than `n_each` gives all it has.
    """
    first = np.searchsorted(free, clips.starts)
    n_free = np.searchsorted(free, clips.stops) - first
    offsets = distinct_offsets(n_free, np.minimum(n_each, n_free), rng)
    return np.sort(free[(first[:, None] + offsets)[offsets >= 0]])


def distinct_offsets(sizes: IntArray, counts: IntArray, rng: np.random.Generator) -> IntArray:
    """Return in row `a` a uniform draw of `counts[a]` distinct integers of `[0, sizes[a])`, then -1.

    Floyd's algorithm (Bentley and Floyd 1987, "A sample of brilliance") on all rows at once.

    Args:
        sizes, counts: shape `(n_rows,)`, `counts <= sizes`.

    Returns:
        Shape `(n_rows, max(counts))`; the set in a row is uniform, its order is not.
    """
    width = int(counts.max(initial=0))
    offsets = np.full((sizes.size, width), -1, dtype=np.int64)
    for column in range(width):
        is_active = column < counts
        last = np.where(is_active, sizes - counts + column, 0)
        drawn = rng.integers(0, last, endpoint=True)
        is_taken = (offsets[:, :column] == drawn[:, None]).any(axis=1)
        offsets[:, column] = np.where(is_active, np.where(is_taken, last, drawn), -1)
    return offsets


def min_max(values: FloatArray, group: IntArray | None = None) -> FloatArray:
    """Return `values` moved and scaled to [0, 1], each group by itself; 0 everywhere in a flat group.

    Args:
        values: shape `(n,)`.
        group: ascending group numbers, `(n,)`; one group by default.
    """
    if values.size == 0:
        return values
    group = np.zeros(values.size, dtype=np.int64) if group is None else group
    starts = np.flatnonzero(np.diff(group, prepend=group[0] - 1))
    sizes = np.diff(starts, append=values.size)
    low = np.repeat(np.minimum.reduceat(values, starts), sizes)
    high = np.repeat(np.maximum.reduceat(values, starts), sizes)
    scaled: FloatArray = (values - low) / np.where(high > low, high - low, 1.0)
    return scaled


def softmax_draw(
    values: FloatArray, group: IntArray, n_drawn: IntArray, *, temperature: float, rng: np.random.Generator
) -> IntArray:
    """Return positions of `values` drawn without replacement with softmax probabilities, each group by itself.

    One frame after the other in proportion to `exp(value / temperature)`, by the Gumbel-top-k trick (Yellott 1977),
    which needs no probabilities and so cannot run out of nonzero ones at a low temperature.

    Args:
        values: shape `(n,)`, in [0, 1].
        group: ascending group numbers from 0, `(n,)`.
        n_drawn: how many of each group, `(n_groups,)`, at most its size.
        temperature: above 0.
    """
    keys = values / temperature + rng.gumbel(size=values.size)
    stops = np.cumsum(np.bincount(group, minlength=n_drawn.size))
    drawn = [np.empty(0, dtype=np.int64)]
    for start, stop, n in zip([0, *stops[:-1]], stops, n_drawn, strict=True):
        drawn.append(
            start + np.argpartition(-keys[start:stop], n - 1)[:n] if n < stop - start else np.arange(start, stop)
        )
    return np.sort(np.concatenate(drawn))
