"""Numbers as text, and tables narrowed to what differs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from focus_eval.bench.report import statistics
from focus_eval.bench.report.rendering import (
    RANDOM_NOTE,
    TEST_NOTE,
    Table,
    TableRow,
    Value,
    _without_interval,
    difference_table,
    narrowed,
    number,
)


@pytest.mark.parametrize(
    ("value", "signed", "text"),
    [(-0.04, True, "±0.0"), (2.345, True, "+2.3"), (-1.25, False, "−1.2"), (0.0, False, "0.0")],
)
def test_numbers_have_true_signs(value, signed, text):
    assert number(value, 1, signed=signed) == text


def test_the_order_of_a_sum_does_not_decide_the_last_digit():
    # 177 of 240 as a weighted mean gives it, and as a division does.
    assert number(73.74999999999999, 1) == number(100 * 177 / 240, 1) == "73.8"
    assert number(0.04999999999999, 1) == "0.1"


def test_a_screen_says_once_what_every_row_shares():
    rows = tuple(TableRow(("b", model, sampler), ("1",)) for model in ("m", "n") for sampler in ("x", "y"))
    table = Table(name="t", title="T", key_titles=("Benchmark", "Model", "Sampler"), columns=("A",), rows=rows)
    screen = narrowed(table)
    assert screen.title == "T, b"
    assert screen.key_titles == ("Model", "Sampler")
    assert [row.keys for row in screen.rows] == [("m", "x"), ("m", "y"), ("n", "x"), ("n", "y")]
    assert [row.figures for row in screen.rows] == [row.figures for row in rows]
    one_sampler = narrowed(replace(table, rows=rows[::2]))
    assert one_sampler.key_titles == ("Model", "Sampler"), "the last name stays"
    assert narrowed(replace(table, rows=rows[:1])).key_titles == table.key_titles


def estimate(value, *, low=None, high=None):
    return statistics.Estimate(value, low, high, 12, 6)


def test_a_table_of_differences_adjusts_every_p_together_and_says_how():
    sure = statistics.Tested(difference=estimate(0.2, low=0.1, high=0.3), p_value=0.01)
    unsure = statistics.Tested(difference=estimate(-0.1), p_value=0.04, is_exact=False)
    lines = [(("x",), {"gain": sure, "n": "12"}), (("y",), {"gain": unsure}), (("z",), {"n": "3"})]
    columns = ("gain", "n", "p", "p (Holm)")
    table = difference_table(lines, name="t", title="T", key_titles=("S",), columns=columns, notes=("first",))
    texts = [[cell if isinstance(cell, str) else cell.ours_text for cell in row.figures] for row in table.rows]
    assert texts == [
        ["+20.0 ↑ [10.0, 30.0]", "12", "0.010", "0.020"],
        ["−10.0 [too few videos]", "–", "0.040*", "0.040"],
        ["–", "3", "–", "–"],
    ]
    assert table.notes == ("first", TEST_NOTE, RANDOM_NOTE)
    short = difference_table(lines, name="t", title="T", key_titles=("S",), columns=("gain",))
    assert short.notes == (TEST_NOTE,)
    value = Value(ours=20.0, low=10.0, high=30.0, is_difference=True, p_adjusted=0.02, suffix="(0.020)")
    assert "+20.0 ↑ (0.020)" in _without_interval(value)


def disputed_text(differences, videos):
    """The cell of a difference whose p is below .05 while its interval holds 0."""
    scores = [np.clip(sign * np.asarray(differences, dtype=float), 0, 1) for sign in (-1, 1)]
    compared = statistics.compare_paired(*scores, videos)
    assert compared.p_value < 0.05
    assert not compared.difference.leaves_out_zero
    lines = [(("x",), {"gain": compared})]
    table = difference_table(lines, name="t", title="T", key_titles=("S",), columns=("gain", "p"))
    return table.rows[0].figures[0].ours_text


def test_where_p_and_interval_disagree_there_is_no_arrow_and_the_shape_that_causes_it():
    one_large = [0.1, 0.0, 0.3, 0.0, 0.3, -0.3, 0.1, 0.5, 0.2, 0.1, 0.7, 0.1]
    assert disputed_text(one_large, range(12)) == (
        "+17.5 [−0.5, 32.7] (no arrow: one of 12 questions has 45 % of the spread)"
    )
    # Zipf: the first of 40 videos has a quarter of the questions.
    sizes = np.maximum(1, np.round(60 / np.arange(1, 41))).astype(int)
    gains = np.where(np.random.default_rng(5).random(40) < 0.3, -0.1, 0.3)
    text = disputed_text(np.repeat(gains, sizes), np.repeat(np.arange(40), sizes))
    assert text.endswith("] (no arrow: few effective videos: 12 of 40)")
    assert "↑" not in text


@pytest.mark.parametrize("p", [0.03, 0.3])
def test_several_differences_in_a_line_are_all_adjusted(p):
    untested = statistics.Tested(difference=estimate(0.1), p_value=None)
    pair = {"a": statistics.Tested(difference=estimate(0.2), p_value=p), "b": untested}
    table = difference_table([(("x",), pair)] * 2, name="t", title="T", key_titles=("S",), columns=("a", "b"))
    assert [row.figures[0].p_adjusted for row in table.rows] == [pytest.approx(2 * p)] * 2
    assert [row.figures[1].p_adjusted for row in table.rows] == [None, None]


def test_an_estimate_becomes_percent_and_nothing_stays_nothing():
    value = Value.of(estimate(0.625, low=0.5, high=0.75), suffix="(12)")
    assert value.ours_text == "62.5 [50.0, 75.0] (12)"
    assert Value.of(None) == Value()
    assert Value.of_p(None) == Value()
    assert Value.of_p(0.0002).ours_text == "<0.001"
