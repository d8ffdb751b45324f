"""Do the samplers without arms choose what their texts say?"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from focus_eval import VideoInfo, make_sampler
from focus_eval.keyframes.samplers.maxinfo import largest_volume_rows
from focus_eval.keyframes.samplers.mdp3 import best_list, greedy, multi_gaussian
from focus_eval.keyframes.samplers.sources import ArraySource, bumpy
from focus_eval.keyframes.samplers.uniform import one_fps
from tests.keyframes.samplers.recorded import recorded_cases, recorded_world

NTSC = 30000 / 1001


def run(name, video, *, k, world=None, rng=0, **options):
    world = ArraySource(bumpy(video.n_frames)) if world is None else world
    return make_sampler(name, **options).select(video, k=k, pull=world, rng=np.random.default_rng(rng))


# Uniform, random, top-k ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_frames", "fps", "stride", "n"),
    [(3000, NTSC, 29, 103), (100, 0.4, 1, 100), (28, NTSC, 29, 0), (29, NTSC, 29, 1)],
)
def test_candidates_at_one_fps_use_the_truncated_rate(n_frames, fps, stride, n):
    assert one_fps(VideoInfo(n_frames, fps)).tolist() == [stride * j for j in range(n)]


def test_uniform_is_the_truncated_linspace():
    assert run("uniform", VideoInfo(1000, 30.0), k=7).keyframes == tuple(int(x) for x in np.linspace(0, 999, 7))


def test_uniform_1fps_falls_back_to_uniform_and_says_so():
    long = run("uniform_1fps", VideoInfo(3000, 30.0), k=64)
    assert long.keyframes == run("uniform", VideoInfo(3000, 30.0), k=64).keyframes
    assert long.facts == {"candidates": 100, "fallback": "uniform"}
    short = run("uniform_1fps", VideoInfo(300, 30.0), k=64)
    assert short.keyframes == tuple(range(0, 300, 30))
    assert short.facts == {"candidates": 10, "returned_fewer": 10}


def test_random_draws_every_frame_alike():
    counts = np.zeros(20)
    for seed in range(2000):
        counts[list(run("random", VideoInfo(20, 1.0), k=5, rng=seed).keyframes)] += 1
    assert counts / 2000 == pytest.approx(np.full(20, 0.25), abs=0.05)


def test_topk_keeps_the_best_candidates_and_the_earlier_of_equal_ones():
    relevance = np.zeros(300)
    relevance[[60, 150, 151]] = [0.9, 0.8, 1.0]  # frame 151 is no candidate
    assert run("topk", VideoInfo(300, 30.0), k=4, world=ArraySource(relevance)).keyframes == (0, 30, 60, 150)


# AKS -----------------------------------------------------------------------------------------------------------------


def test_aks_gives_the_frames_of_every_recorded_case():
    cases = recorded_cases("aks")
    assert len(cases) == 29
    for case in cases:
        video = VideoInfo(case["trace"]["frames"], float(case["step"]))
        options = {name: case[name] for name in ("t1", "t2", "max_depth")}
        selection = run("aks", video, k=case["k"], world=recorded_world(case), **options)
        assert selection.n_pulls == case["seconds"]
        assert list(selection.keyframes) == case["selected"], case


def test_aks_that_never_splits_is_topk():
    video, world = VideoInfo(20_000, 25.0), ArraySource(bumpy(20_000))
    assert (
        run("aks", video, k=32, world=world, max_depth=0).keyframes == run("topk", video, k=32, world=world).keyframes
    )
    assert run("aks", video, k=32, world=world, t1=-1.0).keyframes == run("topk", video, k=32, world=world).keyframes


def test_aks_that_always_splits_takes_as_many_from_every_part():
    selection = run("aks", VideoInfo(64_000, 10.0), k=64, t1=2.0, max_depth=3)
    assert np.bincount(np.array(selection.keyframes) // 8000).tolist() == [8] * 8


def test_aks_rounds_the_share_of_a_segment_down_and_says_so():
    selection = run("aks", VideoInfo(64_000, 10.0), k=12, t1=2.0, max_depth=3)
    assert np.bincount(np.array(selection.keyframes) // 8000).tolist() == [1] * 8
    assert selection.facts["returned_fewer"] == 8


def test_aks_says_which_depth_leaves_a_segment_without_a_frame():
    sampler = make_sampler("aks", max_depth=4)
    assert sampler.infeasible_reason(VideoInfo(7, 1.0), k=8) is None, "fewer candidates than k are all returned"
    for n_frames in (8, 9):
        reason = sampler.infeasible_reason(VideoInfo(n_frames, 1.0), k=8)
        assert reason.startswith("a segment at max_depth=4 gives int(8 / 16) = 0 frames; set max_depth=3 or less")
    assert make_sampler("aks", max_depth=3).infeasible_reason(VideoInfo(8, 1.0), k=8) is None


def test_aks_dense_is_aks_where_every_frame_is_a_candidate():
    world = ArraySource(bumpy(3000))
    at_one_fps = run("aks", VideoInfo(3000, 1.0), k=16, world=world)
    assert run("aks_dense", VideoInfo(3000, 30.0), k=16, world=world).keyframes == at_one_fps.keyframes


def test_aks_takes_flat_relevance_for_zeros():
    video = VideoInfo(6400, 10.0)
    flat, zeros = (run("aks", video, k=64, world=ArraySource(np.full(6400, value))) for value in (0.7, 0.0))
    assert flat.keyframes == zeros.keyframes
    assert len(flat.keyframes) == 64


# Q-Frame -------------------------------------------------------------------------------------------------------------


def test_qframe_hands_out_resolution_by_rank():
    selection = run("qframe", VideoInfo(36_000, 30.0), k=8)
    scales = np.array(selection.scales)
    assert [int((scales == scale).sum()) for scale in (1 / 2, 1 / 4, 1 / 8)] == [4, 8, 32]
    assert len(selection.keyframes) == 44
    assert selection.n_pulls == 128


def test_qframe_gives_the_best_frames_the_most_pixels():
    relevance = np.zeros(12_800)
    event = np.linspace(0, 12_799, 128).astype(int)[40:44]
    relevance[event] = 1.0
    selection = run("qframe", VideoInfo(12_800, 30.0), k=8, world=ArraySource(relevance))
    sharpest = {frame for frame, scale in zip(selection.keyframes, selection.scales, strict=True) if scale == 1 / 2}
    assert sharpest == set(event.tolist())


def test_qframe_with_fixed_frames_keeps_k_at_full_size():
    selection = run("qframe", VideoInfo(36_000, 30.0), k=8, fixed_frames=True)
    assert len(selection.keyframes) == 8
    assert selection.scales is None


def test_qframe_ranks_like_a_draw_from_the_softmax():
    relevance = np.full(128, 0.5)
    relevance[3] = 0.5 + 0.8 * np.log(20) / 20  # logits are 20 times relevance: 20 times as likely as each other frame
    first = [
        3
        in run("qframe", VideoInfo(128, 1.0), k=1, world=ArraySource(relevance), rng=seed, fixed_frames=True).keyframes
        for seed in range(1500)
    ]
    assert np.mean(first) == pytest.approx(20 / 147, abs=0.03)


# BOLT ----------------------------------------------------------------------------------------------------------------


def test_bolt_on_flat_relevance_is_evenly_spread():
    frames = run("bolt", VideoInfo(6400, 1.0), k=8, world=ArraySource(np.full(6400, 0.4))).keyframes
    assert np.array(frames) / 6400 == pytest.approx(np.linspace(1 / 8, 7 / 8, 8), abs=1e-3)


def test_bolt_repeats_a_frame_that_holds_most_of_the_relevance():
    relevance = np.zeros(300)
    relevance[90] = 1.0
    selection = run("bolt", VideoInfo(300, 30.0), k=4, world=ArraySource(relevance))
    assert selection.keyframes == (90, 90, 90, 90)
    assert selection.facts["unique_keyframes"] == 1


def test_bolt_sums_shares_and_not_weights():
    # Levels fall on steps of the sum here: dividing after summing gives other frames at k = 5 and 20.
    world = ArraySource(np.tile([1.0, 0.1, 0.2, 0.7], 40))
    for k in (5, 10, 20, 40):
        selection = run("bolt", VideoInfo(160, 1.0), k=k, world=world, power=1.0)
        weights = (world.values - 0.1) / (1.0 - 0.1)
        share, frame, expected = np.cumsum(weights / weights.sum()), 0, []
        for level in np.linspace(1 / k, 1 - 1 / k, k):
            while share[frame] < level:
                frame += 1
            expected.append(frame)
        assert list(selection.keyframes) == expected


def test_bolt_sharpens_with_the_power():
    spread = [np.std(run("bolt", VideoInfo(9000, 1.0), k=64, power=power).keyframes) for power in (0.25, 8.0)]
    assert spread[0] > spread[1]


# MDP3 ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_problem():
    generator = np.random.default_rng(2)
    images = generator.normal(size=(9, 5))
    images /= np.linalg.norm(images, axis=1, keepdims=True)
    gain = 10.0 * np.log(multi_gaussian(images, images[:1])[:, 0] / 5)
    return multi_gaussian(images, images), gain


def test_mdp3_kernel_is_five_on_equal_frames_and_falls_with_distance(small_problem):
    kernel, _ = small_problem
    assert np.diag(kernel) == pytest.approx(np.full(9, 5.0))
    assert (kernel < 5 + 1e-12).all()
    assert np.linalg.eigvalsh(kernel).min() > 0


def test_mdp3_greedy_steps_add_up_to_the_value_of_the_list(small_problem):
    kernel, gain = small_problem
    order, gains = greedy(kernel, gain, np.arange(9), np.empty(0, dtype=int), 6)
    for n in range(1, 7):
        selected = order[:n]
        value = gain[selected].sum() + np.linalg.slogdet(kernel[np.ix_(selected, selected)])[1]
        assert gains[:n].sum() == pytest.approx(value)


def test_mdp3_conditions_on_the_last_frame_before_the_segment(small_problem):
    kernel, gain = small_problem
    order, gains = greedy(kernel, gain, np.arange(4, 9), np.array([3]), 2)
    positions = np.concatenate([[3], order])
    value = gain[order].sum() + np.linalg.slogdet(kernel[np.ix_(positions, positions)])[1] - np.log(kernel[3, 3])
    assert gains.sum() == pytest.approx(value)


def test_mdp3_with_one_segment_is_the_greedy_list(small_problem):
    kernel, gain = small_problem
    order, _ = greedy(kernel, gain, np.arange(9), np.empty(0, dtype=int), 4)
    assert best_list(kernel, gain, [np.arange(9)], 4).tolist() == sorted(order.tolist())


@pytest.mark.parametrize("cuts", [[3, 6], [1, 2, 3, 4, 5, 6, 7, 8], []])
def test_mdp3_finds_the_most_relevant_list_where_all_frames_differ_alike(small_problem, cuts):
    _, gain = small_problem
    for k in (1, 4, 9):
        best = np.sort(np.argsort(-gain, kind="stable")[:k])
        assert best_list(5.0 * np.eye(9), gain, np.split(np.arange(9), cuts), k).tolist() == best.tolist()


def test_mdp3_segments_share_out_the_frames_by_value_and_not_evenly():
    gain = np.array([0.0, 0.0, 0.0, 3.0, 2.0, 1.0])
    assert best_list(5.0 * np.eye(6), gain, np.split(np.arange(6), 2), 3).tolist() == [3, 4, 5]


def test_mdp3_does_not_repeat_the_last_frame_of_the_segment_before():
    # Candidates 2 and 3 are the same picture; the second segment starts with its copy and takes the other instead.
    images = np.eye(4)[[0, 1, 2, 2, 3]]
    gain = np.array([0.0, 0.0, 5.0, 1.1, 1.0])
    assert best_list(multi_gaussian(images, images), gain, np.split(np.arange(5), [3]), 2).tolist() == [2, 4]


def test_mdp3_prefers_relevant_frames_that_differ():
    world = ArraySource(np.zeros(12_800))
    world.vectors[:] = np.eye(8)[5]
    frames = np.linspace(0, 12_799, 128).astype(int)
    world.query = np.eye(8)[0]
    world.vectors[frames[10:20]] = np.eye(8)[0]  # ten equal frames that match
    world.vectors[frames[70]] = (np.eye(8)[0] + 0.3 * np.eye(8)[1]) / np.hypot(1, 0.3)  # nearly matches, differs
    picked_frames = run("mdp3", VideoInfo(12_800, 30.0), k=2, world=world).keyframes
    assert picked_frames[0] in frames[10:20]
    assert picked_frames[1] == frames[70]


# MaxInfo -------------------------------------------------------------------------------------------------------------


def test_maxinfo_rows_span_nearly_the_largest_volume():
    matrix = np.random.default_rng(0).normal(size=(14, 3))

    def volume(rows):
        return np.linalg.det(matrix[list(rows)].T @ matrix[list(rows)]) ** 0.5

    for n in (3, 5):
        rows = largest_volume_rows(matrix, n)
        assert len(set(rows.tolist())) == n
        assert volume(rows) >= 0.75 * max(volume(rows) for rows in itertools.combinations(range(14), n))


def test_maxinfo_swaps_until_no_swap_gains():
    matrix = np.random.default_rng(1).normal(size=(60, 6))
    rows = largest_volume_rows(matrix, 6)
    assert np.abs(np.linalg.solve(matrix[rows].T, matrix.T)).max() <= 1.02 + 1e-9


def test_maxinfo_does_not_read_the_query():
    first, second = ArraySource(np.zeros(5000)), ArraySource(np.zeros(5000))
    second.query = -second.query[::-1]
    video = VideoInfo(5000, 25.0)
    assert run("maxinfo", video, k=16, world=first).keyframes == run("maxinfo", video, k=16, world=second).keyframes


def test_maxinfo_takes_one_frame_of_every_scene():
    world = ArraySource(np.zeros(12_800))
    scene = np.arange(12_800) // 1600
    world.vectors = np.eye(8)[scene]
    frames = run("maxinfo", VideoInfo(12_800, 30.0), k=8, world=world).keyframes
    assert sorted(scene[list(frames)]) == list(range(8))
