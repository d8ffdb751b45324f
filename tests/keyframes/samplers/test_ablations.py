"""Do FOCUS's ablations leave out what they say, and only that?"""

from __future__ import annotations

import numpy as np
import pytest

from focus_eval import VideoInfo, make_sampler
from focus_eval.keyframes.samplers.bandit import Arms, best_first, equal_clips

# Sixteen arms of 16 s, one frame a second. Flat ones keep their mean, the others swing between 0 and twice their mean.
VIDEO = VideoInfo(256, 1.0)
ARM_MEANS = np.tile([0.42, 0.30, 0.34, 0.38], 4) + np.arange(16) / 2000
SWINGS = np.tile([False, True, True, True], 4)


def relevance(frames):
    arm = frames // 16
    return np.where(SWINGS[arm], np.where(frames % 2, 2 * ARM_MEANS[arm], 0.0), ARM_MEANS[arm])


def select(name, seed=0):
    # Every frame of an arm is pulled, so that means and variances are those above.
    sampler = make_sampler(name, pulls_per_arm=16)
    return sampler.select(VIDEO, k=8, pull=relevance, rng=np.random.default_rng(seed))


def some_arms():
    frames = np.arange(VIDEO.n_frames)
    return Arms.unpulled(equal_clips(VIDEO.n_frames, 16)).with_pulls(frames, relevance(frames))


def test_the_world_tells_means_from_optimistic_means():
    arms = some_arms()
    assert arms.mean == pytest.approx(ARM_MEANS)
    by_mean, by_optimism = (set(np.argsort(-values)[:4]) for values in (arms.mean, arms.mean + arms.radius))
    assert by_mean.isdisjoint(by_optimism)


def test_focus_m_explores_nothing_whatever_the_arms_vary():
    arms = some_arms()
    assert arms.variance.max() > 0.1
    assert make_sampler("focus_m").exploration(arms).tolist() == [0.0] * 16
    assert make_sampler("focus").exploration(arms).tolist() == arms.radius.tolist()


@pytest.mark.parametrize(("name", "trusts_means"), [("focus_m", True), ("focus", False)])
def test_focus_m_looks_closer_at_the_arms_of_the_highest_mean_and_focus_at_others(name, trusts_means):
    agreed = []
    for seed in range(40):
        selection = make_sampler(name).select(VIDEO, k=8, pull=relevance, rng=np.random.default_rng(seed))
        arm, n_coarse = selection.pulled_frames // 16, 3 * 16
        arm_means = np.bincount(arm[:n_coarse], weights=selection.pulled_relevance[:n_coarse]) / 3
        closer = set(arm[n_coarse:].tolist())
        agreed.append(closer == set(best_first(arm_means)[: len(closer)].tolist()))
    assert all(agreed) == trusts_means


def test_focus_c_takes_its_keyframes_from_the_arms_of_the_highest_mean():
    selection = select("focus_c")
    best = set(np.argsort(-ARM_MEANS)[:4].tolist())
    assert {clip.start // 16 for clip in selection.clips if clip.is_final} == best
    assert {frame // 16 for frame in selection.keyframes} <= best
