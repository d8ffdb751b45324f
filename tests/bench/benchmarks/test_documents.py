"""Do lmms-eval's documents become questions, and are broken ones refused with the reason?"""

from __future__ import annotations

import importlib
import json
from fractions import Fraction
from pathlib import Path

import pytest

from focus_eval.bench.benchmarks.question import split_question
from focus_eval.bench.benchmarks.registry import (
    benchmark_of_task,
    exact_rate,
    facts_of,
    make_benchmark,
    read_annotations,
    read_rates,
    write_rates,
)
from focus_eval.bench.matrix.config import expand_variables, load_yaml
from focus_eval.core.errors import InvalidInput, UnknownName
from focus_eval.core.resources import resource_path
from focus_eval.core.types import VideoInfo

LVB = {
    "id": "vid_0",
    "video_path": "vid.mp4",
    "question": "Which animal appears?",
    "option0": "a cat",
    "option1": "a dog",
    "option2": "N/A",
    "option3": "N/A",
    "option4": "N/A",
    "correct_choice": 1,
    "duration": 100.0,
    "duration_group": 60,
    "question_category": "S2O",
}
VIDEOMME = {
    "question_id": "001-1",
    "videoID": "abc",
    "duration": "long",
    "question": "How many?",
    "options": ["A. One.", "B. Two."],
    "answer": "B",
    "task_type": "Counting Problem",
}
VSI = {
    "id": 7,
    "dataset": "scannet",
    "scene_name": "scene0001_00",
    "question_type": "object_rel_distance",
    "question": "Which object is closest?",
    "options": ["A. chair", "B. sofa", "C. A.I. lamp", "D. bed"],
    "ground_truth": "C",
}


def test_a_parquet_document_ends_its_options_at_not_available():
    question = make_benchmark("longvideobench").question(LVB)
    assert question.options == ("a cat", "a dog")
    assert (question.answer, question.video, question.category) == ("B", "vid.mp4", "S2O")
    assert question.evidence_seconds == ()


def test_evidence_is_counted_at_24_frames_a_second_and_ends_a_second_after_the_video():
    benchmark = make_benchmark("longvideobench")
    question = benchmark.question({**LVB, "position": [24, 47]})
    assert (question.evidence_seconds, question.n_evidence_dropped) == ((1.0, 47 / 24), 0)
    question = benchmark.question({**LVB, "duration": 10.0, "position": "[264, 265]"})
    assert (question.evidence_seconds, question.n_evidence_dropped) == ((11.0,), 1)


@pytest.mark.parametrize(
    ("position", "reason"),
    [
        ("nonsense", "evidence 'nonsense' is not a list of frames@24"),
        ([-1], "evidence -1 is not a number of 0 or above"),
    ],
)
def test_evidence_that_cannot_be_read_says_why_and_costs_no_question(position, reason):
    question = make_benchmark("longvideobench").question({**LVB, "position": position})
    assert (question.evidence_seconds, question.evidence_unread) == ((), f"longvideobench vid_0: {reason}")


def test_a_hidden_answer_is_none():
    document = {key: value for key, value in LVB.items() if key != "correct_choice"}
    assert make_benchmark("longvideobench").question(document).answer is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"correct_choice": 2}, "answer 2 of 2 options"),
        ({"duration": 0}, "seconds above 0"),
        ({"duration": None}, "duration is declared as field 'duration', which holds None"),
        ({"option1": "N/A"}, "at least 2 options"),
        ({"question": " "}, "'question'"),
        ({"id": None}, "'id'"),
    ],
)
def test_a_broken_document_is_refused_with_its_id_and_field(change, message):
    with pytest.raises(InvalidInput, match=message) as caught:
        make_benchmark("longvideobench").question({**LVB, **change})
    assert "longvideobench" in str(caught.value)


def test_videomme_options_lose_their_letters_and_the_query_has_none():
    question = make_benchmark("videomme").question(VIDEOMME)
    assert question.options == ("One.", "Two.")
    assert (question.query, question.video, question.bucket, question.answer) == ("How many?", "abc.mp4", "long", "B")
    with pytest.raises(InvalidInput, match="duration must be one of"):
        make_benchmark("videomme").question({**VIDEOMME, "duration": "120"})
    with pytest.raises(InvalidInput, match="answer 'C'"):
        make_benchmark("videomme").question({**VIDEOMME, "answer": "C"})


def test_vsibench_has_choices_and_open_questions():
    benchmark = make_benchmark("vsibench")
    choice = benchmark.question(VSI)
    assert (choice.id, choice.video) == ("7", "scannet/scene0001_00.mp4")
    assert choice.options == ("chair", "sofa", "A.I. lamp", "bed")
    open_question = benchmark.question(
        {**VSI, "options": None, "ground_truth": "2.4", "question_type": "object_abs_distance"}
    )
    assert (open_question.options, open_question.answer) == ((), "2.4")


def test_mlvu_options_keep_brackets_inside_their_text():
    text = "What did (A) he say?\n\n(A) see (B) below\n(B) two\nlines\n(C) none\n"
    assert split_question(text) == ("What did (A) he say?", ("see (B) below", "two\nlines", "none"))
    assert split_question("Describe the video.") == ("Describe the video.", ())
    # What follows the last option is said to the model.
    assert split_question("Who?\n(A) Ann\n(B)\n(C) Bob\nAnswer with the letter.") == ("Who?", ("Ann", "", "Bob"))


def test_mlvu_takes_answers_as_letter_or_as_text():
    document = {"video_name": "x.mp4", "question": "Who?\n(A) Ann\n(B) Bob", "answer": "B", "task_type": "needle"}
    benchmark = make_benchmark("mlvu")
    assert benchmark.question(document).answer == "B"
    assert benchmark.question({**document, "answer": "Bob"}).answer == "B"
    with pytest.raises(InvalidInput, match="answer 'Eve'"):
        benchmark.question({**document, "answer": "Eve"})
    with pytest.raises(InvalidInput, match="no options"):
        benchmark.question({**document, "question": "Who?"})


BENCHMARKS = ["longvideobench", "videomme", "mlvu", "vsibench", "photo_events"]


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_is_found_by_its_official_and_our_tasks(name):
    benchmark = make_benchmark(name)
    for task in benchmark.tasks:
        assert benchmark_of_task(task).name == benchmark_of_task(f"focus_{task}").name == name
    assert benchmark_of_task(f"focus_{name}").name == name


@pytest.mark.slow
@pytest.mark.parametrize("task", ["longvideobench_val_v", "videomme", "mlvu_dev", "vsibench"])
def test_the_stated_folder_of_videos_is_where_lmms_eval_looks(task, tmp_path, monkeypatch):
    pytest.importorskip("lmms_eval")
    package = {"longvideobench_val_v": "longvideobench"}.get(task, task.partition("_")[0])
    utils = importlib.import_module(f"lmms_eval.tasks.{package}.utils")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    importlib.reload(utils)  # some read HF_HOME when imported
    document = {**LVB, **VIDEOMME, **VSI, "video_name": "x.mp4"}
    document["duration"] = "long" if task == "videomme" else 100.0
    document["question"] = "Who?\n(A) Ann\n(B) Bob"
    document["options"], document["answer"], document["ground_truth"] = ["A. Ann", "B. Bob"], "A", "B"
    benchmark = benchmark_of_task(task)
    file = resource_path("configs") / "benchmarks" / f"{benchmark.name}.yaml"
    path = Path(expand_variables(load_yaml(file)["videos"], file)) / benchmark.question(document).video
    path.parent.mkdir(parents=True)
    path.touch()
    lookup = {"longvideobench": "longvideobench_doc_to_visual_v", "mlvu": f"{task.replace('_', '_doc_to_visual_')}"}
    visuals = getattr(utils, lookup.get(package, f"{package}_doc_to_visual"))(document)
    monkeypatch.undo()
    importlib.reload(utils)
    assert str(visuals[0]).replace("//", "/") == str(path)


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'longvideobench'"):
        make_benchmark("longvideobnch")
    with pytest.raises(UnknownName, match="did you mean 'videomme'"):
        benchmark_of_task("videomm")


def test_a_questions_options_keep_their_letters_where_one_is_missing():
    benchmark = make_benchmark("longvideobench")
    assert benchmark.question({**LVB, "option2": " a hen "}).options == ("a cat", "a dog", " a hen ")
    with pytest.raises(InvalidInput, match="none missing before the last"):
        benchmark.question({**LVB, "option1": None, "option2": "a hen"})


def test_a_published_row_has_its_options_in_one_list():
    document = {key: value for key, value in LVB.items() if not key.startswith("option")}
    question = make_benchmark("longvideobench").question({**document, "candidates": ["A cat", "N/A and more"]})
    assert question.options == ("A cat", "N/A and more")


def test_the_demo_benchmark_has_the_fields_of_another():
    own_benchmark, benchmark = make_benchmark("photo_events"), make_benchmark("longvideobench")
    assert own_benchmark.fields == benchmark.fields
    assert own_benchmark.question(LVB).benchmark == "photo_events"
    assert (own_benchmark.facts.questions, benchmark.facts.questions) == (None, 1337)


def test_vsibenchs_lengths_are_those_of_its_file():
    assert [make_benchmark("vsibench").bucket(seconds) for seconds in (59, 61, 121)] == ["short", "medium", "long"]


def test_what_a_run_stated_of_a_benchmark_goes_before_its_file():
    assert facts_of("mlvu", {"benchmark": "mlvu"}) == facts_of("mlvu") == make_benchmark("mlvu").facts
    assert facts_of("mlvu", {"questions": 7, "mean_over_types": None}).questions == 7
    assert not facts_of("mlvu", {"mean_over_types": False}).mean_over_types
    assert facts_of("somebody's").strata(["a"]) is None
    own_facts = facts_of("mine", {"mean_over_types": True, "types_with_parts": ["order"]})
    assert own_facts.strata(["order_hard", "orders"]) == ["order/hard", "orders"]


def test_a_wrong_fact_is_refused(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("lmms_eval_parsing: letter\nfields: longvideobench\n")
    with pytest.raises(UnknownName, match="did you mean 'letters'"):
        make_benchmark(str(path))
    path.write_text("fields: longvideobnch\n")
    with pytest.raises(UnknownName, match="did you mean 'longvideobench'"):
        make_benchmark(str(path))


def test_edges_bound_the_buckets():
    benchmark = make_benchmark("vsibench", edges_seconds=(60, 120))
    assert [benchmark.bucket(seconds) for seconds in (59.9, 60, 120, 120.1)] == ["short", "medium", "medium", "long"]
    with pytest.raises(InvalidInput, match="ascending"):
        make_benchmark("vsibench", edges_seconds=(120, 60))
    with pytest.raises(InvalidInput, match="above 0"):
        benchmark.bucket(float("nan"))


def test_annotation_files_are_read_in_every_format_and_order(tmp_path):
    import pandas

    rows = [{**LVB, "id": f"q{at}"} for at in range(3)]
    (tmp_path / "a.json").write_text(json.dumps(rows))
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    (tmp_path / "folder").mkdir()
    for at, part in enumerate((rows[:2], rows[2:])):
        pandas.DataFrame(part).to_parquet(tmp_path / "folder" / f"validation-0000{at}-of-00002.parquet")
    expected = read_annotations("longvideobench", tmp_path / "a.json")
    assert [question.id for question in expected] == ["q0", "q1", "q2"]
    assert read_annotations("longvideobench", tmp_path / "a.jsonl") == expected
    assert read_annotations("longvideobench", tmp_path / "folder") == expected


def test_broken_annotation_files_name_file_and_row(tmp_path):
    path = tmp_path / "a.json"
    with pytest.raises(InvalidInput, match=r"a\.json: cannot be read"):
        read_annotations("longvideobench", path)
    path.write_text("{}")
    with pytest.raises(InvalidInput, match="list of rows"):
        read_annotations("longvideobench", path)
    path.write_text(json.dumps([LVB, LVB]))
    with pytest.raises(InvalidInput, match="1 ids occur more than once, the first is 'vid_0'"):
        read_annotations("longvideobench", path)
    path.write_text(json.dumps([LVB, {}]))
    with pytest.raises(InvalidInput, match=r"a.json: row 1: .*'id'"):
        read_annotations("longvideobench", path)
    with pytest.raises(InvalidInput, match="no validation-"):
        read_annotations("longvideobench", tmp_path)


def test_whole_rates_that_only_ntsc_has_are_read_as_ntsc():
    assert exact_rate("23") == exact_rate("23.98") == Fraction(24000, 1001)
    assert exact_rate("29") == exact_rate("30000/1001") == Fraction(30000, 1001)
    assert exact_rate("59") == Fraction(60000, 1001)
    assert exact_rate("25") == 25
    assert exact_rate("29.5") == Fraction(59, 2)
    assert exact_rate("29/1") == 29


def test_rate_files_name_the_broken_line(tmp_path):
    path = tmp_path / "rates.csv"
    path.write_text("id,duration_s,fps\na,10,29\n")
    assert read_rates(path)["a"].n_frames == 299
    for text, message in [
        ("id,duration_s\na,10\n", "has no 'fps'"),
        ("id,duration_s,fps\na,ten,25\n", r"rates.csv:2: "),
        ("id,duration_s,fps\na,10,25\na,10,25\n", r"rates.csv:3: id 'a'"),
        ("id,duration_s,fps\na,10,1/0\n", r"rates.csv:2: "),
    ]:
        path.write_text(text)
        with pytest.raises(InvalidInput, match=message):
            read_rates(path)


def test_written_rates_are_read_with_every_frame(tmp_path):
    rates = [Fraction(25), Fraction(29), Fraction(30000, 1001), Fraction(24000, 1001), Fraction(27384756, 10**6)]
    infos = {f"{n}@{fps}": VideoInfo(n, float(fps)) for fps in rates for n in (1, 435, 14814, 27440, 215783)}
    write_rates(tmp_path / "rates.csv", infos)
    read = read_rates(tmp_path / "rates.csv")
    assert {key: rate.n_frames for key, rate in read.items()} == {key: info.n_frames for key, info in infos.items()}
    assert {rate.fps for rate in read.values()} == set(rates)


def test_the_demo_writes_positions_in_longvideobenchs_unit():
    from focus_eval.bench.demo.photo_events import POSITION_FPS

    assert make_benchmark("longvideobench").fields.evidence_unit == f"frames@{POSITION_FPS:g}"
