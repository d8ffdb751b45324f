"""The option `distinct` replaces near twins by relevant frames that show something else, and changes nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from focus_eval.core.types import VideoInfo
from focus_eval.keyframes.samplers.ledger import RelevanceSource
from focus_eval.keyframes.samplers.registry import SAMPLERS, make_sampler

VIDEO = VideoInfo(n_frames=100, fps=1.0)


class Scenes(RelevanceSource):
    """Ten scenes of ten frames: each has an embedding, a grey level and a relevance of its own.

    Args:
        relevance: of the scenes, `(10,)`.
    """

    name = "scenes"

    def __init__(self, relevance):
        self.by_scene = np.asarray(relevance, dtype=float)

    def __call__(self, frames):
        # The middle of a scene is the most relevant, so that no two frames tie.
        return self.by_scene[frames // 10] - 1e-3 * np.abs(frames % 10 - 5)

    def embeddings(self, frames):
        return np.eye(10)[frames // 10], np.eye(10)[0]

    def relevance_and_embeddings(self, frames):
        return self(frames), self.embeddings(frames)[0]


def pictures(frames, size):
    return [np.full((8, 8, 3), 25 * (frame // 10), dtype=np.uint8) for frame in frames]


def select(source, *, k=4, sampler="topk", **options):
    made = make_sampler(sampler, **options)
    return made.select(VIDEO, k=k, pull=source, rng=np.random.default_rng(0), look=pictures)


def scenes_of(selection):
    return [frame // 10 for frame in selection.keyframes]


def test_twins_make_room_for_the_next_relevant_scenes():
    source = Scenes([0.9, 0.1, 0.8, 0.1, 0.7, 0.1, 0.6, 0.1, 0.1, 0.1])
    assert scenes_of(select(source)) == [0, 0, 0, 0]
    distinct = select(source, distinct=True)
    assert scenes_of(distinct) == [0, 2, 4, 6]
    assert distinct.facts["twins_replaced"] == 3
    assert 5 in distinct.keyframes  # the best frame of a scene stays, not a twin of it
    assert distinct.n_pulls == select(source).n_pulls


def test_a_twin_stays_where_no_other_relevant_scene_is_left():
    source = Scenes([0.9, 0.8, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1])
    selection = select(source, distinct=True)
    assert scenes_of(selection) == [0, 0, 0, 1]
    assert (selection.facts["twins_replaced"], selection.facts["twins_left"]) == (1, 2)


def test_without_embeddings_pictures_are_compared():
    source = Scenes([0.9, 0.1, 0.8, 0.1, 0.7, 0.1, 0.6, 0.1, 0.1, 0.1])
    distinct = select(source.__call__, distinct=True)
    assert scenes_of(distinct) == [0, 2, 4, 6]
    assert distinct.looked_frames.size


def test_a_sampler_that_pulls_nothing_shows_other_frames_too():
    even = select(Scenes(np.zeros(10)), k=12, sampler="uniform")
    assert len(set(scenes_of(even))) == 10
    assert len(select(Scenes(np.zeros(10)), k=12, sampler="uniform", distinct=True).keyframes) == 12


def test_without_relevance_a_twin_gives_way_to_the_frame_farthest_from_the_keyframes():
    def first_as_last(frames, size):
        return pictures(np.where(np.asarray(frames) >= 60, 0, frames), size)

    even = make_sampler("uniform", distinct=True)
    selection = even.select(VIDEO, k=2, pull=lambda frames: None, rng=np.random.default_rng(0), look=first_as_last)
    plain = make_sampler("uniform").select(VIDEO, k=2, pull=lambda frames: None, rng=np.random.default_rng(0))
    assert plain.keyframes == (0, 99)
    assert selection.keyframes[0] == 0
    assert 40 < selection.keyframes[1] < 60


@pytest.mark.parametrize("name", SAMPLERS.names())
def test_every_sampler_has_the_option_off_by_default_and_outside_its_identity(name):
    option = SAMPLERS.load(name).__dataclass_fields__["distinct"]
    assert (option.default, "added" in option.metadata) == (False, True)
