"""Do clips partition a video, and does every frame find its pull?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus_eval.core.errors import InvalidInput
from focus_eval.samplers.bandit import Clips, equal_clips, nearest_pulled


@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))))
def test_equal_clips_partition_the_video(sizes):
    n_frames, n_clips = sizes
    clips = equal_clips(n_frames, n_clips)
    assert len(clips) == n_clips
    assert np.array_equal(
        np.concatenate([np.arange(a, b) for a, b in zip(clips.starts, clips.stops, strict=True)]), np.arange(n_frames)
    )
    assert np.ptp(clips.sizes) <= 1
    assert np.array_equal(clips.arm_of(np.arange(n_frames)), np.repeat(np.arange(n_clips), clips.sizes))


@pytest.mark.parametrize(
    ("starts", "stops"), [([], []), ([0], [0]), ([5, 0], [9, 4]), ([0, 3], [4, 9]), ([-1], [4]), ([0], [3, 4])]
)
def test_clips_that_are_empty_or_overlap_cannot_be_built(starts, stops):
    with pytest.raises(InvalidInput):
        Clips(np.array(starts), np.array(stops))


def test_more_clips_than_frames_cannot_be_cut():
    with pytest.raises(InvalidInput, match="3 frames cannot be cut into 4 clips"):
        equal_clips(3, 4)


def test_a_frame_in_no_clip_has_no_arm():
    clips = Clips(np.array([2, 6]), np.array([4, 8]))
    assert clips.arm_of(np.arange(10)).tolist() == [-1, -1, 0, 0, -1, -1, 1, 1, -1, -1]


def test_frames_of_arms_come_arm_after_arm_as_asked():
    frames, position = Clips(np.array([0, 3, 5]), np.array([3, 5, 9])).frames_of(np.array([2, 0]))
    assert frames.tolist() == [5, 6, 7, 8, 0, 1, 2]
    assert position.tolist() == [0, 0, 0, 0, 1, 1, 1]


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=8, unique=True),
    st.lists(st.integers(-5, 65), min_size=1, max_size=20),
)
def test_the_nearest_pull_is_the_nearest_and_the_earlier_of_two(pulled, frames):
    # The reward of a pull is its own frame number, so that the answer names the pull.
    found = nearest_pulled(np.array(frames), np.array(pulled), np.array(pulled, dtype=float))
    expected = [min(sorted(pulled), key=lambda pull, frame=frame: abs(pull - frame)) for frame in frames]
    assert found.tolist() == expected
