"""Do shares sum up, and does nothing get lost where an arm is too small?"""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from focus_eval.samplers.bandit import even_shares, within_capacity


@given(st.integers(0, 500), st.integers(1, 64))
def test_even_shares_are_the_rounded_share_adjusted_to_the_sum(k, n):
    shares = even_shares(k, n)
    assert shares.sum() == k
    assert np.ptp(shares) <= 1
    assert (np.diff(shares) <= 0).all()
    assert np.abs(shares - k / n).max() < 1


@given(st.lists(st.integers(1, 9), min_size=1, max_size=10), st.integers(0, 120), st.data())
def test_shares_within_capacity_lose_nothing(capacities, k, data):
    capacities = np.array(capacities)
    shares = even_shares(k, data.draw(st.integers(1, capacities.size)))
    given_ = within_capacity(shares, capacities)
    assert (given_ <= capacities).all()
    assert given_.sum() == min(k, capacities.sum())


def test_shares_that_fit_are_left_alone():
    assert within_capacity(np.array([3, 2]), np.array([5, 5, 5])).tolist() == [3, 2, 0]


def test_what_an_arm_cannot_give_goes_to_the_next_best():
    assert within_capacity(np.array([4, 4]), np.array([2, 9, 9])).tolist() == [2, 6, 0]
    assert within_capacity(np.array([4, 4]), np.array([9, 1, 2, 9])).tolist() == [4, 1, 2, 1]


def test_what_the_last_arms_cannot_give_goes_round_to_the_best():
    assert within_capacity(np.array([4, 4]), np.array([9, 1, 1])).tolist() == [6, 1, 1]
