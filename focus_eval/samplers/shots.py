"""Reads from a file's index where a new shot begins."""

from __future__ import annotations

import numpy as np

from focus_eval.bandit.allocation import within_capacity
from focus_eval.bandit.clips import Clips
from focus_eval.types import FloatArray, IntArray, VideoInfo

# Where relevance is 0 or 1 its logit is taken here, so that it stays finite.
_LEAST_RELEVANCE = 1e-6


def shots_of(video: VideoInfo) -> Clips:
    """Return the shots that the sync frames show; the whole video as one shot if they show none.

    An encoder starts a group at a scene cut, and else when the last one has its greatest length: a group that ends
    before that length ends at a cut. Files whose groups are all equally long have no cuts.
    """
    sync = video.sync_frames
    cuts = np.empty(0, dtype=np.int64)
    if sync is not None and sync.size > 1:
        lengths = np.diff(sync)
        cuts = sync[1:][lengths < lengths.max()]
    edges = np.concatenate([[0], cuts[cuts > 0], [video.n_frames]])
    return Clips(edges[:-1], edges[1:])


def shares_by_length(sizes: IntArray, n: int) -> IntArray:
    """Return how many of `n` pulls each shot gets: `ceil(size / s)` with `s` such that they sum to `n`, `(n_shots,)`.

    Where no `s` gives exactly `n`, it is the one of the largest sum below, and the shots with the most frames a pull
    get one more.

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
    given: IntArray = shares + one_more
    return given


def share_between_shots(frames: IntArray, relevance: FloatArray, shots: Clips) -> float:
    """Return the share of the variance of relevance, as logits, that lies between shots, in [0, 1].

    The intraclass correlation of a one-way random-effects model, estimated from its analysis of variance and not
    below 0 (Donner 1986). 0 where relevance is flat, or where no shot has two pulls or only one shot has pulls.

    Args:
        frames: ascending, `(n_pulls,)`.
        relevance: of `frames`, in [0, 1].
    """
    known = np.clip(relevance, _LEAST_RELEVANCE, 1 - _LEAST_RELEVANCE)
    logits = np.log(known / (1 - known))
    _, shot, n_in = np.unique(
        np.searchsorted(shots.starts, frames, side="right"), return_inverse=True, return_counts=True
    )
    n, n_shots = logits.size, n_in.size
    if n_shots < 2 or n <= n_shots:
        return 0.0
    means = np.bincount(shot, logits) / n_in
    within = float(((logits - means[shot]) ** 2).sum()) / (n - n_shots)
    between = float((n_in * (means - logits.mean()) ** 2).sum()) / (n_shots - 1)
    usual_size = (n - float((n_in**2).sum()) / n) / (n_shots - 1)
    of_shots = max(0.0, (between - within) / usual_size)
    return of_shots / (of_shots + within) if of_shots > 0 else 0.0


def shot_weights(at: FloatArray, starts: FloatArray, stops: FloatArray) -> FloatArray:
    """Return what a moment's density is multiplied with for its place in its shot, above 0, shape like `at`.

    Long shots count less a second, `max(1, length / 4 s)^-.5`, and the middle of a shot twice as much as its ends.

    Args:
        at: seconds, each within `[start, stop]` of its own shot.
    """
    length = stops - starts
    place = (at - starts) / length
    weights: FloatArray = np.maximum(1.0, length / 4.0) ** -0.5 * (0.5 + 2.0 * place * (1.0 - place))
    return weights
