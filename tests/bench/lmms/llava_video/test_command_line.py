"""lmms-eval's command line runs LLaVA-Video in one process and in two, with the same rows."""

from __future__ import annotations

import contextlib
import os
import socket

import pytest

from focus_eval.bench.lmms.llava_video.wrapper import FocusLlavaVideo

from .test_wrapper import answers_of


def free_port() -> int:
    """Return a free port below those that the kernel hands out: nobody gets it by chance before torch listens."""
    for port in range(20000 + os.getpid() % 10000, 32768):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise RuntimeError("no port is free")


@pytest.mark.slow
def test_the_real_command_line_in_two_processes_gives_the_rows_of_one(
    tiny_checkpoint, evaluate, warm_lmms_eval, tools, tmp_path
):
    """`lmms-eval --model focus_llava_video` on the official task, in two processes as torchrun would start them."""
    model_arguments = {
        "pretrained": str(tiny_checkpoint), "preset": "lmms_eval", "time_instruction": True, "dtype": "float32",
        "sampler": "uniform", "frames": 3,
    }  # fmt: skip
    model = FocusLlavaVideo(**model_arguments, device="cpu", batch_size=2, record=str(tmp_path / "one"))
    evaluate(model, ["longvideobench_val_v"], max_new_tokens=3, official=True, limit=3)
    options = {**model_arguments, "record": tmp_path / "two", "allow_unparsed": True}  # its weights are random
    arguments = ",".join(f"{name}={value}" for name, value in options.items())
    command = [
        *("lmms_eval", "--model", "focus_llava_video", "--model_args", arguments),
        *("--tasks", "longvideobench_val_v", "--batch_size", "2", "--device", "cpu", "--limit", "3"),
        *("--gen_kwargs", "max_new_tokens=3", "--output_path", str(tmp_path / "out")),
    ]
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    variables = [{**common, "RANK": rank, "LOCAL_RANK": rank, "CUDA_VISIBLE_DEVICES": ""} for rank in ("0", "1")]
    for process in warm_lmms_eval.run_together([command] * 2, variables):
        assert process.returncode == 0, process.stderr[-3000:]
    assert list((tmp_path / "out").rglob("*_results.json"))
    rows_of_one, rows_of_two = (answers_of(tools, tmp_path / name) for name in ("one", "two"))
    assert len(rows_of_one) == 3
    assert all(row["error"] is None and row["frames_fed"] == 3 for row in rows_of_one.values())
    assert {row["tokens"]["vision"] for row in rows_of_one.values()} == {3 * 4 * 5}
    for row in (*rows_of_one.values(), *rows_of_two.values()):
        row.pop("seconds")
    assert rows_of_one == rows_of_two
    assert len(list((tmp_path / "two").rglob("answers/*/*.jsonl"))) == 2
