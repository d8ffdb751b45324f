"""lmms-eval's command line runs LLaVA-Video in one process and in two, with the same rows."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .test_wrapper import answers_of


@pytest.mark.slow
def test_the_real_command_line_gives_the_same_rows_from_one_process_and_from_two(
    tiny_checkpoint, home, tools, tmp_path
):
    """`lmms-eval --model focus_llava_video` on the official task, in processes of its own."""
    two = ("-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone")  # it takes a free port itself
    found = {}
    for name, launcher in (("one", ()), ("two", two)):
        record = tmp_path / name
        arguments = (
            f"pretrained={tiny_checkpoint},preset=lmms_eval,time_instruction=True,dtype=float32,sampler=uniform,"
            f"frames=3,record={record}"
        )
        command = [
            *(sys.executable, *launcher, "-m", "lmms_eval", "--model", "focus_llava_video", "--model_args", arguments),
            *("--tasks", "longvideobench_val_v", "--batch_size", "2", "--device", "cpu", "--limit", "3"),
            *("--gen_kwargs", "max_new_tokens=3", "--output_path", str(tmp_path / f"out_{name}")),
        ]
        environment = {**home.environment(), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run(command, cwd=home.root, env=environment, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stderr[-3000:]
        assert list((tmp_path / f"out_{name}").rglob("*_results.json"))
        found[name] = answers_of(tools, record)
    assert len(found["one"]) == 3
    assert all(row["error"] is None and row["frames_fed"] == 3 for row in found["one"].values())
    assert {row["tokens"]["vision"] for row in found["one"].values()} == {3 * 4 * 5}
    for row in (*found["one"].values(), *found["two"].values()):
        row.pop("seconds")
    assert found["one"] == found["two"]
    assert len(list((tmp_path / "two").rglob("answers/*.jsonl"))) == 2
