"""Logs of lmms-eval: what is read from every version's lines, and what is refused with file and line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus_eval.core.errors import InvalidInput, SelectionMismatch
from focus_eval.external.imports.lmms_logs import LmmsLog, Verdict, find_logs, verdict_of
from focus_eval.external.imports.loading import load_selections

STAMP = "20260101_120000"


def line(doc_id, **changes):
    record = {"doc_id": doc_id, "doc": {"indices": [1, 2]}, "target": "1", "filtered_resps": ["B"], "input": "what?"}
    return {**record, "acc": {"answer": "B", "parsed_pred": "B"}, **changes}


def write_log(folder, lines, *, task="my_task", with_results=True, end="\n", packed=False, **changes):
    """Write a log of lmms-eval with these lines; `changes` are made to its file of results."""
    folder.mkdir(parents=True, exist_ok=True)
    text = "\n".join(json.dumps(item) if isinstance(item, dict) else item for item in lines) + end
    path = folder / f"{STAMP}_samples_{task}.jsonl{'.gz' if packed else ''}"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    if with_results:
        content = {
            "results": {task: {"alias": task, "acc,none": 0.5, "acc_stderr,none": 0.1, "note,none": []}},
            "configs": {task: {"test_split": "validation", "metric_list": [{"metric": "acc"}]}},
            "n-samples": {task: {"effective": len(lines)}},
            "config": {"model": "some_vl", "model_args": "pretrained=org/Model-7B,max_num_frames=8"},
            "model_name": "/disk/org/Model-7B",
            "git_hash": "abc",
            **changes,
        }
        (folder / f"{STAMP}_results.json").write_text(json.dumps(content))
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_a_log_says_task_split_model_and_figures(tmp_path, packed):
    write_log(tmp_path / "run_a", [line(0), line(3)], packed=packed)
    (log,) = find_logs(tmp_path)
    assert (log.run, log.stamp, log.task, log.split, log.model) == (
        "run_a",
        STAMP,
        "my_task",
        "validation",
        "Model-7B",
    )
    assert (log.scores, log.metric_names, log.n_samples) == ({"acc": 0.5}, ("acc",), 2)
    assert (log.model_args["max_num_frames"], log.frames_asked(2), log.git_hash) == ("8", 8, "abc")
    records = list(log.records())
    assert [(record.doc_id, record.line, record.response) for record in records] == [(0, 1, "B"), (3, 2, "B")]
    assert records[0].frames("indices") == (1, 2)
    assert records[0].frames("frame_idx") is None


@pytest.mark.parametrize("response", ["B", ["B"], [["B"]], [["B", "B"]]])
def test_a_response_is_bare_or_in_lists_as_versions_write_it(tmp_path, response):
    write_log(tmp_path, [line(0, filtered_resps=response)])
    (log,) = find_logs(tmp_path)
    assert next(log.records()).response == "B"


@pytest.mark.parametrize(
    ("arguments", "most_fed", "k"), [({"nframes": "8"}, 16, 16), ({"nframes": "8"}, 4, 8), ({}, 4, 4)]
)
def test_k_is_the_wrappers_argument_or_the_most_frames_fed_whichever_is_more(arguments, most_fed, k):
    log = LmmsLog(run="r", stamp="s", task="t", samples=Path("s_samples_t.jsonl"), model_args=arguments)
    assert log.frames_asked(most_fed) == k


def test_a_log_without_documents_and_results_is_read(tmp_path):
    bare = {"doc_id": 0, "target": "C", "filtered_resps": "B.", "doc_hash": "x", "score": 1.0}
    write_log(tmp_path, [bare], with_results=False)
    (log,) = find_logs(tmp_path)
    assert (log.model, log.metric_names, log.n_samples) == ("", ("score",), None)
    record = next(log.records())
    assert (record.doc, record.value("indices"), record.metrics) == (None, None, {"score": 1.0})


def test_a_field_may_lie_in_an_entry_of_a_metric(tmp_path):
    write_log(tmp_path, [line(0, acc={"answer": "B", "parsed_pred": "B", "fed": [3, 4]})])
    record = next(find_logs(tmp_path)[0].records())
    assert record.frames("acc.fed") == (3, 4)
    assert record.value("doc.indices") == [1, 2]
    assert record.value("acc.nothing.there") is None


def test_k_is_read_from_the_arguments_of_any_wrapper():
    args = [{"num_frame": "32"}, {"nframes": "²", "num_frm": "8"}, {"fps": "2"}]
    logs = [LmmsLog(run="a", stamp="s", task="t", samples=Path("x"), model_args=model_args) for model_args in args]
    assert [log.frames_asked(0) for log in logs] == [32, 8, 0]


def test_runs_are_called_after_their_folder_its_parent_or_folder_and_stamp(tmp_path):
    write_log(tmp_path / "a", [line(0)])
    write_log(tmp_path / "b" / "org__Model-7B", [line(0)])
    write_log(tmp_path / "c", [line(0)])
    (tmp_path / "c" / "2027_samples_my_task.jsonl").write_text(json.dumps(line(0)) + "\n")
    assert [log.run for log in find_logs(tmp_path)] == ["a", "b", f"c/{STAMP}", "c/2027"]


def test_a_folder_of_links_is_followed(tmp_path):
    write_log(tmp_path / "real" / "a", [line(0)])
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "a").symlink_to(tmp_path / "real" / "a")
    assert [log.run for log in find_logs(tmp_path / "linked")] == ["a"]


@pytest.mark.parametrize(
    ("lines", "end", "message"),
    [
        ([line(0), '{"doc_id": 1, "target"'], "", r"my_task\.jsonl:2: cut off here, 1 of 2 lines are whole; copy"),
        ([line(0), '{"doc_id": 1, "target"', line(2)], "\n", r"my_task\.jsonl:2: not JSON .*edited or damaged"),
        ([line(0), "[1]"], "\n", r"my_task\.jsonl:2: not an object but list; write one object a line"),
        ([line(0), {"question": "q"}], "\n", r"my_task\.jsonl:2: no doc_id, so not a line .* it has question"),
        (
            [line(0), line(1), line(0)],
            "\n",
            r":3: doc_id 0 a second time, first in line 1; remove one of",
        ),
        (
            [line(0), line(1), {**line(0), "filtered_resps": ["another model's answer"]}],
            "\n",
            r":3: doc_id 0 a second time, first in line 1; two runs, models or filters wrote into this file: keep",
        ),
        ([line(0), {**line(1), "other": 1.0}], "\n", r":2: has acc, other, line 1 has acc: logs of two tasks in one"),
    ],
)
def test_a_wrong_line_names_file_line_and_cure(tmp_path, lines, end, message):
    write_log(tmp_path, lines, end=end)
    (log,) = find_logs(tmp_path)
    with pytest.raises(InvalidInput, match=message):
        list(log.records())


@pytest.mark.parametrize("n_bytes", [30, 200, -9])
def test_a_gzip_that_was_cut_off_names_its_last_line(tmp_path, n_bytes):
    path = write_log(tmp_path, [line(number, input=str(number) * 50) for number in range(200)], packed=True)
    path.write_bytes(path.read_bytes()[:n_bytes])
    with pytest.raises(InvalidInput, match=r"jsonl\.gz:\d+: cut off here, \d+ of 200 lines are whole"):
        list(find_logs(tmp_path)[0].records())


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ("[1, 2]", r":1: indices holds '\[1, 2\]', not a list of frames; name another field"),
        ([1, "two"], r":1: indices holds 'two', which is not a number of frames"),
        ([1.5], r":1: indices holds 1\.5, which is no frame; are these seconds\? \(--unit seconds\)"),
        ([True], r":1: indices holds True, which is not a number"),
        ([-1, 4], r":1: indices holds -1, which is not a number of frames"),
        ({"a": 1}, r":1: indices holds \{'a': 1\}, not a list of frames"),
    ],
)
def test_frames_that_are_none_are_refused(tmp_path, frames, message):
    write_log(tmp_path, [line(0, doc={"indices": frames})])
    with pytest.raises(InvalidInput, match=message):
        next(find_logs(tmp_path)[0].records()).frames("indices")


def test_whole_numbers_written_as_text_are_frames(tmp_path):
    write_log(tmp_path, [line(0, doc={"indices": ["0", "232", 377.0]})])
    assert next(find_logs(tmp_path)[0].records()).frames("indices") == (0, 232, 377)


# As in lmms-eval's worldqa_mc and mix_evals_video2text_mc, then in its gsm8k.
ONE_FILTER = {"my_task": {"alias": "my_task", "acc,flexible-extract": 0.5, "acc_stderr,flexible-extract": "N/A"}}
TWO_FILTERS = {"my_task": {"alias": "my_task", "acc,strict-match": 0.25, "acc,flexible-extract": 0.5}}


def test_a_figure_is_the_metrics_whatever_its_one_filter_is_called(tmp_path):
    write_log(tmp_path, [line(0)], results=ONE_FILTER)
    (log,) = find_logs(tmp_path)
    assert (log.scores, log.filters) == ({"acc": 0.5}, ("flexible-extract",))


def test_lines_of_two_filters_are_named_as_such(tmp_path):
    strict, lenient = line(0, acc={"answer": "B", "parsed_pred": "[invalid]"}), line(0)
    write_log(tmp_path / "named", [strict, lenient], results=TWO_FILTERS)
    (log,) = find_logs(tmp_path / "named")
    assert log.scores == {"acc,strict-match": 0.25, "acc,flexible-extract": 0.5}
    with pytest.raises(
        InvalidInput, match=r"jsonl:2: doc_id 0 .* each filter \(strict-match, flexible-extract\): keep"
    ):
        list(log.records())
    write_log(tmp_path / "unnamed", [strict, lenient], with_results=False)
    (log,) = find_logs(tmp_path / "unnamed")
    with pytest.raises(InvalidInput, match="two runs, models or filters wrote"):  # equal responses, other scores
        list(log.records())


@pytest.mark.parametrize(
    ("responses", "n"),
    [
        (["B"], 1),
        ([["B"]], 1),
        (["B", "C", "A"], 3),
        ([["B", "C"]], 2),
        ([["B"], ["C"]], 2),
        ([[-1.5, False], [0, True]], 1),
    ],
)
def test_repeated_responses_are_counted(tmp_path, responses, n):
    write_log(tmp_path, [line(0, filtered_resps=responses)])
    (log,) = find_logs(tmp_path)
    assert next(log.records()).n_responses == n


def test_a_folder_without_logs_says_how_to_make_them(tmp_path):
    with pytest.raises(InvalidInput, match=r"no STAMP_samples_TASK\.jsonl .*--log_samples"):
        find_logs(tmp_path)


def test_one_log_plain_and_gzipped_is_refused(tmp_path):
    write_log(tmp_path, [line(0)])
    write_log(tmp_path, [line(0)], packed=True)
    with pytest.raises(InvalidInput, match="two runs with one stamp and task"):
        find_logs(tmp_path)


def test_a_log_is_unpacked_by_what_it_holds_and_not_by_its_name(tmp_path):
    plain = write_log(tmp_path / "kept_its_end", [line(0)])
    plain.rename(plain.with_name(plain.name + ".gz"))
    packed = write_log(tmp_path / "lost_its_end", [line(0)], packed=True)
    packed.rename(packed.with_suffix(""))
    assert [len(list(log.records())) for log in find_logs(tmp_path)] == [1, 1]


@pytest.mark.parametrize("odd", [{"config": None}, {"configs": []}, {"configs": {"my_task": None}}, {"n-samples": [1]}])
def test_a_results_file_with_other_shapes_says_what_it_can(tmp_path, odd):
    path = write_log(tmp_path, [line(0)], **odd).with_name(f"{STAMP}_results.json")
    path.write_text("\ufeff" + path.read_text(), encoding="utf-8")
    (log,) = find_logs(tmp_path)
    assert (log.scores, log.model) == ({"acc": 0.5}, "Model-7B")


def test_results_of_another_task_are_refused(tmp_path):
    write_log(tmp_path, [line(0)], task="a")
    (tmp_path / f"{STAMP}_samples_b.jsonl").write_text(json.dumps(line(0)) + "\n")
    with pytest.raises(InvalidInput, match=r"results\.json beside it has no task 'b', but a; give each run its own"):
        find_logs(tmp_path)


@pytest.mark.parametrize(
    ("entry", "verdict"),
    [
        ({"answer": "B", "parsed_pred": "C", "id": "x"}, Verdict(score=0.0, predicted="C", right="B")),
        ({"answer": "B", "pred_answer": "B"}, Verdict(score=1.0, predicted="B", right="B")),
        ({"pred_answer": 2, "gt_answer": 2, "score": 1}, Verdict(score=1.0, predicted="2", right="2")),
        ({"correct": False, "pred_answer": "x"}, Verdict(score=0.0, predicted="x")),
        (0.25, Verdict(score=0.25)),
        (True, Verdict(score=1.0)),
        ({"some_id": "C"}, None),
        ([1], None),
        (float("nan"), None),
        ({"score": float("nan"), "pred_answer": "B", "answer": "B"}, None),
    ],
)
def test_a_verdict_is_a_number_or_prediction_and_right_answer(entry, verdict):
    assert verdict_of(entry) == verdict


@pytest.mark.slow
@given(
    st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.dictionaries(st.text(), inner))
)
def test_any_entry_gives_a_verdict_or_none(entry):
    verdict = verdict_of(entry)
    assert verdict is None or isinstance(verdict.score, float)


@pytest.mark.parametrize(
    ("run", "accuracy", "n_with_frames"),
    [("uniform", 0.5834, 0), ("aks", 0.62229, 1337), ("scenes", 0.60957, 1337), ("oracle", 0.54076, 1337)],
)
def test_the_real_logs_give_their_own_accuracy(shared, run, accuracy, n_with_frames):
    (log,) = find_logs(shared(f"data/field/lmms_logs/lvb_{run}"))
    records = list(log.records())
    assert len(records) == log.n_samples == 1337
    mean = sum(verdict_of(record.metrics["lvb_acc"]).score for record in records) / len(records)
    assert round(mean, 5) == log.scores["lvb_acc"] == accuracy
    assert sum(record.frames("indices") is not None for record in records) == n_with_frames


def test_a_table_of_answers_holds_a_log_for_each_run(shared):
    logs = find_logs(shared("data/field/lmms_logs/lvb_qwen2_5_vl_7b_32_frames_22_runs.parquet"))
    assert len(logs) == 22
    by_name = {log.run: log for log in logs}
    records = list(by_name["qwen2_5_vl_AKS"].records())
    assert round(sum(record.metrics["score"] for record in records) / len(records), 5) == 0.62229
    assert next(by_name["qwen2_5_vl"].records()).frames("frames") is None


def test_a_log_is_a_selection_too_once_its_field_is_named(tmp_path):
    lines = [line(0, doc={"id": "a", "indices": ["9", 3]}), line(1, doc={"id": "b", "indices": [4]})]
    path = write_log(tmp_path, lines)
    read = load_selections(path, format="lmms:frames_field=indices")
    assert {key: entry.selection.keyframes for key, entry in read.items()} == {"a": [3, 9], "b": [4]}
    for options, message in [
        ({}, "name the field of the frames that were fed"),
        ({"frames_field": "indices", "id_field": "uid"}, r"jsonl:1: no field 'uid' with the question's id"),
        ({"frames_field": "elsewhere"}, r"line 1 \(a\): no frames chosen \(--allow-missing leaves it out\)"),
    ]:
        with pytest.raises(SelectionMismatch, match=message):
            load_selections(path, format="lmms", options=options)
