"""Replies are read behind their thinking, in every form that names one option, and in none that names two."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from focus_eval.bench.lmms.parsing import read_answer, strip_reasoning
from focus_eval.bench.lmms.tasks import accuracy, macro_accuracy
from focus_eval.core.types import Question

FORMS = json.loads((Path(__file__).parent / "answer_forms.json").read_text())


def question(options=tuple(FORMS["options"]), answer="B"):
    return Question(benchmark="videomme", id="q1", query="?", options=options, video="v.mp4", answer=answer)


@pytest.mark.parametrize(("reply", "letter"), FORMS["read"])
def test_a_reply_that_names_one_option_is_read(reply, letter):
    reading = read_answer(question(), reply)
    assert (reading.parsed, reading.is_cut) == (letter, False)


@pytest.mark.parametrize("reply", FORMS["refused"])
def test_a_reply_that_names_no_option_or_several_is_not_read(reply):
    assert (read_answer(question(), reply).parsed, read_answer(question(), reply).score) == (None, 0.0)


def test_a_letter_beyond_the_options_is_not_read():
    assert read_answer(question(options=("red", "blue")), "<answer>C</answer>").parsed is None
    assert read_answer(question(options=tuple("abcdefghij")), "The answer is J.").parsed == "J"


def test_a_reply_that_ends_inside_the_thinking_is_cut():
    for reply in ("<think>The answer is B.", "<think>A?</think>Hm. <think>The answer is B.", "<analysis>B"):
        reading = read_answer(question(), reply)
        assert (reading.parsed, reading.score, reading.is_cut) == (None, 0.0, True)
    # lmms-eval's rules read the thoughts: its score is kept, the letter is not.
    loose = read_answer(question(), "<think>The answer is B.", answer_parsing="lmms_eval")
    assert (loose.parsed, loose.score, loose.is_cut) == (None, 1.0, True)


def test_reasoning_is_stripped_between_the_stated_tags_only():
    reply = "<plan>A or C</plan>B"
    assert strip_reasoning(reply, [("<plan>", "</plan>")]) == ("B", False)
    assert strip_reasoning(reply) == (reply, False)
    assert read_answer(question(), "<think>A</think>B", reasoning_tags=()).parsed is None


def test_an_open_question_is_read_behind_the_thinking():
    open_question = Question(benchmark="vsibench", id="q", query="?", options=(), video="v.mp4", answer="4")
    assert read_answer(open_question, "<think>3 or 5 chairs?</think>4").score == 1.0


@pytest.mark.parametrize("reply", ["A", "no idea", "<think>B"])
@pytest.mark.parametrize("answer_parsing", ["strict", "lmms_eval"])
def test_a_question_whose_answer_is_hidden_has_no_score(reply, answer_parsing):
    hidden = question(answer=None)
    reading = read_answer(hidden, reply, answer_parsing=answer_parsing)
    known = read_answer(question(), reply, answer_parsing=answer_parsing)
    assert (reading.score, reading.parsed, reading.is_cut) == (None, known.parsed, known.is_cut)
    assert read_answer(question(options=(), answer=None), "4").score is None


def test_the_accuracy_of_a_task_leaves_hidden_answers_out():
    scores = [{"score": score, "type": "a"} for score in (1.0, None, 0.0)]
    assert accuracy(scores) == macro_accuracy(scores) == 0.5
    assert math.isnan(accuracy(scores[1:2]))
    assert math.isnan(macro_accuracy(scores[1:2]))
