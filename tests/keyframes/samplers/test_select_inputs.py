"""Wrong arguments of `FrameSampler.select`: each is refused in a line that names it, what is expected and what came."""

from __future__ import annotations

import numpy as np
import pytest

from focus_eval import VideoInfo, make_sampler
from focus_eval.core.errors import FocusEvalError

VIDEO = VideoInfo(900, 30.0)
WRONG = [
    ({"video": (900, 30.0)}, r"video must be a VideoInfo .*got \(900, 30.0\)"),
    ({"video": "talk.mp4"}, r"video must be a VideoInfo .*got 'talk.mp4'"),
    ({"k": "8"}, "k must be an integer, got '8'"),
    ({"pull": None}, "pull must be a function of an array of frames, got None"),
    ({"pull": np.zeros(900)}, "pull must be a function of an array of frames, got array"),
    ({"pull": lambda frames: ["a"] * len(frames)}, r"relevance must be an array of numbers, got \['a'"),
    ({"pull": lambda frames: 0.5}, r"24 frames asked, relevance came with shape \(\)"),
    ({"rng": 0}, r"rng must be a numpy generator, e.g. np.random.default_rng\(0\), got 0"),
    ({"rng": None}, "rng must be a numpy generator"),
    ({"coarse_rng": 0}, "coarse_rng must be a numpy generator"),
    ({"budget": "10"}, "budget must be an integer, got '10'"),
    ({"budget": -1}, "budget must be at least 0, got -1"),
    ({"texts": "a chart"}, "texts must be QuestionTexts, got 'a chart'"),
    (
        {"sampler": "oracle", "evidence_seconds": "late"},
        "evidence_seconds must be finite numbers of seconds, got 'late'",
    ),
    ({"sampler": "oracle", "evidence_seconds": None}, "evidence_seconds must be finite numbers of seconds, got None"),
    ({"sampler": "scan_cover", "scan": 3}, "scan must be a function of an array of frames, got 3"),
    ({"sampler": "scan_cover", "scan_cost": "a"}, "scan_cost must be a finite number above 0, got 'a'"),
    ({"look": 3}, "look must be a function of an array of frames, got 3"),
]


@pytest.mark.parametrize(
    ("wrong", "message"), WRONG, ids=lambda value: value if isinstance(value, str) else "-".join(value)
)
def test_a_wrong_argument_is_named(wrong, message):
    arguments = {"video": VIDEO, "k": 4, "pull": lambda f: f / 900, "rng": np.random.default_rng(0), **wrong}
    sampler = make_sampler(arguments.pop("sampler", "focus"))
    with pytest.raises(FocusEvalError, match=message) as refused:
        sampler.select(arguments.pop("video"), **arguments)
    assert "\n" not in str(refused.value)


def test_what_a_sampler_does_not_use_may_be_left_empty():
    assert make_sampler("uniform").select(VIDEO, k=4, pull=None, rng=None, evidence_seconds=None).n_pulls == 0
