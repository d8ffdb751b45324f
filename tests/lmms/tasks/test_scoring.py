"""A task that no benchmark describes is asked by its question, scored by its own metric, and never given 0."""

from __future__ import annotations

import random

import pytest

from focus_eval.lmms.tasks import score_in, task_of, task_score

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
    from focus_eval.lmms.models.qwen_vl import FocusQwen2VL

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
        shown = replace(qwen.adapter_options, record=str(record), **options)
        qwen.show(qwen.context.source, frames=4, options=shown)
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
    own, _, results = run("lvbench", lvbench_rows(), answers=words, answer_parsing="lmms_eval")
    assert [row["metric"] for row in own] == ["lvbench_score"] * 2
    assert sum(row["score"] for row in own) / 2 == results["results"]["lvbench"]["lvbench_score,none"]


def test_a_request_of_lmms_eval_carries_its_task(run, home, qwen, monkeypatch):
    """What the scores of undeclared tasks hang on: fails when lmms-eval builds its requests otherwise."""
    seen = []
    stock = type(qwen).generate_until
    monkeypatch.setattr(
        type(qwen), "generate_until", lambda model, requests: seen.extend(requests) or stock(model, requests)
    )
    run("countix", countix_rows(home)[:1])
    assert task_of(seen[0]).config.task == "countix"

    class ByHand:
        args = ("text", {}, lambda document: [], 0, "task", "test")

    assert task_of(ByHand()) is None


class Config:
    task = "guessing"
    metric_list = ({"metric": "acc"},)

    def __init__(self, function):
        self.process_results = function


class Task:
    def __init__(self, function):
        self.config = Config(function)


def test_a_guess_of_the_task_is_drawn_from_the_seed_and_nothing_else_moves():
    task = Task(lambda document, results: {"acc": random.random()})
    random.seed(5)
    before = random.getstate()
    first, again, other = (task_score(task, {}, "x", seed=seed).score for seed in (1, 1, 2))
    assert first == again != other
    assert random.getstate() == before


@pytest.mark.parametrize("error", [KeyError("answer"), SystemExit(1)])
def test_a_task_that_fails_to_score_leaves_the_answer_unscored(error):
    def fails(document, results):
        raise error

    assert task_score(Task(fails), {}, "x", seed=0).score is None


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
