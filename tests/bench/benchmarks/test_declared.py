"""A YAML of field names turns any task's documents into questions; a document that does not fit is refused by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus_eval.bench.benchmarks.question import Benchmark, DocumentFields, evidence_of
from focus_eval.bench.benchmarks.registry import FILE_KEYS, benchmark_of_task, make_benchmark
from focus_eval.bench.matrix.config import BenchmarkConfig
from focus_eval.core.errors import InvalidInput, UnknownName
from focus_eval.core.options import make
from focus_eval.core.types import query_text

# Documents in the schema that each task's own functions read (lmms-eval 0.7.3); texts and ids are made up.
DOCUMENTS = {
    "lvbench": {
        "uid": "17",
        "question": "What is on the table?\n(A) a cup\n(B) a book\n(C) a lamp\n(D) nothing",
        "answer": "C",
        "video_path": "00001.mp4",
        "question_type": ["entity recognition", "reasoning"],
        "time_reference": "00:15-00:19",
    },
    "egoschema": {
        "question_idx": "3",
        "video_idx": "0001",
        "question": "What does C do?",
        "option": ["A. cooks", "B. cleans", "C. reads", "D. runs", "E. sings"],
        "answer": "2",
    },
    "mmvu": {
        "id": "validation_3",
        "question": "Which force acts?",
        "choices": {"A": "drag", "B": "lift", "C": "weight", "D": "thrust", "E": "none"},
        "answer": "B",
        "video_path": "Engineering/Mechanics/3.mp4",
        "question_type": "multiple-choice",
    },
    "video_mmmu": {
        "id": "dev_Art_1",
        "question": "Which style?",
        "options": [f"style {at}" for at in range(10)],
        "answer": "J",
        "question_type": "multiple-choice",
    },
    "cgbench": {
        "qid": 5,
        "video_uid": "abc",
        "question": "Who leaves?",
        "choices": ["he", "she", "both"],
        "right_answer": "A",
        "duration": 1500.5,
        "domain": "life",
        "clue_intervals": [[10, 12.5], [90, 95]],
    },
    "timescope": {
        "id": "t1",
        "video": "v/1.mp4",
        "length": "60",
        "type": "QA",
        "input": "Which word is shown?\nA. sun\nB. moon\nC. star\nD. sky",
        "answer": "D",
    },
    "minerva": {
        "key": "k:1",
        "video_id": "xyz",
        "question": "How many?",
        **{f"answer_choice_{at}": str(at + 1) for at in range(5)},
        "answer_id": 4,
        "question_type": "Counting",
    },
    "video_holmes": {
        "video ID": "m1",
        "Question ID": 7,
        "Question Type": "SR",
        "Question": "Why?",
        "Options": {"A": "a", "B": "b", "C": "c", "D": "d", "E": "e", "F": "f"},
        "Answer": "F",
    },
    "videomme_v2": {
        "question_id": "001-1",
        "video_id": "001",
        "question": "What follows?",
        "options": "A. one\nB. two\nC. three\nD. four\nE. five\nF. six\nG. seven\nH. eight",
        "answer": "H",
        "level": 2,
    },
}
EXPECTED = {
    "lvbench": ("What is on the table?", 4, "C", "00001.mp4", "entity recognition, reasoning"),
    "egoschema": ("What does C do?", 5, "C", "0001.mp4", ""),
    "mmvu": ("Which force acts?", 5, "B", "Engineering/Mechanics/3.mp4", "multiple-choice"),
    "video_mmmu": ("Which style?", 10, "J", "dev_Art_1.mp4", "multiple-choice"),
    "cgbench": ("Who leaves?", 3, "A", "abc.mp4", "life"),
    "timescope": ("Which word is shown?", 4, "D", "v/1.mp4", "QA"),
    "minerva": ("How many?", 5, "E", "xyz.mp4", "Counting"),
    "video_holmes": ("Why?", 6, "F", "m1.mp4", "SR"),
    "videomme_v2": ("What follows?", 8, "H", "001.mp4", "2"),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_shipped_declaration_reads_a_document_of_the_official_schema(name):
    question = make_benchmark(name).question(DOCUMENTS[name])
    query, n_options, answer, video, category = EXPECTED[name]
    assert (question.query, len(question.options), question.answer) == (query, n_options, answer)
    assert (question.video, question.category, question.benchmark) == (video, category, name)
    assert not any(option[:2] in ("A.", "(A") for option in question.options)


def test_evidence_and_length_come_along():
    lvbench = make_benchmark("lvbench").question(DOCUMENTS["lvbench"])
    assert (lvbench.evidence_seconds, lvbench.evidence_intervals) == ((), ((15.0, 19.0),))
    cgbench = make_benchmark("cgbench").question(DOCUMENTS["cgbench"])
    assert cgbench.evidence_intervals == ((10.0, 12.5), (90.0, 95.0))
    assert cgbench.duration_seconds == 1500.5
    assert make_benchmark("cgbench").bucket(1500.5) == "long"
    assert make_benchmark("egoschema").bucket(180) == "medium"  # its file's own edges


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_declared_task_is_found_by_lmms_eval_s_name(name):
    benchmark = make_benchmark(name)
    for task in benchmark.tasks:
        assert benchmark_of_task(task).name == name


@pytest.fixture(scope="module")
def task_names(task_index):
    from lmms_eval.tasks import TaskManager

    return set(TaskManager(model_name="default").all_tasks)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_lmms_eval_has_the_declared_tasks(task_names, name):
    assert set(make_benchmark(name).tasks) <= task_names


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"uid": None}, "id is declared as field 'uid', which holds None; fields of the document: uid, question"),
        ({"question": " "}, "lvbench 17: question is declared as field 'question'"),
        ({"answer": "E"}, "lvbench 17: answer 'E' is not the letter of one of 4 options"),
    ],
)
def test_a_document_that_does_not_fit_is_refused_by_name(change, message):
    with pytest.raises(InvalidInput, match=message.replace("(", r"\(")):
        make_benchmark("lvbench").question({**DOCUMENTS["lvbench"], **change})


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("soon", "lvbench 17: 'soon' is not a time like 01:23 or 1:02:03"),
        ("00:19-00:15", "lvbench 17: the evidence interval 19 to 15 ends before it starts"),
        ("08:17-None", "lvbench 17: 'None' is not a time like 01:23 or 1:02:03"),
    ],
)
def test_evidence_that_cannot_be_read_costs_no_question(reference, reason):
    question = make_benchmark("lvbench").question({**DOCUMENTS["lvbench"], "time_reference": reference})
    assert (question.evidence_intervals, question.evidence_unread) == ((), reason)
    assert (question.answer, len(question.options)) == ("C", 4)


def test_a_path_reaches_into_a_field_and_brackets_name_the_entry_by_another_field():
    benchmark = Benchmark(
        "b",
        ("t",),
        DocumentFields(video="clip.file", duration_minutes="clip.minutes", fps="clip.fps", evidence="spans[id]"),
    )
    clip = {"file": "v.mp4", "minutes": 1.5, "fps": 25}
    document = {"id": 7, "question": "q", "answer": "A", "clip": clip, "spans": {"7": "[3]", "8": "[4]"}}
    question = benchmark.question(document)
    assert (question.video, question.duration_seconds, question.fps) == ("v.mp4", 90.0, 25.0)
    assert question.evidence_seconds == (3.0,)
    assert benchmark.question({**document, "spans": {}}).evidence_seconds == ()


def test_the_right_answer_may_be_the_text_of_an_option():
    benchmark = Benchmark("b", ("t",), DocumentFields(options="options", answer_is="text", video="video", id="id"))
    document = {"id": 1, "video": "v.mp4", "question": "q", "options": ["A. red", "B. blue"], "answer": "blue"}
    assert benchmark.question(document).answer == "B"
    with pytest.raises(InvalidInput, match="b 1: answer 'green' is not the text of just one of 2 options"):
        benchmark.question({**document, "answer": "green"})


def test_an_open_question_keeps_its_answer_and_has_no_options():
    question = make_benchmark("mmvu").question({**DOCUMENTS["mmvu"], "choices": None, "answer": "9.81 m/s"})
    assert (question.options, question.answer) == ((), "9.81 m/s")


def test_a_file_declares_a_benchmark(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("task: my_task\nfields: {id: uid, question: q, video: '{uid}.mp4', options: o}\n")
    benchmark = make_benchmark(str(path))
    document = {"uid": "1", "q": "why?", "o": ["x", "y"], "answer": "B"}
    assert (benchmark.name, benchmark.tasks, benchmark.question(document).video) == ("mine", ("my_task",), "1.mp4")
    path.write_text("task: my_task\n")
    with pytest.raises(InvalidInput, match="the key `fields`"):
        make_benchmark(str(path))


@pytest.mark.parametrize(
    ("given_fields", "error", "message"),
    [
        ({"question": "q", "optoins": "o"}, UnknownName, "options"),
        ({"options_in_question": "yes"}, InvalidInput, "true or false"),
        ({"answer_is": "number"}, UnknownName, "answer_is"),
        ({"evidence": "e", "evidence_unit": "minutes"}, UnknownName, "evidence_unit"),
        ({"video": ""}, InvalidInput, "video needs the name of a field"),
        ({"answer_is": "letter|numbr"}, UnknownName, "answer_is 'numbr'"),
        ({"duration": 5}, InvalidInput, "option 'duration' of fields in mine.yaml must be text"),
    ],
)
def test_a_wrong_declaration_is_refused(given_fields, error, message):
    with pytest.raises(error, match=message):
        make("fields in mine.yaml", DocumentFields, given_fields)


@pytest.mark.parametrize(
    ("value", "unit", "moments", "intervals"),
    [
        ([24, 36], "frames@24", (1.0, 1.5), ()),
        ("[5, 7.5]", "seconds", (5.0, 7.5), ()),
        (3, "seconds", (3.0,), ()),
        ([1, 2], "intervals", (), ((1.0, 2.0),)),
        (["01:02", "1:00:00.5"], "clock", (62.0, 3600.5), ()),
        ("00:15 - 00:19", "clock", (), ((15.0, 19.0),)),
        ("101:21-101:21", "clock", (), ((6081.0, 6081.0),)),
        ("2:101:21", "clock", None, None),
    ],
)
def test_evidence_in_every_unit(value, unit, moments, intervals):
    if moments is None:
        with pytest.raises(InvalidInput, match="is not a time like"):
            evidence_of(value, unit, location="w")
        return
    assert evidence_of(value, unit, location="w") == (moments, intervals)


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3)))
def test_evidence_of_anything_is_times_or_a_clear_refusal(value):
    for unit in ("seconds", "frames@24", "intervals", "clock"):
        try:
            moments, intervals = evidence_of(value, unit, location="benchmark 1")
        except InvalidInput as error:
            assert str(error).startswith("benchmark 1: ")  # noqa: PT017 (most values are refused, some are not)
        else:
            assert all(moment >= 0 for moment in moments)
            assert all(0 <= start <= stop for start, stop in intervals)


def test_the_query_is_the_question_alone_unless_options_or_a_template_are_asked_for():
    question = make_benchmark("lvbench").question(DOCUMENTS["lvbench"])
    assert query_text(question) == "What is on the table?"
    with_options = "What is on the table?\nA. a cup\nB. a book\nC. a lamp\nD. nothing"
    assert query_text(question, "question_and_options") == with_options
    assert query_text(question, "a video frame: {question}") == "a video frame: What is on the table?"
    with pytest.raises(InvalidInput, match=r"a template with \{question\}"):
        query_text(question, "options")


def test_an_unknown_key_of_a_benchmark_s_file_is_refused_and_those_of_a_matrix_are_known(tmp_path):
    assert set(BenchmarkConfig.model_fields) == FILE_KEYS
    (tmp_path / "mine.yaml").write_text("benchmark: mine\nmean_over_type: true\nfields: {question: q}\n")
    message = rf"^{tmp_path}/mine.yaml: unknown key 'mean_over_type'; did you mean 'mean_over_types'\?"
    with pytest.raises(InvalidInput, match=message):
        make_benchmark(str(tmp_path / "mine.yaml"))
