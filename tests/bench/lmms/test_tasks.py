"""Answers are read strictly, tasks keep lmms-eval's prompts and scores, and what marks a failure is no option."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import pytest

from focus_eval.bench.answering.questions import request_parts
from focus_eval.bench.lmms.parsing import read_answer, read_option
from focus_eval.bench.lmms.tasks import NO_ANSWER, score_in, task_score
from focus_eval.core.resources import resource_path
from focus_eval.core.types import Question

# Strict reading: an option must be named without doubt; what marks a failure is no option to anybody.


OPTIONS = ("red", "blue", "a green hat", "nothing")


def question(benchmark="longvideobench", options=OPTIONS, answer="C", number=1):
    return Question(benchmark=benchmark, id=f"q{number}", query="?", options=options, video="v.mp4", answer=answer)


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("C", "C"), ("(C)", "C"), ("C.", "C"), ("C. a green hat", "C"), ("C) a green hat", "C"), ("(C) a hat", "C"),
        (" C\n", "C"), ("**C**", "C"), ("C: because of the hat", "C"), ("Answer: C", "C"), ("Answer: (B)", "B"),
        ("The best answer is C.", "C"), ("The correct option is (D)", "D"), ("the answer is: b", "B"),
        ("A. Both A and B", "A"),
        ("a green hat", "C"), ("A green hat.", "C"), ("Red", "A"), ("Best option: (B", "B"),
        ("A man runs", None), ("I think he wears A hat", None), ("", None), ("E", None), ("E. none", None),
        ("A or B", None), ("The answer is A or B", None), ("Options (A) and (C)", None), ("A, or option B", None),
        ("The answer is A or the answer is B.", None), ("Because", None), ("CD", None),
        ("I do not know", None), (NO_ANSWER, None),
    ],
)  # fmt: skip
def test_an_option_is_read_only_where_it_is_named_without_doubt(text, letter):
    assert read_option(text, OPTIONS) == letter


def test_an_answer_that_cannot_be_read_is_wrong_and_unparsed():
    reading = read_answer(question(), "A man in green")
    assert (reading.parsed, reading.score) == (None, 0.0)
    assert read_answer(question(), "C").score == 1.0


def test_open_questions_get_the_mean_relative_accuracy():
    open_question = question("vsibench", (), "4")
    assert read_answer(open_question, "There are four chairs.").score == 1.0
    assert read_answer(open_question, "4").parsed == "4"
    # Off by a quarter: within the confidence bounds .5 to .75, 6 of the 10.
    assert read_answer(open_question, "5").score == pytest.approx(0.6)
    assert read_answer(open_question, "many").parsed is None


def test_lmms_evals_guess_depends_on_seed_and_question_alone_and_counts_as_unparsed():
    import random

    def guessed(text, seed, numbers=range(80)):
        read = {
            n: read_answer(question(number=n), text, answer_parsing="lmms_eval", rule="longvideobench", seed=seed)
            for n in numbers
        }
        assert {answer.parsed for answer in read.values()} == {None}
        return {n: answer.score for n, answer in read.items()}

    first = guessed("no letter here", 1)
    random.seed(99)
    assert guessed("none", 1, range(79, -1, -1)) == first
    assert set(first.values()) == {0.0, 1.0}
    assert 8 <= sum(first.values()) <= 32  # one of four options, at random
    assert guessed("no letter here", 2) != first
    state = random.getstate()
    read_answer(question(), "none", answer_parsing="lmms_eval", rule="longvideobench")
    assert random.getstate() == state


def test_lmms_evals_rule_reads_the_first_capital_letter():
    # "Answer: C" is read as A: the trap that strict reading avoids.
    assert read_answer(question(), "Answer: C", answer_parsing="lmms_eval", rule="longvideobench").parsed == "A"
    assert read_answer(question(), "Answer: C").parsed == "C"


def test_no_official_parser_reads_an_option_or_a_number_in_what_marks_a_failure():
    from lmms_eval.tasks.mlvu.utils import extract_characters_regex as mlvu
    from lmms_eval.tasks.videomme.utils import extract_characters_regex as videomme
    from lmms_eval.tasks.vsibench.utils import exact_match, extract_number, fuzzy_matching

    assert mlvu(NO_ANSWER) == ""
    assert videomme(NO_ANSWER) == ""
    assert extract_number(NO_ANSWER) is None
    assert all(exact_match(fuzzy_matching(NO_ANSWER), letter) == 0.0 for letter in "ABCD")


def test_longvideobenchs_official_parser_guesses_for_what_marks_a_failure(monkeypatch):
    from lmms_eval.tasks.longvideobench import utils

    # No string avoids the guess: without a capital letter A to E it draws, with one it reads it.
    monkeypatch.setattr(utils.random, "choice", lambda choices: "guessed")
    assert utils.parse_multi_choice_response(NO_ANSWER, list("ABCD"), {}) == "guessed"


# A task that no benchmark describes is asked by its question, scored by its own metric, and never given 0.


TASK = """task: {name}
dataset_path: {data}
test_split: test
output_type: generate_until
doc_to_visual: !function lmms_eval.tasks.{name}.utils.{name}_doc_to_visual
doc_to_text: !function lmms_eval.tasks.{name}.utils.{name}_doc_to_text
doc_to_target: answer
generation_kwargs: {{max_new_tokens: 4}}
process_results: !function lmms_eval.tasks.{name}.utils.{name}_process_results
metric_list:
{metrics}
"""
METRICS = {
    "lvbench": "- {metric: lvbench_score, aggregation: mean, higher_is_better: true}",
    "countix": (
        "- {metric: mae_norm, aggregation: mean, higher_is_better: false}\n"
        "- {metric: obo, aggregation: mean, higher_is_better: true}"
    ),
}


@pytest.fixture(scope="module")
def qwen(tiny_qwen, tmp_path_factory):
    from focus_eval.bench.lmms.models.qwen_vl import FocusQwen2VL

    record = tmp_path_factory.mktemp("record")
    return FocusQwen2VL(pretrained=str(tiny_qwen), device="cpu", sampler="uniform", frames=4, record=str(record))


@pytest.fixture
def run(qwen, home, tools, tmp_path, monkeypatch):
    """Run a task of lmms-eval on made documents; return its answer rows, its selection rows and its results."""
    from dataclasses import replace

    stock = type(qwen).wrapper_generate

    def run(name, rows, *, answers=None, **options):
        from lmms_eval.evaluator import simple_evaluate
        from lmms_eval.tasks import TaskManager

        data = tools.write_parquet(tmp_path / name, "test", rows)
        folder = tmp_path / "tasks"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.yaml").write_text(TASK.format(name=name, data=data, metrics=METRICS[name]))
        record = tmp_path / f"record{len(list(tmp_path.iterdir()))}"
        shown_options = replace(qwen.adapter_options, record=str(record), **options)
        qwen.show(qwen.context.chooser, frames=4, options=shown_options)
        if answers is not None:
            replies = iter(answers)

            def generate(view, requests):
                outputs = stock(view, requests)  # the real model runs; only its words are replaced
                return [next(replies) for _ in outputs]

            monkeypatch.setattr(type(qwen), "wrapper_generate", generate)
        manager = TaskManager("ERROR", include_path=str(folder), include_defaults=False, model_name=qwen.model_id)
        results = simple_evaluate(model=qwen, tasks=[name], task_manager=manager, datetime_str="now", bootstrap_iters=0)
        return tools.read_record(record, "answers"), tools.read_record(record, "selections"), results

    return run


def countix_rows(home):
    video = home.videos["longvideobench"] / "landscape.mp4"
    return [
        {"video": str(video), "question": "How many jumps?", "answer": str(count), "count": count}
        for count in (3, 7, 9)
    ]


def test_an_undeclared_task_is_asked_by_its_question_and_scored_by_its_own_metric(run, home):
    answers, selections, results = run("countix", countix_rows(home), answers=["3", "2", "8"])
    assert [row["query"] for row in selections] == ["How many jumps?"] * 3  # not "... Answer with a single integer."
    # mae_norm stands first in the task but is better when lower; obo is right within one.
    assert [(row["metric"], row["score"]) for row in answers] == [("obo", 1.0), ("obo", 0.0), ("obo", 1.0)]
    assert sum(row["score"] for row in answers) / 3 == results["results"]["countix"]["obo,none"]
    assert [row["bucket"] for row in answers] == ["short"] * 3  # from the file's own length
    assert {row["video"] for row in answers} == {"datasets/longvideobench/videos/landscape.mp4"}


def lvbench_rows():
    """Return two documents of LVBench in its official layout."""
    question = "What is shown?\n(A) red\n(B) blue\n(C) green\n(D) black"
    times = ("00:01-00:02", "00:03-00:04")
    return [
        {
            "uid": f"u{at}", "question": question, "answer": "B", "video_path": "landscape.mp4",
            "question_type": ["a", "b"], "time_reference": times[at],
        }
        for at in range(2)
    ]  # fmt: skip


@pytest.fixture
def lvbench_videos(home, monkeypatch):
    import lmms_eval.tasks.lvbench.utils as utils

    folder = home.hf / "lvbench"
    if not folder.exists():
        folder.symlink_to(home.videos["longvideobench"])
    monkeypatch.setattr(utils, "base_cache_dir", str(home.hf))


def test_a_declared_task_is_read_strictly_or_as_the_task_does(run, home, lvbench_videos):
    words = ["B", "I think it is Blue or so"]
    strict, selections, results = run("lvbench", lvbench_rows(), answers=words)
    assert [row["query"] for row in selections] == ["What is shown?"] * 2
    assert [(row["question_id"], row["parsed"], row["score"], row["metric"]) for row in strict] == [
        ("u0", "B", 1.0, ""),
        ("u1", None, 0.0, ""),
    ]
    assert {row["benchmark"] for row in strict} == {"lvbench"}
    own_rows, _, results = run("lvbench", lvbench_rows(), answers=words, answer_parsing="lmms_eval")
    assert [row["metric"] for row in own_rows] == ["lvbench_score"] * 2
    assert sum(row["score"] for row in own_rows) / 2 == results["results"]["lvbench"]["lvbench_score,none"]


def test_a_request_of_lmms_eval_carries_its_task(run, home, qwen, monkeypatch):
    """What the scores of undeclared tasks hang on: fails when lmms-eval builds its requests otherwise."""
    seen_requests = []
    stock = type(qwen).generate_until
    monkeypatch.setattr(
        type(qwen), "generate_until", lambda model, requests: seen_requests.extend(requests) or stock(model, requests)
    )
    run("countix", countix_rows(home)[:1])
    assert request_parts(seen_requests[0], is_simple=True).task_object.config.task == "countix"

    class ByHand:
        args = ("text", {}, lambda document: [], 0, "task", "test")

    assert request_parts(ByHand(), is_simple=True).task_object is None


class Config:
    task = "guessing"
    metric_list = ({"metric": "acc"},)

    def __init__(self, function):
        self.process_results = function


class Task:
    def __init__(self, function):
        self.config = Config(function)


QUESTION = Question(benchmark="any", id="1", query="?", options=(), video="v.mp4", answer=None)


def test_a_guess_of_the_task_is_drawn_from_the_seed_and_nothing_else_moves():
    task = Task(lambda document, results: {"acc": random.random()})
    random.seed(5)
    state = random.getstate()
    first, second, third = (task_score(task, QUESTION, {}, "x", seed=seed).score for seed in (1, 1, 2))
    assert first == second != third
    assert random.getstate() == state


@pytest.mark.parametrize("error", [KeyError("answer"), SystemExit(1)])
def test_a_task_that_fails_to_score_leaves_the_answer_unscored(error):
    def fails(document, results):
        raise error

    assert task_score(Task(fails), QUESTION, {}, "x", seed=0).score is None


@pytest.mark.parametrize(
    ("value", "score"),
    [
        (True, 1.0),
        (0.25, 0.25),
        (4.5, None),  # a judge's mark on another scale
        ({"score": 1}, 1.0),
        ({"correct": False}, 0.0),
        ({"pred_answer": "b", "answer": "B"}, 1.0),
        ({"pred_answer": "A", "answer": "B", "score": 1}, 1.0),
        ({"prediction": "text"}, None),
        (None, None),
        ("text", None),
    ],
)
def test_the_score_of_one_question_is_found_or_none(value, score):
    assert score_in(value) == score


# Our task files: official prompts whatever the model's name, strict reading, buckets as metrics.


LETTER = "Answer with the option's letter from the given choices directly."
# What the protocol wants every model to read, per benchmark, written out.
PROMPTS = {
    "focus_longvideobench": [f"What does the man hold? (landscape)\nA. red\nB. blue\nC. green\n{LETTER}\n"],
    "focus_videomme": [
        "Select the best answer to the following multiple-choice question based on the video and the subtitles. "
        "Respond with only the letter (A, B, C, or D) of the correct option.\n"
        f"What does the man hold?\nA. Apples.\nB. Candles.\nC. Berries.\nD. None.\n\n{LETTER}"
    ],
    "focus_mlvu": [
        "What does the man hold?\n(A) A letter\n(B) A book\n(C) A hat\n(D) Nothing\n\n"
        "Only give the best option.\nBest option: ("
    ],
    "focus_vsibench": [
        f"These are frames of a video.\nWhere is it? (easy)\nOptions:\nA. left\nB. right\n{LETTER}",
        "These are frames of a video.\nHow many chairs are there?\n"
        "Please answer the question using a single word or phrase.",
    ],
}
OFFICIAL = {
    "focus_longvideobench": "longvideobench_val_v", "focus_videomme": "videomme", "focus_mlvu": "mlvu_dev",
    "focus_vsibench": "vsibench",
}  # fmt: skip


@pytest.fixture(scope="module")
def every_task(home):
    from lmms_eval.tasks import TaskManager

    def load(names, model_name, *, is_chat=False, official=False):
        manager = TaskManager(
            "ERROR", include_path=str(resource_path("tasks")), include_defaults=official, model_name=model_name
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(home.root)
            return manager.load_task_or_group(list(names), task_type="chat" if is_chat else "simple")

    return load


def texts_of(task, is_chat):
    documents = task.test_docs()
    if not is_chat:
        return [task.doc_to_text(document) for document in documents]
    parts = [task.doc_to_messages(document)[0]["content"] for document in documents]
    assert all([part["type"] for part in item] == ["video", "text"] for item in parts)
    return [item[1]["text"] for item in parts]


@pytest.mark.parametrize("model_name", ["focus_qwen2_vl", "focus_llava_onevision", "focus_gpt4o", "llava_vid", "gpt4v"])
@pytest.mark.parametrize("is_chat", [False, True])
def test_the_prompt_is_the_protocols_whatever_the_models_name(every_task, model_name, is_chat):
    for name, task in every_task(PROMPTS, model_name, is_chat=is_chat).items():
        texts = texts_of(task, is_chat)
        assert all(expected in texts for expected in PROMPTS[name]), (name, texts)


@pytest.mark.slow
def test_our_prompts_are_those_of_the_official_tasks_under_our_models_names(every_task):
    from focus_eval.bench.lmms.manifests import known_models

    own_texts = {name: texts_of(task, False) for name, task in every_task(PROMPTS, "focus_qwen2_vl").items()}
    official = every_task(OFFICIAL.values(), next(iter(known_models())), official=True)
    for name, task in official.items():
        key = next(key for key, value in OFFICIAL.items() if value == name)
        assert texts_of(task, False) == own_texts[key]
        specific = task.config.lmms_eval_specific_kwargs
        assert not set(known_models()) & set(specific)  # so every name of ours gets the default prompt
    # Under another name the official task queue otherwise; ours never does.
    stock = every_task(["videomme"], "llava_vid", official=True)["videomme"]
    assert texts_of(stock, False)[0].endswith("The best answer is:")


def test_generation_and_data_are_those_of_the_official_tasks():
    from pathlib import Path

    from lmms_eval import tasks as official
    from lmms_eval.utils import load_yaml_config

    base = Path(official.__file__).parent
    files = {
        "focus_longvideobench": "longvideobench/longvideobench_val_v.yaml", "focus_videomme": "videomme/videomme.yaml",
        "focus_mlvu": "mlvu/mlvu_dev.yaml", "focus_vsibench": "vsibench/vsibench.yaml",
    }  # fmt: skip
    for name, file in files.items():
        own_values = load_yaml_config(str(resource_path("tasks") / f"{name}.yaml"), mode="simple")
        official_values = load_yaml_config(str(base / file), mode="full")
        for key in (
            "dataset_path",
            "dataset_name",
            "dataset_kwargs",
            "test_split",
            "generation_kwargs",
            "doc_to_target",
        ):
            assert own_values.get(key) == official_values.get(key), (name, key)
        assert (
            own_values["lmms_eval_specific_kwargs"]["default"]
            == official_values["lmms_eval_specific_kwargs"]["default"]
        )


def scores(kind, answers):
    from focus_eval.bench.lmms import tasks as task_functions

    return [getattr(task_functions, f"{kind}_results")(document, [text])["accuracy"] for document, text in answers]


def document(number, seconds, correct=0):
    return {
        "id": f"q{number}", "question": "?", "video_path": f"{number}.mp4", "option0": "red", "option1": "blue",
        "option2": "N/A", "duration": seconds, "correct_choice": correct,
    }  # fmt: skip


def test_buckets_unparsed_and_failures_are_metrics():
    from focus_eval.bench.lmms import tasks as metrics
    from focus_eval.bench.lmms.tasks import NO_ANSWER

    got = scores(
        "longvideobench",
        [
            (document(1, 30.0), "A"), (document(2, 30.0), "B"), (document(3, 600.0), "A"),
            (document(4, 600.0), "I think so"), (document(5, 1300.0), NO_ANSWER), (document(6, 1300.0), "A"),
        ],
    )  # fmt: skip
    assert metrics.accuracy(got) == 0.5
    assert (metrics.accuracy_short(got), metrics.accuracy_medium(got), metrics.accuracy_long(got)) == (0.5, 0.5, 0.5)
    assert (metrics.unparsed(got), metrics.no_answer(got)) == (1, 1)


def test_the_mean_over_question_types_counts_the_three_directions_once():
    from focus_eval.bench.benchmarks.registry import facts_of
    from focus_eval.bench.lmms.tasks import macro_accuracy

    kinds = {"object_rel_direction_easy": 1, "object_rel_direction_medium": 1, "object_rel_direction_hard": 0}
    types = facts_of("vsibench").strata([*kinds, "object_counting"])
    got = [{"type": kind, "score": value} for kind, value in zip(types, [*kinds.values(), 0.2], strict=True)]
    assert macro_accuracy(got) == pytest.approx((2 / 3 + 0.2) / 2)


def test_the_task_files_are_found_and_the_folder_is_printed():
    command = [sys.executable, "-m", "focus_eval", "list", "tasks", "--install-path"]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    assert process.stdout.strip() == str(resource_path("tasks"))
    assert {file.stem for file in resource_path("tasks").glob("*.yaml")} >= set(PROMPTS)


def test_the_query_is_the_bare_question_of_the_real_documents(shared):
    """As the adapter asks for it: from the document, by the task's name."""
    from focus_eval.bench.answering.questions import read_request

    class Request:
        metadata = {}

        def __init__(self, task):
            self.args = (f"{LETTER}", {}, lambda document: ["/videos/some.mp4"], 0, task, "test")

    files = {
        "longvideobench_val_v": "data/lvb_val.json",
        "focus_videomme": "data/videomme.json",
        "mlvu_dev": "data/mlvu_dev.json",
    }
    for task, file in files.items():
        for row in json.loads(shared(file).read_text())[::97]:
            pending = read_request(Request(task), {task: {"test": [row]}}, is_simple=True)
            assert pending.error is None
            assert pending.question.query == row["question"].partition("\n(A)")[0].strip()
            assert LETTER not in pending.question.query
