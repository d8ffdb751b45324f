"""Are frames laid out by time where the rate varies, whichever sampler chooses them, and by number elsewhere?"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from focus_eval import select_keyframes
from focus_eval.bench.matrix.cells import selection_specs
from focus_eval.bench.matrix.config import load_matrix
from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import Question
from focus_eval.keyframes.pipeline.selector import Selector
from focus_eval.keyframes.samplers.registry import SAMPLERS, make_sampler
from focus_eval.keyframes.video.clip_writer import ClipWriter
from tests.support.keyframes.synthetic import write_numbered_clip

STILL_SECONDS, SECONDS = 600, 610
QUESTION = Question(benchmark="b", id="q", query="a red car", options=(), video="v", answer=None)
PICTURES = {"encoder": "offline", "query": "a red car"}


def write_screen_recording(path):
    """Write ten minutes of slides, a frame every ten seconds, and ten seconds at 60 frames a second after them."""
    times = [*np.arange(0, STILL_SECONDS, 10.0), *STILL_SECONDS + np.arange(600) / 60]
    noise = np.random.default_rng(0)
    with ClipWriter(path, width=64, height=48, fps=60, gop=60, time_base=Fraction(1, 600)) as writer:
        for seconds in times:
            field = noise.integers(0, 255, (6, 8, 3)).astype(np.uint8)
            writer.write(np.kron(field, np.ones((8, 8, 1), dtype=np.uint8)), ticks=round(600 * seconds))
    return path


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    return write_screen_recording(tmp_path_factory.mktemp("recording") / "screen.mp4")


def share_of_stills(times):
    return np.mean(np.asarray(times) < STILL_SECONDS)


def test_a_summary_is_even_in_time(recording):
    times = select_keyframes(recording, k=8).times
    assert np.abs(np.array(times) - np.linspace(0, SECONDS, 8)).max() < 10.1


# Of 60 slides in 610 seconds; by frame number they were an eleventh of all.
@pytest.mark.parametrize(
    ("sampler", "least_share"),
    [("topk:every_seconds=10", 0.95), ("even_topk", 0.7), ("even_diverse", 0.7), ("even_cover", 0.9), ("focus", 0.5),
     ("focus_released", 0.5), ("event_cover", 0.9), ("aks:every_seconds=10,max_depth=3", 0.95)],
)  # fmt: skip
def test_pulls_are_spread_over_time(recording, sampler, least_share):
    selection = select_keyframes(recording, k=8, sampler=sampler, **PICTURES)
    seconds = np.array([10 * frame if frame < 60 else STILL_SECONDS for frame in selection.pulled_frames])
    assert np.unique(selection.pulled_frames).size == selection.pulled_frames.size
    assert np.unique(seconds[seconds < STILL_SECONDS]).size > least_share * 60


def test_the_arms_of_focus_are_as_long_in_time_as_they_say(recording):
    selection = select_keyframes(recording, k=8, sampler="focus", **PICTURES)
    clock = [*range(0, STILL_SECONDS, 10), *(STILL_SECONDS + np.arange(601) / 60)]
    assert len(selection.clips) == np.ceil(SECONDS / 16)
    # The frame on screen at the start of an arm may have come up to ten seconds before.
    assert max(clock[clip.stop - 1] - clock[clip.start] for clip in selection.clips) <= 16 + 10


@pytest.mark.parametrize("k", [8, 100, 700])
def test_no_frame_is_shown_twice_and_none_is_missing(recording, k):
    frames = select_keyframes(recording, k=k, sampler="uniform:distinct=false").keyframes
    assert len(set(frames)) == len(frames) == min(k, 660)


def test_a_stretch_begins_with_the_frame_on_screen(recording):
    selection = select_keyframes(recording, k=2, sampler="uniform", start_seconds=25, end_seconds=45)
    assert selection.keyframes == (2, 4)
    with pytest.raises(InvalidInput, match="no frame from 700 s"):
        select_keyframes(recording, k=2, start_seconds=700)


def rows_of(path, names, **settings):
    selectors = [Selector(sampler=make_sampler(name), encoder=None, k=8, **settings) for name in names]
    return [selector.select(QUESTION, path) for selector in selectors]


@pytest.mark.parametrize("rate", [30, Fraction(30000, 1001)])
def test_a_constant_rate_changes_nothing(tmp_path, rate):
    path = write_numbered_clip(tmp_path / "clip.mp4", 300, width=64, height=48, fps=rate, gop=30)
    names = [name for name in SAMPLERS.names() if not make_sampler_needs(name)]
    plain = rows_of(path, names)
    by_time = rows_of(path, names, timeline="seconds", usual_timeline="seconds")
    assert len(names) >= 3
    for row, evened_row in zip(plain, by_time, strict=True):
        assert replace(row, seconds={}) == replace(evened_row, seconds={})


def make_sampler_needs(name):
    kind = SAMPLERS.load(name)
    return kind.needs_encoder or kind.needs_evidence or kind.needs_llm or kind.needs_scan


def test_a_table_counts_frames_unless_its_matrix_says_seconds(recording):
    by_number, by_time = (rows_of(recording, ["uniform"], timeline=timeline)[0] for timeline in ("frames", "seconds"))
    assert by_number.keyframes == np.linspace(0, 659, 8).astype(int).tolist()
    assert share_of_stills(by_time.times_seconds) > 0.8
    assert by_time.facts["timeline"] == "seconds"
    assert by_time.selection_id != by_number.selection_id
    specs = selection_specs(load_matrix("alpha", overrides={"timeline": "seconds"}))
    assert {spec.configuration["timeline"] for spec in specs} == {"seconds"}
