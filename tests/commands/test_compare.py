"""`compare-samplers` ends with a verdict at equal cost, on a page."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from focus_eval.cli import app
from focus_eval.core.errors import MissingDependency
from focus_eval.core.types import VideoInfo
from focus_eval.samplers.registry import make_sampler
from focus_eval.simulation.equal_cost import CONTROLS, controls_at


def compare(*arguments):
    done = CliRunner().invoke(app, ["compare-samplers", *map(str, arguments)])
    return done, " ".join(done.output.split())


@pytest.mark.parametrize("cost", [50.0, 400.0])
def test_controls_score_as_many_frames_in_the_mean(cost):
    videos = [VideoInfo(int(25 * seconds), fps=25.0) for seconds in (200, 900, 3000, 8000)]
    entries = controls_at(cost, videos, k=8)
    assert [entry.sampler for entry in entries] == list(CONTROLS)
    for entry in entries:
        sampler = make_sampler(entry.sampler, **entry.options)
        planned = [sampler.count_pulls(video, k=8) for video in videos]
        assert sum(planned) / 4 == pytest.approx(cost, rel=0.02)
        assert entry.k == [8]


def test_options_of_every_sampler_are_taken_and_controls_run_at_the_new_ones_cost(tmp_path):
    done, said = compare("focus:alpha=0.5", "focus:alpha=0.1", "--videos", 8, "--no-demo", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert "K = 8, focus alpha=0.5 against focus alpha=0.1: " in said
    for control in CONTROLS:
        assert f"K = 32, focus alpha=0.5 against {control} at equal cost: " in said
    assert "% of frames encoded" in said
    page = (tmp_path / "compare.html").read_text()
    assert "Verdict in the world" in page
    assert "Evidence recall against forward equivalents" in page


def test_a_sampler_without_pulls_is_compared_with_what_has_none(tmp_path):
    worlds = ("--world", "smooth", "--world", "flashes")
    done, said = compare("uniform", "--videos", 6, "--no-demo", *worlds, "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert "K = 8, uniform against random" in said
    assert "both at 0.00 % of frames encoded" in said
    # Each table on the terminal says of which world it is, in the order in which they were named.
    assert re.findall(r"Verdict in the world '(\w+)', 6 videos:", said) == ["smooth", "flashes"]
    assert "at equal cost" not in said


def test_without_the_demos_extras_the_page_is_written_and_says_so(tmp_path, monkeypatch):
    def missing(*_args, **_kwargs):
        raise MissingDependency("photographs are not installed; pip install 'focus-eval[demo]'")

    monkeypatch.setattr("focus_eval.commands.demo.run_demo", missing)
    done, said = compare("uniform", "--videos", 6, "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert "The quick demo did not run: photographs are not installed" in said
    assert "Not run: photographs are not installed" in (tmp_path / "compare.html").read_text()


def test_the_videos_grow_until_all_is_decided_or_the_minutes_are_spent(tmp_path, monkeypatch):
    monkeypatch.setattr("focus_eval.report.verdict.LOOKS", (6, 12))
    done, said = compare("focus_c", "--no-demo", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert "6 videos: " in said
    assert "12 videos next, about " in said
    done, said = compare("focus_c", "--no-demo", "--out", tmp_path, "--minutes", 0)
    assert "Verdict in the world 'realistic', 6 videos:" in said, "not those of the longer run before"
    done, said = compare("focus_c", "--no-demo", "--out", tmp_path / "short", "--minutes", 0)
    assert "12 videos would take longer than --minutes 0." in said


SOMETIMES_FAILS = """
from dataclasses import dataclass
from typing import ClassVar

from focus_eval.samplers.base import Choice, FrameSampler
from focus_eval.samplers.coverage import evenly


@dataclass(frozen=True, kw_only=True)
class Fails(FrameSampler):
    name: ClassVar[str] = "fails"
    source: ClassVar[str] = "a test"
    needs_encoder: ClassVar[bool] = False

    def choose(self, request):
        if request.video.n_frames % 3 == 2:
            raise ValueError("no")
        return Choice(keyframes=evenly(request.video, request.n_wanted))
"""


def test_what_fails_counts_as_0_to_the_end_of_the_page(tmp_path, monkeypatch):
    (tmp_path / "fails.py").write_text(SOMETIMES_FAILS)
    monkeypatch.setattr("focus_eval.commands.compare.check", lambda *_args, **_kwargs: None)
    done, said = compare(f"{tmp_path}/fails.py:Fails", "uniform", "--videos", 20, "--no-demo", "--out", tmp_path / "o")
    assert done.exit_code == 0, done.output
    assert " of 20 questions, counted as 0." in said
    assert (tmp_path / "o" / "compare.html").exists()
