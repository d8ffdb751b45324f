"""Questions are paired by what they ask: positions never pair two questions that ask something else."""

from __future__ import annotations

import pytest

from focus_eval.core.types import Question, content_key
from focus_eval.keyframes.rows.identity import QuestionKey, match_questions, shared_ids


def row(number, content, benchmark="b"):
    return QuestionKey(benchmark, str(number), content, is_row=True)


def own(name, content="", benchmark="b"):
    return QuestionKey(benchmark, name, content)


def test_the_content_key_does_not_depend_on_how_a_file_writes_the_question():
    key = content_key("videos/A.mp4", "Who  waves?\n", ("A. Café", "(B) dog"), "B")
    assert key == content_key("a", "who waves?", ("Cafe\u0301", "dog"), "b")
    other_contents = [("b", "who waves?", ("Café", "dog"), "b"), ("a", "who?", ("Café", "dog"), "b")]
    other_contents += [("a", "who waves?", ("dog", "Café"), "b"), ("a", "who waves?", ("Café", "dog"), "a")]
    assert len({key, *(content_key(*content) for content in other_contents)}) == 5


def test_a_question_has_the_key_of_its_content():
    question = Question(benchmark="b", id="1", query="who?", options=("x", "y"), video="v/a.mp4", answer="B")
    assert question.content_key == content_key("a.mp4", "who?", ("x", "y"), "B")


def test_rows_that_moved_pair_by_content():
    matches = match_questions([row(0, "x"), row(1, "y"), row(2, "z")], [row(0, "y"), row(1, "z"), row(2, "w")])
    assert matches.pairs == ((1, 0), (2, 1))
    assert matches.moved == matches.pairs
    assert (matches.only_a, matches.only_b, matches.by_row) == ((0,), (2,), ())
    assert matches.summary("A", "B") == ("2 questions paired; 2 of them at another row; 1 missing in B; 1 missing in A")


def test_a_row_and_an_own_id_of_one_content_are_not_moved():
    for a, b in ((row(0, "x"), own("p", "x")), (own("p", "x"), row(0, "x"))):
        matches = match_questions([a], [b])
        assert (matches.pairs, matches.moved) == (((0, 0),), ())


def test_the_same_content_twice_is_ambiguous_unless_own_ids_tell():
    rows = match_questions([row(0, "x"), row(1, "x"), row(2, "y")], [row(0, "x"), row(1, "y")])
    assert (rows.pairs, rows.ambiguous_a, rows.ambiguous_b) == (((2, 1),), (0, 1), (0,))
    assert "2 of A ambiguous (the same content twice)" in rows.summary("A", "B")
    matches = match_questions([own("p", "x"), own("q", "x")], [own("q", "x"), own("p", "x")])
    assert matches.pairs == ((0, 1), (1, 0))
    assert matches.summary("A", "B") == "2 questions paired"


def test_own_ids_pair_questions_in_other_words_and_rows_do_not():
    assert match_questions([own("p", "x")], [own("p", "y")]).pairs == ((0, 0),)
    assert match_questions([row(0, "x")], [row(0, "y")]).pairs == ()
    assert match_questions([own("p", "x")], [own("p", "y", benchmark="c")]).pairs == ()


def test_a_row_pairs_only_without_content_and_with_as_many_questions():
    matches = match_questions([row(0, ""), row(1, "")], [row(1, "y"), row(0, "x")])
    assert matches.pairs == matches.by_row == ((0, 1), (1, 0))
    assert match_questions([row(0, ""), row(1, "")], [row(0, "")]).pairs == ()


def test_content_pairs_whatever_the_benchmark_is_called():
    assert match_questions([row(0, "x")], [row(7, "x", benchmark="b_aks")]).pairs == ((0, 0),)


@pytest.mark.parametrize("is_reversed", [False, True])
def test_shared_ids_are_equal_exactly_where_the_question_is(is_reversed):
    series = {
        "s": [row(0, "x"), row(1, "y"), row(2, "z"), row(3, "r"), row(4, "r")],
        "t": [row(0, "y"), row(1, "z"), row(2, "w"), row(3, "r"), row(4, "r")],
    }
    series = dict(reversed(series.items())) if is_reversed else series
    ids = shared_ids(series)
    content = {name: dict(zip(ids[name], (key.content for key in keys), strict=True)) for name, keys in series.items()}
    shared = set(ids["s"]) & set(ids["t"])
    assert {content["s"][name] for name in shared} == {"y", "z"}
    assert all(content["s"][name] == content["t"][name] for name in shared)
    assert all(len(set(names)) == len(names) for names in ids.values())


def test_shared_ids_are_the_questions_own_where_these_agree():
    keys = [row(0, "x"), row(1, "y")]
    assert shared_ids({"s": keys, "t": keys[::-1]}) == {"s": ["0", "1"], "t": ["1", "0"]}
