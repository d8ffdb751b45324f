"""Does `even_cover` pull, estimate and cover as its text says?"""

from __future__ import annotations

import numpy as np
import pytest

from focus_eval import VideoInfo, make_sampler
from focus_eval.keyframes.samplers.bandit import Clips
from focus_eval.keyframes.samplers.coverage import best_cover, bridge_mean, evidence_weights, grid_frames, shot_weights
from focus_eval.keyframes.samplers.even_cover import evidence_density
from focus_eval.keyframes.samplers.sources import ArraySource, bumpy

HOUR = VideoInfo(108_000, 30.0)


def run(video=HOUR, *, k=32, world=None, rng=0, **options):
    world = ArraySource(bumpy(video.n_frames)) if world is None else world
    return make_sampler("even_cover", **options).select(video, k=k, pull=world, rng=np.random.default_rng(rng))


# Pulls ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_frames", "fps", "k", "n"),
    [(108_000, 30.0, 32, 450), (216_000, 60.0, 32, 450), (1500, 30.0, 4, 8), (1500, 30.0, 32, 32), (20, 30.0, 32, 20)],
)
def test_a_share_of_the_frames_at_25_fps_is_pulled_whatever_the_rate(n_frames, fps, k, n):
    assert run(VideoInfo(n_frames, fps), k=k).n_pulls == n


def test_questions_that_share_a_videos_pulls_get_the_share_of_each():
    assert run(HOUR, shared_by=4.0).n_pulls == 4 * run(HOUR).n_pulls


def test_the_budget_of_another_sampler_is_spent_to_the_frame():
    assert run(budget_of="focus").n_pulls == make_sampler("focus").count_pulls(HOUR, k=32)


def test_pulls_are_one_batch_of_jittered_middles():
    world, video = ArraySource(bumpy(10_000)), VideoInfo(10_000, 25.0)
    places = []
    for seed in range(40):
        world.calls.clear()
        run(video, world=world, pulls=100, rng=seed)
        (frames,) = world.calls
        assert (frames // 100).tolist() == list(range(100))
        places.append(frames % 100)
    assert np.min(places) == 25
    assert np.max(places) == 74
    assert np.bincount(np.concatenate(places) // 10, minlength=8)[3:7].min() > 700


# Estimate -------------------------------------------------------------------------------------------------------------


def test_weights_are_squared_relevance_set_against_their_surroundings():
    times, relevance = np.array([0.0, 5.0, 8.0, 30.0]), np.array([0.5, 0.3, 0.7, 0.3])
    weights = np.array([0.26, 0.01, 1.01, 0.01])
    around = [(0.26 + 0.01 + 1.01) / 3, (0.26 + 0.01 + 1.01) / 3, (0.26 + 0.01 + 1.01) / 3, 0.01]
    assert evidence_weights(times, relevance) == pytest.approx(weights * np.sqrt(weights / around))


def test_the_bridge_passes_through_the_pulls_and_reverts_to_the_base():
    times, values = np.array([10.0, 14.0, 300.0]), np.array([1.0, 0.2, 0.6])
    at = np.array([10.0, 14.0, 300.0, 150.0, -200.0, 900.0, 300.0 + 3.0])
    means_at = bridge_mean(at, times, values, base=0.4, seconds=3.0)
    assert means_at[:3] == pytest.approx(values)
    assert means_at[3:6] == pytest.approx([0.4, 0.4, 0.4])
    assert means_at[6] == pytest.approx(0.4 + 0.2 / np.e)


def test_the_bridge_is_the_mean_of_the_process_given_both_ends():
    # Discretised: the conditional mean of a stationary Gaussian process with covariance exp(-|t - s| / 3).
    times, values, at = np.array([2.0, 7.0]), np.array([0.9, 0.1]), np.linspace(0.0, 12.0, 37)

    def covariance(rows, columns):
        return np.exp(-np.abs(rows[:, None] - columns) / 3.0)

    expected = 0.3 + covariance(at, times) @ np.linalg.solve(covariance(times, times), values - 0.3)
    assert bridge_mean(at, times, values, base=0.3, seconds=3.0) == pytest.approx(expected)


@pytest.mark.parametrize(("cuts", "seconds"), [([0], 3.0), ([0, 500], 10.0)])
def test_what_a_pull_tells_fades_over_three_seconds_or_ten_within_a_shot(cuts, seconds):
    video, times = VideoInfo(1000, 10.0), np.array([10.0, 60.0])
    relevance, shots = np.array([0.0, 1.0]), Clips(np.array(cuts), np.array([*cuts[1:], 1000]))
    weights, at = np.array([0.01, 1.01]), 60.0 + seconds
    (density,) = evidence_density(np.array([at]), times, relevance, shots, video)
    expected = weights.mean() + (weights[1] - weights.mean()) / np.e
    if len(cuts) > 1:
        (place,) = shot_weights(np.array([at]), np.array([50.0]), np.array([100.0]))
        expected *= place
    assert density == pytest.approx(expected)


@pytest.mark.parametrize(
    ("n_frames", "fps", "n"), [(108_000, 30.0, 18_000), (100, 4.0, 100), (7, 30.0, 1), (1, 1.0, 1)]
)
def test_the_grid_has_five_points_a_second_or_every_frame(n_frames, fps, n):
    grid = grid_frames(VideoInfo(n_frames, fps))
    assert grid.size == n
    assert (np.diff(grid) > 0).all()
    assert 0 <= grid[0] <= grid[-1] < n_frames


# Cover ----------------------------------------------------------------------------------------------------------------


def plain_cover(density, n, rate):
    """Return the same greedy cover, with every window summed anew."""
    halves = [int(seconds * rate + 1e-9) for seconds in (1.0, 2.0)]
    masses, picked = [density.copy(), density.copy()], []
    for _ in range(n):
        gains = [
            sum(mass[max(0, i - half) : i + half + 1].sum() for mass, half in zip(masses, halves, strict=True))
            for i in range(density.size)
        ]
        best = int(np.argmax(gains))
        if gains[best] == 0:
            break
        picked.append(best)
        for mass, half in zip(masses, halves, strict=True):
            mass[max(0, best - half) : best + half + 1] = 0.0
    return picked


@pytest.mark.parametrize("rate", [5.0, 4.9, 1.0, 0.3])
def test_the_cover_is_greedy_to_the_first_of_equals(rate):
    generator = np.random.default_rng(int(10 * rate))
    for _ in range(30):
        density = generator.integers(0, 9, generator.integers(1, 150)).astype(float)  # sums are exact, ties are many
        n = int(generator.integers(1, 40))
        assert best_cover(density, n, rate=rate).tolist() == plain_cover(density, n, rate)


def test_greedy_covers_nearly_what_the_best_cover_does():
    # Maximum coverage of a line by n windows, exactly, by dynamic programming over where the last window ends.
    generator, half, n = np.random.default_rng(0), 10, 6
    shares = []
    for _ in range(20):
        density = generator.gamma(0.3, size=400)
        total = np.concatenate([[0.0], np.cumsum(density)])
        best = np.zeros((n + 1, density.size + 1))
        for used in range(1, n + 1):
            for stop in range(1, density.size + 1):
                start = max(0, stop - (2 * half + 1))
                best[used, stop] = max(best[used, stop - 1], best[used - 1, start] + total[stop] - total[start])
        covered = np.zeros(density.size, dtype=bool)
        for at in best_cover(density, n, rate=float(half)):
            covered[max(0, at - half) : at + half + 1] = True
        shares.append(density[covered].sum() / best[n, -1])
    assert np.mean(shares) > 0.9


def test_a_clip_of_microseconds_takes_no_longer_than_any_other():
    assert len(run(VideoInfo(100, 1e6), k=8).keyframes) == 8


def test_a_flat_video_is_shown_evenly_and_says_so():
    selection = run(world=ArraySource(np.full(108_000, 0.3)))
    assert selection.keyframes == tuple(np.linspace(0, 107_999, 32).astype(int).tolist())
    assert selection.facts == {"fallback": "uniform: relevance is flat"}


def test_a_covered_video_is_filled_up_in_its_widest_gaps():
    selection = run(VideoInfo(200, 25.0), k=32)
    assert len(selection.keyframes) == 32
    assert np.diff(selection.keyframes).max() <= 200 / 32 * 2


def test_events_further_apart_than_the_windows_get_a_keyframe_each():
    relevance = np.full(108_000, 0.1)
    events = [10_000, 30_000, 30_800, 77_000, 100_000]
    for event in events:
        relevance[event : event + 360] = 0.9  # 12 seconds: at least one pull of every 8 lies inside
    picked_frames = np.array(run(world=ArraySource(relevance), k=16).keyframes)
    for event in events:
        assert ((picked_frames >= event) & (picked_frames < event + 360)).any()


# Shots ----------------------------------------------------------------------------------------------------------------


# Cuts, weighed --------------------------------------------------------------------------------------------------------
