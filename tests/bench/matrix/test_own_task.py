"""A matrix asks the questions of an lmms-eval task in a folder of one's own, and scores those with an answer."""

from __future__ import annotations

import json

import pytest
import yaml

from focus_eval.bench.lmms.tasks import task_values
from focus_eval.bench.matrix.config import load_matrix
from focus_eval.bench.matrix.preflight import check_all
from focus_eval.bench.matrix.questions import task_source
from focus_eval.bench.matrix.running import complete_run
from focus_eval.bench.report.comparisons import run_comparison
from focus_eval.bench.report.layouts import results_table
from focus_eval.bench.report.run import load_run
from focus_eval.core.errors import InvalidInput
from tests.support.keyframes.clips import write_clip

TASK = {
    "task": "my_task",
    "dataset_path": "json",
    "test_split": "test",
    "output_type": "generate_until",
    "doc_to_target": "gold",
    "generation_kwargs": {"max_new_tokens": 16},
    "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
}
FUNCTIONS = "doc_to_visual: !function utils.visual\ndoc_to_text: !function utils.text\n"
UTILS = """
def visual(document):
    return [f"{FOLDER}/{document['film']}"]


def text(document, kwargs=None):
    return "\\n".join([document["q"], *(f"{letter}. {text}" for letter, text in document["choices"].items())])
"""
QUESTIONS = [
    {"qid": "zähl/1 a", "gold": "A", "film": "clip 0.mp4"},
    {"qid": 2, "gold": "B", "film": "clip 1.mp4"},
    {"qid": "hidden", "gold": None, "film": "clip 1.mp4"},
]


@pytest.fixture
def own_benchmark(tmp_path):
    for number in range(2):
        write_clip(tmp_path / f"clip {number}.mp4", n_frames=40, first=10 * number)
    rows = [{"q": "What moves?", "choices": {"A": "a texture", "B": "a dog"}, **row} for row in QUESTIONS]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps({**row, "qid": str(row["qid"])}) + "\n" for row in rows))
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "my_task.yaml").write_text(yaml.safe_dump(TASK) + FUNCTIONS)
    (tmp_path / "tasks" / "utils.py").write_text(f"FOLDER = {str(tmp_path)!r}\n{UTILS}")
    benchmark = {
        "benchmark": "mine",
        "task": "my_task",
        "include_path": str(tmp_path / "tasks"),
        "dataset": str(tmp_path),
        "videos": str(tmp_path),
        "edges_seconds": [1, 2],
        "fields": {"id": "qid", "question": "q", "options": "choices", "answer": "gold", "video": "film"},
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(benchmark))
    model = {"name": "encoder", "model": "focus_zero_shot", "args": {"answer_encoder": "offline"}, "frames": 2}
    matrix = {"benchmarks": ["mine.yaml"], "models": [{**model, "needs_gpu": False}], "samplers": ["uniform"]}
    (tmp_path / "table.yaml").write_text(yaml.safe_dump(matrix))
    return tmp_path / "table.yaml"


def test_a_task_that_names_its_files_needs_no_dataset(own_benchmark, tmp_path, monkeypatch):
    task = {**TASK, "dataset_kwargs": {"data_files": {"test": "test.jsonl"}}}
    (tmp_path / "tasks" / "my_task.yaml").write_text(yaml.safe_dump(task) + FUNCTIONS)
    benchmark = yaml.safe_load((tmp_path / "mine.yaml").read_text())
    del benchmark["dataset"]
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(benchmark))
    monkeypatch.chdir(tmp_path)  # as lmms-eval: relative to where it is started
    complete_run(load_matrix(own_benchmark), out=tmp_path / "run")
    assert {row.question_id for row in load_run(tmp_path / "run").answers} == {"zähl/1 a", "2", "hidden"}
    (tmp_path / "test.jsonl").rename(tmp_path / "other.jsonl")
    task_source.cache_clear()
    (missing,) = check_all([(load_matrix(own_benchmark), tmp_path / "two")], loads_wrappers=False).missing
    assert "data_files names test.jsonl, which is no file" in str(missing)


def test_its_questions_are_answered_and_scored_as_declared(own_benchmark, tmp_path):
    matrix = load_matrix(own_benchmark)
    assert check_all([(matrix, tmp_path / "run")], loads_wrappers=False).missing == ()
    complete_run(matrix, out=tmp_path / "run")
    run = load_run(tmp_path / "run")
    rows = {row.question_id: row for row in run.answers}
    assert {key: (row.benchmark, row.correct_answer, row.bucket) for key, row in rows.items()} == {
        "zähl/1 a": ("mine", "A", "medium"), "2": ("mine", "B", "medium"), "hidden": ("mine", None, "medium"),
    }  # fmt: skip
    assert all(row.error is None and row.parsed in ("A", "B") for row in rows.values())
    scores = {key: row.score for key, row in rows.items()}
    assert scores == {
        "zähl/1 a": float(rows["zähl/1 a"].parsed == "A"), "2": float(rows["2"].parsed == "B"), "hidden": None,
    }  # fmt: skip
    table = results_table(run)
    (line,) = table.rows
    (overall,) = [cell.ours for title, cell in zip(table.columns, line.figures, strict=True) if title == "Overall"]
    assert overall == 100 * (scores["zähl/1 a"] + scores["2"]) / 2
    assert "Questions answered but without a score, so not in the accuracy: 1." in table.notes
    (compared,) = run_comparison(run, run).rows
    assert compared.figures[0].ours == 0


def test_a_task_with_the_name_of_one_of_lmms_eval_is_refused(tmp_path):
    (tmp_path / "longvideobench_val_v.yaml").write_text("task: longvideobench_val_v\ntest_split: other\n")
    with pytest.raises(InvalidInput, match="lmms-eval has a task 'longvideobench_val_v' too; rename yours"):
        task_values("longvideobench_val_v", str(tmp_path))


def test_videos_of_an_own_task_are_not_fetched_by_lmms_eval(own_benchmark, tmp_path):
    (tmp_path / "clip 1.mp4").unlink()
    (lack,) = check_all([(load_matrix(own_benchmark), tmp_path / "run")], loads_wrappers=False).missing
    assert lack.fix.startswith(f"put the videos into {tmp_path}"), lack.fix
    assert "lmms-eval" not in lack.fix


def test_a_task_that_is_not_found_says_where_it_was_looked_for(own_benchmark, tmp_path):
    document = yaml.safe_load((tmp_path / "mine.yaml").read_text())
    folder = str(tmp_path / "tasks")
    for include_path, place in (("", "include_path names the folder"), (folder, f"in {folder}")):
        (tmp_path / "mine.yaml").write_text(yaml.safe_dump({**document, "task": "other", "include_path": include_path}))
        (lack,) = [
            item
            for item in check_all([(load_matrix(own_benchmark), tmp_path / "run")], loads_wrappers=False).missing
            if "questions of mine" in item.problem
        ]
        assert "there is no other.yaml" in lack.fix
        assert place in lack.fix
