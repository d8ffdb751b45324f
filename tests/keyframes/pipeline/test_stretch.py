"""A stretch of a video gives frames and times of the whole file, and the sampler sees no other frame."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from focus_eval import make_encoder, select_keyframes
from focus_eval.cli import app
from focus_eval.core.errors import InvalidInput
from tests.support.keyframes.synthetic import write_numbered_clip

# Five frames a second, then one: the time of a frame is not frame / rate.
SECONDS = [*np.arange(0, 6, 0.2), *np.arange(6, 36, 1.0)]
TRACE = np.random.default_rng(0).random(60)


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    path = tmp_path_factory.mktemp("clips") / "vfr.mp4"
    return write_numbered_clip(path, 60, ticks=[round(10 * seconds) for seconds in SECONDS], fps=10)


def choose(clip, sampler, **options):
    return select_keyframes(
        clip, query="a number", k=4, sampler=sampler, encoder=make_encoder("recorded", trace=TRACE), **options
    )


@pytest.mark.parametrize(
    "sampler", ["uniform", "even_topk", "topk", "focus:clip_seconds=2", "aks:max_depth=2", "even_cover"]
)
def test_frames_pulls_and_times_are_those_of_the_whole_file(clip, sampler):
    selection = choose(clip, sampler, start_seconds=4.0, end_seconds=20.0)
    inside = {frame for frame, seconds in enumerate(SECONDS) if 4.0 - 1e-9 <= seconds < 20.0}
    assert selection.keyframes
    assert {*selection.keyframes} <= inside
    assert {*selection.pulled_frames.tolist()} <= inside
    assert np.allclose(selection.times, [SECONDS[frame] for frame in selection.keyframes], atol=1e-3)
    assert np.allclose(selection.pulled_relevance, TRACE[selection.pulled_frames])
    assert {clip.start for clip in selection.clips} <= inside
    assert (selection.video.n_frames, selection.row.facts["stretch_frames"]) == (60, [min(inside), max(inside) + 1])


def test_the_best_frame_of_a_stretch_is_the_best_of_its_own(clip):
    first, stop = choose(clip, "topk", start_seconds=8.0).row.facts["stretch_frames"]
    selection = choose(clip, "topk:every_seconds=0.1,distinct=false", start_seconds=8.0)
    assert stop == 60
    assert first + int(TRACE[first:].argmax()) in selection.keyframes


def test_a_stretch_is_another_selection_and_the_whole_video_the_former_one(clip):
    whole, again = choose(clip, "uniform"), choose(clip, "uniform", start_seconds=0.0)
    part = choose(clip, "uniform", end_seconds=6.0)
    assert whole.row.selection_id == again.row.selection_id != part.row.selection_id


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ({"start_seconds": 40.0}, r"\.mp4: no frame from 40 s to the end; the last frame is at 35.00 s"),
        ({"start_seconds": 5.0, "end_seconds": 5.0}, "has no frame"),
        ({"start_seconds": -1.0}, "at least 0"),
    ],
)
def test_an_empty_stretch_is_refused(clip, times, message):
    with pytest.raises(InvalidInput, match=message):
        choose(clip, "uniform", **times)


def test_the_command_takes_seconds(clip):
    arguments = ["select", str(clip), "--sampler", "uniform", "-k", "3", "--start", "10", "--end", "20", "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert all(10 <= seconds < 20 for seconds in json.loads(result.stdout)["times_seconds"])
