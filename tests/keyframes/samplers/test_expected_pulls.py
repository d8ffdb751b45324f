"""What draws are expected to pull is the mean of what they pull."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest

from focus_eval.core.errors import FocusEvalError
from focus_eval.core.types import VideoInfo
from focus_eval.keyframes.samplers.base import FlatSource
from focus_eval.keyframes.samplers.expected_pulls import Draw, ExpectedPulls, expected_union
from focus_eval.keyframes.samplers.registry import SAMPLERS, make_sampler

# One too short for its arms, and one with more arms than fit the least number.
VIDEOS = [VideoInfo(n_frames=40, fps=10.0), VideoInfo(n_frames=1777, fps=9.0)]


def expecting():
    for name in SAMPLERS.names():
        try:
            sampler = make_sampler(name).at_cost(0.02)
            if sampler.expected_pulls(VIDEOS[0], k=8) is not None:
                yield sampler
        except FocusEvalError:  # needs an option that it has no default for
            continue


def test_the_family_is_expected_and_what_only_a_run_tells_is_not():
    names = {sampler.name for sampler in expecting()}
    assert {"focus", "focus_c", "focus_f", "focus_gop", "focus_iterative", "focus_released"} <= names
    assert {"aks", "topk", "uniform", "qframe", "even_cover", "scan_cover", "scan_only"} <= names
    assert not {"oracle", "subquestions"} & names
    at_sync = VideoInfo(n_frames=1777, fps=9.0, sync_frames=np.arange(0, 1777, 9))
    assert make_sampler("focus_gop").expected_pulls(at_sync, k=8) is None


@pytest.mark.parametrize("sampler", [item for item in expecting() if item.draws], ids=lambda sampler: sampler.name)
@pytest.mark.parametrize("video", VIDEOS, ids=["short", "long"])
def test_runs_pull_what_is_expected_on_average(sampler, video):
    expected, n_runs = sampler.expected_pulls(video, k=8), 40
    selections = [_select(sampler, video, seed) for seed in range(n_runs)]
    pulled = [set(selection.pulled_frames.tolist()) for selection in selections]
    n_keyframes = min(8, video.n_frames) if expected.n_keyframes is None else expected.n_keyframes
    assert {len(selection.keyframes) for selection in selections} == {n_keyframes}
    assert all(np.array_equal(selection.scanned_frames, expected.scanned) for selection in selections)
    assert all(set(expected.fixed.tolist()) <= frames for frames in pulled)
    assert expected.n_pulls == pytest.approx(np.mean([len(frames) for frames in pulled]), rel=0.02)
    # Shared by three questions, as a plan counts a video.
    shared = [len(reduce(set.union, pulled[at : at + 3])) for at in range(0, n_runs - 2, 3)]
    draws = [(draw, 3) for draw in (expected.coarse, *expected.later_draws) if draw is not None]
    assert expected_union(expected.fixed, draws) == pytest.approx(np.mean(shared), rel=0.04)


def _select(sampler, video, seed):
    rng = np.random.default_rng(seed)
    scan = lambda frames: rng.standard_normal(frames.size)  # noqa: E731
    return sampler.select(video, k=8, pull=FlatSource(), scan=scan, rng=rng)


def test_a_union_of_draws_by_hand():
    fixed, edges = np.array([0, 5]), np.array([0, 4, 10])
    assert expected_union(fixed, []) == 2
    # Three free frames missed with probability .5, five with .5 * .8; then each draw made twice.
    draws = [(Draw(edges, np.array([0.5, 0.5])), 1), (Draw(np.array([4, 10]), np.array([0.2])), 1)]
    assert expected_union(fixed, draws) == pytest.approx(2 + 3 * 0.5 + 5 * 0.6)
    assert expected_union(fixed, [(draw, 2) for draw, _ in draws]) == pytest.approx(2 + 3 * 0.75 + 5 * (1 - 0.16))
    assert ExpectedPulls(fixed=fixed, later_draws=(draws[0][0],)).n_pulls == pytest.approx(2 + 8 * 0.5)
