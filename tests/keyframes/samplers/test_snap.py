"""The option `snap_seconds` moves a keyframe beside a scene into it, and changes nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import VideoInfo
from focus_eval.keyframes.samplers.base import Choice, FrameSampler, SelectionRequest
from focus_eval.keyframes.samplers.registry import make_sampler

VIDEO = VideoInfo(n_frames=100, fps=10.0)
SCENE = np.where((np.arange(100) >= 40) & (np.arange(100) < 46), 0.8, 0.05)
SCENE[43] = 0.9


class Fixed(FrameSampler):
    """Scores every fifth frame and 43, and chooses the frames of its class."""

    name = "fixed"
    frames = (10, 36, 60)

    def choose(self, request: SelectionRequest) -> Choice:
        request.ledger.relevance(np.append(np.arange(0, 100, 5), 43))
        return Choice(keyframes=np.array(self.frames))


def chosen(sampler, relevance=SCENE, **arguments):
    choice = sampler.select(
        VIDEO, k=3, pull=lambda frames: relevance[frames], rng=np.random.default_rng(0), **arguments
    )
    return choice.keyframes, choice.facts.get("snapped", 0)


def test_a_keyframe_beside_a_scene_moves_to_its_best_scored_frame():
    assert chosen(Fixed()) == ((10, 36, 60), 0)
    assert chosen(Fixed(snap_seconds=1.0)) == ((10, 43, 60), 1)
    # 43 lies .7 seconds away, 40 lies .4.
    assert chosen(Fixed(snap_seconds=0.5)) == ((10, 40, 60), 1)
    assert chosen(Fixed(snap_seconds=0.3)) == ((10, 36, 60), 0)


def test_two_keyframes_never_move_to_one_frame():
    beside = type("Beside", (Fixed,), {"frames": (34, 36, 49)})
    assert chosen(beside(snap_seconds=1.0)) == ((40, 43, 45), 3)


def test_nothing_moves_without_relevance_or_where_all_frames_are_alike():
    alike = np.full(100, 0.3)
    assert chosen(Fixed(snap_seconds=1.0), alike) == ((10, 36, 60), 0)
    uniform = make_sampler("uniform", snap_seconds=1.0)
    assert chosen(uniform)[0] == chosen(make_sampler("uniform"))[0]


@given(
    relevance=st.lists(st.floats(0, 1), min_size=100, max_size=100),
    seconds=st.floats(0, 3),
    frames=st.sets(st.integers(0, 99), min_size=3, max_size=3),
)
def test_as_many_keyframes_are_left_each_within_the_distance(relevance, seconds, frames):
    sampler = type("Any", (Fixed,), {"frames": tuple(sorted(frames))})
    relevance = np.array(relevance)
    frames_before, frames_after = chosen(sampler(), relevance)[0], chosen(sampler(snap_seconds=seconds), relevance)[0]
    assert len(set(frames_after)) == 3
    for frame in set(frames_after) - set(frames_before):
        assert min(abs(frame - other) for other in frames_before) <= seconds * VIDEO.fps
        assert relevance[frame] >= 0.5 * relevance[[*range(0, 100, 5), 43]].max()


def test_a_negative_distance_is_refused():
    with pytest.raises(InvalidInput, match="snap_seconds"):
        make_sampler("even_cover", snap_seconds=-1)
