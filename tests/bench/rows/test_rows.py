"""Rows as they lie on disk: what is unknown is null, and rows of the version before are read as such."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from focus_eval.bench.report.run import load_run
from focus_eval.bench.rows.store import StoredRows, part_writer
from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import ClipReport, Question, Selection, TextPulls, VideoInfo, frozen_floats, frozen_ints
from focus_eval.keyframes.rows.json_lines import read_rows, write_rows
from focus_eval.keyframes.rows.records import Origin, SelectionRow, known_selection, selection_row

# A row of a log that tells neither the video's length nor the frames.
UNKNOWN = {
    "benchmark": "b", "question_id": "q", "video": "v.mp4", "query": "what?", "selection_id": "s", "sampler": "log",
    "options": {}, "encoder": "", "encoder_revision": "", "k": 2, "seed": 0, "bucket": "", "duration_seconds": None,
    "n_frames": None, "fps": None, "keyframes": None, "times_seconds": None, "evidence_seconds": [1.0],
    "facts": {"published": True},
}  # fmt: skip


def row_of(folder, **values):
    (folder / "selections").mkdir(parents=True, exist_ok=True)
    (folder / "selections" / "rows.jsonl").write_text(json.dumps({**UNKNOWN, **values}) + "\n")
    [row] = StoredRows(folder / "selections", SelectionRow)
    return row


def test_of_several_rows_of_a_question_the_first_without_an_error_counts_or_the_first(tmp_path):
    def error_of_rows(*errors):
        lines = [json.dumps({**UNKNOWN, "error": error, "facts": {}}) + "\n" for error in errors]
        (tmp_path / "rows.jsonl").write_text("".join(lines))
        [row] = StoredRows(tmp_path, SelectionRow)
        return row.error

    assert error_of_rows("first", None, "later") is None
    assert error_of_rows("first", "later") == "first"


def test_rows_are_counted_as_they_are_read(tmp_path):
    row = row_of(tmp_path / "old", facts={})
    finished = [replace(row, question_id=f"q{n}", error="no such file" if n in (1, 2) else None) for n in range(5)]
    with part_writer(tmp_path, SelectionRow) as write:
        for item in finished:
            write(item)

    def agrees(question_ids=None):
        states = {key[1]: error for key, error in StoredRows(tmp_path, SelectionRow).states()}
        counted = [error for key, error in states.items() if question_ids is None or key in question_ids]
        counts = StoredRows(tmp_path, SelectionRow).counts(question_ids)
        assert counts == (len(counted), sum(error is not None for error in counted))
        return counts

    assert agrees() == (5, 2)
    assert agrees({"q1", "q3", "elsewhere"}) == (2, 1)
    # Asked again: one goes well, one fails again; a new one fails, and its texts look like a row without an error.
    misleading = 'x","error":null}'
    lines = [
        replace(row, question_id="q1"),
        replace(row, question_id="q2", error="again"),
        replace(row, question_id='say "q"', query=misleading, error=misleading),
        replace(row, question_id="q5", facts={"error": None}),
    ]
    path = write_rows(tmp_path / "rows-a.jsonl", lines)
    assert agrees() == (7, 2)
    assert agrees({"q1", "q2", "q5"}) == (3, 1)
    with path.open("a") as file:
        file.write('{"benchmark":"b","question_id":"q9","error":null}')  # still being written
    assert agrees() == (7, 2)


@pytest.mark.parametrize("form", ["lines", "parquet"])
def test_unknown_is_null_on_disk(tmp_path, form):
    row = row_of(tmp_path / "old")
    if form == "lines":
        path = write_rows(tmp_path / "rows.jsonl", [row])
        values = json.loads(path.read_text())
        [restored] = read_rows(path, SelectionRow)
    else:
        import pyarrow.parquet as pq

        with part_writer(tmp_path, SelectionRow) as write:
            write(row)
        [values] = pq.read_table(tmp_path / "rows.parquet").to_pylist()
        [restored] = StoredRows(tmp_path, SelectionRow)
    assert [values[name] for name in ("n_frames", "fps", "duration_seconds", "keyframes", "times_seconds")] == [
        None
    ] * 5
    assert restored == row


def test_a_known_length_and_rate_are_read_as_they_are(tmp_path):
    row = row_of(tmp_path, n_frames=50, fps=25.0, duration_seconds=2.0)
    assert (row.info, row.duration_seconds) == (VideoInfo(50, 25.0), 2.0)


def test_a_report_neither_counts_unknown_frames_nor_measures_them(tmp_path):
    row_of(tmp_path)
    [line] = load_run(tmp_path).selection_frame.to_dict("records")
    for column in ("n_keyframes", "n_frames", "duration_seconds", "recall@1", "spread"):
        assert line[column] != line[column] or line[column] is None, column


QUESTION = Question(benchmark="b", id="q", query="what?", options=("x", "y"), video="v.mp4", answer="A")
SELECTION = Selection(
    keyframes=(3, 9),
    video=VideoInfo(50, 25.0),
    k=2,
    sampler="focus",
    options={"alpha": 0.25},
    pulled_frames=frozen_ints([9, 3]),
    pulled_relevance=frozen_floats([0.5, float("nan")]),
    text_pulls=(TextPulls("a dog", frozen_ints([3]), frozen_floats([0.25])),),
    looked_frames=frozen_ints([9]),
    scanned_frames=frozen_ints([0, 25]),
    scales=(0.5, 1.0),
    clips=(ClipReport(0, 25, 2, 0.5, 0.1, is_final=True), ClipReport(25, 50)),
    facts={"stopped": "budget"},
)


def row_holding(selection, **changes):
    origin = Origin(selection_id="s", sampler=selection.sampler, k=selection.k, options=selection.options)
    frames = known_selection(selection, times_seconds=[0.12, 0.36], **changes)
    return selection_row(QUESTION, origin, frames, facts=selection.facts)


def plain(selection):
    values = {name: value for name, value in vars(selection).items() if name not in ("model_usage", "seconds_apart")}
    values["text_pulls"] = [
        (pulls.text, pulls.frames.tolist(), pulls.relevance.tolist()) for pulls in selection.text_pulls
    ]
    return {name: repr(value.tolist()) if hasattr(value, "tolist") else value for name, value in values.items()}


@pytest.mark.parametrize("form", ["memory", "lines", "parquet"])
def test_a_selection_is_restored_from_its_row(tmp_path, form):
    row = row_holding(SELECTION)
    if form == "lines":
        [row] = read_rows(write_rows(tmp_path / "rows.jsonl", [row]), SelectionRow)
    elif form == "parquet":
        with part_writer(tmp_path, SelectionRow) as write:
            write(row)
        [row] = StoredRows(tmp_path, SelectionRow)
    assert plain(row.selection) == plain(SELECTION)


def test_rows_share_equal_texts_of_a_file_and_take_no_text_for_json(tmp_path):
    first = replace(row_holding(SELECTION), query="{}", options={"query": "{}"})
    second = replace(first, question_id="second", query='{"query":"{}"}', options={})
    with part_writer(tmp_path, SelectionRow) as write:
        write(first)
        write(second)
        write(replace(first, question_id="third"))
    rows = list(StoredRows(tmp_path, SelectionRow))
    assert [(row.query, row.options) for row in rows] == [(row.query, row.options) for row in (first, second, first)]
    assert rows[2].query is rows[0].query
    assert rows[2].options is rows[0].options


def test_a_row_that_counts_its_pulls_holds_no_selection():
    row = row_holding(SELECTION, keep_pulls=False)
    assert (row.n_scored, row.frames_scanned, row.pulled_frames, row.scanned_frames) == (3, 2, [], [])
    assert row.encoded == {"main": 2.0, "scan": 2.0}
    assert row.selection is None


def test_a_failed_or_unknown_choice_is_no_selection(tmp_path):
    origin = Origin(selection_id="s", sampler="focus", k=2)
    assert selection_row(QUESTION, origin, error=InvalidInput("no video")).selection is None
    assert row_of(tmp_path).selection is None


def test_a_share_has_another_name_than_a_count():
    assert SELECTION.share_scored == SELECTION.n_pulls / 50
    assert not hasattr(SELECTION, "frames_scored")
