"""A table in a terminal shortens nothing and is no wider than the screen, whatever the screen's width."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest

from focus_eval.bench.report.rendering import (
    TOO_FEW_NOTE,
    Counts,
    Table,
    TableRow,
    Value,
    narrowed,
    to_markdown,
    to_terminal,
)

SAMPLERS = ["uniform", "topk", "focus", "focus,alpha=0.1,clip_seconds=8,temperature=0.03", "oracle [ceiling]"]
COLUMNS = ("short", "medium", "long", "overall", "frames scored (%)", "GPU hours")


def made(errors=2):
    """Return a table of one row per sampler with intervals, published figures, and `errors` errors of topk."""
    rows = []
    for at, sampler in enumerate(SAMPLERS):
        accuracy = [
            Value(ours=30 + 10 * at + i, low=20.1 + at, high=45.6 + i, published=58.9 if i < 3 else None, spread=0.4)
            for i in range(4)
        ]
        figures = (*accuracy, Value(ours=1.87, digits=2), "2.1 (5.5 shared)")
        counts = Counts(questions=36, attempted=36, errors=errors if sampler == "topk" else 0)
        rows.append(TableRow((sampler, "8", "blip"), figures, counts))
    return Table(
        name="t", title="Accuracy", key_titles=("sampler", "K", "encoder"), columns=COLUMNS, rows=tuple(rows),
        notes=("Intervals: clustered t on the logit scale.",),
    )  # fmt: skip


def printed(table, width):
    from rich.console import Console

    console = Console(width=width, file=io.StringIO(), markup=False, highlight=False)
    for drawn in to_terminal(table, width):
        console.print(drawn)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 100, 120, 160, 240])
def test_nothing_is_shortened_and_no_line_is_too_long(width):
    text = printed(made(), width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for row in made().rows:
        for figure in row.figures[:4]:
            assert f"[{figure.low:.1f}, {figure.high:.1f}]" in text
            assert re.search(rf"(?<!\\d){figure.ours:.1f} ±0.4", text)
            if figure.published is not None:
                assert f"paper 58.9 {figure.difference_text}" in text
    assert text.count("2.1 (5.5 shared)") == len(SAMPLERS)


def test_a_wide_screen_has_one_table_with_the_intervals_beside_the_figures():
    assert len(to_terminal(made(), 240)) == 1
    assert "30.0 ±0.4 [20.1, 45.6]" in printed(made(), 240)


def test_a_narrow_screen_has_the_figures_first_and_the_intervals_after_them():
    text = printed(made(), 80)
    assert text.index("36") < text.index("[20.1, 45.6]")


def test_a_table_of_one_row_keeps_each_interval_beside_its_figure_on_a_narrow_screen():
    text = printed(replace(made(errors=0), rows=made(errors=0).rows[:1]), 80)
    for figure in ("30.0 ±0.4 [20.1, 45.6]", "31.0 ±0.4 [20.1, 46.6]", "32.0 ±0.4 [20.1, 47.6]"):
        assert figure in text
    assert text.count("GPU hours") == 1


def test_a_key_that_is_the_same_in_every_row_stands_above_a_table_that_would_not_fit_with_it():
    narrow, wide = printed(made(), 80), printed(made(), 240)
    assert narrow.startswith("K 8 ")
    assert not wide.startswith("K 8 ")
    assert re.search(r"sampler +K +encoder", wide)
    assert not re.search(r"sampler +K +encoder", narrow)
    other_k = [replace(row, keys=(row.keys[0], str(8 * at), row.keys[2])) for at, row in enumerate(made().rows, 1)]
    assert re.search(r"sampler +K +encoder", printed(replace(made(), rows=tuple(other_k)), 80))


def test_counts_that_are_zero_everywhere_are_a_sentence_not_columns():
    with_errors, without_errors = printed(made(), 200), printed(made(errors=0), 200)
    assert "errors" in with_errors.partition("─")[0]
    assert "0 in every row: unparsed, fallbacks, below K." in with_errors
    assert "0 in every row: unparsed, errors, fallbacks, below K." in without_errors


def test_a_long_name_folds_instead_of_pushing_figures_out():
    text = printed(made(), 80)
    whole = "".join(line.strip().split("  ")[0] for line in text.splitlines())
    assert "focus,alpha=0.1,clip_seconds=8,temperature=0.03" in whole.replace(" ", "")


def test_a_name_of_several_words_folds_between_them():
    names = ["uniform", "even_cover budget_of=focus", "oracle [ceiling]"]
    columns = ("B − A (points)", "Questions", "Better A / B", "p", "p (Holm)")
    figures = ("+10.0", "120", "20 / 32", "0.0004", "0.0012")
    rows = tuple(TableRow(("1 s", a, b), figures, None) for a in names for b in names)
    text = printed(Table(name="t", title="Pairs", key_titles=("Within", "A", "B"), columns=columns, rows=rows), 80)
    assert text.count("even_cover") == text.count("budget_of=focus")
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("0.0012") == len(rows)


def test_where_no_interval_could_be_made_one_line_says_so_instead_of_a_table():
    bare = Value(ours=50.0, has_too_few_videos=True)
    rows = tuple(TableRow((sampler, "8", "blip"), (bare,) * len(COLUMNS), None) for sampler in SAMPLERS)
    table = Table(name="t", title="Recall", key_titles=("sampler", "K", "encoder"), columns=COLUMNS, rows=rows)
    text = printed(narrowed(table), 80)
    assert "[too few videos]" not in text
    assert text.count("No interval: that takes 5 videos or more.") == 1
    assert text.count("50.0") == len(SAMPLERS) * len(COLUMNS)


def test_a_column_without_any_interval_is_named_in_a_note_and_another_keeps_its_own():
    bare, sure = Value(ours=50.0, has_too_few_videos=True), Value(ours=70.0, low=60.0, high=80.0)
    rows = (TableRow(("focus",), (bare, bare, sure, "–")), TableRow(("aks",), (bare, sure, sure, "–")))
    notes = ("Paired.", TOO_FEW_NOTE)
    table = Table(name="t", title="T", key_titles=("s",), columns=("a", "b", "c", "d"), rows=rows, notes=notes)
    screen = narrowed(table)
    texts = [[cell if isinstance(cell, str) else cell.ours_text for cell in row.figures] for row in screen.rows]
    assert texts[0] == ["50.0", "50.0 [too few videos]", "70.0 [60.0, 80.0]", "–"]
    assert screen.notes == (*notes, "No interval in a: that takes 5 videos or more.")
    without_b = replace(table, columns=("a", "c"), rows=tuple(TableRow(r.keys, r.figures[::2]) for r in rows))
    assert narrowed(without_b).notes == ("Paired.", "No interval in a: that takes 5 videos or more.")
    assert "[too few videos]" not in to_markdown(without_b)


def test_a_name_that_folds_gives_way_to_one_that_would_be_torn():
    names = [("longvideobench", "focus"), ("mlvu", "even_cover (offline, 96 px)")]
    rows = tuple(TableRow(keys, ("+25.0", "20 / 32", "0.0004"), None) for keys in names)
    columns = ("B − A (points)", "Better A / B", "p")
    table = Table(name="t", title="Pairs", key_titles=("Benchmark", "B"), columns=columns, rows=rows)
    lines = printed(table, 60).splitlines()
    assert [line.split()[:2] for line in lines if "+25.0" in line] == [
        ["longvideobench", "focus"],
        ["mlvu", "even_cover"],
    ]


def test_the_options_of_a_sampler_fold_between_commas():
    name = "scan_cover,scan_encoder=offline:size=32,share=0.01"
    rows = tuple(TableRow((sampler, "8", "offline_96"), ("123,456",) * 6) for sampler in (name, "uniform"))
    columns = tuple(f"a long title {at}" for at in range(6))
    table = Table(name="t", title="T", key_titles=("sampler", "K", "encoder"), columns=columns, rows=rows)
    lines = printed(table, 80).splitlines()
    assert max(map(len, lines)) <= 80
    for part in name.split(","):
        assert any(part in line for line in lines), part
