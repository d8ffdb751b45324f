"""Which keyframes cover the most estimated evidence?

Let `lambda(t)` be the density of evidence given the pulls. Expected evidence recall within `d` seconds is the share of
its mass that lies within `d` of a keyframe, so the best `k` keyframes are those whose windows cover the most mass.
"""

from __future__ import annotations

import numpy as np

from focus_eval.bandit.clips import Clips, equal_clips
from focus_eval.bandit.draws import min_max
from focus_eval.samplers.diverse import with_gaps_halved
from focus_eval.types import FloatArray, IntArray, VideoInfo

GRID_HZ = 5.0
LEAST_WEIGHT = 0.01
CONTRAST_SECONDS = 8.0
# Half of the value is evidence within one second of a keyframe, half within two.
WINDOW_SECONDS = (1.0, 2.0)


def evidence_weights(times: FloatArray, relevance: FloatArray) -> FloatArray:
    """Return how much each pull speaks for evidence, above 0, `(n_pulls,)`.

    `.01 + r^2` with relevance `r` scaled to [0, 1] over the pulls, times the root of its ratio to the mean over the
    pulls within 8 seconds: what stands out from its surroundings counts for more.

    Args:
        times: seconds, ascending, `(n_pulls,)`.
    """
    weights = LEAST_WEIGHT + min_max(relevance) ** 2
    before = np.searchsorted(times, times - CONTRAST_SECONDS, side="left")
    after = np.searchsorted(times, times + CONTRAST_SECONDS, side="right")
    total = np.concatenate([[0.0], np.cumsum(weights)])
    around = (total[after] - total[before]) / (after - before)
    contrast: FloatArray = weights * np.sqrt(weights / around)
    return contrast


def bridge_mean(at: FloatArray, times: FloatArray, values: FloatArray, *, base: float, seconds: float) -> FloatArray:
    """Return the mean of an Ornstein-Uhlenbeck process at `at`, given its `values` at `times`, shape like `at`.

    Between two known values it is the process' bridge; before the first and after the last it reverts to `base`.

    Args:
        at, times: seconds; `times` ascending, at least one.
        base: the mean the process reverts to.
        seconds: its time constant.
    """
    right = np.searchsorted(times, at)
    left = right - 1
    deviation = np.concatenate([[0.0], values - base, [0.0]])  # one-sided: nothing beyond the ends
    edges = np.concatenate([[-np.inf], times, [np.inf]])
    since, until = at - edges[left + 1], edges[right + 1] - at
    gap = since + until
    # sinh(until / s) / sinh(gap / s), written so that nothing overflows; exp(-since / s) where the gap is infinite.
    # A time that was pulled lies at the end of its gap and takes its own value.
    shrink = -np.expm1(-2.0 * gap / seconds)
    from_left = np.exp(-since / seconds) * -np.expm1(-2.0 * until / seconds) / shrink
    from_right = np.exp(-until / seconds) * -np.expm1(-2.0 * since / seconds) / shrink
    mean: FloatArray = base + deviation[left + 1] * from_left + deviation[right + 1] * from_right
    return mean


def grid_frames(video: VideoInfo) -> IntArray:
    """Return the frames at which the density is estimated: five a second, every frame of slower videos, ascending."""
    n_cells = min(video.n_frames, max(1, round(GRID_HZ * video.duration_seconds)))
    cells: Clips = equal_clips(video.n_frames, n_cells)
    return (cells.starts + cells.stops - 1) // 2


def best_cover(density: FloatArray, n: int, *, rate: float) -> IntArray:
    """Return up to `n` positions whose windows cover the most of `density`, in order of choice; fewer cover it all.

    Greedy: the position with the most mass not yet covered, half of it counted within one second and half within two;
    the first of equal ones.

    Args:
        density: at least 0, `(n_grid,)`.
        rate: grid points a second.
    """
    halves = [min(density.size, int(seconds * rate + 1e-9)) for seconds in WINDOW_SECONDS]
    kernels = [np.full(2 * half + 1, 1.0 / len(halves)) for half in halves]
    # Zeros on both sides, so that a window at an end needs no care.
    first, last = 3 * halves[-1], 3 * halves[-1] + density.size
    left = [np.pad(density, first) for _ in halves]
    gains = np.zeros(density.size + 2 * first)
    for mass, kernel in zip(left, kernels, strict=True):
        gains[first:last] += np.convolve(mass, kernel, "same")[first:last]
    chosen: list[int] = []
    while len(chosen) < n and (most := gains.max()) > 0.0:
        # Windows that cover the same rest differ in the last bits, which depend on the machine.
        best = int(np.argmax(gains >= most * (1.0 - 1e-12)))
        chosen.append(best - first)
        # Only windows that reach into what is covered now change.
        start, stop = max(first, best - 2 * halves[-1]), min(last, best + 2 * halves[-1] + 1)
        gains[start:stop] = 0.0
        for mass, kernel, half in zip(left, kernels, halves, strict=True):
            mass[best - half : best + half + 1] = 0.0
            gains[start:stop] += np.convolve(mass[start - half : stop + half], kernel, "valid")
    return np.array(chosen, dtype=np.int64)


def covering_frames(grid: IntArray, density: FloatArray, n: int, video: VideoInfo) -> IntArray:
    """Return the `n` frames of `grid` that `best_cover` finds, and the widest gaps halved once all is covered."""
    chosen = grid[best_cover(density, min(n, grid.size), rate=grid.size / video.duration_seconds)]
    return with_gaps_halved(chosen, n, video.n_frames)
