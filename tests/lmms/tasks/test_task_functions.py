"""Our task files: official prompts whatever the model's name, strict reading, buckets as metrics."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from focus_eval.core.resources import resource_path

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
    from focus_eval.lmms.manifests import known_models

    ours = {name: texts_of(task, False) for name, task in every_task(PROMPTS, "focus_qwen2_vl").items()}
    official = every_task(OFFICIAL.values(), next(iter(known_models())), official=True)
    for name, task in official.items():
        mine = next(key for key, value in OFFICIAL.items() if value == name)
        assert texts_of(task, False) == ours[mine]
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
        ours = load_yaml_config(str(resource_path("tasks") / f"{name}.yaml"), mode="simple")
        theirs = load_yaml_config(str(base / file), mode="full")
        for key in (
            "dataset_path",
            "dataset_name",
            "dataset_kwargs",
            "test_split",
            "generation_kwargs",
            "doc_to_target",
        ):
            assert ours.get(key) == theirs.get(key), (name, key)
        assert ours["lmms_eval_specific_kwargs"]["default"] == theirs["lmms_eval_specific_kwargs"]["default"]


def scores(kind, answers):
    from focus_eval.lmms import tasks as task_functions

    return [getattr(task_functions, f"{kind}_results")(document, [text])["accuracy"] for document, text in answers]


def document(number, seconds, correct=0):
    return {
        "id": f"q{number}", "question": "?", "video_path": f"{number}.mp4", "option0": "red", "option1": "blue",
        "option2": "N/A", "duration": seconds, "correct_choice": correct,
    }  # fmt: skip


def test_buckets_unparsed_and_failures_are_metrics():
    from focus_eval.lmms import tasks as metrics
    from focus_eval.lmms.tasks import NO_ANSWER

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
    from focus_eval.benchmarks.registry import facts_of
    from focus_eval.lmms.tasks import macro_accuracy

    kinds = {"object_rel_direction_easy": 1, "object_rel_direction_medium": 1, "object_rel_direction_hard": 0}
    types = facts_of("vsibench").strata([*kinds, "object_counting"])
    got = [{"type": kind, "score": value} for kind, value in zip(types, [*kinds.values(), 0.2], strict=True)]
    assert macro_accuracy(got) == pytest.approx((2 / 3 + 0.2) / 2)


def test_the_task_files_are_found_and_the_folder_is_printed():
    found = subprocess.run(
        [sys.executable, "-m", "focus_eval.cli", "tasks", "--install-path"], capture_output=True, text=True, check=False
    )
    if found.returncode or not found.stdout:  # the module has no __main__: through the entry point's function
        code = (
            "import sys; from focus_eval.cli import main; sys.argv = ['focus-eval', 'tasks', '--install-path']; main()"
        )
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(resource_path("tasks"))
    assert {file.stem for file in resource_path("tasks").glob("*.yaml")} >= set(PROMPTS)


def test_the_query_is_the_bare_question_of_the_real_documents(shared):
    """As the adapter asks for it: from the document, by the task's name."""
    from focus_eval.lmms.requests import pending_request

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
            pending = pending_request(Request(task), {task: {"test": [row]}}, is_simple=True)
            assert pending.error is None
            assert pending.question.query == row["question"].partition("\n(A)")[0].strip()
            assert LETTER not in pending.question.query
