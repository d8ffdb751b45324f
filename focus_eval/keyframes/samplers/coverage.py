"""Even pulls, and functions that several samplers share: diversity, shots, coverage of evidence.

Let `lambda(t)` be the density of evidence given the pulls. Expected evidence recall within `d` seconds is the share of
its mass that lies within `d` of a keyframe, so the best `k` keyframes are those whose windows cover the most mass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Literal

import numpy as np

from focus_eval.core.errors import EncoderError, InvalidInput
from focus_eval.core.gaps import halve_widest_gaps
from focus_eval.core.options import option
from focus_eval.core.types import FloatArray, IntArray, VideoInfo
from focus_eval.keyframes.samplers.bandit import Clips, equal_clips, min_max, within_capacity
from focus_eval.keyframes.samplers.base import Choice, FrameSampler, SelectionRequest
from focus_eval.keyframes.samplers.ledger import log_odds
from focus_eval.keyframes.samplers.registry import make_sampler


def unit_rows(embeddings: FloatArray) -> FloatArray:
    """Return `embeddings` with each row scaled to length 1, shape `(n, d)`.

    Raises:
        EncoderError: an embedding of length 0.
    """
    length = np.linalg.norm(embeddings, axis=1, keepdims=True)
    if (length == 0).any():
        raise EncoderError("an embedding has length 0 and no direction")
    unit: FloatArray = embeddings / length
    return unit


LEAST_PULLS = 8
SHARE_OF_FPS = 25.0


@dataclass(frozen=True, kw_only=True)
class EvenPulls(FrameSampler):
    """Base of samplers with evenly spread pulls, whose number one of three options sets.

    Args:
        budget_of: a sampler, with options or without ("focus:alpha=0.5"): as many pulls as it plans for the video.
        pulls: number of pulls, instead of `budget_of`.
        every_seconds: seconds of video per pull, instead of `budget_of`.
    """

    budget_of: str | None = option("focus")
    pulls: int | None = option(None, at_least=1)
    every_seconds: float | None = option(None, above=0)

    def __post_init__(self) -> None:
        """Check the options; raise InvalidInput if several of them set the number of pulls."""
        super().__post_init__()
        pull_options = ("budget_of", "pulls", "every_seconds")
        set_options = [
            declared.name
            for declared in fields(self)
            if declared.name in pull_options and getattr(self, declared.name) != declared.default
        ]
        if len(set_options) > 1:
            raise InvalidInput(f"sampler {self.name!r}: give {' or '.join(set_options)}, not both")
        if self.budget_of is not None:
            _budget_of(self.budget_of)

    def n_pulls(self, video: VideoInfo, *, k: int) -> int:
        """Return the number of pulls of `video`, at least 1, at most one a frame."""
        if self.pulls is not None:
            n = self.pulls
        elif self.every_seconds is not None:
            n = math.ceil(video.duration_seconds / self.every_seconds)
        elif self.budget_of is not None:
            n = _budget_of(self.budget_of).count_pulls(video, k=k)
        else:
            n = self.default_pulls(video, k=k)
        return min(video.n_frames, max(1, n))

    def default_pulls(self, video: VideoInfo, *, k: int) -> int:
        """Return the number of pulls if no option sets it: the number of frames."""
        return video.n_frames

    def count_pulls(self, video: VideoInfo, *, k: int, seed: int = 0) -> int:
        """Return the number of pulls that the options give."""
        return self.n_pulls(video, k=k)


def share_of_frames(video: VideoInfo, share: float, *, k: int) -> int:
    """Return `share` of the frames that the video has at 25 fps, at least `k` and 8, as a number of pulls."""
    return max(k, LEAST_PULLS, round(share * SHARE_OF_FPS * video.duration_seconds))


def one_in_each_stratum(video: VideoInfo, n: int, rng: np.random.Generator) -> IntArray:
    """Draw one frame in each of `n` equal strata of the video; return them ascending, `(n,)`, `n <= n_frames`."""
    strata = equal_clips(video.n_frames, n)
    frames: IntArray = strata.starts + rng.integers(0, strata.sizes)
    return frames


@lru_cache(maxsize=64)  # called for every question, and samplers are immutable
def _budget_of(text: str) -> FrameSampler:
    """The sampler that the option `budget_of` names; cached."""
    return make_sampler(text)


def diverse_best(
    frames: IntArray, relevance: FloatArray, n: int, *, fps: float, weight: float, fading_seconds: float
) -> IntArray:
    """Return `n` of `frames`, chosen greedily, in order of choice.

    Each step takes the frame of the largest relevance, scaled to [0, 1] over all frames, minus `weight * exp(-distance
    / fading_seconds)` for the nearest frame already chosen; the earlier of equal ones.

    Args:
        frames: ascending, `(n_pulls,)`, at least `n`.
        relevance: `(n_pulls,)`.
    """
    value = min_max(relevance)
    penalty = np.zeros(frames.size)
    picked_frames = np.empty(n, dtype=np.int64)
    for step in range(n):
        best = int(np.argmax(value - penalty))
        picked_frames[step] = frames[best]
        value[best] = -np.inf
        neighbourhood = weight * np.exp(-np.abs(frames - frames[best]) / (fading_seconds * fps))
        np.maximum(penalty, neighbourhood, out=penalty)
    return picked_frames


def fill_gaps(keyframes: IntArray, request: SelectionRequest) -> Choice:
    """Return a choice of `keyframes`, plus middles of the widest gaps up to `request.n_wanted`.

    The fact "from_widest_gaps" counts the added frames; if there are none, there are no facts.
    """
    n_missing = request.n_wanted - keyframes.size
    if n_missing == 0:
        return Choice(keyframes=keyframes)
    frames = halve_widest_gaps(keyframes, request.n_wanted, request.video.n_frames)
    return Choice(keyframes=frames, facts={"from_widest_gaps": n_missing})


def shots_of(video: VideoInfo) -> Clips:
    """Return the shots delimited by sync frames; the whole video as one shot if they show no cut.

    A video encoder starts a group at a scene cut, and otherwise when the last one has its greatest length: a group that
    ends before that length ends at a cut. Files whose groups are all equally long have no cuts.
    """
    sync = video.sync_frames
    cuts = np.empty(0, dtype=np.int64)
    if sync is not None and sync.size > 1:
        lengths = np.diff(sync)
        cuts = sync[1:][lengths < lengths.max()]
    edges = np.concatenate([[0], cuts[cuts > 0], [video.n_frames]])
    return Clips(edges[:-1], edges[1:])


def shares_by_length(sizes: IntArray, n: int) -> IntArray:
    """Divide `n` pulls among shots: `ceil(size / s)` each, `s` such that the sum is `n`, `(n_shots,)`.

    If no `s` gives exactly `n`, take the one of the largest sum below; the shots with the most frames a pull then get
    one more.

    Args:
        sizes: frames per shot, each at least 1.
        n: at least the number of shots, at most all frames.
    """
    low, high = 1.0, float(sizes.max())  # ceil(size / low) sums to all frames, ceil(size / high) to one a shot
    for _ in range(60):
        middle = (low + high) / 2
        if np.ceil(sizes / middle).sum() > n:
            low = middle
        else:
            high = middle
    shares = np.ceil(sizes / high).astype(np.int64)
    order = np.argsort(-(sizes / shares), kind="stable")
    one_more = np.zeros_like(shares)
    one_more[order] = within_capacity(
        (np.arange(sizes.size) < n - int(shares.sum())).astype(np.int64), (sizes - shares)[order]
    )
    all_shares: IntArray = shares + one_more
    return all_shares


def share_between_shots(frames: IntArray, relevance: FloatArray, shots: Clips) -> float:
    """Return the share of the variance of relevance, as logits, that lies between shots, in [0, 1].

    The intraclass correlation of a one-way random-effects model, estimated from its analysis of variance and not below
    0 (Donner 1986). 0 if relevance is constant, if no shot has two pulls, or if only one shot has pulls.

    Args:
        frames: ascending, `(n_pulls,)`.
        relevance: of `frames`, in [0, 1].
    """
    logits = log_odds(relevance)
    _, shot, n_in = np.unique(
        np.searchsorted(shots.starts, frames, side="right"), return_inverse=True, return_counts=True
    )
    n, n_shots = logits.size, n_in.size
    if n_shots < 2 or n <= n_shots:
        return 0.0
    shot_means = np.bincount(shot, logits) / n_in
    residual_variance = float(((logits - shot_means[shot]) ** 2).sum()) / (n - n_shots)
    between = float((n_in * (shot_means - logits.mean()) ** 2).sum()) / (n_shots - 1)
    usual_size = (n - float((n_in**2).sum()) / n) / (n_shots - 1)
    of_shots = max(0.0, (between - residual_variance) / usual_size)
    return of_shots / (of_shots + residual_variance) if of_shots > 0 else 0.0


def shot_weights(at: FloatArray, starts: FloatArray, stops: FloatArray) -> FloatArray:
    """Return the factor on the evidence density of each moment from its place in its shot, above 0, shape like `at`.

    Long shots weigh less per second, `max(1, length / 4 s)^-.5`, and the middle of a shot twice as much as its ends.

    Args:
        at: seconds of the moments.
        starts, stops: start and stop of each moment's shot, in seconds.
    """
    length = stops - starts
    place = (at - starts) / length
    weights: FloatArray = np.maximum(1.0, length / 4.0) ** -0.5 * (0.5 + 2.0 * place * (1.0 - place))
    return weights


GRID_HZ = 5.0
LEAST_WEIGHT = 0.01
CONTRAST_SECONDS = 8.0
# Half of the value is evidence within one second of a keyframe, half within two.
WINDOW_WEIGHTS = {1.0: 0.5, 2.0: 0.5}
# Value of a choice: "recall" counts evidence near a keyframe; "count" sums log(1 + keyframes within 5 s of it).
Value = Literal["recall", "count"]
COUNT_SECONDS = 5.0


def evidence_weights(times: FloatArray, relevance: FloatArray) -> FloatArray:
    """Return the weight of each pull as a sign of evidence, above 0, `(n_pulls,)`.

    `.01 + r^2` with relevance `r` scaled to [0, 1] over the pulls, times the root of its ratio to the mean over the
    pulls within 8 seconds: a pull that stands out from its surroundings weighs more.

    Args:
        times: seconds, ascending, `(n_pulls,)`.
    """
    weights = LEAST_WEIGHT + min_max(relevance) ** 2
    window_starts = np.searchsorted(times, times - CONTRAST_SECONDS, side="left")
    window_stops = np.searchsorted(times, times + CONTRAST_SECONDS, side="right")
    total = np.concatenate([[0.0], np.cumsum(weights)])
    around = (total[window_stops] - total[window_starts]) / (window_stops - window_starts)
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
    deviation = np.concatenate([[0.0], values - base, [0.0]])  # differences at the ends are one-sided
    since, until = _since_and_until(at, times, right)
    gap = since + until
    # sinh(until / s) / sinh(gap / s), written so that nothing overflows; exp(-since / s) where the gap is infinite.
    # A time that was pulled lies at the end of its gap and takes its own value.
    shrink = -np.expm1(-2.0 * gap / seconds)
    from_left = np.exp(-since / seconds) * -np.expm1(-2.0 * until / seconds) / shrink
    from_right = np.exp(-until / seconds) * -np.expm1(-2.0 * since / seconds) / shrink
    mean: FloatArray = base + deviation[right] * from_left + deviation[right + 1] * from_right
    return mean


def bridge_variance(at: FloatArray, times: FloatArray, *, seconds: float) -> FloatArray:
    """Return the share of an Ornstein-Uhlenbeck process's variance at `at` that remains given its values at `times`.

    Args:
        at, times, seconds: as in `bridge_mean`.
    """
    since, until = _since_and_until(at, times, np.searchsorted(times, at))
    to_left, to_right, across = (-np.expm1(-2.0 * gap / seconds) for gap in (since, until, since + until))
    share: FloatArray = to_left * to_right / across
    return share


def _since_and_until(at: FloatArray, times: FloatArray, right: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return seconds from each of `at` back to the last of `times` before it, and on to the first at or after it.

    Args:
        right: `np.searchsorted(times, at)`. Beyond the ends of `times` the seconds are infinite.
    """
    edges = np.concatenate([[-np.inf], times, [np.inf]])
    return at - edges[right], edges[right + 1] - at


def grid_frames(video: VideoInfo) -> IntArray:
    """Return the frames at which density is estimated: five a second, or every frame of a slow video, ascending."""
    n_cells = min(video.n_frames, max(1, round(GRID_HZ * video.duration_seconds)))
    return middles(video, n_cells)


def middles(video: VideoInfo, n: int) -> IntArray:
    """Return the middle frames of `n` equal clips of `video`, ascending, `n <= n_frames`."""
    clips: Clips = equal_clips(video.n_frames, n)
    return (clips.starts + clips.stops - 1) // 2


def best_cover(
    density: FloatArray,
    n: int,
    *,
    rate: float,
    value: Value = "recall",
    window_weights: Mapping[float, float] = WINDOW_WEIGHTS,
    tolerance: float = 1e-12,
) -> IntArray:
    """Return up to `n` indices into `density` whose windows cover the most of it, in order of choice.

    Greedy, the first of equal ones. "recall": the position with the most uncovered mass, summed over the windows by
    weight. "count": the one that adds most to the density times log(1 + positions within five seconds). Stops before
    `n` once no position adds anything.

    Args:
        density: at least 0, `(n_grid,)`.
        rate: grid points a second.
        window_weights: for "recall", weight by half-width of the window in seconds, ascending.
        tolerance: relative difference up to which two sums count as equal.
    """
    window_weights = window_weights if value == "recall" else {COUNT_SECONDS: 1.0}
    halves = [min(density.size, int(seconds * rate + 1e-9)) for seconds in window_weights]
    kernels = [np.full(2 * half + 1, weight) for half, weight in zip(halves, window_weights.values(), strict=True)]
    # Pad with zeros so that windows at the ends need no special case.
    first, last = 3 * halves[-1], 3 * halves[-1] + density.size
    whole = np.pad(density, first)
    # Gain of the n-th position near a moment; for "recall" only the first counts.
    worth = np.array([1.0, *[0.0] * n]) if value == "recall" else np.log1p(1.0 / np.arange(1.0, n + 2.0))
    masses = [whole * worth[0] for _ in halves]
    n_near = np.zeros((len(halves), whole.size), dtype=np.int64)
    gains = np.zeros(density.size + 2 * first)
    for mass, kernel in zip(masses, kernels, strict=True):
        gains[first:last] += np.convolve(mass, kernel, "same")[first:last]
    picked_points: list[int] = []
    while len(picked_points) < n and (top_gain := gains.max()) > 0.0:
        # Equal windows may differ in the last bits, which depend on the machine: compare with a tolerance.
        best = int(np.argmax(gains >= top_gain * (1.0 - tolerance)))
        picked_points.append(best - first)
        # Only windows that overlap the newly covered part change.
        start, stop = max(first, best - 2 * halves[-1]), min(last, best + 2 * halves[-1] + 1)
        gains[start:stop] = 0.0
        for mass, count, kernel, half in zip(masses, n_near, kernels, halves, strict=True):
            window = slice(best - half, best + half + 1)
            count[window] += 1
            mass[window] = whole[window] * worth[count[window]]
            gains[start:stop] += np.convolve(mass[start - half : stop + half], kernel, "valid")
        gains[np.array(picked_points) + first] = 0.0  # never choose a position twice
    return np.array(picked_points, dtype=np.int64)


def covering_frames(
    grid: IntArray, density: FloatArray, n: int, video: VideoInfo, *, value: Value = "recall"
) -> IntArray:
    """Return the frames of `grid` that `best_cover` chooses, plus middles of the widest gaps up to `n`, ascending."""
    frames = grid[best_cover(density, min(n, grid.size), rate=grid.size / video.duration_seconds, value=value)]
    return halve_widest_gaps(frames, n, video.n_frames)
