"""lmms-eval's command line runs LLaVA-Video in one process and in two, with the same rows."""

from __future__ import annotations

import subprocess
import sys

import pytest

from focus_eval.lmms.llava_video.wrapper import FocusLlavaVideo

from .test_wrapper import answers_of


@pytest.mark.slow
def test_the_real_command_line_in_two_processes_gives_the_rows_of_one(tiny_checkpoint, evaluate, home, tools, tmp_path):
    """`lmms-eval --model focus_llava_video` on the official task, in processes of its own."""
    model_arguments = {
        "pretrained": str(tiny_checkpoint), "preset": "lmms_eval", "time_instruction": True, "dtype": "float32",
        "sampler": "uniform", "frames": 3,
    }  # fmt: skip
    model = FocusLlavaVideo(**model_arguments, device="cpu", batch_size=2, record=str(tmp_path / "one"))
    evaluate(model, ["longvideobench_val_v"], max_new_tokens=3, official=True, limit=3)
    options = {**model_arguments, "record": tmp_path / "two", "allow_unparsed": True}  # its weights are random
    arguments = ",".join(f"{name}={value}" for name, value in options.items())
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone"),  # takes a free port
        *("-m", "lmms_eval", "--model", "focus_llava_video", "--model_args", arguments),
        *("--tasks", "longvideobench_val_v", "--batch_size", "2", "--device", "cpu", "--limit", "3"),
        *("--gen_kwargs", "max_new_tokens=3", "--output_path", str(tmp_path / "out")),
    ]
    environment = {**home.environment(), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    process = subprocess.run(command, cwd=home.root, env=environment, capture_output=True, text=True, timeout=900)
    assert process.returncode == 0, process.stderr[-3000:]
    assert list((tmp_path / "out").rglob("*_results.json"))
    rows_of_one, rows_of_two = (answers_of(tools, tmp_path / name) for name in ("one", "two"))
    assert len(rows_of_one) == 3
    assert all(row["error"] is None and row["frames_fed"] == 3 for row in rows_of_one.values())
    assert {row["tokens"]["vision"] for row in rows_of_one.values()} == {3 * 4 * 5}
    for row in (*rows_of_one.values(), *rows_of_two.values()):
        row.pop("seconds")
    assert rows_of_one == rows_of_two
    assert len(list((tmp_path / "two").rglob("answers/*.jsonl"))) == 2
