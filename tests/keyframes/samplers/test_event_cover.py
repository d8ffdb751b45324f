"""Does `event_cover` estimate and cover as it was specified, to the recorded digit?"""

from __future__ import annotations

import numpy as np
import pytest

from focus_eval import VideoInfo, make_sampler
from focus_eval.keyframes.samplers.event_cover import cover_points, event_density, grid_mass, interval_weights
from focus_eval.keyframes.samplers.ledger import log_odds
from focus_eval.keyframes.samplers.sources import ArraySource, bumpy

from .recorded import recorded_cases

CASES = recorded_cases("event_cover")["cases"]


def keyframes(video, k, relevance, **options):
    sampler = make_sampler("event_cover", **options)
    return sampler.select(video, k=k, pull=ArraySource(relevance), rng=np.random.default_rng(0))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_density_and_the_order_of_choice_equal_the_recorded_ones(case):
    times, relevance = np.array(case["times"]), np.array(case["relevance"])
    density = event_density(times, log_odds(relevance))
    assert density == pytest.approx(np.array(case["density"]), abs=3e-9)
    mass = grid_mass(times, density, max(1, round(5 * case["duration"])))
    for k, seconds in case["chosen"].items():
        points = cover_points(mass, min(int(k), mass.size))
        assert (points + 0.5) / 5 == pytest.approx(np.array(seconds))


def test_pulls_are_the_middles_of_equal_strata_in_one_batch():
    video, source = VideoInfo(9000, 25.0), ArraySource(bumpy(9000))
    make_sampler("event_cover", pulls=90).select(video, k=8, pull=source, rng=np.random.default_rng(0))
    (frames,) = source.calls
    assert frames.tolist() == [100 * stratum + 49 for stratum in range(90)]


@pytest.mark.parametrize(("share", "n"), [(0.0178, 1602), (0.01, 900), (0.0001, 32)])
def test_the_share_counts_frames_at_25_fps(share, n):
    selection = keyframes(VideoInfo(108_000, 30.0), 32, bumpy(108_000), share=share)
    assert selection.n_pulls == n


def test_a_smaller_k_is_the_head_of_a_larger_one():
    video, relevance = VideoInfo(30_000, 25.0), bumpy(30_000)
    at_8, at_32 = (set(keyframes(video, k, relevance, pulls=500).keyframes) for k in (8, 32))
    assert at_8 < at_32


def test_the_density_is_highest_inside_a_lifted_stretch():
    times = np.arange(200) * 2.25 + 1.0
    logits = np.random.default_rng(1).normal(size=200)
    logits[60:63] += 8.0
    density = event_density(times, logits)
    assert int(np.argmax(density)) in (60, 61, 62)


def test_weights_of_intervals_are_a_distribution_and_bounded_by_a_minute():
    weights = interval_weights(2.25, 1600)
    assert weights.sum() == pytest.approx(1.0)
    assert weights.size == 28
    assert interval_weights(2.25, 5).size == 6


@pytest.mark.parametrize(
    ("n_frames", "fps", "k"), [(40, 2.0, 32), (3, 30.0, 8), (1, 1.0, 1), (20, 0.1, 20), (5, 30.0, 5)]
)
def test_slow_and_short_videos_get_as_many_distinct_frames_as_asked_or_all(n_frames, fps, k):
    selection = keyframes(VideoInfo(n_frames, fps), k, bumpy(n_frames))
    assert len(set(selection.keyframes)) == min(k, n_frames)


def test_at_least_eight_frames_are_pulled():
    assert keyframes(VideoInfo(9000, 25.0), 1, bumpy(9000), share=0.0001).n_pulls == 8
