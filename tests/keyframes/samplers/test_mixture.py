"""Halves of two samplers: whose frames they are, what both cost, and what cannot be mixed."""

from __future__ import annotations

import numpy as np
import pytest

from focus_eval import VideoInfo, make_sampler
from focus_eval.core.errors import InvalidInput
from focus_eval.keyframes.samplers.sources import ArraySource, bumpy

from .test_distinct import VIDEO, Scenes, pictures

HOUR = VideoInfo(108_000, 30.0)


def run(name, *, k=32, video=HOUR, **options):
    pull = ArraySource(bumpy(video.n_frames))
    return make_sampler(name, **options).select(video, k=k, pull=pull, rng=np.random.default_rng(0))


def test_half_is_of_the_first_and_the_rest_of_the_second_without_near_twins():
    mixed, first, second = run("mixture"), run("aks"), run("event_cover")
    own = set(mixed.keyframes) & set(first.keyframes)
    other = set(mixed.keyframes) - own
    assert (len(own), len(other)) == (16, 16)
    assert other <= set(second.keyframes)
    gaps = np.abs(np.subtract.outer(sorted(other), sorted(own))).min(axis=1)
    assert (gaps > HOUR.fps).all()
    assert run("mixture", twin_seconds=1e6).keyframes == first.keyframes


def test_the_cost_of_both_is_stated_and_a_frame_is_pulled_once():
    mixed = run("mixture")
    alone = run("aks").n_pulls, run("event_cover").n_pulls
    assert mixed.facts["pulls_of_first"] == alone[0]
    assert mixed.n_pulls == alone[0] + mixed.facts["pulls_of_second_alone"]
    assert mixed.facts["pulls_of_second_alone"] < alone[1]
    shared = run("mixture", second="topk")
    assert (shared.n_pulls, shared.facts["pulls_of_second_alone"]) == (alone[0], 0)


def test_a_short_video_is_filled():
    assert len(run("mixture", video=VideoInfo(300, 30.0)).keyframes) == 32


@pytest.mark.parametrize("part", ["mdp3", "qframe", "subquestions", "oracle", "mixture"])
def test_a_sampler_that_needs_more_than_relevance_is_not_mixed(part):
    with pytest.raises(InvalidInput, match=f"'mixture' takes no {part}"):
        make_sampler("mixture", first=part)


def test_a_part_without_embeddings_tells_twins_by_pictures():
    mixture = make_sampler("mixture", first="topk:distinct=true", second="topk")
    source = Scenes([0.9, 0.8, 0.7, *[0.1] * 7])
    mixed = mixture.select(VIDEO, k=4, pull=source, look=pictures, rng=np.random.default_rng(0))
    assert len(mixed.looked_frames) > 0
    with pytest.raises(InvalidInput, match="no pictures to look at"):
        mixture.select(VIDEO, k=4, pull=source, rng=np.random.default_rng(0))
