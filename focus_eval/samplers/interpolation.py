"""The public FOCUS code's interpolations of relevance for frames nobody pulled."""

from __future__ import annotations

from typing import Literal

import numpy as np

from focus_eval.bandit.draws import min_max
from focus_eval.types import FloatArray, IntArray

Interpolation = Literal["nearest", "linear", "rbf", "uniform"]


def interpolated(frames: IntArray, pulled: IntArray, rewards: FloatArray, method: Interpolation) -> FloatArray:
    """Return the relevance of ascending `frames` from the pulls of their arm, in [0, 1], shape `(n,)`.

    Args:
        frames: shape `(n,)`.
        pulled, rewards: shape `(n_pulls,)`, at least one, in pull order.
        method: "nearest" (the first pulled of equally near ones), "linear" (`numpy.interp` on the pulls in pull
            order, unsorted, as the public code does) or "rbf".
    """
    if method == "nearest":
        values = rewards[np.abs(frames[:, None] - pulled).argmin(axis=1)]
    elif method == "linear":
        values = np.interp(frames, pulled, rewards)
    elif method == "rbf":
        values = _gaussian_rbf(frames, pulled, rewards)
    else:
        raise ValueError(f"{method!r} cannot interpolate")
    clipped: FloatArray = np.clip(values, 0.0, 1.0)
    return clipped


def softmax_probabilities(relevance: FloatArray, temperature: float) -> FloatArray:
    """Return softmax probabilities of relevance scaled to [0, 1] (all ones where flat), shape `(n,)`."""
    scaled = min_max(relevance) if np.ptp(relevance) > 0 else np.ones_like(relevance)
    weights = np.exp(scaled / temperature - np.max(scaled / temperature))
    probabilities: FloatArray = weights / weights.sum()
    return probabilities


def _gaussian_rbf(frames: IntArray, pulled: IntArray, rewards: FloatArray) -> FloatArray:
    """Interpolate with Gaussians of width range / n_pulls; a single pull holds everywhere.

    SciPy's own function, which the public code calls: on a nearly flat arm the softmax that follows shows the last
    bits, and those are its solver's.
    """
    from scipy.interpolate import Rbf

    if pulled.size == 1:
        return np.full(frames.shape, rewards[0])
    values: FloatArray = Rbf(pulled, rewards, function="gaussian", smooth=0.0)(frames)
    return values
