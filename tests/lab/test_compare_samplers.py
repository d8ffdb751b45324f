"""`compare-samplers` ends with a verdict at equal cost, on a page."""

from __future__ import annotations

import re
from importlib import import_module
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from focus_eval.cli import app
from focus_eval.core.types import VideoInfo
from focus_eval.keyframes.samplers.registry import make_sampler
from focus_eval.lab.equal_cost import CONTROLS, controls_at

# The package has the command under the name of its module.
compare_samplers = import_module("focus_eval.lab.commands.compare_samplers")


def compare(*arguments):
    # The same videos in every run: with few, other ones hold no question that is won or lost.
    result = CliRunner().invoke(app, ["compare-samplers", *map(str, arguments), "--seed", "7"])
    return result, " ".join(result.output.split())


@pytest.fixture
def short_page(monkeypatch):
    """Run the controls at one cost for the chart and draw no timelines, for tests that look at neither."""
    monkeypatch.setattr(compare_samplers, "_FRONTIER_PERCENT", [1.0])
    monkeypatch.setattr("focus_eval.lab.verdict.telling_questions", lambda *_arguments: ([], []))


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


@pytest.mark.slow
def test_options_of_every_sampler_are_taken_and_controls_run_at_the_new_ones_cost(tmp_path):
    result, output = compare("focus:alpha=0.5", "focus:alpha=0.1", "--videos", 5, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "K = 8, focus alpha=0.5 against focus alpha=0.1: " in output
    for control in CONTROLS:
        assert f"K = 32, focus alpha=0.5 against {control} at equal cost: " in output
    assert "% of frames encoded" in output
    page = (tmp_path / "compare.html").read_text()
    assert "Verdict in the world" in page
    assert "Evidence recall against forward equivalents" in page
    assert "What each sampler chose for" in page


@pytest.mark.slow
@pytest.mark.usefixtures("short_page")
def test_a_verdict_on_a_sampler_that_asked_a_scripted_model_says_so_first(tmp_path):
    result, output = compare("vlm_topk", "uniform", "--videos", 5, "--world", "smooth", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    note = "vlm_topk asked a scripted model that reads the annotation (accuracy 0.8, "
    assert 0 < output.index(note) < output.index("Verdict in the world")
    section = (tmp_path / "compare.html").read_text().partition("Verdict in the world")[2]
    assert section.index(note) < section.index("K = 8, vlm_topk against")


@pytest.mark.slow
@pytest.mark.usefixtures("short_page")
def test_a_sampler_without_pulls_is_compared_with_what_has_none(tmp_path):
    worlds = ("--world", "smooth", "--world", "flashes")
    result, output = compare("uniform", "--videos", 6, *worlds, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "K = 8, uniform against random" in output
    assert "both at 0.00 % of frames encoded" in output
    # Each table on the terminal says of which world it is, in the order in which they were named.
    assert re.findall(r"Verdict in the world '(\w+)', 6 videos:", output) == ["smooth", "flashes"]
    assert "at equal cost" not in output


@pytest.mark.slow
@pytest.mark.usefixtures("short_page")
def test_a_sampler_that_may_choose_no_frame_is_named_before_the_comparison(tmp_path):
    result, output = compare("aks", "uniform", "--videos", 5, "--world", "realistic", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    (line,) = re.findall(r"aks, K = \d+, realistic: .*? or more", output)
    assert line.startswith("aks, K = 8, realistic: 5 of 5 questions may end without frames")
    assert output.index(line) < output.index("Verdict in the world")


@pytest.mark.slow
@pytest.mark.usefixtures("short_page")
def test_the_videos_grow_until_all_is_decided_or_the_minutes_are_spent(tmp_path, monkeypatch):
    monkeypatch.setattr("focus_eval.lab.verdict.LOOKS", (6, 12))
    result, output = compare("focus_c", "--world", "realistic", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "6 videos: " in output
    assert "12 videos next, about " in output
    result, output = compare("focus_c", "--world", "realistic", "--out", tmp_path, "--minutes", 0)
    assert "--minutes 0 allow 5 of 6 videos: the verdict is on these alone." in output
    assert "Verdict in the world 'realistic', 5 videos:" in output, "not those of the longer run before"


@pytest.mark.slow
@pytest.mark.usefixtures("short_page")
def test_one_sentence_on_all_comparisons_comes_before_the_tables(tmp_path):
    result, output = compare("focus", "uniform", "focus:alpha=0.5", "--videos", 5, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    sentence = re.search(r"focus is (.*?\.) ", output)
    assert sentence.start() < output.index("Verdict in the world")
    for rival in ("uniform", "focus alpha=0.5", "even_cover at equal cost"):
        assert rival in sentence[1]
    page = (tmp_path / "compare.html").read_text()
    assert page.index(sentence[0].split(";")[0].strip()) < page.index("<table")


@pytest.mark.slow
@pytest.mark.usefixtures("short_page")
def test_the_minutes_bound_the_whole_command(tmp_path, monkeypatch):
    run = compare_samplers.run_with_progress

    def run_slowly(config, folder, *, limit):
        """Take half a second for each further video, on a clock that the test moves."""
        run(config, folder, limit=limit)
        part = folder.name, len(config.samplers)
        clock[0] += 0.5 * max(0, (limit or config.videos) - n_done.get(part, 0))
        n_done[part] = limit or config.videos

    clock, n_done = [0.0], {}
    monkeypatch.setattr(compare_samplers, "run_with_progress", run_slowly)
    # Of this module alone: pools and locks wait by the real clock.
    monkeypatch.setattr(compare_samplers, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    result, output = compare("topk", "uniform", "--world", "smooth", "--minutes", 0.4, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert re.search(r"--minutes 0.4 allow \d+ of 150 videos", output)
    assert 12 < clock[0] < 24


SOMETIMES_FAILS = """
from dataclasses import dataclass
from typing import ClassVar

from focus_eval.keyframes.samplers.base import Choice, FrameSampler
from focus_eval.keyframes.samplers.uniform import even_frames


@dataclass(frozen=True, kw_only=True)
class Fails(FrameSampler):
    name: ClassVar[str] = "fails"
    source: ClassVar[str] = "a test"
    needs_encoder: ClassVar[bool] = False

    def choose(self, request):
        if request.video.n_frames % 3 == 2:
            raise ValueError("no")
        return Choice(keyframes=even_frames(request.video, request.n_wanted))
"""


@pytest.mark.slow
@pytest.mark.usefixtures("short_page")
def test_what_fails_counts_as_0_to_the_end_of_the_page(tmp_path, monkeypatch):
    (tmp_path / "fails.py").write_text(SOMETIMES_FAILS)
    monkeypatch.setattr(compare_samplers, "check", lambda *_args, **_kwargs: None)
    result, output = compare(
        f"{tmp_path}/fails.py:Fails", "uniform", "--videos", 8, "--world", "realistic", "--out", tmp_path / "o"
    )
    assert result.exit_code == 0, result.output
    assert " of 8 questions, counted as 0." in output
    assert (tmp_path / "o" / "compare.html").exists()
