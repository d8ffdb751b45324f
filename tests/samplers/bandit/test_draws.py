"""Are draws from many arms at once those of one arm after the other?"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from focus_eval.samplers.bandit import Clips, distinct_offsets, draw_in_clips, equal_clips, min_max, softmax_draw


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
