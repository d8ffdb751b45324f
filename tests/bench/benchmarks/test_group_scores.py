"""Is a group of questions scored as its benchmark's authors do, and does each task have its own size?"""

from __future__ import annotations

import itertools

import pytest

from focus_eval.bench.benchmarks.group_scores import group_score, score_groups
from focus_eval.bench.benchmarks.registry import facts_of
from focus_eval.core.errors import InvalidInput

STRUCTURES = ("[1, 2, 3, 4]", "[1, [2, 3], 4]", "[[1, 2], 3, 4]")


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("kind", ["relevance", "logic"])
def test_every_pattern_of_right_answers_has_the_score_of_the_official_code(kind, structure):
    utils = pytest.importorskip("lmms_eval.tasks.videomme_v2.utils")
    for are_right in itertools.product((0, 1), repeat=4):
        official = utils.cal_relevance(are_right) if kind == "relevance" else utils.cal_logic(are_right, structure)
        assert group_score(kind, structure, are_right, size=4) == pytest.approx(official / 100), are_right


def test_questions_of_a_group_count_in_the_order_of_their_numbers():
    group = ("logic", "[1, 2, 3, 4]")
    rows = [("v", f"v-{number}", float(number <= 2), group) for number in (3, 1, 4, 2)]
    assert score_groups(rows, size=4) == {"v": pytest.approx(4 / 16)}
    assert score_groups([("v", "v-1", 1.0, ())], size=4) == {}


def test_a_group_with_a_hidden_answer_has_no_score():
    group = ("logic", "[1, 2, 3, 4]")
    rows = [("v", f"v-{number}", None if number == 4 else 1.0, group) for number in range(1, 5)]
    assert score_groups([*rows, ("w", "w-1", 1.0, group)], size=4) == {"w": pytest.approx(1 / 16)}


@pytest.mark.parametrize(("kind", "structure"), [("chain", "[1]"), ("logic", "1, 2"), ("logic", "[2, 1, 3, 4]")])
def test_an_unknown_group_is_an_error(kind, structure):
    with pytest.raises(InvalidInput, match="group "):
        group_score(kind, structure, [1, 1, 1, 1], size=4)


def test_a_task_of_another_split_has_a_size_of_its_own():
    mlvu = facts_of("mlvu")
    assert [mlvu.n_questions(tasks) for tasks in ([], ["mlvu_dev"], ["focus_mlvu", "mlvu_dev"])] == [2174] * 3
    assert mlvu.n_questions(["mlvu_test"]) == 502
    assert mlvu.n_questions(["mlvu_dev", "mlvu_test"]) == 2174 + 502
    assert facts_of("mmvu").n_questions(["mmvu_val"]) is None
