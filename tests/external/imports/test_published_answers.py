"""Selections published with answers: what is read, what is refused, and the rows they become."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest

from focus_eval.bench.benchmarks.registry import VideoRate, read_annotations, read_rates
from focus_eval.bench.report.layouts import results_table
from focus_eval.bench.report.measures import cost_tables
from focus_eval.bench.report.page.charts import charts_of
from focus_eval.bench.report.run import load_run
from focus_eval.bench.rows.store import write_run
from focus_eval.core.errors import InvalidInput, SelectionMismatch
from focus_eval.core.types import Question
from focus_eval.external.imports.loading import load_selections, rows_of_selections


def question(name, answer="A"):
    return Question(
        benchmark="longvideobench",
        id=name,
        query=f"what is in {name}?",
        options=("a", "b", "c"),
        video=f"{name[0]}.mp4",
        answer=answer,
        duration_seconds=200.0,
        evidence_seconds=(10.0,),
        category="S2E",
    )


def toolmerge_row(uid, times, answer="A", right="A", **fields):
    return {
        "uid": uid,
        "frames_used": [int(2 * time) for time in times],
        "timestamps_used": times,
        "ground_truth": right,
        "answer": answer,
        "correct": answer == right,
        **fields,
    }


def written(folder, value):
    path = folder / "published.json"
    path.write_text(json.dumps(value))
    return path


RATES = {name: VideoRate(200.0, Fraction(30000, 1001)) for name in ("a1", "b1", "b2")}


@pytest.mark.parametrize(("k", "unparsed"), [(8, 17), (32, 0)])
def test_the_real_files_are_recognised_and_their_times_read(shared, k, unparsed):
    benchmark_questions = read_annotations("longvideobench", shared("data/lvb_val.json"))
    path = shared(f"data/toolmerge_qwen3_lvb_{k}.json")
    rates = read_rates(shared("data/lvb_val_fps.csv"))
    fps = {key: float(rate.fps) for key, rate in rates.items()}
    selections = load_selections(path, questions=benchmark_questions, fps=fps)
    raw = {row["uid"]: row for row in json.loads(path.read_text())}
    assert {entry.selection.sampler for entry in selections.values()} == {"toolmerge"}
    assert all(entry.selection.times_seconds == raw[key]["timestamps_used"] for key, entry in selections.items())
    selection_rows, answers = rows_of_selections(
        selections, benchmark_questions, rates, name="toolmerge", model="qwen3_vl_8b"
    )
    assert len(selection_rows) == len(answers) == 1337
    assert {row.k for row in selection_rows} == {row.frames_asked for row in answers} == {k}
    assert sum(row.is_unparsed for row in answers) == unparsed
    assert sum(row.score for row in answers) == sum(row["correct"] for row in raw.values())


def test_toolmerges_frames_are_never_frames(tmp_path):
    path = written(tmp_path, [toolmerge_row("a1", [10.0, 150.5])])
    assert load_selections(path)["a1"].selection.times_seconds == [10.0, 150.5]
    with pytest.raises(SelectionMismatch, match="grid of 2 frames per second"):
        load_selections(path, format="toolmerge", unit="frames")
    [row], _ = rows_of_selections(load_selections(path), [question("a1")], RATES, name="t", model="m")
    assert row.keyframes == [300, 4510]
    assert row.times_seconds == [10.0, 150.5]


def test_a_declared_shape_takes_times_or_frames(tmp_path):
    rows = [{"qid": "a1", "at": [3, 60], "said": "B"}, {"qid": "b1", "at": [30], "said": None}]
    path = written(tmp_path, rows)
    columns = {"id": "qid", "frames": "at", "answer": "said"}
    read = load_selections(path, format="answers", options=columns)
    assert read["a1"].selection.keyframes == [3, 60]
    _, answers = rows_of_selections(read, [question("a1", "B"), question("b1")], RATES, name="mine", model="m")
    assert [(row.parsed, row.score, row.is_unparsed) for row in answers] == [("B", 1.0, False), (None, 0.0, True)]
    times = load_selections(path, format="answers:id=qid,times=at,answer=said")
    assert times["a1"].selection.times_seconds == [3.0, 60.0]
    lines = tmp_path / "rows.jsonl"
    lines.write_text("\n".join(map(json.dumps, rows)))
    assert load_selections(lines, format="answers", options=columns).keys() == read.keys()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": "a1", "times": [1.0]}, "row 0 lacks answer; it has: id, times"),
        ({"id": "a1", "answer": "A"}, "row 0 lacks times or frames"),
        ({"times": [1.0]}, "row 0 lacks id, answer"),
        ({"id": "a1", "times": [1.0], "answer": "The dog"}, "'The dog' is not an option letter"),
        ({"id": "a1", "times": [1.0], "answer": 2}, "2 is not an option letter"),
    ],
)
def test_an_unknown_shape_is_refused_with_what_is_missing(tmp_path, row, message):
    with pytest.raises(SelectionMismatch, match=message):
        load_selections(written(tmp_path, [row]), format="answers")


def test_an_unknown_column_names_the_nearest(tmp_path):
    with pytest.raises(InvalidInput, match="did you mean 'answer'"):
        load_selections(written(tmp_path, [{}]), format="answers", options={"answr": "x"})


def test_a_verdict_that_contradicts_its_letters_is_refused(tmp_path):
    path = written(tmp_path, [toolmerge_row("a1", [1.0], answer="B", correct=True)])
    with pytest.raises(
        SelectionMismatch, match=r"row 0 \(a1\): says correct = True, but B was answered and A is right"
    ):
        load_selections(path)


def test_another_right_answer_than_the_annotations_is_refused(tmp_path):
    read = load_selections(written(tmp_path, [toolmerge_row("a1", [1.0], right="C")]))
    with pytest.raises(SelectionMismatch, match="right answer is C, the annotation's is A"):
        rows_of_selections(read, [question("a1")], RATES, name="t", model="m")


def test_answers_need_the_name_of_the_model(tmp_path):
    read = load_selections(written(tmp_path, [toolmerge_row("a1", [1.0])]))
    with pytest.raises(InvalidInput, match="name the model"):
        rows_of_selections(read, [question("a1")], RATES, name="t")


def test_without_rates_times_or_frames_are_unknown_and_never_0(tmp_path):
    in_seconds = load_selections(written(tmp_path, [toolmerge_row("a1", [1.0, 2.5])]))
    [row], _ = rows_of_selections(in_seconds, [question("a1")], {}, name="t", model="m")
    assert (row.keyframes, row.times_seconds, row.n_frames, row.fps) == (None, [1.0, 2.5], None, None)
    path = written(tmp_path, [{"id": "a1", "frames": [3, 60], "answer": "A"}])
    in_frames = load_selections(path, format="answers", options={"frames": "frames"})
    [row], _ = rows_of_selections(in_frames, [question("a1")], {}, name="t", model="m")
    assert (row.keyframes, row.times_seconds, row.n_frames) == ([3, 60], None, None)


def test_two_files_make_a_run_that_reports_read(tmp_path):
    for k in (1, 2):
        entries = [toolmerge_row(name, [10.0, 150.5][:k], answer="AB"[k - 1]) for name in ("a1", "b1", "b2")]
        read = load_selections(written(tmp_path, entries))
        rows = rows_of_selections(read, [question(name) for name in RATES], RATES, name="t", model="m")
        first = write_run(tmp_path / "run", *rows)
        assert write_run(tmp_path / "run", *rows) == first  # again: replaced, not doubled
    run = load_run(tmp_path / "run")
    assert len(run.selections) == len(run.answers) == 6
    frame = run.answer_frame.groupby("k")["score"].mean()
    assert frame.to_dict() == {1: 1.0, 2: 0.0}
    assert set(run.answer_frame["category"]) == {"S2E"}


def test_what_choosing_cost_is_unknown_where_the_file_does_not_say_it(tmp_path):
    read = load_selections(written(tmp_path, [toolmerge_row(name, [10.0]) for name in RATES]))
    rows = rows_of_selections(read, [question(name) for name in RATES], RATES, name="t", model="m")
    write_run(tmp_path / "run", *rows)
    run = load_run(tmp_path / "run")
    columns = results_table(run, "overview").columns
    assert "Overall" in columns
    assert not [title for title in columns if "scored" in title or "hours" in title]
    assert cost_tables(run) == []
    assert [chart.caption for chart in charts_of(run) if "against" in chart.caption] == []
