"""Memory does not grow with the number of rows, and nothing is read over and over."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from focus_eval.bench.matrix.config import load_matrix
from focus_eval.bench.report.page import browser as question_browser
from focus_eval.bench.report.page.charts import telling_question
from focus_eval.bench.report.page.html import render_html
from focus_eval.bench.report.run import load_run
from focus_eval.bench.rows.store import FinishedQuestions, StoredRows, compact
from focus_eval.core.errors import InvalidInput
from focus_eval.keyframes.rows.json_lines import RowWriter
from focus_eval.keyframes.rows.records import SelectionRow
from tests.support.bench.load import measured, write_load_matrix
from tests.support.bench.matrix_rows import run_matrix


def long_row(number, selection_id="s", **changes):
    """Return a row with a hundred pulls."""
    return SelectionRow(
        benchmark="b", question_id=f"q{number}", video=f"v{number // 10}", query=f"What is in scene {number}?",
        selection_id=selection_id, sampler="topk", options={}, encoder="e", encoder_revision="1", k=4, seed=0,
        bucket="short", duration_seconds=100.0, n_frames=3000, fps=30.0, keyframes=[1, 2, 3, 4],
        times_seconds=[0.1, 0.2, 0.3, 0.4], pulled_frames=list(range(100)),
        pulled_relevance=[(number + i) % 997 / 997 for i in range(100)], evidence_seconds=[5.0], **changes,
    )  # fmt: skip


def peak_mib(work):
    """Return the most MiB allocated at a time in `work`, with garbage collected as often as outside of tests."""
    thresholds = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    gc.collect()
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()
        gc.set_threshold(*thresholds)


def n_calls(work):
    """Return how many functions are called, in all threads."""
    counter = itertools.count()

    def note(frame, event, argument):
        if event in ("call", "c_call"):
            next(counter)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return next(counter)


def write_part(folder, n_rows):
    """Write a part as a run leaves it just before it is done: the rows of two videos at once, in two files."""
    writers = [RowWriter(folder / f"rows-{name}.jsonl") for name in ("a", "b")]
    for number in range(n_rows):
        writers[number // 10 % 2].write(long_row(number))
    for writer in writers:
        writer.close()


@pytest.mark.slow
def test_finished_parts_are_written_and_read_in_memory_that_does_not_grow(tmp_path):
    write_part(tmp_path / "first" / "selections" / "part", 80)
    run = load_run(tmp_path / "first")
    _ = run.pays_its_own, telling_question(run), render_html(run)  # imports what the page needs
    peaks, lists = [], []
    for n_rows in (150, 600):
        part = tmp_path / str(n_rows) / "selections" / "part"
        write_part(part, n_rows)
        order = [f"q{number}" for number in range(n_rows)]
        writing = peak_mib(lambda part=part, order=order: compact(part, SelectionRow, order))
        reading = peak_mib(lambda part=part: [None for _ in StoredRows(part, SelectionRow)])
        run = load_run(tmp_path / str(n_rows))
        report = peak_mib(lambda run=run: (run.pays_its_own, telling_question(run), render_html(run)))
        peaks.append((writing, reading, report))
        lists.append(peak_mib(lambda part=part: list(StoredRows(part, SelectionRow))))
        assert [row.question_id for row in StoredRows(part, SelectionRow)] == order
    growth_of_a_list = lists[1] - lists[0]
    for small, large in zip(*peaks, strict=True):
        assert large - small < 0.4 * growth_of_a_list, (peaks, lists)


@pytest.mark.slow
def test_a_run_of_many_questions_is_linear_and_flat(tmp_path):
    run_few_questions(tmp_path / "first")
    seconds, calls, pulls = [], [], []
    for size in (80, 400):
        matrix = write_load_matrix(tmp_path / str(size), size)
        seconds.append(measured("run", str(matrix), "--out", str(tmp_path / f"runs{size}" / "load")))
        loaded, out = load_matrix(matrix), tmp_path / f"here{size}" / "load"
        calls.append(n_calls(lambda loaded=loaded, out=out: run_matrix(loaded, out=out)))
        pulls.append(sum(len(row.pulled_frames) for row in load_run(out).selections))
    assert seconds[1].peak_mib < 1.15 * seconds[0].peak_mib
    # Five times the rows and eight times the pulls: what is done once for each of them grows by less than eight. Calls
    # are counted, because seconds would depend on the machine.
    assert calls[1] / calls[0] < pulls[1] / pulls[0], (calls, pulls)


def run_few_questions(folder):
    """Import what a run needs, so that its calls are not counted."""
    run_matrix(load_matrix(write_load_matrix(folder, 10)), out=folder / "run" / "load")


def test_rows_without_pulls_take_the_same_calls_however_many_there_are(tmp_path):
    run_few_questions(tmp_path / "first")
    calls = []
    for size in (80, 400):
        matrix = load_matrix(write_load_matrix(tmp_path / str(size), size, samplers=("uniform",)))
        calls.append(n_calls(lambda matrix=matrix, size=size: run_matrix(matrix, out=tmp_path / f"run{size}" / "load")))
    assert calls[1] < 5 * calls[0], calls


def test_what_is_finished_is_found_without_reading_lines_again(tmp_path, monkeypatch):
    from focus_eval.bench.rows import store as storage

    write_part(tmp_path, 20)
    read = []
    parse = storage.parse_line

    def parse_and_note(line, location):
        read.append(location)
        return parse(line, location=location)

    monkeypatch.setattr(storage, "parse_line", parse_and_note)
    finished = FinishedQuestions(tmp_path, SelectionRow)
    assert finished.ids() == {f"q{number}" for number in range(20)}
    assert len(read) == 20
    writer = RowWriter(tmp_path / "rows-a.jsonl")
    writer.write(long_row(77))
    assert "q77" in finished.ids()
    assert len(read) == 21
    assert read[-1] == f"{tmp_path / 'rows-a.jsonl'}:11"
    writer.close()
    compact(tmp_path, SelectionRow, [f"q{number}" for number in range(100)])
    assert len(finished.ids()) == 21
    assert len(FinishedQuestions(tmp_path, SelectionRow).ids()) == 21


def test_a_question_asked_again_counts_once_and_without_its_error(tmp_path):
    part = tmp_path / "selections" / "part"
    writer = RowWriter(part / "rows-a.jsonl")
    writer.write(long_row(0, error="no such file"))
    writer.write(long_row(1))
    writer.close()
    compact(part, SelectionRow, ["q0", "q1"])
    second_writer = RowWriter(part / "rows-a.jsonl")
    second_writer.write(long_row(0))
    second_writer.write(long_row(0, error="later"))
    second_writer.close()
    assert sorted((row.question_id, row.error) for row in StoredRows(part, SelectionRow)) == [
        ("q0", None),
        ("q1", None),
    ]
    compact(part, SelectionRow, ["q0", "q1"])
    assert [(row.question_id, row.error) for row in StoredRows(part, SelectionRow)] == [("q0", None), ("q1", None)]


def test_a_page_of_too_many_questions_lists_the_first_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(question_browser, "MAX_QUESTIONS", 15)
    write_part(tmp_path / "run" / "selections" / "part", 20)
    run = load_run(tmp_path / "run")
    browser = question_browser.pack_browser(run)
    assert len(browser.index["questions"]) == 15
    assert browser.n_questions == len(run.selections) == 20
    assert "20 (the first 15 are listed)" in render_html(run)


def test_fields_that_nobody_asks_for_are_left_out_of_finished_rows(tmp_path):
    part = tmp_path / "run" / "selections" / "part"
    write_part(part, 20)
    compact(part, SelectionRow, [f"q{number}" for number in range(20)])
    run = load_run(tmp_path / "run")
    whole, slim = list(run.selections), list(run.selections.without("pulled_relevance", "clips"))
    assert all(row.pulled_relevance == [] for row in slim)
    assert [replace(row, pulled_relevance=[], clips=[]) for row in whole] == slim
    assert run.selection_frame["n_pulls"].tolist() == [100] * 20


def test_a_part_that_is_compacted_while_it_is_opened_is_not_taken_for_empty(tmp_path, monkeypatch):
    part, exists = tmp_path / "part", Path.exists
    write_part(part, 20)

    def and_then_a_run_ends(path):
        is_there = exists(path)
        if path.name == "rows.parquet":
            monkeypatch.undo()
            compact(part, SelectionRow, [f"q{number}" for number in range(20)])
        return is_there

    monkeypatch.setattr(Path, "exists", and_then_a_run_ends)
    rows = StoredRows(part, SelectionRow)
    assert exists(part / "rows.parquet")
    with pytest.raises(InvalidInput, match="changed while it was read"):
        list(rows)


def test_rows_that_a_run_replaces_while_they_are_read_are_an_error(tmp_path):
    part = tmp_path / "run" / "selections" / "part"
    write_part(part, 20)
    run = load_run(tmp_path / "run")
    assert len(run.selections) == 20
    compact(part, SelectionRow, [f"q{number}" for number in range(20)])
    with pytest.raises(InvalidInput, match="changed while it was read"):
        _ = run.selection_frame
