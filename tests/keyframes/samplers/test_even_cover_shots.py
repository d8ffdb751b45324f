"""even_cover with cuts: shots share the pulls, and are weighed by what they explain."""

from __future__ import annotations

import numpy as np
import pytest

from focus_eval import VideoInfo, make_sampler
from focus_eval.core.errors import InvalidInput
from focus_eval.keyframes.samplers.bandit import Clips
from focus_eval.keyframes.samplers.coverage import share_between_shots, shares_by_length, shot_weights, shots_of
from focus_eval.keyframes.samplers.sources import ArraySource, bumpy

from .test_even_cover import run


def test_a_sync_frame_before_the_longest_group_is_full_marks_a_cut():
    video = VideoInfo(1000, 25.0, np.array([0, 250, 300, 550, 560, 810]))
    assert shots_of(video).starts.tolist() == [0, 300, 560]
    assert shots_of(video).stops.tolist() == [300, 560, 1000]


@pytest.mark.parametrize("sync", [None, [0], [0, 100, 200, 300], range(1000), []])
def test_groups_of_one_length_tell_of_no_cut(sync):
    video = VideoInfo(1000, 25.0, None if sync is None else np.array(sync, dtype=int))
    assert len(shots_of(video)) == 1
    assert run(video, cuts=True).keyframes == run(video).keyframes


@pytest.mark.parametrize("n", [5, 6, 17, 100, 1000])
def test_pulls_are_shared_out_by_length_to_the_last(n):
    sizes = np.array([1, 10, 100, 389, 500])
    shares = shares_by_length(sizes, n)
    assert shares.sum() == n
    assert (shares >= 1).all()
    assert (shares <= sizes).all()
    assert (np.diff(shares) >= 0).all()


@pytest.mark.parametrize("seed", range(5))
def test_pulls_are_shared_out_among_any_shots(seed):
    generator = np.random.default_rng(seed)
    for _ in range(50):
        sizes = generator.integers(1, 400, generator.integers(1, 60))
        n = int(generator.integers(sizes.size, sizes.sum() + 1))
        shares = shares_by_length(sizes, n)
        assert shares.sum() == n
        assert (shares >= 1).all()
        assert (shares <= sizes).all()


def test_with_cuts_every_shot_is_pulled_and_tells_of_itself_alone():
    edges = [0, 250, 500, 560, 810, 1060, 1310, 1560, 1600, 1850, 2100, 2350]
    video = VideoInfo(2500, 25.0, np.array(edges))
    world = ArraySource(bumpy(2500))
    selection = run(video, world=world, k=4, pulls=9, cuts=True)
    assert selection.facts["shots"] == 3
    assert np.bincount(np.searchsorted([560, 1600, 2500], selection.pulled_frames, side="right")).tolist() == [2, 4, 3]


@pytest.mark.parametrize("step", [20, 90])
def test_more_shots_than_pulls_are_not_used(step):
    sync = np.concatenate([np.arange(0, 1000, step), [1250]])
    selection = run(VideoInfo(2000, 25.0, sync), k=4, pulls=9, cuts=True)
    assert selection.facts["shots"] == 1
    assert selection.n_pulls == 9


def test_the_middle_of_a_short_shot_counts_most():
    starts, stops = np.zeros(4), np.array([4.0, 4.0, 16.0, 2.0])
    assert shot_weights(np.array([2.0, 0.0, 8.0, 1.0]), starts, stops) == pytest.approx([1.0, 0.5, 0.5, 1.0])


SHOTS = Clips(np.array([0, 100, 200]), np.array([100, 200, 300]))
TWO_EACH = np.array([10, 60, 110, 160, 210, 260])


def sigmoid(logits):
    return 1 / (1 + np.exp(-np.asarray(logits, dtype=float)))


def test_the_share_between_shots_is_the_intraclass_correlation_of_logits():
    # Shots' means 1, 3, 5 and one unit around each: within 2, between 8, so the shots' own variance is (8 - 2) / 2.
    assert share_between_shots(TWO_EACH, sigmoid([0, 2, 2, 4, 4, 6]), SHOTS) == pytest.approx(3 / 5)


@pytest.mark.parametrize(
    ("logits", "share"), [([1, 1, 2, 2, 3, 3], 1.0), ([1, 3, 1, 3, 1, 3], 0.0), ([2, 2, 2, 2, 2, 2], 0.0)]
)
def test_the_share_is_all_where_shots_are_even_and_none_where_they_are_alike(logits, share):
    assert share_between_shots(TWO_EACH, sigmoid(logits), SHOTS) == pytest.approx(share, abs=1e-9)


def test_shots_of_one_pull_each_tell_no_share_and_relevance_of_0_and_1_has_one():
    assert share_between_shots(np.array([10, 110, 210]), np.array([0.1, 0.5, 0.9]), SHOTS) == 0.0
    assert share_between_shots(TWO_EACH, np.array([0.0, 0, 1, 1, 0, 0]), SHOTS) == pytest.approx(1.0)


SYNC = np.unique(np.concatenate([np.arange(0, 9000, 250), [400, 1100, 1300, 2700, 4100, 5200, 6600, 7700]]))
WITH_CUTS = VideoInfo(9000, 25.0, SYNC)


def shot_levels(noise, seed):
    """Relevance that is one level in each shot, with noise in each frame."""
    rng, shots = np.random.default_rng(seed), shots_of(WITH_CUTS)
    level = np.repeat(rng.uniform(-2, 2, len(shots)), shots.sizes)
    return ArraySource(sigmoid(level + noise * rng.standard_normal(9000)))


@pytest.mark.parametrize("seed", range(3))
def test_weighed_cuts_choose_as_cuts_do_where_relevance_changes_at_cuts_alone(seed):
    weighed = run(WITH_CUTS, world=shot_levels(0.0, seed), k=8, cuts=True, weigh_cuts=True)
    assert weighed.facts["shot_share"] == pytest.approx(1.0)
    assert weighed.keyframes == run(WITH_CUTS, world=shot_levels(0.0, seed), k=8, cuts=True).keyframes


@pytest.mark.parametrize("seed", range(3))
def test_weighed_cuts_keep_the_pulls_of_cuts_and_leave_its_choice_where_relevance_ignores_cuts(seed):
    def noise():
        return ArraySource(sigmoid(np.random.default_rng(seed).standard_normal(9000)))

    weighed, believed = (run(WITH_CUTS, world=noise(), k=8, pulls=90, cuts=True, weigh_cuts=w) for w in (True, False))
    assert weighed.pulled_frames.tolist() == believed.pulled_frames.tolist()
    assert weighed.facts["shot_share"] < 0.3
    assert weighed.keyframes != believed.keyframes


def test_cuts_that_are_not_used_cannot_be_weighed():
    with pytest.raises(InvalidInput, match="weigh_cuts=true needs cuts=true"):
        make_sampler("even_cover", weigh_cuts=True)


def test_without_sync_frames_weighing_changes_nothing():
    video = VideoInfo(9000, 25.0)
    assert run(video, k=8, cuts=True, weigh_cuts=True).keyframes == run(video, k=8).keyframes
