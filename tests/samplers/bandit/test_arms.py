"""Are arm statistics those of the rewards, however these arrive?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus_eval.samplers.bandit import Arms, bernstein_radius, best_first, equal_clips, optimistic_mean, top_set


@given(st.lists(st.lists(st.tuples(st.integers(0, 29), st.floats(0, 1)), max_size=12), max_size=5))
def test_batches_give_the_statistics_of_all_rewards_together(batches):
    arms = Arms.unpulled(equal_clips(30, 4))
    for batch in batches:
        arms = arms.with_pulls(np.array([f for f, _ in batch], dtype=int), np.array([r for _, r in batch], dtype=float))
    everything = [pull for batch in batches for pull in batch]
    for arm, (start, stop) in enumerate(zip(arms.clips.starts, arms.clips.stops, strict=True)):
        rewards = np.array([reward for frame, reward in everything if start <= frame < stop])
        assert arms.n_pulls[arm] == rewards.size
        assert arms.mean[arm] == pytest.approx(rewards.mean() if rewards.size else 0.0, abs=1e-12)
        assert arms.variance[arm] == pytest.approx(rewards.var() if rewards.size else 0.0, abs=1e-12)


def test_reports_leave_out_what_was_never_pulled():
    arms = Arms.unpulled(equal_clips(6, 3)).with_pulls(np.array([0, 1, 4]), np.array([0.2, 0.4, 1.0]))
    first, second, third = arms.reports(arms.radius, final=np.array([2]))
    assert (first.start, first.stop, first.n_pulls, first.is_final) == (0, 2, 2, False)
    assert first.mean == pytest.approx(0.3)
    assert (second.n_pulls, second.mean, second.radius) == (0, None, None)
    assert third.is_final


def test_the_earlier_of_equal_values_ranks_first():
    assert best_first(np.array([0.5, 0.9, 0.5, 0.9])).tolist() == [1, 3, 0, 2]
    assert top_set(np.array([0.5, 0.9, 0.5, 0.9]), 3).tolist() == [True, True, False, True]


def test_the_optimistic_mean_is_mean_plus_radius():
    generator = np.random.default_rng(0)
    mean, variance, n_pulls = generator.random(50), generator.random(50) / 4, generator.integers(1, 30, 50)
    radius = bernstein_radius(variance, n_pulls, 500)
    assert optimistic_mean(mean, variance, n_pulls, 500) == pytest.approx(mean + radius)


def test_with_equal_pulls_the_order_is_set_by_mean_and_variance_alone():
    generator = np.random.default_rng(1)
    mean, variance, n_pulls = generator.random(40), generator.random(40) / 4, np.full(40, 3)
    without_correction = mean + np.sqrt(2 * variance * np.log(120) / 3)
    assert best_first(optimistic_mean(mean, variance, n_pulls, 120)).tolist() == best_first(without_correction).tolist()
