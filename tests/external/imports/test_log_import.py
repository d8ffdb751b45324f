"""Logs of lmms-eval as runs: accuracy to its last digit, questions and frames as stated, wrong input in one line."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from focus_eval.bench.benchmarks.registry import read_annotations
from focus_eval.bench.report.run import load_run
from focus_eval.cli import app
from focus_eval.external.imports.lmms_logs import LogRecord
from focus_eval.external.imports.loading import load_selections
from focus_eval.external.imports.log_questions import options_of

from .test_lmms_logs import line, write_log

RATES = "id,duration_s,fps\n0,100,25\n1,300,30000/1001\n"


def run_import(path, out, *options, fails=False):
    result = CliRunner().invoke(app, ["import", "lmms", str(path), "--out", str(out), *map(str, options)])
    assert (result.exit_code != 0) == fails, (result.output, result.exception)
    return str(result.exception) if fails else " ".join(result.output.split())


def rows_of(out):
    run = load_run(out)
    return run, {row.question_id: row for row in run.selections}, {row.question_id: row for row in run.answers}


@pytest.fixture
def rates(tmp_path):
    path = tmp_path / "rates.csv"
    path.write_text(RATES)
    return path


def test_a_task_that_no_benchmark_knows_is_imported_by_task_split_and_doc_id(tmp_path, rates):
    first = line(0, doc={"video_name": "a.mp4", "question": "why?", "options": ["x", "y"], "indices": [250, 25]})
    second = line(1, doc={"video_name": "b.mp4", "question": "who?", "indices": [30]}, acc={"score": 0.25})
    write_log(tmp_path / "mine", [first, second], results={"my_task": {"acc,none": 62.5}})
    output = run_import(tmp_path / "mine", tmp_path / "run", "--frames-field", "indices", "--rates", rates)
    assert "no benchmark here has the task my_task: questions by task, split and doc_id; videos by video_name" in output
    assert "K = 8; indices (frames), 1 to 2 in 2 questions; 1 not in order: sorted" in output
    assert "acc, mean 0.62500, equal to the log's 62.5" in output
    run, selections, answers = rows_of(tmp_path / "run")
    assert {row.benchmark for row in run.answers} == {"my_task@validation"}
    assert (selections["0"].keyframes, selections["0"].times_seconds) == ([25, 250], [1.0, 10.0])
    assert selections["1"].times_seconds == [pytest.approx(1.001)]
    assert (answers["0"].fed_frames, answers["0"].frames_fed, answers["0"].frames_asked) == ([250, 25], 2, 8)
    assert [answers[key].score for key in "01"] == [1.0, 0.25]
    assert [selections[key].bucket for key in "01"] == ["short", "medium"]
    assert (answers["0"].correct_answer, answers["0"].metric, answers["0"].model) == ("B", "acc", "Model-7B")


def test_an_import_says_which_of_several_responses_and_which_filters_figure_count(tmp_path):
    lines = [
        line(at, doc={"video_name": "a.mp4", "question": f"why {at}?"}, filtered_resps=["B", "C", "B"])
        for at in range(4)
    ]
    figures = {"alias": "my_task", "acc,strict-match": 0.25, "acc,flexible-extract": 1.0}
    write_log(tmp_path / "logs", lines, results={"my_task": figures})
    output = run_import(tmp_path / "logs", tmp_path / "run")
    assert "up to 3 responses to 4 questions: the first is read, the score is the log's" in output
    assert "mean 1.00000; the log has a figure for each filter: strict-match 0.25, flexible-extract 1.0" in output


def test_a_stated_k_below_the_frames_fed_is_said(tmp_path):
    write_log(tmp_path / "mine", [line(0)])
    output = run_import(tmp_path / "mine", tmp_path / "run", "--frames-field", "indices", "-o", "k=1")
    assert "K = 1; indices (frames), 2 in 1 questions; more than K, which was stated by -o k" in output


def test_frames_are_never_guessed(tmp_path):
    write_log(tmp_path / "mine", [line(0), line(1)])
    output = run_import(tmp_path / "mine", tmp_path / "run")
    assert "no --frames-field is named for 2: not known" in output
    run, selections, answers = rows_of(tmp_path / "run")
    row = selections["0"]
    assert (row.keyframes, row.times_seconds, row.n_frames, row.fps) == (None, None, None, None)
    assert (answers["0"].frames_chosen, answers["0"].frames_fed) == (None, None)
    assert not run.answer_frame["is_below_k"].any()


def test_frames_without_rates_have_no_times_and_no_recall(tmp_path):
    write_log(tmp_path / "mine", [line(0)], task="longvideobench_val_v")
    output = run_import(tmp_path / "mine", tmp_path / "run", "--frames-field", "indices")
    assert "not longvideobench's documents" in output  # {"indices": ..} alone is no document of it
    assert "times not known without --rates" in output
    run, selections, _ = rows_of(tmp_path / "run")
    assert (selections["0"].keyframes, selections["0"].times_seconds, selections["0"].fps) == ([1, 2], None, None)
    assert run.selection_frame["recall@1"].isna().all()


def test_evenly_spaced_frames_are_assumed_only_when_asked_for(tmp_path, rates):
    write_log(tmp_path / "mine", [line(0, doc={}), line(1, doc={})])
    output = run_import(tmp_path / "mine", tmp_path / "run", "-o", "assume_uniform=true", "-o", "k=3", "--rates", rates)
    assert "taken as evenly spaced (assume_uniform)" in output
    _, selections, _ = rows_of(tmp_path / "run")
    assert selections["0"].keyframes == [0, 1249, 2499]
    # Not rounded to frames, as the wrappers do: recall of uniform is that of the exact times.
    assert selections["0"].times_seconds == pytest.approx([0.0, 49.98, 99.96], abs=1e-9)
    assert selections["0"].facts["frames"] == "assumed evenly spaced"


def test_seconds_need_no_rates(tmp_path):
    write_log(tmp_path / "mine", [line(0, doc={"at": [1.5, 8]})])
    run_import(tmp_path / "mine", tmp_path / "run", "--frames-field", "at", "--unit", "seconds")
    _, selections, _ = rows_of(tmp_path / "run")
    assert (selections["0"].keyframes, selections["0"].times_seconds) == (None, [1.5, 8.0])


def test_an_answer_that_the_task_guessed_is_unparsed_and_keeps_its_score(tmp_path):
    lines = [
        line(0, filtered_resps=["None of the options fits."], acc={"answer": "D", "parsed_pred": "D"}),
        line(1, filtered_resps=["(b) a dog"], acc={"answer": "B", "parsed_pred": "B"}),
        line(2, filtered_resps=["I see it: A."], acc={"answer": "B", "parsed_pred": "A"}),
        line(3, filtered_resps=["!!"], acc={"answer": "B", "parsed_pred": ""}),
        line(
            4,
            doc={"options": ["cat", "dog"]},
            filtered_resps=["this is the dog"],
            acc={"answer": "B", "parsed_pred": "B"},
        ),
        line(5, filtered_resps=["None fits THE BALL."], acc={"answer": "E", "parsed_pred": "E"}),
        line(6, filtered_resps=["答案是B。"], acc={"answer": "B", "parsed_pred": "B"}),
        line(7, doc={"options": ["cat", "dog"]}, filtered_resps=["The answer is (B)"], acc={"score": 1, "answer": "B"}),
    ]
    write_log(tmp_path / "mine", lines)
    output = run_import(tmp_path / "mine", tmp_path / "run")
    assert "3 answers name no option" in output
    _, _, answers = rows_of(tmp_path / "run")
    parsed = [None, "B", "A", None, "B", None, "B", "The answer is (B)"]
    assert [answers[key].parsed for key in "01234567"] == parsed
    assert [answers[key].score for key in "01234567"] == [1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]


def test_a_mean_over_groups_explains_another_figure(tmp_path):
    entries = [("count", "A"), ("order", "A"), ("order", "A"), ("order", "B")]
    lines = [
        line(number, acc={"answer": "A", "parsed_pred": letter, "task_type": group})
        for number, (group, letter) in enumerate(entries)
    ]
    write_log(tmp_path / "mine", lines, results={"my_task": {"acc,none": 0.833333}})
    output = run_import(tmp_path / "mine", tmp_path / "run")
    assert "mean 0.75000, the log says 0.833333: it is the mean over the 2 values of task_type" in output


def test_a_figure_that_nothing_explains_names_the_answers_in_doubt(tmp_path):
    lines = [line(0), line(7, filtered_resps=["hm"], acc={"answer": "B", "parsed_pred": "C"})]
    write_log(tmp_path / "mine", lines, results={"my_task": {"acc,none": 1.0}})
    output = run_import(tmp_path / "mine", tmp_path / "run")
    assert "the log says 1.0: 1 answers could not be read or were guessed: 7 (line 2)" in output


@pytest.mark.parametrize("accuracy", [0.25, 25.0])
def test_a_figure_that_the_answers_in_doubt_cannot_explain_names_foreign_lines(tmp_path, accuracy):
    unread = line(7, filtered_resps=["hm"], acc={"answer": "B", "parsed_pred": "C"})
    write_log(tmp_path / "mine", [line(0), line(1), line(2), unread], results={"my_task": {"acc,none": accuracy}})
    output = run_import(tmp_path / "mine", tmp_path / "run")
    assert "2 answers apart, 1 in doubt: are lines of another split, run or model in the log?" in output


def test_importing_again_replaces_and_another_name_stands_beside(tmp_path):
    write_log(tmp_path / "mine", [line(0), line(1)])
    run_import(tmp_path / "mine", tmp_path / "run")
    run_import(tmp_path / "mine", tmp_path / "run")
    assert len(load_run(tmp_path / "run").answers) == 2
    run_import(tmp_path / "mine", tmp_path / "run", "--name", "again")
    run = load_run(tmp_path / "run")
    assert (len(run.answers), sorted(set(run.answer_frame["label"]))) == (4, ["again", "mine"])


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (
            {"config": {"model_args": "a=1"}},
            [],
            r"_results\.json: K unknown, .* say it \(-o k=32\)",
        ),
        ({"with_results": False}, [], r"jsonl: no results file beside it names the model; say which \(--model\)"),
        ({}, ["-o", "metric=bleu"], r"jsonl:1: no score in 'bleu'; scores are in: acc"),
        ({"lines": [line(0, acc={"id": "A"})]}, [], r"jsonl:1: no entry says whether the answer is right, only acc"),
        (
            {"lines": [line(0), line(1, acc={"score": 3.5})]},
            [],
            r"jsonl:2: acc is 3\.5, not from 0 to 1; .*metric=NAME",
        ),
        ({"lines": []}, [], r"jsonl: no answers in this file; copy it again"),
        ({"n-samples": {"my_task": {"effective": 9}}}, [], r"jsonl:2: the file ends here, its run asked 9 questions"),
        (
            {},
            ["--rates", "LVB"],
            r"lvb\.json: no lines below the first; rates are a CSV with the columns id, duration_s",
        ),
        ({}, ["--frames-field", "indices", "--rates", "RATES"], r"jsonl:2: no length and rate for question 1 or video"),
        ({}, ["-o", "id_field=nope", "--annotations", "LVB"], r"jsonl:1: no field 'nope' \(id_field\); there are ind"),
        ({}, ["--frames-field", "indces"], r"no line has the field 'indces'; lists of numbers are in: indices \("),
        ({}, ["--benchmark", "longvideobench"], r"jsonl:1: not a document of longvideobench: .* holds None"),
        ({}, ["-o", "video_field=nope"], r"jsonl:1: no field 'nope' \(video_field\); there are indices"),
        ({}, ["--annotations", "LVB"], r"does not say of which benchmark these are; name it \(--benchmark\)"),
    ],
)
def test_wrong_input_names_file_line_and_cure(tmp_path, change, options, message):
    lines = change.pop("lines", [line(0), line(1)])
    write_log(tmp_path / "mine", lines, **change)
    (tmp_path / "rates.csv").write_text("id,duration_s,fps\n0,100,25\n")
    document = {"id": "x_0", "question": "why?", "candidates": ["a", "b"], "correct_choice": 1, "duration": 9.0}
    (tmp_path / "lvb.json").write_text(json.dumps([{**document, "video_path": "x.mp4"}]))
    paths = {"RATES": tmp_path / "rates.csv", "LVB": tmp_path / "lvb.json"}
    command_options = [paths.get(option, option) for option in options]
    if "id_field=nope" in options:
        command_options += ["--benchmark", "longvideobench"]
    output = run_import(tmp_path / "mine", tmp_path / "run", *command_options, fails=True)
    assert re.search(message, output), output
    assert "\n" not in output
    assert not (tmp_path / "run").exists()


def test_a_log_that_states_only_hashes_pairs_by_them(tmp_path):
    for name, order in (("a", (0, 1, 2)), ("b", (1, 2, 0))):
        lines = [
            {"doc_id": at, "target": "B", "filtered_resps": ["B"], "acc": {"answer": "B", "parsed_pred": "B"}}
            | {"prompt_hash": f"hash{number}"}
            for at, number in enumerate(order)
        ]
        write_log(tmp_path / "logs" / name, lines)
    run_import(tmp_path / "logs", tmp_path / "run")
    run = load_run(tmp_path / "run")
    prompts = {name: part.set_index("question_id")["prompt"] for name, part in run.answer_frame.groupby("label")}
    assert prompts["a"].to_dict() == prompts["b"].to_dict()


def test_lines_of_another_split_and_of_two_models_are_named(tmp_path):
    write_log(tmp_path / "more", [line(0), line(1), line(2)], **{"n-samples": {"my_task": {"effective": 2}}})
    output = run_import(tmp_path / "more", tmp_path / "run", fails=True)
    assert "jsonl:3: 3 lines, its run asked 2 questions; lines of another split or run: remove them" in output
    write_log(tmp_path / "mixed", [line(0), line(1), {**line(1), "filtered_resps": ["A"]}])
    output = run_import(tmp_path / "mixed", tmp_path / "run", fails=True)
    assert (
        "jsonl:3: doc_id 1 a second time, first in line 2; two runs, models or filters wrote into this file" in output
    )


def test_an_annotation_is_found_by_content_where_rows_moved(tmp_path, annotation):
    documents = json.loads(annotation.read_text())
    lines = [
        line(at, doc={**document, "indices": [24]}, input="?", acc={"answer": "B", "parsed_pred": "B"})
        for at, document in enumerate(reversed(documents))
    ]
    write_log(tmp_path / "mine", lines, task="longvideobench_val_v")
    output = run_import(tmp_path / "mine", tmp_path / "run", "--annotations", annotation)
    assert "questions of the annotation, by content (2) or the document's id as in longvideobench" in output
    assert sorted(rows_of(tmp_path / "run")[2]) == ["v_0", "v_1"]


def test_a_question_that_two_rows_answer_is_named(tmp_path, annotation):
    document = json.loads(annotation.read_text())[0]
    lines = [line(at, doc=document, input="?", acc={"answer": "B", "parsed_pred": "B"}) for at in (0, 1)]
    write_log(tmp_path / "mine", lines, task="longvideobench_val_v")
    output = run_import(tmp_path / "mine", tmp_path / "run", fails=True)
    assert "jsonl:2: question 'v_0' a second time, first in line 1" in output


def test_two_runs_of_one_name_are_refused(tmp_path):
    for folder in ("a/logs__x", "b/logs__x"):
        write_log(tmp_path / folder, [line(0)])
    output = run_import(tmp_path, tmp_path / "run", "--name", "both", fails=True)
    assert "2 logs cannot all be called 'both'; import each by itself" in output


@pytest.fixture
def annotation(tmp_path):
    def row(number):
        return {
            "id": f"v_{number}",
            "question": f"what is shown at {number}?",
            "candidates": ["a", "b"],
            "correct_choice": 1,
            "duration": 200.0,
            "video_path": "v.mp4",
            "position": [24],
        }

    path = tmp_path / "lvb.json"
    path.write_text(json.dumps([row(0), row(1)]))
    return path


def test_a_log_without_documents_is_joined_by_row_and_compared_with_the_prompt(tmp_path, annotation):
    def bare(doc_id, prompt):
        return {**line(doc_id, input=prompt), "doc": None}

    lines = [bare(1, "Look. what is  shown at 1? A. a B. b"), bare(0, "what is shown at 0?")]
    write_log(tmp_path / "mine", lines, task="longvideobench_val_v")
    output = run_import(tmp_path / "mine", tmp_path / "run", "--annotations", annotation)
    assert "questions of the annotation, by row (doc_id); each is compared with the prompt" in output
    _, selections, answers = rows_of(tmp_path / "run")
    assert sorted(answers) == ["v_0", "v_1"]
    assert selections["v_1"].evidence_seconds == [1.0]
    write_log(tmp_path / "other", [bare(0, "what is shown at 1?")], task="longvideobench_val_v")
    output = run_import(tmp_path / "other", tmp_path / "run", "--annotations", annotation, fails=True)
    assert "jsonl:1: the prompt is not the question in row 0 of the annotation (v_0)" in output
    write_log(tmp_path / "past", [bare(2, "what is shown at 1?")], task="longvideobench_val_v")
    output = run_import(tmp_path / "past", tmp_path / "run", "--annotations", annotation, fails=True)
    assert "doc_id 2, the annotation has 2 rows; another split?" in output


def test_a_field_with_the_questions_id_joins_too_and_foreign_ids_are_refused(tmp_path, annotation):
    entry = {"answer": "B", "parsed_pred": "B"}
    write_log(tmp_path / "mine", [{**line(5, acc={**entry, "qid": "v_1"}), "doc": None}], task="longvideobench_val_v")
    options = ["--annotations", annotation, "-o", "id_field=acc.qid"]
    run_import(tmp_path / "mine", tmp_path / "run", *options)
    assert list(rows_of(tmp_path / "run")[2]) == ["v_1"]
    write_log(tmp_path / "else", [{**line(5, acc={**entry, "qid": "w_1"}), "doc": None}], task="longvideobench_val_v")
    output = run_import(tmp_path / "else", tmp_path / "run", *options, fails=True)
    assert "jsonl:1: 'w_1' is not a question of longvideobench (2 questions)" in output


def test_another_right_answer_than_the_annotations_is_refused(tmp_path, annotation):
    write_log(tmp_path / "mine", [line(0, acc={"answer": "A", "parsed_pred": "A", "qid": "v_0"})])
    options = ["--annotations", annotation, "-o", "id_field=acc.qid", "--benchmark", "longvideobench"]
    output = run_import(tmp_path / "mine", tmp_path / "run", *options, fails=True)
    assert "(v_0): the log's right answer is A, the annotation's is B; another version of the benchmark?" in output


# Recall within 1, 2 and 5 s over all lengths, and the accuracy in the log's own results file (field.md).
@pytest.mark.parametrize(
    ("run", "accuracy", "recalls"),
    [
        ("uniform", "0.5834", (0.354, 0.424, 0.629)),
        pytest.param("aks", "0.62229", (0.629, 0.700, 0.770), marks=pytest.mark.slow),
        pytest.param("scenes", "0.60957", (0.365, 0.441, 0.532), marks=pytest.mark.slow),
        pytest.param("oracle", "0.54076", (0.412, 0.483, 0.560), marks=pytest.mark.slow),
    ],
)
def test_the_real_logs_give_their_accuracy_and_evidence_recall(shared, tmp_path, run, accuracy, recalls):
    options = ["--frames-field", "indices", "--rates", shared("data/lvb_val_fps.csv")]
    options += ["-o", "assume_uniform=true"] if run == "uniform" else []
    output = run_import(shared(f"data/field/lmms_logs/lvb_{run}"), tmp_path / "run", *options)
    assert f"equal to the log's {accuracy}" in output
    assert ("2 past the end of the video" in output) == (run == "oracle")
    frame = load_run(tmp_path / "run").answer_frame
    measured = [frame[f"recall@{d}"].mean() for d in (1, 2, 5)]
    assert np.round(measured, 3) == pytest.approx(recalls, abs=0.0011)
    assert round(frame["score"].mean(), 5) == round(float(accuracy), 5)


@pytest.mark.slow
def test_video_mmes_log_without_documents_is_joined_with_the_annotation(shared, tmp_path):
    output = run_import(
        shared("data/field/lmms_logs/videomme_selected_frames_dbfp1"),
        tmp_path / "run",
        "--annotations",
        shared("data/videomme.json"),
    )
    assert "2,700 about 900 videos" in output
    assert "equal to the log's 59.55555555555556" in output
    frame = load_run(tmp_path / "run").answer_frame
    assert frame.groupby("bucket")["question_id"].size().to_dict() == {"long": 900, "medium": 900, "short": 900}


def test_an_imported_log_is_a_selection_to_replay(shared, tmp_path):
    options = ["--frames-field", "indices", "--rates", shared("data/lvb_val_fps.csv")]
    run_import(shared("data/field/lmms_logs/lvb_aks"), tmp_path / "run", *options)
    published = load_selections(
        shared("data/field/selections/aks_lvb_32.json.gz"),
        format="aks",
        questions=read_annotations("longvideobench", shared("data/lvb_val.json")),
    )
    imported = load_selections(tmp_path / "run")
    assert {key: entry.selection.keyframes for key, entry in imported.items()} == {
        key: entry.selection.keyframes for key, entry in published.items()
    }


def test_an_option_of_two_paragraphs_is_read_whole_from_the_prompt():
    prompt = "What is it?\nA. one\nB. two\n\nand more of two\nC. three\nAnswer with the letter."
    record = LogRecord(
        doc_id=0, location="f:1", line=1, doc=None, target="A", response="A", prompt=prompt, metrics={}
    )  # fmt: skip
    assert options_of(record) == ("one", "two\n\nand more of two", "three")
