"""Prompts with subtitles that are made after the frames are chosen, against the functions of the stock tasks."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from focus_eval.bench.benchmarks.registry import make_benchmark
from focus_eval.bench.benchmarks.subtitles import SubtitleOptions, make_prompt, subtitle_choice
from focus_eval.bench.report.measures import prompt_notes
from focus_eval.core.errors import InvalidInput
from focus_eval.keyframes.subtitles.prompts import are_evenly_spaced

DOCUMENT = {
    "id": "q", "video_id": "v", "video_path": "v.mp4", "videoID": "v", "question_id": "q", "question": "What?",
    "options": ["A. x", "B. y"], "option0": "x", "option1": "y", "option2": "N/A", "option3": "N/A", "option4": "N/A",
    "answer": "A", "correct_choice": 0, "duration": 40.0, "question_category": "S2E", "subtitle_path": "v_en.json",
    "starting_timestamp_for_subtitles": 1.5, "task_type": "t", "position": [],
}  # fmt: skip
LINES = [{"timestamp": [at / 2, at / 2 + 0.4], "text": f"line {at}"} for at in range(90)]


@pytest.fixture
def longvideobench(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    folder = tmp_path / "datasets" / "longvideobench"
    (folder / "subtitles").mkdir(parents=True)
    (folder / "subtitles" / "v_en.json").write_text(json.dumps(LINES))
    return folder


def prompt_of(folder, *, times, mode="", layout="interleaved", pre_prompt=""):
    """The prompt of the one question of LongVideoBench, and the task's own, without subtitles."""
    facts = make_benchmark("longvideobench").facts.subtitles
    options = SubtitleOptions(mode=mode, layout=layout, can_interleave=True)
    choice = subtitle_choice(facts, options, is_written_by_task=True, location="here", pre_prompt=pre_prompt)
    question = make_benchmark("longvideobench").question(DOCUMENT)
    text = f"{pre_prompt}What?\nA. x\nB. y\nAnswer.\n"
    return make_prompt(text, question, choice, video_path=folder / "videos" / "v.mp4", times=times, fps=25.0)


@pytest.mark.parametrize("k", [16, 32])
@pytest.mark.parametrize("pre_prompt", ["", "Look."])
def test_the_prompt_of_even_frames_is_lmms_evals(longvideobench, monkeypatch, k, pre_prompt):
    from lmms_eval.tasks.longvideobench import utils

    times = utils.compute_frame_timestamps(DOCUMENT["duration"], k)
    monkeypatch.setattr(utils, "compute_frame_timestamps", lambda duration, max_num_frames: times)
    arguments = {"pre_prompt": pre_prompt, "post_prompt": "Answer.\n", "insert_interleave_subtitles": True}
    official = utils.longvideobench_doc_to_text(DOCUMENT, arguments)
    prompt = prompt_of(longvideobench, times=times, pre_prompt=pre_prompt)
    assert prompt.text == official
    assert prompt.text.count("line") > 10


def test_a_block_lists_the_lines_before_the_question_and_off_leaves_them_out(longvideobench):
    block = prompt_of(longvideobench, times=[0.0, 10.2], layout="block", pre_prompt="Look.").text
    head = "Look.This video's subtitles are listed below: \nline 2\nline 3\nline 23\nWhat?"
    assert block.startswith(head)
    assert prompt_of(longvideobench, times=[], mode="off").text == "What?\nA. x\nB. y\nAnswer.\n"
    assert prompt_of(longvideobench, times=[0.0], mode="all", layout="block").text.count("line ") == 90


def test_a_missing_file_is_an_error_or_the_benchmarks_own_words(longvideobench, tmp_path):
    (longvideobench / "subtitles" / "v_en.json").unlink()
    with pytest.raises(InvalidInput, match=r"v_en\.json: subtitles cannot be read \(No such file"):
        prompt_of(longvideobench, times=[1.0])
    benchmark = make_benchmark("videomme")
    choice = subtitle_choice(
        benchmark.facts.subtitles, SubtitleOptions(mode="shown"), is_written_by_task=False, location="videomme"
    )
    path = tmp_path / "videomme" / "data" / "v.mp4"
    question = benchmark.question({**DOCUMENT, "duration": "short"})
    prompt = make_prompt("What?", question, choice, video_path=path, times=[1.0], fps=25.0)
    assert prompt.text == "This video's subtitles are listed below: \nNo subtitles available\nWhat?"
    assert prompt.note == "no subtitles available"


def test_the_layout_is_the_benchmarks_where_the_model_can_show_it():
    def layout(benchmark, **options):
        facts = make_benchmark(benchmark).facts.subtitles
        choice = subtitle_choice(facts, SubtitleOptions(**options), is_written_by_task=True, location="here")
        return choice.layout

    assert layout("longvideobench", can_interleave=True) == "interleaved"
    assert layout("longvideobench") == layout("longvideobench", can_interleave=True, layout="block") == "block"
    assert layout("videomme", can_interleave=True) == "block"
    assert layout("videomme", can_interleave=True, layout="interleaved") == "interleaved"


@pytest.mark.parametrize(
    ("frames", "expected"),
    [([], True), ([7], True), ([0, 10, 20], True), ([0, 10, 21, 31], True), ([0, 10, 22], False), ([0, 5, 6], False)],
)
def test_frames_are_evenly_spaced_up_to_the_rounding_of_one(frames, expected):
    assert are_evenly_spaced(frames) == expected


def test_subtitles_of_a_benchmark_that_declares_none_are_refused():
    with pytest.raises(InvalidInput, match="subtitles=all: mlvu declares no `subtitles` in its file; subtitles=off"):
        subtitle_choice(None, SubtitleOptions(mode="all"), is_written_by_task=False, location="mlvu")


def test_a_report_counts_prompts_for_other_frames_and_videos_without_subtitles():
    other_note = "prompt made for other frames: 16 <image> in the text, 4 pictures shown"
    answers = pd.DataFrame({"model": ["m"] * 4, "prompt_note": [other_note, "", "no subtitles available", other_note]})
    assert prompt_notes(answers) == [
        "m: 2 of 4 prompts were made for other frames (16 <image> in the text, 4 pictures shown).",
        "m: no subtitles available for 1 of 4 answers.",
    ]
    assert prompt_notes(answers.iloc[:0]) == []
