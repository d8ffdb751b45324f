"""Confidence radii: how far an arm's mean may be from the truth."""

from __future__ import annotations

import numpy as np

from focus_eval.types import FloatArray, IntArray


def bernstein_radius(variance: FloatArray, n_pulls: IntArray, n_total: int) -> FloatArray:
    """Return the empirical-Bernstein radius `sqrt(2 s^2 ln n / N) + 3 ln n / N` of each arm, shape `(n_arms,)`.

    Theorem 1 of Audibert, Munos and Szepesvari (2009, "Exploration-exploitation tradeoff using variance estimates
    in multi-armed bandits"), with x = ln n and rewards in [0, 1]: for a fixed number of independent pulls the true
    mean lies within the radius with probability at least 1 - 3 / n. FOCUS, section 3 and Algorithm 2.

    Args:
        variance: population variance of each arm's rewards, `(n_arms,)`, in [0, 0.25].
        n_pulls: pulls of each arm `N`, `(n_arms,)`; an arm never pulled counts as pulled once.
        n_total: pulls of all arms `n`, at least 1.
    """
    deviation, correction = _bernstein_terms(variance, n_pulls, n_total)
    return deviation + correction


def optimistic_mean(mean: FloatArray, variance: FloatArray, n_pulls: IntArray, n_total: int) -> FloatArray:
    """Return mean plus `bernstein_radius`, shape `(n_arms,)`, summed left to right as the public FOCUS code does."""
    deviation, correction = _bernstein_terms(variance, n_pulls, n_total)
    return mean + deviation + correction


def _bernstein_terms(variance: FloatArray, n_pulls: IntArray, n_total: int) -> tuple[FloatArray, FloatArray]:
    log_total = np.log(n_total)
    count = np.maximum(1, n_pulls)
    return np.sqrt(2.0 * variance * log_total / count), 3.0 * log_total / count
