"""Are lengths, rates and frame indices what they must be?"""

from __future__ import annotations

import numpy as np
import pytest

from focus_eval import Selection, VideoInfo
from focus_eval.core.errors import InvalidInput


@pytest.mark.parametrize(
    ("n_frames", "fps", "seconds", "frames"),
    [
        (10, 2.0, 1.0, [0, 2, 4, 6, 8]),
        (100, 29.97, 1.0, [0, 30, 60, 90]),
        (100, 30000 / 1001, 0.5, [0, 15, 30, 45, 60, 75, 90]),
        (5, 1.0, 0.25, [0, 1, 2, 3, 4]),
        (5, 1.0, 100.0, [0]),
        (3, 1.0, 0.7, [0, 1, 2]),  # round(4 * 0.7) = 3 is past the end
    ],
)
def test_frames_at_an_interval_are_the_nearest_to_its_multiples(n_frames, fps, seconds, frames):
    assert VideoInfo(n_frames, fps).frames_every(seconds).tolist() == frames


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_an_interval_that_is_not_above_zero_is_refused(seconds):
    with pytest.raises(InvalidInput, match="above 0"):
        VideoInfo(10, 2.0).frames_every(seconds)


def test_indices_that_are_not_integers_are_refused():
    with pytest.raises(InvalidInput, match="must be integers"):
        VideoInfo(10, 2.0, np.array([0.0, 4.5]))
    empty = np.empty(0)
    with pytest.raises(InvalidInput, match="must be integers"):
        Selection(
            keyframes=(0.9, 1.9),
            video=VideoInfo(10, 2.0),
            k=2,
            sampler="mine",
            options={},
            pulled_frames=empty.astype(int),
            pulled_relevance=empty,
        )
