"""Clips as bandit arms: confidence radii, allocation of pulls, draws without replacement; functions of arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import ClipReport, FloatArray, IntArray, frozen_ints


@dataclass(frozen=True)
class Clips:
    """Clips `[starts[a], stops[a])`, ascending, not empty, not overlapping; both arrays of shape `(n_arms,)`."""

    starts: IntArray
    stops: IntArray

    def __post_init__(self) -> None:
        """Freeze the arrays; raise InvalidInput unless the clips ascend, without an empty or an overlapping one."""
        starts, stops = frozen_ints(self.starts), frozen_ints(self.stops)
        if starts.shape != stops.shape or starts.size == 0:
            raise InvalidInput(f"clips need as many starts as stops, at least 1; got {starts.size} and {stops.size}")
        if starts[0] < 0 or (stops <= starts).any() or (starts[1:] < stops[:-1]).any():
            raise InvalidInput("clips must ascend from frame 0, none empty, none overlapping")
        object.__setattr__(self, "starts", starts)
        object.__setattr__(self, "stops", stops)

    def __len__(self) -> int:
        """Number of clips."""
        return int(self.starts.size)

    @property
    def sizes(self) -> IntArray:
        """Frames per clip, shape `(n_arms,)`, each at least 1."""
        return self.stops - self.starts

    def arm_of(self, frames: IntArray) -> IntArray:
        """Return the index of the clip that holds each frame, shape `(n,)`; -1 for a frame in no clip."""
        arm = np.searchsorted(self.starts, frames, side="right") - 1
        is_inside = (arm >= 0) & (frames < self.stops[np.maximum(arm, 0)])
        return np.where(is_inside, arm, -1)

    def frames_of(self, arms: IntArray) -> tuple[IntArray, IntArray]:
        """Return all frames of `arms`, arm after arm, and for each frame the position of its arm in `arms`."""
        sizes = self.sizes[arms]
        position = np.repeat(np.arange(arms.size), sizes)
        offset = np.arange(position.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return self.starts[arms][position] + offset, position


def equal_clips(n_frames: int, n_clips: int) -> Clips:
    """Return `n_clips` clips that partition `[0, n_frames)`, their sizes differing by at most one frame.

    Raises:
        InvalidInput: fewer frames than clips, or no clip.
    """
    if not 1 <= n_clips <= n_frames:
        raise InvalidInput(f"{n_frames} frames cannot be cut into {n_clips} clips")
    edges = np.arange(n_clips + 1) * n_frames // n_clips
    return Clips(edges[:-1], edges[1:])


def nearest_pulled(frames: IntArray, pulled: IntArray, rewards: FloatArray) -> FloatArray:
    """Return for each frame the reward of the nearest pulled frame; of two at equal distance, the earlier.

    Args:
        frames: shape `(n,)`, any order.
        pulled, rewards: shape `(n_pulls,)`, at least one; any order.
    """
    order = np.argsort(pulled, kind="stable")
    pulled, rewards = pulled[order], rewards[order]
    later = np.clip(np.searchsorted(pulled, frames), 0, pulled.size - 1)
    earlier = np.maximum(later - 1, 0)
    is_left = np.abs(frames - pulled[earlier]) <= np.abs(pulled[later] - frames)
    return rewards[np.where(is_left, earlier, later)]


def bernstein_radius(variance: FloatArray, n_pulls: IntArray, n_total: int) -> FloatArray:
    """Return the empirical-Bernstein radius `sqrt(2 s^2 ln n / N) + 3 ln n / N` of each arm, shape `(n_arms,)`.

    Theorem 1 of Audibert, Munos and Szepesvari (2009, "Exploration-exploitation tradeoff using variance estimates
    in multi-armed bandits"), with x = ln n and rewards in [0, 1]: for a fixed number of independent pulls the true
    mean lies within the radius with probability at least 1 - 3 / n. FOCUS, section 3 and Algorithm 2.

    Args:
        variance: population variance of each arm's rewards, `(n_arms,)`, in [0, 0.25].
        n_pulls: number of pulls `N` of each arm, `(n_arms,)`; an arm that was never pulled counts as pulled once.
        n_total: number of pulls `n` of all arms together, at least 1.
    """
    deviation, correction = _bernstein_terms(variance, n_pulls, n_total)
    return deviation + correction


def optimistic_mean(mean: FloatArray, variance: FloatArray, n_pulls: IntArray, n_total: int) -> FloatArray:
    """Return mean plus `bernstein_radius`, shape `(n_arms,)`, summed in the order of the public FOCUS code."""
    deviation, correction = _bernstein_terms(variance, n_pulls, n_total)
    return mean + deviation + correction


def _bernstein_terms(variance: FloatArray, n_pulls: IntArray, n_total: int) -> tuple[FloatArray, FloatArray]:
    """The two terms of `bernstein_radius`, each `(n_arms,)`: the one with the variance, and `3 ln n / N`."""
    log_total = np.log(n_total)
    count = np.maximum(1, n_pulls)
    return np.sqrt(2.0 * variance * log_total / count), 3.0 * log_total / count


@dataclass(frozen=True)
class Arms:
    """Clips with the statistics of their rewards, every array of shape `(n_arms,)`.

    Args:
        clips: what each arm covers.
        n_pulls: pulls so far.
        mean: empirical mean of the rewards, 0 where there are none.
        variance: their population variance, 0 with fewer than two.
    """

    clips: Clips
    n_pulls: IntArray
    mean: FloatArray
    variance: FloatArray

    @classmethod
    def unpulled(cls, clips: Clips) -> Arms:
        """Return the arms of `clips` before the first pull."""
        return cls(clips, np.zeros(len(clips), dtype=np.int64), np.zeros(len(clips)), np.zeros(len(clips)))

    def with_pulls(self, frames: IntArray, rewards: FloatArray) -> Arms:
        """Return the arms with `rewards` of further `frames` added, both `(n,)`; every frame must lie in a clip."""
        arm = self.clips.arm_of(frames)
        n_new = np.bincount(arm, minlength=len(self.clips))
        count = np.maximum(1, n_new)
        mean_new = np.bincount(arm, weights=rewards, minlength=len(self.clips)) / count
        variance_new = np.bincount(arm, weights=(rewards - mean_new[arm]) ** 2, minlength=len(self.clips)) / count
        # The pairwise update of Chan, Golub and LeVeque gives means and variances without storing all rewards.
        n_all = self.n_pulls + n_new
        share = n_new / np.maximum(1, n_all)
        step = np.where(n_new > 0, mean_new - self.mean, 0.0)
        variance = (1 - share) * self.variance + share * variance_new + share * (1 - share) * step**2
        return replace(self, n_pulls=n_all, mean=self.mean + share * step, variance=variance)

    @property
    def radius(self) -> FloatArray:
        """Bernstein radius of every arm after the pulls so far."""
        return bernstein_radius(self.variance, self.n_pulls, max(1, int(self.n_pulls.sum())))

    def reports(self, radius: FloatArray, *, final: IntArray) -> tuple[ClipReport, ...]:
        """Return one report per arm in order of time; the arms in `final` are marked."""
        is_final = np.zeros(len(self.clips), dtype=bool)
        is_final[final] = True
        columns = (self.clips.starts, self.clips.stops, self.n_pulls, self.mean, radius, is_final)
        return tuple(
            ClipReport(start, stop, n, mean if n else None, r if n else None, is_final_arm)
            for start, stop, n, mean, r, is_final_arm in zip(*(column.tolist() for column in columns), strict=True)
        )


def best_first(values: FloatArray) -> IntArray:
    """Return indices by descending value, shape `(n,)`; of equal values the earlier comes first."""
    return np.argsort(-values, kind="stable")


def top_set(values: FloatArray, n: int) -> NDArray[np.bool_]:
    """Return a mask of the `n` largest `values`, `(n_arms,)`; of equal values the earlier is in the set."""
    if not 0 < n < values.size:
        return np.full(values.shape, n > 0)
    # Use a partition, which is faster than sorting, because this runs after every pull.
    last = np.partition(values, values.size - n)[values.size - n]
    mask: NDArray[np.bool_] = values > last
    mask[np.flatnonzero(values == last)[: n - int(np.count_nonzero(mask))]] = True
    return mask


def even_shares(k: int, n: int) -> IntArray:
    """Return `n` shares of `k` that differ by at most one, the larger ones first, shape `(n,)`."""
    share, remainder = divmod(k, n)
    return np.full(n, share, dtype=np.int64) + (np.arange(n) < remainder)


def within_capacity(shares: IntArray, capacities: IntArray) -> IntArray:
    """Return the number of frames each arm gives, `(n_arms,)`: its share, but at most the frames that it has.

    What an arm cannot give is added to the share of the arm next in rank, and from the last arm on to the best one
    again. The sum is `min(sum(shares), sum(capacities))`.

    Args:
        shares: wanted frames of the arms in order of rank, `(n_shares,)`; 0 for arms of rank `n_shares` and beyond.
        capacities: frames of every arm in order of rank, `(n_arms,)`, `n_arms >= n_shares`.
    """
    granted = np.zeros_like(capacities)
    excess = 0
    for rank in range(capacities.size):
        share = int(shares[rank]) if rank < shares.size else 0
        if rank >= shares.size and excess == 0:
            break
        granted[rank] = min(share + excess, int(capacities[rank]))
        excess += share - int(granted[rank])
    for rank in range(capacities.size):
        extra = min(excess, int(capacities[rank] - granted[rank]))
        granted[rank] += extra
        excess -= extra
    return granted


def draw_in_clips(clips: Clips, free: IntArray, n_each: int, rng: np.random.Generator) -> IntArray:
    """Return `n_each` frames of `free` in each clip, drawn uniformly without replacement, ascending.

    Args:
        free: frames that may be drawn, ascending, `(n_free,)`; a clip with fewer than `n_each` gives all of them.
    """
    first = np.searchsorted(free, clips.starts)
    n_free = np.searchsorted(free, clips.stops) - first
    offsets = distinct_offsets(n_free, np.minimum(n_each, n_free), rng)
    return np.sort(free[(first[:, None] + offsets)[offsets >= 0]])


def distinct_offsets(sizes: IntArray, counts: IntArray, rng: np.random.Generator) -> IntArray:
    """Draw `counts[a]` distinct integers of `[0, sizes[a])` uniformly for each row `a`; pad the row with -1.

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
    """Return `values` scaled to [0, 1] within each group; 0 in a group of equal values.

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
    """Return positions of `values` drawn without replacement with softmax probabilities, within each group.

    Frames are drawn one after another with probabilities proportional to `exp(value / temperature)`. The Gumbel-top-k
    trick (Yellott 1977) does this without computing probabilities, which would underflow at a low temperature.

    Args:
        values: shape `(n,)`, in [0, 1].
        group: ascending group numbers from 0, `(n,)`.
        n_drawn: number to draw in each group, `(n_groups,)`, at most its size.
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
