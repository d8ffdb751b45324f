"""The real `lmms_eval` command line, in processes of its own, offline."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import pytest

from focus_eval.resources import resource_path

OURS = ["focus_longvideobench", "focus_videomme", "focus_mlvu", "focus_vsibench"]
OFFICIAL = ["longvideobench_val_v", "videomme", "mlvu_dev", "vsibench"]
QUESTIONS_PER_BENCHMARK = {"longvideobench": 8, "videomme": 4, "mlvu": 2, "vsibench": 4}


def lmms_eval(home, *arguments, launcher=(), check=True):
    command = [sys.executable, *launcher, "-m", "lmms_eval", *arguments, "--gen_kwargs", "max_new_tokens=2"]
    found = subprocess.run(
        command,
        cwd=home.root,
        env={**home.environment(), "ACCELERATE_USE_CPU": "true"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert not check or found.returncode == 0, found.stdout[-3000:] + found.stderr[-3000:]
    return found


def include():
    return ["--include_path", str(resource_path("tasks"))]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["focus_qwen2_vl", "focus_llava_onevision"])
def test_all_four_benchmarks_run_our_tasks_and_the_official_ones(model, home, tools, tmp_path, request):
    weights = request.getfixturevalue("tiny_qwen" if model == "focus_qwen2_vl" else "tiny_llava")
    arguments = (
        f"pretrained={weights},device=cpu,sampler=focus,sampler.alpha=0.25,encoder=recorded,"
        f"encoder.path={recorded(home, tools, tmp_path)},frames=4,seed=3,record={tmp_path / 'record'}"
    )
    out = tmp_path / "out"
    lmms_eval(
        home, "--model", model, "--model_args", arguments, "--tasks", ",".join(OURS + OFFICIAL), *include(),
        "--batch_size", "1", "--log_samples", "--output_path", str(out),
    )  # fmt: skip
    (results,) = out.rglob("*_results.json")
    metrics = json.loads(results.read_text())["results"]
    assert set(metrics) == set(OURS + OFFICIAL)
    for task in OURS:
        assert {"accuracy,none", "accuracy_short,none", "unparsed,none", "no_answer,none"} <= set(metrics[task])
        assert metrics[task]["no_answer,none"] == 0
    answers = tools.read_record(tmp_path / "record", "answers")
    assert all(row["error"] is None and row["frames_fed"] == 4 for row in answers if "few" not in row["video"])
    counts = {name: sum(row["benchmark"] == name for row in answers) for name in QUESTIONS_PER_BENCHMARK}
    assert counts == {name: 2 * n for name, n in QUESTIONS_PER_BENCHMARK.items()}  # our task and the official one
    chosen = {}
    for row in tools.read_record(tmp_path / "record", "selections"):
        chosen.setdefault((row["benchmark"], row["question_id"]), []).append(row["keyframes"])
    assert all(first == second for first, second in chosen.values())  # the query comes from the document


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
def test_two_processes_give_the_rows_of_one(home, tools, tiny_qwen, tmp_path):
    rows = {}
    for world in (1, 2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        launcher = ("-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", str(port))
        record = tmp_path / f"record{world}"
        arguments = f"pretrained={tiny_qwen},device=cpu,sampler=random,frames=3,seed=1,record={record}"
        found = lmms_eval(
            home, "--model", "focus_qwen2_vl", "--model_args", arguments, "--tasks", "focus_longvideobench,focus_mlvu",
            *include(), "--limit", "7", "--output_path", str(tmp_path / f"out{world}"),
                launcher=launcher if world == 2 else (),
        )  # fmt: skip
        (results,) = (tmp_path / f"out{world}").rglob("*_results.json")
        metrics = {
            task: {name: value for name, value in of_task.items() if "stderr" not in name}
            for task, of_task in json.loads(results.read_text())["results"].items()
        }
        rows[world] = (timeless(tools, record, "answers"), timeless(tools, record, "selections"), str(metrics))
        files = sorted(path.name for path in record.rglob("*.jsonl"))
        assert files == sorted(2 * [f"rank{rank}of{world}.jsonl" for rank in range(world)])
        assert "Traceback" not in found.stderr
    assert rows[1] == rows[2]
    assert len(rows[1][0]) == 7 + 2


def timeless(tools, record, kind):
    """Rows by question without what the clock said."""
    return {
        (row["benchmark"], row["question_id"]): {key: value for key, value in row.items() if key != "seconds"}
        for row in tools.read_record(record, kind)
    }


@pytest.mark.slow
def test_a_wrong_argument_and_a_failed_run_end_the_command_with_one_line_and_code_2(home, tiny_qwen, tmp_path):
    wrong = lmms_eval(
        home, "--model", "focus_qwen2_vl", "--model_args", "pretrained=no/such,device=cpu,sampler=unifrom",
        "--tasks", "focus_videomme", *include(), check=False,
    )  # fmt: skip
    assert wrong.returncode == 2
    lines = [line for line in wrong.stderr.splitlines() if line.startswith("focus-eval:")]
    assert lines == [line for line in lines if "did you mean 'uniform'" in line] != []
    assert "Traceback" not in wrong.stderr

    videos = home.videos["videomme"]
    (videos / "portrait.mp4").rename(videos / "elsewhere.mp4")
    try:
        failed = lmms_eval(
            home, "--model", "focus_qwen2_vl", "--tasks", "focus_videomme", *include(), "--model_args",
            f"pretrained={tiny_qwen},device=cpu,sampler=uniform,frames=2,record={tmp_path}", check=False,
        )  # fmt: skip
    finally:
        (videos / "elsewhere.mp4").rename(videos / "portrait.mp4")
    assert failed.returncode == 2
    (line,) = [line for line in failed.stderr.splitlines() if line.startswith("focus-eval:")]
    assert "2 of 4 questions have no answer" in line
    assert "portrait.mp4" in line
