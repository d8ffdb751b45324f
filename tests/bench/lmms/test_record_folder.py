"""Rows of the lmms-eval command line: one folder per task, nothing deleted, nothing asked twice."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from contextlib import nullcontext

import pytest

from focus_eval.bench.report.run import load_run
from focus_eval.core.errors import InvalidInput, RunError
from tests.support.keyframes.tiny_transformers import save_qwen2_vl


@pytest.fixture(scope="module")
def load(tiny_qwen):
    """Load the tiny model anew, as every start of the command line does."""
    from focus_eval.bench.lmms.models.qwen_vl import FocusQwen2VL

    def made(record, **arguments):
        options = {"sampler": "uniform", "frames": 2, "max_error_share": 1, **arguments}
        return FocusQwen2VL(pretrained=str(tiny_qwen), device="cpu", record=str(record), **options)

    return made


def lines(record, kind="answers"):
    """Return the bytes on disk of every file of rows, by path in the record folder, without the reader."""
    return {file.relative_to(record): file.read_bytes() for file in sorted(record.glob(f"*/{kind}/*/*.jsonl"))}


def asked(record):
    """Return the question of every row, sorted; a question comes as often as a row answers it."""
    return sorted(json.loads(line)["question_id"] for data in lines(record).values() for line in data.splitlines())


def test_a_second_task_leaves_the_rows_of_the_first(load, evaluate, tmp_path):
    evaluate(load(tmp_path), ["focus_videomme"])
    first_lines = lines(tmp_path), lines(tmp_path, "selections")
    evaluate(load(tmp_path), ["focus_mlvu"])
    second_lines = lines(tmp_path), lines(tmp_path, "selections")
    for old, new in zip(first_lines, second_lines, strict=True):
        assert len(new) == len(old) + 1
        assert old.items() <= new.items()


def test_a_limit_first_and_then_everything_asks_only_for_what_is_new(load, evaluate, tmp_path):
    limited_results = evaluate(load(tmp_path), ["focus_videomme"], limit=1)
    (first_lines,) = lines(tmp_path).values()
    whole = evaluate(load(tmp_path), ["focus_videomme"])
    (second_lines,) = lines(tmp_path).values()
    assert second_lines.startswith(first_lines)
    assert asked(tmp_path) == ["landscape-0", "landscape-1", "portrait-0", "portrait-1"]
    full_results = evaluate(load(tmp_path), ["focus_videomme"])
    assert list(lines(tmp_path).values()) == [second_lines]
    answers = [
        [item["resps"] for item in run["samples"]["focus_videomme"]] for run in (limited_results, whole, full_results)
    ]
    assert answers[0] == answers[1][:1]
    assert answers[1] == answers[2]
    assert str(whole["results"]["focus_videomme"]) == str(
        full_results["results"]["focus_videomme"]
    )  # NaN of no long video


@pytest.mark.parametrize("changes", [{"seed": 1}, {"frames": 3}, {"max_pixels": 50176}, {"sampler": "random"}], ids=str)
def test_whatever_can_change_an_answer_gets_rows_of_its_own(load, evaluate, tmp_path, changes):
    evaluate(load(tmp_path), ["focus_mlvu"])
    evaluate(load(tmp_path, **changes), ["focus_mlvu"])
    assert len(lines(tmp_path)) == 2


def test_other_generation_arguments_get_rows_of_their_own(load, evaluate, tmp_path):
    evaluate(load(tmp_path), ["focus_mlvu"])
    evaluate(load(tmp_path), ["focus_mlvu"], max_new_tokens=3)
    assert len(lines(tmp_path)) == 2
    file_of_first, file_of_second = (tmp_path / file for file in lines(tmp_path))
    shutil.copy(file_of_first, file_of_second.with_name("rows-copied.jsonl"))
    shutil.copy(file_of_second, file_of_first.with_name("rows-copied.jsonl"))
    with pytest.raises(RunError, match="holds a row of another identity"):  # else handed back under these settings
        evaluate(load(tmp_path), ["focus_mlvu"])


def test_a_question_that_was_changed_between_two_starts_is_refused(load, evaluate, tools, tmp_path):
    (document,) = tools.longvideobench_rows(["landscape"], tools.QUESTIONS[:1])
    for number, changes in enumerate(({}, {"question": "Who?"}, {"option1": "a hat"}, {"correct_choice": 2}, {})):
        data = tools.write_parquet(tmp_path / f"data{number}", "validation", [{**document, **changes}])
        model = load(tmp_path / "record", query="question_and_options")
        expected = (
            pytest.raises(InvalidInput, match="was another one in an earlier start") if changes else nullcontext()
        )
        with expected:
            evaluate(model, ["focus_longvideobench"], data=data)
    assert len(asked(tmp_path / "record")) == 1


def test_other_weights_under_the_same_name_get_rows_of_their_own(evaluate, tools, tmp_path):
    from focus_eval.bench.lmms.models.qwen_vl import FocusQwen2VL

    for seed in (0, 1):
        save_qwen2_vl(tmp_path / "checkpoint", seed=seed)
        model = FocusQwen2VL(
            pretrained=str(tmp_path / "checkpoint"), device="cpu", sampler="uniform", frames=2,
            record=str(tmp_path / "record"),
        )  # fmt: skip
        evaluate(model, ["focus_mlvu"])
    identities = [
        json.loads(file.read_text())["identity"] for file in (tmp_path / "record").glob("*/answers/*/cell.json")
    ]
    assert len({identity["weights"] for identity in identities}) == 2
    assert {"transformers", "lmms-eval", "qwen-vl-utils"} == set(identities[0]["versions"])


def test_a_question_that_failed_is_asked_again_and_its_answer_counts(load, evaluate, home, tmp_path):
    video = home.videos["videomme"] / "portrait.mp4"
    video.rename(video.with_suffix(".away"))
    try:
        evaluate(load(tmp_path), ["focus_videomme"])
    finally:
        video.with_suffix(".away").rename(video)
    evaluate(load(tmp_path), ["focus_videomme"])
    assert asked(tmp_path).count("landscape-0") == 1
    assert asked(tmp_path).count("portrait-0") == 2  # the row with the error is still there
    (cell,) = tmp_path.iterdir()
    run = load_run(cell)
    assert len(run.answers) == len(run.selections) == 4
    assert all(row.error is None for row in (*run.answers, *run.selections))


def test_two_runs_of_the_same_thing_at_once_the_second_says_so(load, evaluate, home, tmp_path):
    first = load(tmp_path)
    evaluate(first, ["focus_mlvu"], limit=1)
    (cell,) = tmp_path.iterdir()
    holder = (
        "import sys; from filelock import FileLock\n"
        "with FileLock(sys.argv[1]): print('held', flush=True); sys.stdin.read()"
    )
    lock = str(cell / ".rank0of1.lock")
    holder_process = subprocess.Popen(
        [sys.executable, "-c", holder, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder_process.stdout.readline() == b"held\n"
    with pytest.raises(RunError, match="another run writes here"):
        evaluate(load(tmp_path), ["focus_mlvu"])
    holder_process.kill()  # the lock goes with the process
    holder_process.wait()
    evaluate(load(tmp_path), ["focus_mlvu"])
    assert len(asked(tmp_path)) == 2


def test_a_rank_that_answers_before_the_first_one_finds_its_folders(load, evaluate, tmp_path, monkeypatch):
    model = load(tmp_path)
    monkeypatch.setattr(model, "_rank_and_world", (1, 2))
    model.show(model.context.chooser, frames=model.context.frames)
    evaluate(model, ["focus_mlvu"])
    (prompt,) = tmp_path.rglob("prompt.json")
    assert {file.name for file in prompt.parent.iterdir()} == {"cell.json", "prompt.json", "rows-rank1of2.jsonl"}
