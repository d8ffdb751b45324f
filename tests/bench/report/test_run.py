"""Rows of a folder whose matrix was changed and run there again are told apart or refused, never pooled."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace

import pytest

from focus_eval.bench.report.layouts import results_table
from focus_eval.bench.report.measures import question_means
from focus_eval.bench.report.run import Run, labels_of, load_run
from focus_eval.core.errors import InvalidInput
from focus_eval.keyframes.rows.json_lines import RowWriter
from focus_eval.keyframes.rows.records import AnswerRow, SelectionRow
from tests.bench.report.simulated import Simulation, simulate_run

SELECTION = SelectionRow(
    benchmark="b", question_id="q", video="v", query="a cat", selection_id="1111aaaa", sampler="focus",
    options={"alpha": 0.25}, encoder="blip", encoder_revision="r", k=8, seed=0, bucket="short", duration_seconds=60.0,
    n_frames=1800, fps=30.0, keyframes=[1], times_seconds=[0.03],
)  # fmt: skip
ANSWER = AnswerRow(
    benchmark="b", question_id="q", video="v", selection_id="1111aaaa", cell_id="c1", cell="b-m-focus", model="m",
    bucket="short", frames_asked=8, frames_chosen=1, frames_fed=1, answer="A", parsed="A", correct_answer="A",
    score=1.0,
)  # fmt: skip


def test_selections_that_differ_in_what_no_option_shows_get_names_of_their_own():
    second = replace(SELECTION, selection_id="2222bbbb")
    assert labels_of([SELECTION, second]) == {"1111aaaa": "focus #1111", "2222bbbb": "focus #2222"}


def test_two_sizes_of_one_encoder_are_told_apart_by_what_differs():
    small = replace(SELECTION, selection_id="2222bbbb", encoder_revision="r, 96 px")
    assert labels_of([SELECTION, small]) == {"1111aaaa": "focus (blip)", "2222bbbb": "focus (blip, 96 px)"}
    # A commit is no text for readers.
    later_weights = replace(SELECTION, selection_id="2222bbbb", encoder_revision="f" * 40)
    assert labels_of([SELECTION, later_weights])["2222bbbb"] == "focus (blip)"


def test_seeds_and_k_of_one_configuration_keep_one_name():
    rows = [SELECTION, replace(SELECTION, selection_id="2222bbbb", seed=1), replace(SELECTION, selection_id="3", k=16)]
    assert set(labels_of(rows).values()) == {"focus"}


@pytest.mark.parametrize(("forwards", "pays"), [(3, True), (2, False)])
def test_a_selection_pays_its_own_where_every_distinct_frame_that_it_scored_was_embedded_for_it(forwards, pays):
    # Frame 7 was pulled twice and is embedded once; how many keyframes came of it plays no part.
    row = replace(SELECTION, pulled_frames=[7, 9, 7, 11], pulled_relevance=[0.1, 0.2, 0.1, 0.3], forwards=forwards)
    assert Run("x", [row], []).pays_its_own == {("b", "1111aaaa"): pays}


def test_options_that_are_not_default_and_what_a_sampler_is_stand_in_its_name():
    rows = [
        replace(SELECTION, sampler="aks", options={"max_depth": 3, "t1": 0.8}, changed_options={"max_depth": 3}),
        replace(SELECTION, selection_id="2", changed_options={"query": "question_and_options"}),
        replace(SELECTION, selection_id="3", sampler="oracle", role="ceiling", encoder=""),
    ]
    assert labels_of(rows) == {
        "1111aaaa": "aks max_depth=3",
        "2": "focus query=question_and_options",
        "3": "oracle [ceiling]",
    }


def test_a_failed_row_that_names_no_sampler_names_no_series():
    failed = replace(SELECTION, question_id="q2", sampler="", options={}, error="no selection: cannot be read")
    assert labels_of([SELECTION, failed]) == labels_of([failed, SELECTION]) == {"1111aaaa": "focus"}


def test_a_task_that_is_not_scored_here_has_no_accuracy_and_never_zero():
    answers = [replace(ANSWER, score=None, question_id=f"q{i}", video=f"v{i}") for i in range(3)]
    selections = [replace(SELECTION, question_id=f"q{i}", video=f"v{i}") for i in range(3)]
    table = results_table(Run("run", selections, answers), "overview")
    overall = table.rows[0].figures[table.columns.index("Overall")]
    assert (overall.ours, overall.ours_text) == (None, "not scored here")
    assert any("Not scored here" in note for note in table.notes)
    scored = results_table(Run("run", selections, [replace(answers[0], score=1.0), *answers[1:]]), "overview")
    assert scored.rows[0].figures[scored.columns.index("Overall")].ours == 100.0


def test_equal_names_on_two_benchmarks_are_two_questions_and_two_videos():
    rows = [replace(ANSWER, benchmark=name, score=score) for name, score in (("b", 1.0), ("other", 0.5))]
    selections = [replace(SELECTION, benchmark=name) for name in ("b", "other")]
    questions = question_means(Run("run", selections, rows).answer_frame, "score")
    assert questions.keys == (("b", "q"), ("other", "q"))
    assert questions.videos == (("b", "v"), ("other", "v"))
    assert questions.values.tolist() == [1.0, 0.5]


def test_two_cells_on_the_same_frames_are_refused():
    changed = replace(ANSWER, cell_id="c2", score=0.0)
    with pytest.raises(InvalidInput, match=r"'q' in two cells from the same frames \(b-m-focus is one\)"):
        _ = Run("run", [SELECTION], [ANSWER, changed]).answer_frame
    assert len(Run("run", [SELECTION], [ANSWER]).answer_frame) == 1


def test_rows_of_another_version_are_named_and_refused(tmp_path):
    import pyarrow.parquet as pq

    from focus_eval.bench.rows.store import compact

    part = tmp_path / "selections" / "one"
    writer = RowWriter(part / "rows-0.jsonl")
    writer.write(SELECTION)
    writer.close()
    compact(part, SelectionRow, ["q"])
    assert list(load_run(tmp_path).selections) == [SELECTION]
    table = pq.ParquetFile(part / "rows.parquet").read()
    names = ["scorer" if name == "encoder" else name for name in table.column_names]
    pq.write_table(table.rename_columns(names), part / "rows.parquet")
    with pytest.raises(
        InvalidInput, match="another version of focus-eval, with columns this one does not know: scorer"
    ):
        load_run(tmp_path)


def test_rows_of_a_video_reader_that_left_are_read(tmp_path):
    folder = simulate_run(tmp_path, Simulation(n_questions=4))
    for file in (folder / "selections").glob("*/*.jsonl"):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        facts = {"video_backend": "torchcodec_cuda_near"}
        file.write_text("".join(json.dumps({**row, "facts": facts}) + "\n" for row in rows))
        identity = {"name": rows[0]["sampler"], "identity": {"k": 8, **facts}}
        (file.parent / "spec.json").write_text(json.dumps(identity))
    run = load_run(folder)
    assert {row.facts["video_backend"] for row in run.selections} == {"torchcodec_cuda_near"}
    assert results_table(run, "overview").rows


def test_answers_keep_their_category_and_a_missing_score_in_parquet(tmp_path):
    from focus_eval.bench.rows.store import StoredRows, compact

    rows = [replace(ANSWER, category="route_planning"), replace(ANSWER, question_id="r", score=None)]
    writer = RowWriter(tmp_path / "rows-0.jsonl")
    for row in rows:
        writer.write(row)
    writer.close()
    compact(tmp_path, AnswerRow, ["q", "r"])
    assert list(StoredRows(tmp_path, AnswerRow)) == rows


def test_a_folder_of_runs_names_the_runs_in_it(tmp_path):
    simulate_run(tmp_path / "b", Simulation(n_questions=1))
    simulate_run(tmp_path / "a", Simulation(n_questions=1))
    with pytest.raises(InvalidInput, match="its folders hold runs, name one: a, b"):
        load_run(tmp_path)


@pytest.mark.parametrize("name", ["run.json", "answers/cell/cell.json"])
@pytest.mark.parametrize(("text", "message"), [("[1]", "must hold a JSON object, holds list"), ("{", "not JSON")])
def test_a_damaged_description_is_named(name, text, message, tmp_path):
    for kind, row in (("selections", SELECTION), ("answers", ANSWER)):
        with closing(RowWriter(tmp_path / kind / "cell" / "rows.jsonl")) as writer:
            writer.write(row)
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidInput, match=f"{name}.*{message}"):
        load_run(tmp_path)
