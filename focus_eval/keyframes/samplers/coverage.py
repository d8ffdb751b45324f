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
    """Base of samplers with evenly spread pulls; one of three options may set their number.

    Args:
        budget_of: a sampler, with or without options ("focus:alpha=0.5"): make as many pulls as this sampler plans.
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
        """Return the number of pulls of `video`, at least 1, at most one per frame."""
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
        """Return the number of pulls if no option sets it: by default one per frame."""
        return video.n_frames

    def count_pulls(self, video: VideoInfo, *, k: int, seed: int = 0) -> int:
        """Return the number of pulls: as the options say, or `default_pulls`; always within 1..n_frames."""
        return self.n_pulls(video, k=k)


def share_of_frames(video: VideoInfo, share: float, *, k: int) -> int:
    """Return a number of pulls: `share` times the number of frames at 25 fps, but at least `k` and at least 8."""
    return max(k, LEAST_PULLS, round(share * SHARE_OF_FPS * video.duration_seconds))


def one_in_each_stratum(video: VideoInfo, n: int, rng: np.random.Generator) -> IntArray:
    """Draw one frame in each of `n` equal strata of the video; return them ascending, `(n,)`, `n <= n_frames`."""
    strata = equal_clips(video.n_frames, n)
    frames: IntArray = strata.starts + rng.integers(0, strata.sizes)
    return frames


@lru_cache(maxsize=64)  # called for every question; samplers are immutable, so they can be shared
def _budget_of(text: str) -> FrameSampler:
    """The sampler that the option `budget_of` names; cached."""
    return make_sampler(text)


def diverse_best(
    frames: IntArray, relevance: FloatArray, n: int, *, fps: float, weight: float, fading_seconds: float
) -> IntArray:
    """Return `n` of `frames`, chosen greedily, in order of choice.

    Each step takes the frame with the largest value. The value is the relevance, scaled to [0, 1] over all frames,
    minus `weight * exp(-distance / fading_seconds)`, where `distance` is that to the nearest chosen frame in seconds.
    Of equal frames the earlier is taken.

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
    """Return a choice of `keyframes`, filled up to `request.n_wanted` with frames in the middle of the widest gaps.

    The fact "from_widest_gaps" is the number of added frames; it is absent if none was added.
    """
    n_missing = request.n_wanted - keyframes.size
    if n_missing == 0:
        return Choice(keyframes=keyframes)
    frames = halve_widest_gaps(keyframes, request.n_wanted, request.video.n_frames)
    return Choice(keyframes=frames, facts={"from_widest_gaps": n_missing})


def shots_of(video: VideoInfo) -> Clips:
    """Return the shots of the video, found from its sync frames; one shot if the sync frames show no cut.

    A video encoder starts a new group of frames, with a sync frame, at a scene cut or when the current group reaches a
    greatest length. A group that is shorter than that therefore ends at a cut. If all groups of a file are equally
    long, no cut is found.
    """
    sync = video.sync_frames
    cuts = np.empty(0, dtype=np.int64)
    if sync is not None and sync.size > 1:
        lengths = np.diff(sync)
        cuts = sync[1:][lengths < lengths.max()]
    edges = np.concatenate([[0], cuts[cuts > 0], [video.n_frames]])
    return Clips(edges[:-1], edges[1:])


def shares_by_length(sizes: IntArray, n: int) -> IntArray:
    """Divide `n` pulls among shots; return the number of pulls of each shot, `(n_shots,)`.

    A shot gets `ceil(size / s)` pulls, with `s` chosen so that the sum is `n`. If no `s` gives exactly `n`, the largest
    possible sum below `n` is used, and the shots with the most frames per pull get one more.

    Args:
        sizes: frames per shot, each at least 1.
        n: at least the number of shots, at most all frames.
    """
    low, high = 1.0, float(sizes.max())  # bounds of `s`: `low` gives one pull per frame, `high` one per shot
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
    """Return a factor above 0 for the evidence density of each moment, by its place in its shot; shape like `at`.

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
# Half-width of a window around a keyframe in seconds -> weight of the evidence inside: evidence within one second and
# evidence within two seconds count half each.
WINDOW_WEIGHTS = {1.0: 0.5, 2.0: 0.5}
# What a choice of keyframes maximises: "recall" counts the evidence that is near any keyframe; "count" sums, over the
# evidence, log(1 + number of keyframes within 5 s).
Value = Literal["recall", "count"]
COUNT_SECONDS = 5.0


def evidence_weights(times: FloatArray, relevance: FloatArray) -> FloatArray:
    """Return the weight of each pull as a sign of evidence, above 0, `(n_pulls,)`.

    A pull's base weight is `.01 + r^2`, with its relevance `r` scaled to [0, 1] over the pulls. The base weight is
    multiplied by the square root of its ratio to the mean base weight within 8 seconds, so that pulls that stand out
    from their surroundings weigh more.

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

    Between two known values, this is the mean of the process's bridge. Before the first and after the last known value,
    the mean reverts to `base`.

    Args:
        at, times: seconds; `times` ascending, at least one.
        base: the mean the process reverts to.
        seconds: its time constant.
    """
    right = np.searchsorted(times, at)
    deviation = np.concatenate([[0.0], values - base, [0.0]])  # 0 beyond both ends, where the process is at `base`
    since, until = _since_and_until(at, times, right)
    gap = since + until
    # With s = seconds, the weights are sinh(until / s) / sinh(gap / s) and sinh(since / s) / sinh(gap / s), written so
    # that nothing overflows. In an infinite gap, one weight is exp(-distance / s) and the other 0. A moment of `times`
    # lies at the end of its gap, so it takes its own value.
    shrink = -np.expm1(-2.0 * gap / seconds)
    from_left = np.exp(-since / seconds) * -np.expm1(-2.0 * until / seconds) / shrink
    from_right = np.exp(-until / seconds) * -np.expm1(-2.0 * since / seconds) / shrink
    mean: FloatArray = base + deviation[right] * from_left + deviation[right + 1] * from_right
    return mean


def bridge_variance(at: FloatArray, times: FloatArray, *, seconds: float) -> FloatArray:
    """Return the share of the variance of an Ornstein-Uhlenbeck process that is left at `at`.

    The values of the process at `times` are known.

    Args:
        at, times, seconds: as in `bridge_mean`.
    """
    since, until = _since_and_until(at, times, np.searchsorted(times, at))
    to_left, to_right, across = (-np.expm1(-2.0 * gap / seconds) for gap in (since, until, since + until))
    share: FloatArray = to_left * to_right / across
    return share


def _since_and_until(at: FloatArray, times: FloatArray, right: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return, for each moment of `at`, the seconds since the previous of `times` and until the next.

    The previous one lies before the moment, the next one at the moment or after it. The seconds are infinite if there
    is no such time.

    Args:
        right: `np.searchsorted(times, at)`.
    """
    edges = np.concatenate([[-np.inf], times, [np.inf]])
    return at - edges[right], edges[right + 1] - at


def grid_frames(video: VideoInfo) -> IntArray:
    """Return the frames at which density is estimated, ascending: five per second, or all if the rate is lower."""
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
    """Return up to `n` indices into `density` whose windows cover as much of it as possible, in order of choice.

    The choice is greedy; of equal positions the first is taken. With "recall" each step takes the position that adds
    the most uncovered mass, summed over the windows with their weights. With "count" it takes the position that adds
    most to the sum of density times log(1 + number of chosen positions within five seconds). The choice ends before `n`
    if no position adds anything.

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
    # Entry i is the gain from one more position near a moment that has i positions already; for "recall" only the first
    # position counts.
    worth = np.array([1.0, *[0.0] * n]) if value == "recall" else np.log1p(1.0 / np.arange(1.0, n + 2.0))
    masses = [whole * worth[0] for _ in halves]
    n_near = np.zeros((len(halves), whole.size), dtype=np.int64)
    gains = np.zeros(density.size + 2 * first)
    for mass, kernel in zip(masses, kernels, strict=True):
        gains[first:last] += np.convolve(mass, kernel, "same")[first:last]
    picked_points: list[int] = []
    while len(picked_points) < n and (top_gain := gains.max()) > 0.0:
        # Compare with a tolerance: sums of equal windows may differ in the last bits, which depend on the machine.
        best = int(np.argmax(gains >= top_gain * (1.0 - tolerance)))
        picked_points.append(best - first)
        # Compute the gains again only for positions whose windows overlap the newly covered part.
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
    """Return the frames of `grid` that `best_cover` chooses, filled up to `n` in the widest gaps; ascending."""
    frames = grid[best_cover(density, min(n, grid.size), rate=grid.size / video.duration_seconds, value=value)]
    return halve_widest_gaps(frames, n, video.n_frames)
