"""A matrix over a declared benchmark, and over several forms of the query, selects and keeps them apart."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import yaml

from focus_eval.bench.matrix.cells import selection_specs
from focus_eval.bench.matrix.config import load_matrix
from focus_eval.bench.matrix.folder import RunFolder
from focus_eval.bench.matrix.preflight import check_all
from focus_eval.bench.matrix.questions import load_questions
from focus_eval.bench.report.measures import counts_of, group_score_table
from focus_eval.bench.report.page.html import report_tables
from focus_eval.bench.report.run import load_run
from focus_eval.core.errors import InvalidInput
from focus_eval.core.resources import resource_path
from focus_eval.keyframes.rows.records import AnswerRow
from tests.support.bench.matrix_rows import run_matrix


def write_matrix(folder):
    rows = [
        {"uid": f"u{at}", "q": "Which?", "o": ["x", "y"], "answer": "B", "film": f"v{at % 2}", "s": 60.0 + at}
        for at in range(4)
    ]
    (folder / "questions.json").write_text(json.dumps(rows))
    (folder / "rates.csv").write_text("id,duration_s,fps\n" + "".join(f"u{at},{60 + at},10\n" for at in range(4)))
    np.save(folder / "trace.npy", np.linspace(0, 1, 900))
    benchmark = {
        "name": "mine",
        "benchmark": "mine",
        "annotations": str(folder / "questions.json"),
        "rates": str(folder / "rates.csv"),
        "fields": {"id": "uid", "question": "q", "options": "o", "video": "{film}.mp4", "duration": "s"},
    }
    matrix = {
        "name": "declared",
        "benchmarks": [benchmark],
        "encoders": [{"name": "trace", "encoder": "recorded", "options": {"path": str(folder / "trace.npy")}}],
        "samplers": ["uniform", "topk"],
        "k": [4],
        "queries": ["question", "question_and_options"],
    }
    (folder / "matrix.yaml").write_text(yaml.safe_dump(matrix))
    return load_matrix(folder / "matrix.yaml")


def test_each_form_of_the_query_is_a_selection_of_its_own_and_shows_in_its_rows(tmp_path):
    matrix = write_matrix(tmp_path)
    specs = selection_specs(matrix)
    assert [spec.label for spec in specs] == ["uniform", "topk", "topk,query=question_and_options"]
    run_matrix(matrix, out=tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    rows = {spec.label: list(folder.selections(spec)) for spec in specs}
    assert {row.query for row in rows["topk"]} == {"Which?"}
    assert {row.query for row in rows["topk,query=question_and_options"]} == {"Which?\nA. x\nB. y"}
    assert len({row.selection_id for part_rows in rows.values() for row in part_rows}) == 3
    options_by_query = {
        row.query: row.changed_options for part_rows in rows.values() for row in part_rows if row.encoder
    }
    assert options_by_query == {"Which?": {}, "Which?\nA. x\nB. y": {"query": "question_and_options"}}
    assert [row.error for part_rows in rows.values() for row in part_rows] == [None] * 12
    assert {(row.benchmark, row.video, row.bucket) for row in rows["uniform"]} == {
        ("mine", "v0.mp4", "short"),
        ("mine", "v1.mp4", "short"),
    }


def test_rows_of_a_benchmark_scored_in_groups_have_its_group_score(tmp_path):
    write_matrix(tmp_path)
    questions = json.loads((tmp_path / "questions.json").read_text())
    for question in questions:
        question |= {"kind": "logic" if question["film"] == "v0" else "relevance", "levels": "[1, 2]"}
    (tmp_path / "questions.json").write_text(json.dumps(questions))
    document = yaml.safe_load((tmp_path / "matrix.yaml").read_text())
    document["benchmarks"][0]["group_score"] = {
        "metric": "score", "question_metric": "acc", "type": "kind", "structure": "levels", "size": 2
    }  # fmt: skip
    (tmp_path / "matrix.yaml").write_text(yaml.safe_dump({**document, "samplers": ["uniform", "random"]}))
    matrix = load_matrix(tmp_path / "matrix.yaml")
    run_matrix(matrix, out=tmp_path / "run")
    run = load_run(tmp_path / "run")
    assert [row.facts["group"] for row in run.selections] == [["logic", "[1, 2]"], ["relevance", "[1, 2]"]] * 4
    # The second question of the logic group is right: it counts nothing. One of two is a quarter.
    answers = [
        answered(row, is_right=row.sampler == "random" or row.question_id in ("u2", "u3")) for row in run.selections
    ]
    answered_run = replace(run, answers=answers)
    figures = {row.keys[2]: row.figures for row in group_score_table(answered_run).rows}
    assert (figures["uniform"][0].ours, figures["uniform"][1].ours) == (pytest.approx(100 * (0 + 1 / 4) / 2), 2)
    tables = {table.name: table for table in report_tables(answered_run)}
    (line,) = tables["group_score_against_baseline"].rows
    assert line.keys[-2:] == ("uniform", "random [control]")
    assert line.figures[0].ours == pytest.approx(figures["random [control]"][0].ours - figures["uniform"][0].ours)
    assert tables["group_score_against_baseline"].columns[1:3] == ("Groups", "Better A / B")
    assert line.figures[1:3] == ("2", "0 / 2")


def answered(row, *, is_right):
    return AnswerRow(
        benchmark=row.benchmark, question_id=row.question_id, video=row.video, selection_id=row.selection_id,
        cell_id="c", cell="c", model="m", bucket=row.bucket, frames_asked=4, frames_chosen=4, frames_fed=4, answer="B",
        parsed="B", correct_answer="B", score=float(is_right),
    )  # fmt: skip


def write_csv_benchmark(folder, *, fields):
    """Questions as a spreadsheet writes them: empty cells for what a question lacks."""
    (folder / "questions.csv").write_text(
        "id,question,A,B,C,gold,film,seconds,moment\n"
        "zähl/1 a,What is shown?,a fractal,a dog,,A,v0.mp4,61,29\n"
        "2,What is shown?,a fractal,a dog,a cat,,v1.mp4,62,\n"
        "3,How many?,,,,4,v1.mp4,,\n"
    )
    benchmark = {
        "benchmark": "mine",
        "annotations": str(folder / "questions.csv"),
        "rates": str(folder / "rates.csv"),
        "fields": {"options": ["A", "B", "C"], "video": "film", **fields},
    }
    (folder / "mine.yaml").write_text(yaml.safe_dump(benchmark))
    (folder / "rates.csv").write_text("id,duration_s,fps\nzähl/1 a,61,10\n2,62,10\n3,62,10\n")
    matrix = {"benchmarks": ["mine.yaml"], "samplers": ["uniform"], "k": [2]}
    (folder / "matrix.yaml").write_text(yaml.safe_dump(matrix))
    return folder / "matrix.yaml"


GOOD_FIELDS = {"answer": "gold", "duration": "seconds?", "evidence": "moment"}


def test_an_empty_cell_of_a_csv_is_a_missing_value(tmp_path):
    (config,) = load_matrix(write_csv_benchmark(tmp_path, fields=GOOD_FIELDS)).benchmarks
    first, hidden, opened = load_questions(config).questions
    assert (first.options, first.answer, first.evidence_seconds) == (("a fractal", "a dog"), "A", (29.0,))
    assert (hidden.answer, hidden.duration_seconds, hidden.evidence_unread) == (None, 62.0, "")
    assert (opened.options, opened.answer, opened.duration_seconds) == ((), "4", None)


def test_a_declared_field_that_no_question_has_is_a_note(tmp_path):
    matrix = load_matrix(write_csv_benchmark(tmp_path, fields=GOOD_FIELDS))
    assert check_all([(matrix, tmp_path / "run")]).notes == (
        "mine: 1 of 3 questions state no answer and will have no score",
    )
    misspelt = {"answer": "golden", "options": "choices", "evidence": "moments", "category": "kind"}
    matrix = load_matrix(write_csv_benchmark(tmp_path, fields=misspelt))
    notes = check_all([(matrix, tmp_path / "run")]).notes
    assert notes == tuple(
        f"mine: none of the 3 questions to be asked has a value in {misspelt[role]!r} ({role}): misspelt, or missing "
        "in this copy?"
        for role in ("answer", "options", "category", "evidence")
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"qestion": "question"}, "'qestion'; did you mean 'question'"),
        ({"answer_is": "leter"}, "unknown answer_is 'leter'"),
        ({"evidence": "moment", "evidence_unit": "second"}, "unknown evidence_unit 'second'"),
    ],
)
def test_a_mistake_in_a_declaration_names_its_file(tmp_path, fields, message):
    with pytest.raises(InvalidInput, match=rf"^{tmp_path}/mine.yaml:\d+: .*{message}"):
        load_matrix(write_csv_benchmark(tmp_path, fields=fields))


def test_a_partial_run_says_so_where_the_benchmark_does_not_state_its_size(tmp_path):
    matrix = load_matrix(write_csv_benchmark(tmp_path, fields=GOOD_FIELDS), overrides={"limit": 2})
    run_matrix(matrix, out=tmp_path / "run")
    run = load_run(tmp_path / "run")
    assert counts_of(run, run.selection_frame).questions_text == "2 of 3"
    run_matrix(matrix.model_copy(update={"limit": None}), out=tmp_path / "run")
    run = load_run(tmp_path / "run")
    assert counts_of(run, run.selection_frame).questions_text == "3"


@pytest.mark.parametrize(
    ("name", "file", "n_questions"),
    [("lvbench", "lvbench_video_info.meta.jsonl.gz", 1549), ("nextgqa", "nextgqa/val.csv", 3358)],
)
def test_a_matrix_takes_a_shipped_benchmark_whose_file_is_no_plain_list(tmp_path, shared, name, file, n_questions):
    document = yaml.safe_load((resource_path("configs") / "benchmarks" / f"{name}.yaml").read_text())
    annotations = str(shared(f"data/field/evidence/{file}"))
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({**document, "annotations": annotations}))
    (tmp_path / "matrix.yaml").write_text("benchmarks: [mine.yaml]\nsamplers: [uniform]\nk: [2]\n")
    (config,) = load_matrix(tmp_path / "matrix.yaml").benchmarks
    questions = load_questions(config).questions
    assert len(questions) == n_questions
    assert any(question.evidence_intervals for question in questions)


@pytest.mark.parametrize(
    ("kinds", "size", "message"),
    [
        (["relevanz"] * 4, 2, r"video 'v0.mp4': group type 'relevanz': neither relevance nor logic"),
        (["relevance"] * 4, 1, r"video 'v0.mp4': a group of 2 questions; group_score states size 1"),
        (["relevance", "relevance", "logic", "relevance"], 2, r"video 'v0.mp4': its questions name several groups"),
    ],
)
def test_a_group_that_cannot_be_scored_is_named_before_a_question_is_asked(tmp_path, kinds, size, message):
    write_matrix(tmp_path)
    rows = json.loads((tmp_path / "questions.json").read_text())
    rows = [{**row, "kind": kind, "levels": "[1, 2]"} for row, kind in zip(rows, kinds, strict=True)]
    (tmp_path / "questions.json").write_text(json.dumps(rows))
    document = yaml.safe_load((tmp_path / "matrix.yaml").read_text())
    document["benchmarks"][0]["group_score"] = {
        "metric": "score", "question_metric": "acc", "type": "kind", "structure": "levels", "size": size
    }  # fmt: skip
    (tmp_path / "matrix.yaml").write_text(yaml.safe_dump(document))
    (lack,) = check_all([(load_matrix(tmp_path / "matrix.yaml"), tmp_path / "run")]).missing
    assert re.match(rf"{tmp_path}/questions.json: {message}", lack.fix)
