"""Measures of annotated intervals: the share that is hit, and the share of their time that is covered."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus_eval.bench.report.recall import INTERVAL_MEASURES, covered_share, frames_inside, interval_measures

INTERVAL = st.tuples(st.floats(0, 100), st.floats(0, 30)).map(lambda pair: (pair[0], pair[0] + pair[1]))
TIMES = st.lists(st.floats(0, 140), min_size=1, max_size=12)


@given(
    st.lists(INTERVAL, min_size=1, max_size=4).filter(lambda intervals: min(b - a for a, b in intervals) > 0.2), TIMES
)
def test_the_covered_share_is_the_share_of_dense_points_near_a_keyframe(intervals, times):
    points_by_interval = [np.linspace(start, stop, 4001) for start, stop in intervals]
    hits = [(np.abs(points[:, None] - np.array(times)).min(axis=1) <= 2).mean() for points in points_by_interval]
    lengths = [stop - start for start, stop in intervals]
    assert covered_share(intervals, times, 2.0) == pytest.approx(np.average(hits, weights=lengths), abs=2e-3)


def test_an_interval_of_0_s_is_covered_or_not():
    assert covered_share([(10.0, 10.0)], [11.9], 2.0) == 1.0
    assert covered_share([(10.0, 10.0)], [12.1], 2.0) == 0.0
    assert covered_share([(10.0, 10.0)], [], 2.0) == 0.0


def test_every_figure_is_a_share():
    """Windows that cover an event together come to more than it by a rounding, at some of these starts."""
    for start in np.arange(1, 60) / 7:
        times = start + np.arange(32) * 1.9
        figures = interval_measures([(start, start + 32 * 1.9)], times)
        assert all(0 <= figure <= 1 for figure in figures.values())


def test_moments_are_scenes_of_one_length():
    assert interval_measures([(5.0, 5.0)], [5.0, 7.0])["UKSS"] == pytest.approx(0.5 ** (1 / 3))
    assert interval_measures([(5.0, 5.0), (9.0, 9.0)], [5.0, 9.0])["UKSS"] == pytest.approx(1.0)


def test_figures_of_a_question_by_hand():
    met = interval_measures([(10.0, 20.0), (100.0, 104.0)], [12.0, 18.0, 50.0, 99.0])
    assert frames_inside([(10.0, 20.0), (100.0, 104.0)], [12.0, 18.0, 50.0, 99.0]) == 0.5
    assert met["hit"] == 0.5
    assert met["coverage"] == pytest.approx((4 + 4 + 1) / 14)
    assert interval_measures([(1.0, 2.0)], []) == dict.fromkeys(INTERVAL_MEASURES, 0.0)


def test_time_near_two_keyframes_is_covered_once():
    # Within 2 s of 10 and 11 lie the five seconds from 8 to 13.
    assert covered_share([(0.0, 30.0)], [10.0, 11.0], 2.0) == pytest.approx(5 / 30)
    assert covered_share([(0.0, 30.0)], [10.0, 11.0, 12.0, 20.0], 2.0) == pytest.approx(10 / 30)


def test_a_long_scene_needs_no_more_than_its_part_of_equal_scenes():
    # Nine tenths of the scenes' time are in the first: by length it would need nine of the ten frames, of two equal
    # scenes five are enough.
    times = [*range(10, 60, 10), *(100.0 + at / 10 for at in range(5))]
    assert interval_measures([(0.0, 90.0), (100.0, 110.0)], times)["UKSS"] == pytest.approx(1.0)
