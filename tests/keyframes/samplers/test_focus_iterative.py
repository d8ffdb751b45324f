"""Does `focus_iterative` find the best arms as often as its confidence bounds promise?

What is promised, and what is not. Whenever it stops "stable" while every arm's true mean lies within its radius,
the final arms are the true top set: that is certain, and tested without tolerance. The radius at `n` pulls fails for
one arm with probability at most 3 / n (Audibert et al. 2009), so over `M` arms a stable stop at `n` pulls is wrong
with probability at most 3 M / n, up to the choice of the moment to stop, which the union bound does not cover.
Nothing is promised where pulling ended at `max_pulls`.
"""

from __future__ import annotations

import numpy as np
import pytest

from focus_eval import VideoInfo, make_sampler
from focus_eval.keyframes.samplers.sources import ArraySource, bumpy

N_ARMS, ARM = 8, 2500
VIDEO = VideoInfo(N_ARMS * ARM, 2500.0)


def simulate(seed, *, max_pulls=None, gap=0.35):
    """Select among eight arms, four better by about `gap`; return the selection and the arms' true means."""
    generator = np.random.default_rng(seed)
    arm_means = generator.permutation(np.repeat([0.5 - gap / 2, 0.5 + gap / 2], N_ARMS // 2)) + generator.uniform(
        -0.05, 0.05, 8
    )
    relevance = np.clip(arm_means.repeat(ARM) + generator.uniform(-0.25, 0.25, N_ARMS * ARM), 0, 1)
    sampler = make_sampler("focus_iterative", pulls_per_arm=8, max_pulls=max_pulls)
    selection = sampler.select(VIDEO, k=8, pull=ArraySource(relevance), rng=np.random.default_rng(seed))
    return selection, relevance.reshape(N_ARMS, ARM).mean(axis=1)


def is_right(selection, truth):
    final = {index for index, clip in enumerate(selection.clips) if clip.is_final}
    return final == set(np.argsort(-truth)[: len(final)].tolist())


@pytest.fixture(scope="module")
def runs():
    return [simulate(seed) for seed in range(40)]


def test_without_a_limit_it_stops_stable(runs):
    assert all(selection.facts["stopped"] == "stable" for selection, _ in runs)
    assert all(selection.n_pulls < VIDEO.n_frames for selection, _ in runs)


def test_a_stable_stop_within_the_radii_is_the_true_top_set(runs):
    n_within = 0
    for selection, truth in runs:
        clip_means, radii = np.array([(clip.mean, clip.radius) for clip in selection.clips]).T
        if (np.abs(clip_means - truth) <= radii).all():
            n_within += 1
            assert is_right(selection, truth)
    assert n_within > 0


def test_the_top_set_is_missed_no_more_often_than_the_union_bound_allows(runs):
    allowed = sum(min(1.0, 3 * N_ARMS / selection.n_pulls) for selection, _ in runs)
    missed = sum(not is_right(selection, truth) for selection, truth in runs)
    assert missed <= allowed


def test_the_first_pulls_alone_would_miss_it():
    # The same arms, closer together and cut off: a set that no bound covers is wrong at times.
    results = [simulate(seed, max_pulls=1, gap=0.1) for seed in range(20)]
    assert all(selection.facts["stopped"] == "max_pulls" for selection, _ in results)
    assert not all(is_right(selection, truth) for selection, truth in results)


def test_the_set_in_dispute_is_empty_at_a_stable_stop_and_not_before(runs):
    for selection, _ in runs[:10]:
        final = np.array([clip.is_final for clip in selection.clips])
        clip_means, radii = np.array([(clip.mean, clip.radius) for clip in selection.clips]).T
        assert (clip_means - radii)[final].min() >= (clip_means + radii)[~final].max()
        assert selection.facts["rounds"] * 8 == selection.n_pulls - 8 * N_ARMS


def test_it_stops_at_max_pulls():
    for max_pulls in (64, 65, 100):
        selection, _ = simulate(0, max_pulls=max_pulls)
        assert selection.n_pulls == max_pulls
        assert selection.facts["stopped"] == "max_pulls"


def test_the_first_pulls_are_made_whatever_the_limit():
    assert simulate(0, max_pulls=1)[0].n_pulls == 8 * N_ARMS


def test_auto_spends_at_most_what_focus_spends():
    video, world = VideoInfo(36_000, 30.0), ArraySource(bumpy(36_000))
    pulls = {
        name: make_sampler(name).select(video, k=8, pull=world, rng=np.random.default_rng(0)).n_pulls
        for name in ("focus", "focus_iterative")
    }
    assert pulls["focus_iterative"] <= pulls["focus"]


def test_an_arm_pulled_whole_is_certain():
    # Nine frames an arm: the radius never gets small, so every arm in dispute is pulled to its last frame.
    world = ArraySource(np.random.default_rng(4).random(72))
    sampler = make_sampler("focus_iterative", max_pulls=None)
    selection = sampler.select(VideoInfo(72, 30.0), k=8, pull=world, rng=np.random.default_rng(0))
    assert selection.facts["stopped"] == "stable"
    assert is_right(selection, world.values.reshape(8, 9).mean(axis=1))
    assert {clip.radius for clip in selection.clips if clip.n_pulls == 9} == {0.0}
