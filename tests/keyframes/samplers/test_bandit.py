"""Clips, arms, radius, shares and draws of the bandit keep what their formulas promise."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from focus_eval.core.errors import InvalidInput
from focus_eval.keyframes.samplers.bandit import (
    Arms,
    Clips,
    bernstein_radius,
    best_first,
    distinct_offsets,
    draw_in_clips,
    equal_clips,
    even_shares,
    min_max,
    nearest_pulled,
    optimistic_mean,
    softmax_draw,
    top_set,
    within_capacity,
)

# Do clips partition a video, and does every frame find its pull?


@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))))
def test_equal_clips_partition_the_video(sizes):
    n_frames, n_clips = sizes
    clips = equal_clips(n_frames, n_clips)
    assert len(clips) == n_clips
    assert np.array_equal(
        np.concatenate([np.arange(a, b) for a, b in zip(clips.starts, clips.stops, strict=True)]), np.arange(n_frames)
    )
    assert np.ptp(clips.sizes) <= 1
    assert np.array_equal(clips.arm_of(np.arange(n_frames)), np.repeat(np.arange(n_clips), clips.sizes))


@pytest.mark.parametrize(
    ("starts", "stops"), [([], []), ([0], [0]), ([5, 0], [9, 4]), ([0, 3], [4, 9]), ([-1], [4]), ([0], [3, 4])]
)
def test_clips_that_are_empty_or_overlap_cannot_be_built(starts, stops):
    with pytest.raises(InvalidInput):
        Clips(np.array(starts), np.array(stops))


def test_more_clips_than_frames_cannot_be_cut():
    with pytest.raises(InvalidInput, match="3 frames cannot be cut into 4 clips"):
        equal_clips(3, 4)


def test_a_frame_in_no_clip_has_no_arm():
    clips = Clips(np.array([2, 6]), np.array([4, 8]))
    assert clips.arm_of(np.arange(10)).tolist() == [-1, -1, 0, 0, -1, -1, 1, 1, -1, -1]


def test_frames_of_arms_come_arm_after_arm_as_asked():
    frames, position = Clips(np.array([0, 3, 5]), np.array([3, 5, 9])).frames_of(np.array([2, 0]))
    assert frames.tolist() == [5, 6, 7, 8, 0, 1, 2]
    assert position.tolist() == [0, 0, 0, 0, 1, 1, 1]


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=8, unique=True),
    st.lists(st.integers(-5, 65), min_size=1, max_size=20),
)
def test_the_nearest_pull_is_the_nearest_and_the_earlier_of_two(pulled, frames):
    # The reward of a pull is its own frame number, so that the answer names the pull.
    nearest = nearest_pulled(np.array(frames), np.array(pulled), np.array(pulled, dtype=float))
    expected = [min(sorted(pulled), key=lambda pull, frame=frame: abs(pull - frame)) for frame in frames]
    assert nearest.tolist() == expected


# Are arm statistics those of the rewards, however these arrive?


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
    values = np.random.default_rng(0).integers(0, 5, 200) / 4
    for n in (0, 1, 77, 199, 200, 300):
        assert np.flatnonzero(top_set(values, n)).tolist() == sorted(np.argsort(-values, kind="stable")[:n].tolist())


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


# Does the Bernstein radius cover the true mean at the promised rate?


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


# Do shares sum up, and does nothing get lost where an arm is too small?


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
    granted = within_capacity(shares, capacities)
    assert (granted <= capacities).all()
    assert granted.sum() == min(k, capacities.sum())


def test_shares_that_fit_are_left_alone():
    assert within_capacity(np.array([3, 2]), np.array([5, 5, 5])).tolist() == [3, 2, 0]


def test_what_an_arm_cannot_give_goes_to_the_next_best():
    assert within_capacity(np.array([4, 4]), np.array([2, 9, 9])).tolist() == [2, 6, 0]
    assert within_capacity(np.array([4, 4]), np.array([9, 1, 2, 9])).tolist() == [4, 1, 2, 1]


def test_what_the_last_arms_cannot_give_goes_round_to_the_best():
    assert within_capacity(np.array([4, 4]), np.array([9, 1, 1])).tolist() == [6, 1, 1]


# Are draws from many arms at once those of one arm after the other?


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=8),
    st.integers(0, 2**32 - 1),
)
def test_offsets_are_distinct_in_range_and_as_many_as_asked(rows, seed):
    sizes = np.array([size for size, _ in rows])
    counts = np.minimum(sizes, [count for _, count in rows])
    offsets = distinct_offsets(sizes, counts, np.random.default_rng(seed))
    for size, count, row in zip(sizes, counts, offsets, strict=True):
        drawn = row[row >= 0]
        assert drawn.size == count == np.unique(drawn).size
        assert (drawn < size).all()


def test_every_set_of_offsets_is_as_likely():
    n_rows = 20_000
    offsets = distinct_offsets(np.full(n_rows, 5), np.full(n_rows, 3), np.random.default_rng(0))
    sets = dict.fromkeys(itertools.combinations(range(5), 3), 0)
    for row in np.sort(offsets, axis=1).tolist():
        sets[tuple(row)] += 1
    assert chisquare(list(sets.values())).pvalue > 0.001


def test_a_clip_gives_all_its_free_frames_where_they_are_too_few():
    clips = Clips(np.array([0, 4, 10]), np.array([4, 10, 11]))
    drawn = draw_in_clips(clips, np.array([1, 4, 5, 6, 7, 8, 10]), 2, np.random.default_rng(0))
    assert drawn[0] == 1
    assert drawn[-1] == 10
    assert drawn.size == 4
    assert (np.diff(drawn) > 0).all()


def test_only_free_frames_are_drawn():
    free = np.arange(0, 3000, 7)
    assert np.isin(draw_in_clips(equal_clips(3000, 9), free, 5, np.random.default_rng(0)), free).all()


@pytest.mark.parametrize("temperature", [0.06, 0.5])
def test_the_first_frame_drawn_follows_the_softmax(temperature):
    values, n_runs = np.array([0.0, 0.8, 0.9, 1.0]), 8000
    generator = np.random.default_rng(0)
    group = np.repeat(np.arange(n_runs), 4)
    drawn = softmax_draw(
        np.tile(values, n_runs), group, np.ones(n_runs, dtype=int), temperature=temperature, rng=generator
    )
    expected = np.exp(values / temperature) / np.exp(values / temperature).sum()
    assert np.bincount(drawn % 4, minlength=4) / n_runs == pytest.approx(expected, abs=0.02)


def test_pairs_drawn_are_those_of_one_draw_after_the_other_without_replacement():
    values, n_runs = np.array([0.0, 0.3, 1.0]), 12_000
    p = np.exp(values) / np.exp(values).sum()
    group = np.repeat(np.arange(n_runs), 3)
    drawn = softmax_draw(
        np.tile(values, n_runs), group, np.full(n_runs, 2), temperature=1.0, rng=np.random.default_rng(1)
    )
    left_out = 3 - (drawn % 3).reshape(n_runs, 2).sum(axis=1)
    for pair in itertools.permutations(range(3), 2):
        out = 3 - sum(pair)
        expected = sum(p[a] * p[b] / (1 - p[a]) for a, b in (pair, pair[::-1]))
        assert (left_out == out).mean() == pytest.approx(expected, abs=0.02)


def test_a_cold_softmax_takes_the_best_of_each_group():
    values = np.array([0.1, 0.9, 0.5, 0.3, 0.2, 0.7])
    drawn = softmax_draw(
        values, np.repeat([0, 1], 3), np.array([1, 2]), temperature=1e-12, rng=np.random.default_rng(0)
    )
    assert drawn.tolist() == [1, 3, 5]


def test_min_max_scales_each_group_by_itself_and_flat_ones_to_zero():
    values = np.array([2.0, 4.0, 3.0, 7.0, 7.0, 1.0])
    assert min_max(values, np.array([0, 0, 0, 1, 1, 2])).tolist() == [0, 1, 0.5, 0, 0, 0]
    assert min_max(values).tolist() == pytest.approx(((values - 1) / 6).tolist())
    assert min_max(np.empty(0)).size == 0
