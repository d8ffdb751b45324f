"""Does `focus` do what Algorithm 2 says, and its relatives what they change?"""

from __future__ import annotations

import math

import numpy as np
import pytest

from focus_eval import VideoInfo, make_sampler
from focus_eval.keyframes.samplers.sources import ArraySource, bumpy

HOUR = VideoInfo(108_000, 30.0)


def run(name, video=HOUR, *, k=64, world=None, rng=0, coarse_rng=None, **options):
    world = ArraySource(bumpy(video.n_frames)) if world is None else world
    coarse = None if coarse_rng is None else np.random.default_rng(coarse_rng)
    return make_sampler(name, **options).select(
        video, k=k, pull=world, rng=np.random.default_rng(rng), coarse_rng=coarse
    )


def clip_of(selection, frame):
    return next(clip for clip in selection.clips if clip.start <= frame < clip.stop)


@pytest.mark.parametrize(
    ("n_frames", "fps"), [(108_000, 30.0), (5459, 25.0), (3, 30.0), (9, 30.0), (1001, 0.5), (7201, 29.97)]
)
@pytest.mark.parametrize("clip_seconds", [8.0, 16.0, 32.0])
def test_arms_partition_the_video_in_clips_of_about_the_asked_length(n_frames, fps, clip_seconds):
    video = VideoInfo(n_frames, fps)
    clips = make_sampler("focus", clip_seconds=clip_seconds).clips(video)
    assert clips.starts[0] == 0
    assert clips.stops[-1] == n_frames
    assert (clips.starts[1:] == clips.stops[:-1]).all()
    assert np.ptp(clips.sizes) <= 1
    assert len(clips) >= min(8, n_frames)
    assert (clips.sizes.min() - 1) / fps <= clip_seconds or len(clips) == n_frames
    assert len(clips) == min(n_frames, max(8, math.ceil(n_frames / fps / clip_seconds)))


def test_every_arm_is_pulled_before_any_is_pulled_again():
    world = ArraySource(bumpy(108_000))
    selection = run("focus", world=world)
    coarse, fine = world.calls
    arms = np.searchsorted([clip.stop for clip in selection.clips], coarse, side="right")
    assert np.bincount(arms).tolist() == [3] * 225
    assert len(selection.clips) == 225
    assert fine.size == 57 * 16


def test_fine_pulls_reach_the_arms():
    selection = run("focus")
    promising = selection.facts["promising_arms"]
    assert len(promising) == math.ceil(0.25 * 225)
    for index, clip in enumerate(selection.clips):
        inside = (selection.pulled_frames >= clip.start) & (selection.pulled_frames < clip.stop)
        rewards = selection.pulled_relevance[inside]
        assert clip.n_pulls == rewards.size == (19 if index in promising else 3)
        assert clip.mean == pytest.approx(rewards.mean(), abs=1e-12)
        n = selection.n_pulls
        radius = math.sqrt(2 * rewards.var() * math.log(n) / rewards.size) + 3 * math.log(n) / rewards.size
        assert clip.radius == pytest.approx(radius, rel=1e-9)


def test_promising_arms_have_the_largest_optimistic_means_after_the_coarse_pulls():
    world = ArraySource(bumpy(108_000))
    selection = run("focus", world=world)
    rewards = world.values[world.calls[0]].reshape(225, 3)
    log_n = math.log(rewards.size)
    optimistic = rewards.mean(1) + np.sqrt(2 * rewards.var(1) * log_n / 3) + 3 * log_n / 3
    assert selection.facts["promising_arms"] == sorted(np.argsort(-optimistic, kind="stable")[:57])


def test_final_arms_have_the_largest_means_of_all():
    selection = run("focus")
    clip_means = np.array([clip.mean for clip in selection.clips])
    final = np.array([clip.is_final for clip in selection.clips])
    assert final.sum() == 32
    assert clip_means[final].min() >= clip_means[~final].max()


@pytest.mark.parametrize("k", [1, 5, 31, 33, 64, 100])
def test_every_keyframe_lies_in_a_final_arm_and_shares_are_even(k):
    selection = run("focus", k=k)
    owners = [clip_of(selection, frame) for frame in selection.keyframes]
    assert all(clip.is_final for clip in owners)
    counts = [owners.count(clip) for clip in selection.clips if clip.is_final]
    assert max(counts) - min(counts) <= 1
    assert sum(counts) == k
    # The better arms give the extra frame.
    by_mean = sorted((clip for clip in selection.clips if clip.is_final), key=lambda clip: -clip.mean)
    assert [owners.count(clip) for clip in by_mean] == sorted(counts, reverse=True)


def test_what_final_arms_cannot_give_comes_from_the_next_best():
    video = VideoInfo(800, 10.0)
    selection = run("focus", video, k=500)
    assert len(selection.keyframes) == 500
    order = sorted(selection.clips, key=lambda clip: (-clip.mean, clip.start))
    shares = [sum(clip.start <= frame < clip.stop for frame in selection.keyframes) for clip in order]
    assert shares == [100, 100, 100, 100, 100, 0, 0, 0]
    assert selection.facts["overflow_arms"] == 1


def test_keyframes_follow_an_event():
    relevance = np.full(108_000, 0.1)
    relevance[50_000:52_000] = 0.9
    selection = run("focus", world=ArraySource(relevance), k=16)
    inside = [50_000 <= frame < 52_000 for frame in selection.keyframes]
    # Four whole arms and the ends of two lie in the event; 32 final arms share 16 frames, best arms first.
    assert sum(inside) >= 4
    assert selection.clips[105].is_final


def test_a_cold_draw_takes_the_frames_nearest_to_the_best_pull():
    selection = run("focus", VideoInfo(8000, 10.0), k=4, temperature=1e-9)
    for frame in selection.keyframes:
        clip = clip_of(selection, frame)
        inside = (selection.pulled_frames >= clip.start) & (selection.pulled_frames < clip.stop)
        frames, relevance = selection.pulled_frames[inside], selection.pulled_relevance[inside]
        nearest = np.abs(frames - frame)
        assert relevance[nearest == nearest.min()].max() == relevance.max()


def test_alpha_one_looks_closer_at_every_arm():
    assert len(run("focus", alpha=1.0).facts["promising_arms"]) == 225


def test_questions_that_share_the_coarse_generator_share_coarse_pulls():
    worlds = [ArraySource(bumpy(108_000, seed=seed)) for seed in (1, 2)]
    for seed, world in enumerate(worlds):
        run("focus", world=world, rng=seed, coarse_rng=77)
    assert np.array_equal(worlds[0].calls[0], worlds[1].calls[0])
    assert not np.array_equal(worlds[0].calls[1], worlds[1].calls[1])


def test_a_fine_pull_per_second_follows_the_rate():
    assert run("focus", VideoInfo(9600, 60.0)).n_pulls == 10 * 3 + 4 * 16
    assert run("focus", VideoInfo(9600, 60.0), seconds_per_fine_pull=4.0).n_pulls == 10 * 3 + 4 * 4


# Relatives -----------------------------------------------------------------------------------------------------------


def test_fine_pulls_are_the_mean_length_of_an_arm_in_seconds_rounded():
    # 8 arms of 12.5 s: 3 coarse pulls each, and 13 fine ones in each of 4 arms.
    assert make_sampler("focus").count_pulls(VideoInfo(2500, 25.0), k=8) == 8 * 3 + 4 * 13
    assert make_sampler("focus").count_pulls(VideoInfo(2480, 25.0), k=8) == 8 * 3 + 4 * 12
    assert run("focus", VideoInfo(2500, 25.0), k=8).n_pulls == 8 * 3 + 4 * 13


def test_focus_m_is_focus_where_variances_are_equal():
    constant_in_arms = np.random.default_rng(0).random(225).repeat(480)
    plain, by_means = (run(name, world=ArraySource(constant_in_arms)) for name in ("focus", "focus_m"))
    assert plain.facts["promising_arms"] == by_means.facts["promising_arms"]
    assert plain.keyframes == by_means.keyframes


def test_focus_m_does_not_explore_arms_of_high_variance():
    relevance = np.full(8000, 0.5)
    relevance[:1000] = np.tile([0.0, 0.8], 500)  # mean 0.4, large variance
    video = VideoInfo(8000, 500.0)
    assert 0 in run("focus", video, world=ArraySource(relevance), pulls_per_arm=50).facts["promising_arms"]
    assert 0 not in run("focus_m", video, world=ArraySource(relevance), pulls_per_arm=50).facts["promising_arms"]


@pytest.mark.parametrize("sync", [None, np.arange(108_000)])
def test_focus_gop_is_focus_where_all_frames_cost_the_same(sync):
    video = VideoInfo(108_000, 30.0, sync)
    assert run("focus_gop", video).keyframes == run("focus", video).keyframes


def test_focus_gop_pulls_coarsely_right_after_sync_frames_and_once_in_a_group():
    sync = np.arange(0, 108_000, 100)
    world = ArraySource(bumpy(108_000))
    selection = run("focus_gop", VideoInfo(108_000, 30.0, sync), world=world)
    coarse, fine = world.calls
    # Four or five groups of 100 frames begin in every arm of 480.
    assert selection.facts["arms_without_cheap_frames"] == 0
    assert (coarse % 100 <= 2).all()
    assert set(coarse % 100) == {0, 1, 2}
    assert np.unique(coarse // 100).size == coarse.size == 3 * 225
    assert (fine % 100 > 2).mean() > 0.9


def test_focus_gop_needs_as_many_groups_as_pulls_and_no_more():
    sync, world = np.arange(0, 108_000, 160), ArraySource(bumpy(108_000))  # three begin in every arm of 480
    selection = run("focus_gop", VideoInfo(108_000, 30.0, sync), world=world)
    assert selection.facts["arms_without_cheap_frames"] == 0
    assert np.unique(world.calls[0] // 160).size == 3 * 225


def test_focus_gop_looks_anywhere_in_an_arm_where_fewer_groups_begin_than_it_gets_pulls():
    # Groups of 10 seconds: one or two begin in every arm of 16.
    sync, world = np.arange(0, 108_000, 300), ArraySource(bumpy(108_000))
    selection = run("focus_gop", VideoInfo(108_000, 30.0, sync), world=world)
    assert selection.facts["arms_without_cheap_frames"] == 225
    assert world.calls[0].size == 3 * 225
    assert (world.calls[0] % 300 > 2).mean() > 0.9


def test_focus_gop_falls_back_arm_by_arm():
    # Ten arms of 800 frames; groups begin only in the first half of the video.
    sync, world = np.arange(0, 4000, 200), ArraySource(bumpy(8000))
    selection = run("focus_gop", VideoInfo(8000, 50.0, sync), world=world, k=8)
    coarse = world.calls[0]
    assert len(selection.clips) == 10
    assert selection.facts["arms_without_cheap_frames"] == 5
    assert (coarse[coarse < 4000] % 200 <= 2).all()
    assert (coarse >= 4000).sum() == 15


@pytest.mark.parametrize("frames_after_sync", [0, 5])
def test_focus_gop_stays_in_the_arm_and_the_group_of_its_sync_frame(frames_after_sync):
    # Groups of three frames, and sync frames at the last frame of an arm.
    sync = np.arange(2, 2400, 3)
    for seed in range(5):
        world = ArraySource(bumpy(2400))
        video = VideoInfo(2400, 10.0, sync)
        selection = run("focus_gop", video, world=world, k=8, rng=seed, frames_after_sync=frames_after_sync)
        coarse = world.calls[0]
        assert np.unique((coarse - 2) // 3).size == coarse.size
        arms = np.searchsorted([clip.stop for clip in selection.clips], coarse, side="right")
        assert np.bincount(arms).tolist() == [3] * len(selection.clips)


def test_focus_c_pulls_coarsely_only_and_draws_from_final_arms():
    selection = run("focus_c")
    assert selection.n_pulls == 675
    assert all(clip_of(selection, frame).is_final for frame in selection.keyframes)


def test_focus_c_draws_every_frame_of_the_final_arms_alike():
    relevance = np.full(800, 0.1)
    relevance[::100] = 0.11  # a peak that a draw by relevance would follow
    counts = np.zeros(800)
    for seed in range(400):
        counts[list(run("focus_c", VideoInfo(800, 100.0), world=ArraySource(relevance), k=40, rng=seed).keyframes)] += 1
    share_of_peaks = counts[::100].sum() / counts.sum()
    assert share_of_peaks == pytest.approx(0.01, abs=0.004)


def test_focus_f_spreads_the_pulls_of_focus_evenly():
    selection = run("focus_f")
    assert selection.n_pulls == run("focus").n_pulls
    assert np.ptp(np.diff(selection.pulled_frames)) <= 1
    assert selection.pulled_frames[[0, -1]].tolist() == [0, 107_999]
    assert selection.clips == ()


@pytest.mark.parametrize(("n_arms", "n_chosen"), [(3, 3), (50, 4), (100, 7), (101, 8)])
def test_a_rounding_error_chooses_no_further_arm(n_arms, n_chosen):
    assert 0.07 * 100 > 7  # as computed
    assert make_sampler("focus", alpha=0.07).n_chosen_arms(n_arms) == n_chosen
