"""Numbers as text, and tables narrowed to what differs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from focus_eval.report.table import Table, TableRow, narrowed, number


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
    assert screen.title == "T (Benchmark b)"
    assert screen.key_titles == ("Model", "Sampler")
    assert [row.keys for row in screen.rows] == [("m", "x"), ("m", "y"), ("n", "x"), ("n", "y")]
    assert [row.figures for row in screen.rows] == [row.figures for row in rows]
    one_sampler = narrowed(replace(table, rows=rows[::2]))
    assert one_sampler.key_titles == ("Model", "Sampler"), "the last name stays"
    assert narrowed(replace(table, rows=rows[:1])).key_titles == table.key_titles
