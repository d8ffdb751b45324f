"""Does `focus_released` give the frames of the authors' public code?"""

from __future__ import annotations

import csv

import numpy as np
import pytest
from scipy.interpolate import Rbf

from focus_eval import VideoInfo, make_sampler
from focus_eval.keyframes.samplers.bandit import Arms
from focus_eval.keyframes.samplers.focus_released import evenly_inside, interpolated, softmax_probabilities
from focus_eval.keyframes.samplers.sources import ArraySource, bumpy
from tests.keyframes.samplers.recorded import recorded_cases, recorded_world

NTSC = {23: 24000 / 1001, 29: 30000 / 1001, 59: 60000 / 1001}


@pytest.fixture(scope="module")
def plain_cases():
    """Cases of many options, each with the world it was recorded in."""
    cases = recorded_cases("focus_released")
    assert len(cases) == 36
    return [(case, recorded_world(case)) for case in cases]


@pytest.fixture(scope="module")
def cases(plain_cases):
    """The plain cases, and those that the order of a rounding or the solver of `rbf` decides."""
    rounding = recorded_cases("focus_released_rounding")
    assert len(rounding) == 16
    return plain_cases + [(case, recorded_world(case)) for case in rounding]


def select(case, world):
    world.calls.clear()
    sampler = make_sampler("focus_released", min_gap_sec=case["min_gap_sec"], **case["params"])
    video = VideoInfo(case["trace"]["frames"], case["fps"])
    return sampler.select(video, k=case["k"], pull=world, rng=np.random.default_rng(case["seed"]))


def test_selected_frames_are_those_of_every_recorded_case(cases):
    for case, world in cases:
        assert list(select(case, world).keyframes) == case["selected"], case


def test_coarse_and_fine_pulls_are_those_of_every_recorded_case(cases):
    for case, world in cases:
        select(case, world)
        pulls = [frames.tolist() for frames in world.calls]
        assert pulls == [frames for frames in (case["coarse"], case["fine"]) if frames], case


def test_arms_and_scores_are_those_of_every_recorded_case_to_the_last_bit(plain_cases):
    for case, world in plain_cases:
        selection = select(case, world)
        assert [[clip.start, clip.stop - 1] for clip in selection.clips] == [arm[:2] for arm in case["arms"]]
        sampler = make_sampler("focus_released", **case["params"])
        clips = sampler.clips(selection.video)
        rewards = world.values[np.array(case["coarse"]).reshape(len(clips), -1)]
        arms = Arms(clips, np.full(len(clips), rewards.shape[1]), rewards.mean(axis=1), rewards.var(axis=1))
        assert sampler.scores(arms).tolist() == [arm[2] for arm in case["arms"]]


def test_a_case_that_returned_fewer_says_so(cases):
    short_cases = [case for case, _ in cases if len(case["selected"]) < min(case["k"], case["trace"]["frames"])]
    assert short_cases
    for case, world in cases:
        selection = select(case, world)
        assert selection.facts.get("returned_fewer") == (len(case["selected"]) if case in short_cases else None)


def run(video, *, k=64, world=None, **options):
    world = ArraySource(bumpy(video.n_frames)) if world is None else world
    return make_sampler("focus_released", **options).select(video, k=k, pull=world, rng=np.random.default_rng(0))


def test_fine_pulls_do_not_reach_the_arms():
    world = ArraySource(bumpy(36_000))
    selection = run(VideoInfo(36_000, 30.0), world=world)
    coarse, fine = world.calls
    assert fine.size > 0
    for clip in selection.clips:
        inside = (coarse >= clip.start) & (coarse < clip.stop)
        assert clip.n_pulls == inside.sum() == 3
        assert clip.mean == pytest.approx(world.values[coarse[inside]].mean(), abs=1e-12)


def test_the_end_of_the_video_may_belong_to_no_arm():
    clips = make_sampler("focus_released").clips(VideoInfo(250, 24.0))
    assert clips.stops[-1] == 248
    assert make_sampler("focus").clips(VideoInfo(250, 24.0)).stops[-1] == 250


@pytest.mark.parametrize(
    ("seconds", "k", "gap"), [(12.0, 64, 0.0), (12.8, 64, 0.0), (64.0, 64, 0.25), (128.0, 64, 0.5), (3600.0, 64, 1.0)]
)
def test_auto_gap_is_the_public_drivers_rule(seconds, k, gap):
    video = VideoInfo(int(seconds * 10), 10.0)
    assert run(video, k=k).facts["min_gap_sec"] == pytest.approx(gap)


def test_drawn_keyframes_keep_the_gap_to_those_chosen_before_their_arm():
    # One keyframe an arm and none from the top, so that every pair lies in different arms.
    video = VideoInfo(2400, 10.0)
    frames = run(video, k=8, top_ratio=0.0, final_max_arms=8, zoom_ratio=1.0, min_gap_sec=2.0).keyframes
    assert np.diff(frames).min() >= 20


@pytest.mark.parametrize("n_pulls", [2, 3, 5])
def test_rbf_is_scipys_gaussian(n_pulls):
    generator = np.random.default_rng(n_pulls)
    pulled = generator.choice(400, n_pulls, replace=False)
    rewards = generator.uniform(0.3, 0.6, n_pulls)
    expected = np.clip(Rbf(pulled, rewards, function="gaussian", smooth=0.0)(np.arange(400)), 0, 1)
    assert interpolated(np.arange(400), pulled, rewards, "rbf") == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("method", ["nearest", "linear", "rbf"])
def test_a_single_pull_holds_for_the_whole_arm(method):
    assert interpolated(np.arange(9), np.array([4]), np.array([0.7]), method).tolist() == [0.7] * 9


def test_nearest_takes_the_first_pulled_of_equally_near_frames():
    assert interpolated(np.array([5]), np.array([8, 2]), np.array([0.1, 0.9]), "nearest").tolist() == [0.1]
    assert interpolated(np.array([5]), np.array([2, 8]), np.array([0.9, 0.1]), "nearest").tolist() == [0.9]


def test_flat_relevance_draws_every_candidate_alike():
    assert softmax_probabilities(np.full(5, 0.3), 0.06).tolist() == pytest.approx([0.2] * 5)


def test_the_lowest_temperature_still_fills_every_share():
    relevance = np.zeros(3600)
    relevance[::97] = 1.0
    assert len(run(VideoInfo(3600, 10.0), k=200, world=ArraySource(relevance), temperature=0.002).keyframes) == 200


@pytest.mark.parametrize(
    ("start", "stop", "n", "frames"),
    [(0, 9, 0, []), (10, 19, 3, [11, 14, 17]), (10, 20, 4, [11, 13, 16, 18]), (10, 13, 3, [11]), (10, 14, 9, [11])],
)
def test_even_fine_pulls_sit_in_the_middle_of_equal_parts_or_of_a_window_they_would_fill(start, stop, n, frames):
    assert evenly_inside(start, stop, n).tolist() == frames


@pytest.fixture(scope="module")
def longvideobench(shared):
    """Length and rate of the video of every LongVideoBench validation question."""
    with open(shared("data/lvb_val_fps.csv"), newline="") as file:
        rows = list(csv.DictReader(file))
    rates = [NTSC.get(int(row["int_fps"]), float(row["int_fps"])) for row in rows]
    return [VideoInfo(int(float(row["duration_s"]) * fps), fps) for row, fps in zip(rows, rates, strict=True)]


def frames_seen_percent(videos, name, **options):
    sampler = make_sampler(name, **options)
    return 100 * sum(sampler.count_pulls(video, k=64) for video in videos) / sum(video.n_frames for video in videos)


@pytest.mark.parametrize(
    ("zoom_ratio", "percent"), [(0.1, 1.12), (0.25, 1.62), pytest.param(0.5, 2.47, marks=pytest.mark.slow)]
)
def test_frames_seen_of_the_public_code_on_longvideobench(longvideobench, zoom_ratio, percent):
    # The published figures count planned fine pulls; those that fall on a coarse frame are skipped, hence "about".
    percents = frames_seen_percent(longvideobench[::4], "focus_released", zoom_ratio=zoom_ratio)
    assert percents == pytest.approx(percent, abs=0.03)


def test_frames_seen_of_one_frame_a_second_on_longvideobench(longvideobench):
    assert len(longvideobench) == 1337
    assert sum(video.n_frames for video in longvideobench) == pytest.approx(26.78e6, abs=0.01e6)
    assert frames_seen_percent(longvideobench, "topk") == pytest.approx(3.73, abs=0.005)


def test_frames_seen_of_the_paper_algorithm_on_longvideobench(longvideobench):
    for alpha, percent in [(0.1, 1.1), (0.25, 1.6), (0.5, 2.5)]:
        assert frames_seen_percent(longvideobench, "focus", alpha=alpha) == pytest.approx(percent, abs=0.1)
