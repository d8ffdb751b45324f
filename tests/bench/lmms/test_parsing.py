"""Replies are read behind their thinking, in every form that names one option, and in none that names two."""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from pathlib import Path

import pytest

from focus_eval.bench.lmms.parsing import read_answer, strip_reasoning
from focus_eval.bench.lmms.tasks import accuracy, macro_accuracy
from focus_eval.core.types import Question

REPLIES = list(csv.DictReader((Path(__file__).parent / "reply_forms.tsv").open(encoding="utf-8"), delimiter="\t"))
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


def read_letters(*kinds):
    replies = [row for row in REPLIES if row["kind"] in kinds]
    options = ("red", "a blue car", "a green hat", "nothing")
    return [(row, read_answer(question(options), row["reply"].replace("\\n", "\n")).parsed or "") for row in replies]


def test_clear_replies_of_many_languages_are_read_and_none_wrongly():
    readings = read_letters("clear")
    n_replies, n_read = Counter(row["language"] for row, _ in readings), Counter()
    for row, letter in readings:
        assert letter in ("", row["letter"]), row
        n_read[row["language"]] += bool(letter)
    assert len(readings) >= 200
    assert len(n_replies) >= 15
    assert {language: n_read[language] for language in n_replies if n_read[language] < 0.9 * n_replies[language]} == {}


def test_replies_that_deny_doubt_refuse_or_look_alike_are_not_read():
    readings = read_letters("look-alike", "negation", "doubt", "refusal")
    assert len(readings) >= 600
    assert [(row["reply"], letter) for row, letter in readings if letter] == []


def test_tables_lists_and_corrections_are_read_as_meant_or_not_at_all():
    readings = read_letters("hard")
    assert {row["kind"] for row in REPLIES} == {"clear", "hard", "look-alike", "negation", "doubt", "refusal"}
    assert [(row["reply"], letter) for row, letter in readings if letter not in ("", row["letter"])] == []
    assert sum(bool(letter) for _, letter in readings) > len(readings) / 2


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
    channels = "<|channel|>analysis<|message|>It is A.<|end|><|start|>assistant<|channel|>final<|message|>B<|return|>"
    pairs = [("◁think▷", "◁/think▷"), ("[THINK]", "[/THINK]"), ("<|channel|>analysis", "<|channel|>final<|message|>")]
    for thoughts in ("◁think▷It is A.◁/think▷B", "[THINK]It is A.[/THINK]\nB", channels):
        assert read_answer(question(), thoughts, reasoning_tags=pairs).parsed == "B"


def test_an_open_question_is_read_behind_the_thinking():
    open_question = Question(benchmark="vsibench", id="q", query="?", options=(), video="v.mp4", answer="4")
    assert read_answer(open_question, "<think>3 or 5 chairs?</think>4").score == 1.0


@pytest.mark.parametrize(
    ("reply", "strict", "lmms_eval"),
    [
        ("1,200", "1200", "1"), ("2 chairs and 4 tables, so 4", "4", "2"), ("There are four chairs.", "4", "4"),
        ("The answer is 3.5 meters, as the door is 2 m high.", "3.5", "3.5"), ("4\n\nFrame 5 shows two.", "4", "4"),
        ("1,234,567.5", "1234567.5", "1"), ("First 2, then 3. Answer: five", "5", "2"), ("3-4 chairs", None, "3"),
        ("1,5", None, "1"), ("Answer: 3. No, the answer is 4.", None, "3"), ("12 for this one", "12", "12"),
        ("\\boxed{12} of 20", "12", "12"), ("many", None, None),
    ],
)  # fmt: skip
def test_strict_reads_the_announced_or_last_number_and_lmms_eval_the_first(reply, strict, lmms_eval):
    open_question = Question(benchmark="vsibench", id="q", query="?", options=(), video="v.mp4", answer="4")
    assert read_answer(open_question, reply).parsed == strict
    assert read_answer(open_question, reply, answer_parsing="lmms_eval").parsed == lmms_eval


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
