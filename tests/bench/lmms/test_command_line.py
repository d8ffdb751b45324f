"""The real `lmms_eval` command line, in processes of its own, offline."""

from __future__ import annotations

import importlib
import json
import os
import runpy
import signal
import socket
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from focus_eval.bench.lmms.recording import RunCounts, check_readable, over_all_ranks
from focus_eval.cli import app
from focus_eval.core.errors import RunError
from focus_eval.core.resources import resource_path
from focus_eval.keyframes.rows.records import AnswerRow
from tests.support.bench.commands import called
from tests.support.keyframes.chat_server import ChatServer

FOCUS_TASKS = ["focus_longvideobench", "focus_videomme", "focus_mlvu", "focus_vsibench"]
OFFICIAL = ["longvideobench_val_v", "videomme", "mlvu_dev", "vsibench"]
# More of them prove more and take longer; 10 were tried.
KILLS = int(os.environ.get("FOCUS_EVAL_KILLS", "1"))
QUESTIONS_PER_BENCHMARK = {"longvideobench": 8, "videomme": 4, "mlvu": 2, "vsibench": 4}


GENERATION = ["--gen_kwargs", "max_new_tokens=2"]


@pytest.fixture
def lmms_eval(warm_lmms_eval):
    """Run lmms-eval's command line in a process of its own."""

    def run(*arguments, check=True, variables=None):
        process = warm_lmms_eval.run(["lmms_eval", *arguments, *GENERATION], variables=variables)
        assert not check or process.returncode == 0, process.stdout[-3000:] + process.stderr[-3000:]
        return process

    return run


def include():
    return ["--include_path", str(resource_path("tasks"))]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["focus_qwen2_vl", "focus_llava_onevision"])
def test_all_four_benchmarks_run_our_tasks_and_the_official_ones(model, lmms_eval, home, tools, tmp_path, request):
    weights = request.getfixturevalue("tiny_qwen" if model == "focus_qwen2_vl" else "tiny_llava")
    arguments = (
        f"pretrained={weights},device=cpu,sampler=focus,sampler.alpha=0.25,encoder=recorded,"
        f"encoder.path={recorded(home, tools, tmp_path)},frames=4,seed=3,record={tmp_path / 'record'},"
        "allow_unparsed=true"
    )
    out = tmp_path / "out"
    lmms_eval(
        "--model", model, "--model_args", arguments, "--tasks", ",".join(FOCUS_TASKS + OFFICIAL), *include(),
        "--batch_size", "1", "--log_samples", "--output_path", str(out),
    )  # fmt: skip
    (results,) = out.rglob("*_results.json")
    metrics = json.loads(results.read_text())["results"]
    assert set(metrics) == set(FOCUS_TASKS + OFFICIAL)
    for task in FOCUS_TASKS:
        assert {"accuracy,none", "accuracy_short,none", "unparsed,none", "no_answer,none"} <= set(metrics[task])
        assert metrics[task]["no_answer,none"] == 0
    answers = tools.read_record(tmp_path / "record", "answers")
    assert all(row["error"] is None and row["frames_fed"] == 4 for row in answers if "few" not in row["video"])
    counts = {name: sum(row["benchmark"] == name for row in answers) for name in QUESTIONS_PER_BENCHMARK}
    assert counts == {name: 2 * n for name, n in QUESTIONS_PER_BENCHMARK.items()}  # our task and the official one
    keyframes_by_task = {}
    for row in tools.read_record(tmp_path / "record", "selections"):
        keyframes_by_task.setdefault((row["benchmark"], row["question_id"]), []).append(row["keyframes"])
    assert all(first == second for first, second in keyframes_by_task.values())  # the query comes from the document


def recorded(home, tools, folder):
    """A file of recorded relevance by video and bare question: any other query would be an error."""
    import numpy as np
    import pandas as pd

    fields = {"longvideobench": "video_path", "videomme": "videoID", "mlvu": "video_name", "vsibench": "scene_name"}
    queries = {
        (document[field].removesuffix(".mp4"), document["question"].partition("\n(A)")[0])
        for benchmark, field in fields.items()
        for document in pd.read_parquet(next(home.data[benchmark].glob("*.parquet"))).to_dict("records")
    }
    rng = np.random.default_rng(0)
    file = folder / "relevance.jsonl"
    with open(file, "w") as lines:
        for video, query in sorted(queries):
            n_frames = tools.CLIPS[video]["n_frames"]
            row = {
                "video": f"{video}.mp4",
                "query": query,
                "pulled_frames": list(range(n_frames)),
                "pulled_relevance": rng.uniform(size=n_frames).tolist(),
            }
            lines.write(json.dumps(row) + "\n")
    return file


@pytest.mark.slow
@pytest.mark.usefixtures("unsaved_figures")
def test_two_processes_give_the_rows_of_one(home, evaluate, tools, tiny_qwen, tmp_path, task_index, warm_lmms_eval):
    from focus_eval.bench.lmms.models.qwen_vl import FocusQwen2VL

    tasks = ["focus_longvideobench", "focus_mlvu"]
    arguments = {"pretrained": str(tiny_qwen), "device": "cpu", "sampler": "random", "frames": 3, "seed": 1}
    item = FocusQwen2VL(**arguments, record=str(tmp_path / "one"))
    in_one = evaluate(item, tasks, limit=7)["results"]

    options = {**arguments, "record": tmp_path / "two", "allow_unparsed": True}  # its weights are random
    model_arguments = ",".join(f"{name}={value}" for name, value in options.items())
    # Where its port is taken, accelerate finds a free one that nobody else can take meanwhile.
    with socket.create_server(("127.0.0.1", 0)) as free_port_server:
        command = [
            "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--main_process_port",
            str(free_port_server.getsockname()[1]), "-m", "tests.support.bench.official_tasks", task_index, "lmms_eval",
            "--model", "focus_qwen2_vl", "--model_args", model_arguments, "--tasks", ",".join(tasks), *include(),
            "--limit", "7", "--output_path", str(tmp_path / "out"), *GENERATION,
        ]  # fmt: skip
        process = warm_lmms_eval.run(command)
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-3000:]
    (results,) = (tmp_path / "out").rglob("*_results.json")
    in_two = json.loads(results.read_text())["results"]
    for task in tasks:
        metrics = [name for name in in_one[task] if name.endswith(",none") and "stderr" not in name]
        assert str([in_one[task][name] for name in metrics]) == str([in_two[task][name] for name in metrics])
    for kind in ("selections", "answers"):
        assert timeless(tools, tmp_path / "one", kind) == timeless(tools, tmp_path / "two", kind)
    assert len(timeless(tools, tmp_path / "two", "answers")) == 7 + 2
    files = sorted(path.name for path in (tmp_path / "two").rglob("*.jsonl"))
    assert files == ["rows-rank0of2.jsonl"] * 4 + ["rows-rank1of2.jsonl"] * 4  # selections and answers of two tasks
    # Seven questions on two ranks: the copy that keeps the ranks in step leaves no row.
    assert len(tools.read_record(tmp_path / "two", "answers")) == 7 + 2
    # Commands read what accelerate's processes left as what one process left.
    for cell in (tmp_path / "two").glob("focus_*"):
        cells = (tmp_path / "one" / cell.name, cell)
        audits = [CliRunner().invoke(app, ["audit", str(folder)]).output.replace(str(folder), "") for folder in cells]
        assert audits[0] == audits[1]
        assert "report.csv" in called("report", cell, "--no-html").replace("\n", "")


def timeless(tools, record, kind):
    """Return rows by question without their timings."""
    return {
        (row["benchmark"], row["question_id"]): {key: value for key, value in row.items() if key != "seconds"}
        for row in tools.read_record(record, kind)
    }


@pytest.fixture
def command_line():
    """lmms-eval's command line as the running program; later tests of this process find it gone again."""
    importlib.import_module("lmms_eval.__main__")
    yield
    del sys.modules["lmms_eval.__main__"]


@pytest.mark.usefixtures("command_line")
def test_a_wrong_argument_ends_the_command_line_with_one_line_and_code_2(capsys):
    from focus_eval.bench.lmms.models.qwen_vl import FocusQwen2VL

    with pytest.raises(SystemExit) as end:  # lmms-eval's command line catches every Exception and ends with code 0
        FocusQwen2VL(pretrained="no/such", device="cpu", sampler="unifrom")
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("focus-eval: unknown sampler 'unifrom'; did you mean 'uniform'?")


@pytest.mark.usefixtures("command_line")
def test_a_model_that_cannot_be_loaded_ends_the_command_line_with_code_2(capsys, tiny_qwen):
    from focus_eval.bench.lmms.models.qwen_vl import FocusQwen2VL

    with pytest.raises(SystemExit) as end:
        FocusQwen2VL(pretrained=str(tiny_qwen), device="cuda:99", device_map="cuda:99", sampler="uniform", frames=2)
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert "Traceback" in error
    assert error.splitlines()[-1].startswith("focus-eval: stopped by ")


@pytest.mark.slow
def test_a_run_with_too_many_failures_ends_the_command_with_one_line_and_code_2(lmms_eval, home, tiny_qwen, tmp_path):
    videos = home.videos["videomme"]
    (videos / "portrait.mp4").rename(videos / "elsewhere.mp4")
    try:
        failed = lmms_eval(
            "--model", "focus_qwen2_vl", "--tasks", "focus_videomme", *include(), "--model_args",
            f"pretrained={tiny_qwen},device=cpu,sampler=uniform,frames=2,record={tmp_path}", check=False,
        )  # fmt: skip
    finally:
        (videos / "elsewhere.mp4").rename(videos / "portrait.mp4")
    assert failed.returncode == 2
    (line,) = [line for line in failed.stderr.splitlines() if line.startswith("focus-eval:")]
    assert "2 of 4 questions have no answer" in line
    assert "portrait.mp4" in line


@pytest.mark.slow
def test_a_service_that_refuses_every_question_as_text_ends_the_command_with_one_line_and_code_2(lmms_eval, tmp_path):
    with ChatServer(reply_to=lambda body: ("I'm sorry, I can't help with that.", {})) as server:
        arguments = f"base_url={server.url},sampler=uniform,frames=2,record={tmp_path}"
        ended = [
            lmms_eval(
                "--model", "focus_gpt4o", "--tasks", "focus_videomme", *include(), "--model_args",
                arguments + accepted, check=False, variables={"OPENAI_API_KEY": "any"},
            )
            for accepted in ("", ",allow_unparsed=true")
        ]  # fmt: skip
    assert [process.returncode for process in ended] == [2, 0]
    (line,) = [line for line in ended[0].stderr.splitlines() if line.startswith("focus-eval:")]
    assert "none of 4 questions has an answer that could be read; the first: " in line
    assert "I'm sorry" in line
    assert server.n_requests == 4  # the second run hands back what the first was told


def counted(*rows):
    """Return the counts of a run with an answer row for each of (answer, parsed, error)."""
    counts = RunCounts()
    for answer, parsed, error in rows:
        row = SimpleNamespace(question_id="q1", answer=answer, parsed=parsed, error=error, fallback=None, is_cut=False)
        row.is_unparsed, row.is_readable = AnswerRow.is_unparsed.fget(row), AnswerRow.is_readable.fget(row)
        counts.add(row)
    return counts


REFUSED, BLANK, FAILED, READ = ("I cannot", None, None), (" ", " ", None), (None, None, "401"), ("B", "B", None)


@pytest.mark.parametrize(
    ("rows", "is_refused", "is_refused_if_allowed"),
    [
        ([], False, False),
        ([REFUSED, READ], False, False),
        ([REFUSED, REFUSED], True, False),
        ([BLANK, REFUSED], True, False),
        ([FAILED, REFUSED], True, False),
        ([FAILED, FAILED], True, True),
    ],
)
def test_a_run_without_any_readable_answer_is_refused_unless_allowed(rows, is_refused, is_refused_if_allowed):
    for allowed, expected in ((False, is_refused), (True, is_refused_if_allowed)):
        with pytest.raises(RunError, match=f"none of {len(rows)} questions") if expected else nullcontext():
            check_readable(counted(*rows), allow_unparsed=allowed)


def test_counts_of_ranks_add_up_and_keep_the_first_text(monkeypatch):
    parts = [counted(READ), counted(FAILED, REFUSED)]
    distributed = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_world_size=lambda: 2,
        all_gather_object=lambda gathered, part: gathered.__setitem__(slice(None), parts),
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)
    total = over_all_ranks(parts[0])
    assert (total.questions, total.errors, total.readable) == (3, 1, 1)
    assert (total.first_error, total.first_unread) == ("q1: 401", "q1: 'I cannot'")


@pytest.mark.slow
def test_the_comparison_with_a_stock_run_counts_equal_prompts_frames_and_answers(warm_lmms_eval, tmp_path, capsys):
    compare_stock = runpy.run_path(str(resource_path("configs").parent / "scripts" / "checks" / "compare_stock.py"))
    compare_stock["compare"](["gpt4o, decord"], warm_lmms_eval, tmp_path)
    assert "| gpt4o, decord | openai | 0 | 4 | 0 | 4 | 4 | 4 | 4 |" in capsys.readouterr().out


@pytest.mark.slow
def test_a_killed_command_line_goes_on_where_it_was_and_loses_no_row(warm_lmms_eval, tools, tiny_qwen, tmp_path):
    names = ["landscape", "portrait", "odd"]
    rows = tools.longvideobench_rows(names, [f"What is in scene {n}?" for n in range(20 * KILLS)])
    data = tools.write_parquet(tmp_path / "data", "validation", rows)
    text = (resource_path("tasks") / "focus_longvideobench.yaml").read_text()
    (tmp_path / "tasks").mkdir()
    lines_ = [f"dataset_path: {data}" if line.startswith("dataset_path:") else line for line in text.splitlines()]
    (tmp_path / "tasks" / "focus_longvideobench.yaml").write_text("\n".join(lines_))
    record = tmp_path / "record"
    command = [
        "lmms_eval", "--model", "focus_qwen2_vl", "--tasks", "focus_longvideobench",
        "--include_path", str(tmp_path / "tasks"), "--gen_kwargs", "max_new_tokens=2", "--model_args",
        f"pretrained={tiny_qwen},device=cpu,sampler=uniform,frames=2,record={record},allow_unparsed=true",
    ]  # fmt: skip
    finished: list[str] = []
    for number in range(KILLS):
        n_rows = 10 if number else len(rows) + 10  # all selections are written before the first answer
        killed = warm_lmms_eval.run(command, kill_at_row=n_rows)
        assert killed.returncode == -signal.SIGKILL, killed.stderr[-3000:]
        written = asked_whole(record)
        assert len(written) == len(set(written)), "a question was answered twice"
        assert set(finished) < set(written), "rows lost"
        assert len(written) == len(finished) + 10
        finished = written
    process = warm_lmms_eval.run(command)
    assert process.returncode == 0, process.stderr[-3000:]
    written = asked_whole(record)
    assert sorted(written) == sorted(row["id"] for row in rows)
    assert set(finished) < set(written)
    assert f"{len(written)} questions ({len(finished)} answered earlier)" in process.stdout + process.stderr


def asked_whole(record):
    """Return the questions of complete lines; what follows the last line break was cut off."""
    files = record.glob("*/answers/*/*.jsonl")
    return [json.loads(line)["question_id"] for file in files for line in file.read_bytes().split(b"\n")[:-1]]
