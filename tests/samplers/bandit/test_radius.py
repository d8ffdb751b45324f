"""Does the Bernstein radius cover the true mean at the promised rate?"""

from __future__ import annotations

import numpy as np
import pytest

from focus_eval.samplers.bandit import bernstein_radius

N_RUNS = 20_000
ARMS = {
    "coin": (lambda generator, shape: generator.integers(0, 2, shape), 0.5),
    "rare": (lambda generator, shape: generator.random(shape) < 0.05, 0.05),
    "common": (lambda generator, shape: generator.random(shape) < 0.97, 0.97),
    "uniform": (lambda generator, shape: generator.random(shape), 0.5),
    "narrow": (lambda generator, shape: generator.beta(50, 100, shape), 1 / 3),
}


def misses(arm, n_pulls, n_total, radius_of=bernstein_radius):
    """Share of runs whose empirical mean is further from the truth than the radius."""
    draw, truth = ARMS[arm]
    rewards = np.asarray(draw(np.random.default_rng(n_pulls), (N_RUNS, n_pulls)), dtype=float)
    radius = radius_of(rewards.var(axis=1), np.full(N_RUNS, n_pulls), n_total)
    return (np.abs(rewards.mean(axis=1) - truth) > radius).mean()


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("n_pulls", [3, 19, 60])
@pytest.mark.parametrize("n_total", [10, 60, 675])
def test_the_true_mean_is_covered_with_the_promised_probability(arm, n_pulls, n_total):
    if n_total >= n_pulls:
        assert misses(arm, n_pulls, n_total) <= 3 / n_total


def test_the_term_for_few_pulls_is_needed():
    # Three zeros in a row of a rare event look certain: the deviation alone does not cover the mean.
    def deviation_alone(variance, n_pulls, n_total):
        return np.sqrt(2 * variance * np.log(n_total) / n_pulls)

    assert misses("rare", 3, 675, deviation_alone) > 0.5


def test_the_radius_is_the_formula():
    radius = bernstein_radius(np.array([0.0, 0.04]), np.array([3, 12]), 600)
    assert radius == pytest.approx([3 * np.log(600) / 3, np.sqrt(0.08 * np.log(600) / 12) + 3 * np.log(600) / 12])


def test_a_single_pull_in_all_has_no_radius():
    assert bernstein_radius(np.array([0.0]), np.array([1]), 1).tolist() == [0.0]


def test_an_arm_never_pulled_counts_as_pulled_once():
    assert bernstein_radius(np.zeros(2), np.array([0, 1]), 50).tolist() == pytest.approx([3 * np.log(50)] * 2)
