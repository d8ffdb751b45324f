"""Strict reading: an option must be named without doubt; what marks a failure is no option to anybody."""

from __future__ import annotations

import pytest

from focus_eval.benchmarks.question import Question
from focus_eval.lmms.tasks import NO_ANSWER, read_answer, read_option

OPTIONS = ("red", "blue", "a green hat", "nothing")


def question(benchmark="longvideobench", options=OPTIONS, answer="C", number=1):
    return Question(benchmark=benchmark, id=f"q{number}", query="?", options=options, video="v.mp4", answer=answer)


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("C", "C"), ("(C)", "C"), ("C.", "C"), ("C. a green hat", "C"), ("C) a green hat", "C"), ("(C) a hat", "C"),
        (" C\n", "C"), ("**C**", "C"), ("C: because of the hat", "C"), ("Answer: C", "C"), ("Answer: (B)", "B"),
        ("The best answer is C.", "C"), ("The correct option is (D)", "D"), ("the answer is: b", "B"),
        ("A. Both A and B", "A"),
        ("a green hat", "C"), ("A green hat.", "C"), ("Red", "A"), ("Best option: (B", "B"),
        ("A man runs", None), ("I think he wears A hat", None), ("", None), ("E", None), ("E. none", None),
        ("A or B", None), ("The answer is A or B", None), ("Options (A) and (C)", None), ("A, or option B", None),
        ("The answer is A or the answer is B.", None), ("Because", None), ("CD", None),
        ("I do not know", None), (NO_ANSWER, None),
    ],
)  # fmt: skip
def test_an_option_is_read_only_where_it_is_named_without_doubt(text, letter):
    assert read_option(text, OPTIONS) == letter


def test_an_answer_that_cannot_be_read_is_wrong_and_unparsed():
    reading = read_answer(question(), "A man in green")
    assert (reading.parsed, reading.score) == (None, 0.0)
    assert read_answer(question(), "C").score == 1.0


def test_open_questions_get_the_mean_relative_accuracy():
    open_question = question("vsibench", (), "4")
    assert read_answer(open_question, "There are four chairs.").score == 1.0
    assert read_answer(open_question, "4").parsed == "4"
    # Off by a quarter: within the confidence bounds .5 to .75, 6 of the 10.
    assert read_answer(open_question, "5").score == pytest.approx(0.6)
    assert read_answer(open_question, "many").parsed is None


def test_lmms_evals_guess_depends_on_seed_and_question_alone_and_counts_as_unparsed():
    import random

    def guessed(text, seed, numbers=range(80)):
        read = {
            n: read_answer(question(number=n), text, answer_parsing="lmms_eval", rule="longvideobench", seed=seed)
            for n in numbers
        }
        assert {answer.parsed for answer in read.values()} == {None}
        return {n: answer.score for n, answer in read.items()}

    first = guessed("no letter here", 1)
    random.seed(99)
    assert guessed("none", 1, range(79, -1, -1)) == first
    assert set(first.values()) == {0.0, 1.0}
    assert 8 <= sum(first.values()) <= 32  # one of four options, at random
    assert guessed("no letter here", 2) != first
    state = random.getstate()
    read_answer(question(), "none", answer_parsing="lmms_eval", rule="longvideobench")
    assert random.getstate() == state


def test_lmms_evals_rule_reads_the_first_capital_letter():
    # "Answer: C" is read as A: the trap that strict reading avoids.
    assert read_answer(question(), "Answer: C", answer_parsing="lmms_eval", rule="longvideobench").parsed == "A"
    assert read_answer(question(), "Answer: C").parsed == "C"


def test_no_official_parser_reads_an_option_or_a_number_in_what_marks_a_failure():
    from lmms_eval.tasks.mlvu.utils import extract_characters_regex as mlvu
    from lmms_eval.tasks.videomme.utils import extract_characters_regex as videomme
    from lmms_eval.tasks.vsibench.utils import exact_match, extract_number, fuzzy_matching

    assert mlvu(NO_ANSWER) == ""
    assert videomme(NO_ANSWER) == ""
    assert extract_number(NO_ANSWER) is None
    assert all(exact_match(fuzzy_matching(NO_ANSWER), letter) == 0.0 for letter in "ABCD")


def test_longvideobenchs_official_parser_guesses_for_what_marks_a_failure(monkeypatch):
    from lmms_eval.tasks.longvideobench import utils

    # No string avoids the guess: without a capital letter A to E it draws, with one it reads it.
    monkeypatch.setattr(utils.random, "choice", lambda choices: "guessed")
    assert utils.parse_multi_choice_response(NO_ANSWER, list("ABCD"), {}) == "guessed"
