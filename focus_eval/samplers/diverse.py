"""Which of the pulled frames are relevant and not all at one moment?"""

from __future__ import annotations

import numpy as np

from focus_eval.bandit.draws import min_max
from focus_eval.samplers.base import Choice, SelectionRequest
from focus_eval.types import FloatArray, IntArray


def diverse_best(
    frames: IntArray, relevance: FloatArray, n: int, *, fps: float, weight: float, fading_seconds: float
) -> IntArray:
    """Return `n` of `frames`, chosen greedily, in order of choice.

    Each step takes the frame of the largest relevance, scaled to [0, 1] over all frames, minus
    `weight * exp(-distance / fading_seconds)` for the nearest frame already chosen; the earlier of equal ones.

    Args:
        frames: ascending, `(n_pulls,)`, at least `n`.
        relevance: `(n_pulls,)`.
    """
    value = min_max(relevance)
    penalty = np.zeros(frames.size)
    chosen = np.empty(n, dtype=np.int64)
    for step in range(n):
        best = int(np.argmax(value - penalty))
        chosen[step] = frames[best]
        value[best] = -np.inf
        near = weight * np.exp(-np.abs(frames - frames[best]) / (fading_seconds * fps))
        np.maximum(penalty, near, out=penalty)
    return chosen


def filled(chosen: IntArray, request: SelectionRequest) -> Choice:
    """Return `chosen`, filled up in the widest gaps where they are fewer than wanted; the facts count these."""
    n_missing = request.n_wanted - chosen.size
    if n_missing == 0:
        return Choice(keyframes=chosen)
    frames = with_gaps_halved(chosen, request.n_wanted, request.video.n_frames)
    return Choice(keyframes=frames, facts={"from_widest_gaps": n_missing})


def with_gaps_halved(frames: IntArray, n: int, n_frames: int) -> IntArray:
    """Return `frames` and the middles of the widest gaps, one after the other, until there are `n`, ascending.

    A gap is a run of frames of `[0, n_frames)` without a chosen one; the earlier of equally wide ones is halved first.

    Args:
        frames: distinct, at most `n`; `n` is at most `n_frames`.
    """
    chosen = np.sort(frames)
    while chosen.size < n:
        edges = np.concatenate([[-1], chosen, [n_frames]])
        widest = int(np.argmax(np.diff(edges)))
        middle = (edges[widest] + edges[widest + 1]) // 2
        chosen = np.insert(chosen, widest, middle)
    return chosen
