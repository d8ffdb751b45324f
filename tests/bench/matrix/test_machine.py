"""How wide a worker works: cores, videos in work, bytes of frames."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from typer.testing import CliRunner

from focus_eval.bench.matrix import machine as worker_share
from focus_eval.bench.matrix.config import Resources
from focus_eval.bench.matrix.machine import (
    FrameReservations,
    WorkerResources,
    check_ray_address,
    cluster_resources,
    local_resources,
)
from focus_eval.cli import app
from focus_eval.core.errors import FocusEvalError, InvalidInput, RunError

from .conftest import write_simulation


@pytest.mark.parametrize(("cores", "videos"), [(1, 3), (2, 4), (4, 5), (16, 11), (64, 35)])
def test_more_cores_take_more_videos(cores, videos):
    assert WorkerResources(cores, 10**9).videos_at_once == videos


def test_the_bytes_of_a_4k_video_are_three_batches_and_what_its_decoders_refer_to():
    frame = 3 * 3840 * 2160
    assert WorkerResources(2, 0).bytes_of_video(3840, 2160) == (3 * 32 + 2 * 10) * frame
    assert WorkerResources(16, 0).bytes_of_video(3840, 2160) == (3 * 32 + 6 * 10) * frame


def test_a_worker_gets_the_cores_of_one_gpu_unless_told(monkeypatch):
    monkeypatch.setattr(worker_share, "n_cores", lambda: 64)
    monkeypatch.setattr(worker_share, "gpu_gigabytes", lambda: [80.0] * 8)
    assert local_resources(Resources()).cores == 8
    assert local_resources(Resources(decode_cores=20)).cores == 20
    assert cluster_resources(Resources(cpus=14)).cores == 14
    assert cluster_resources(Resources(cpus=14, gpus=0.5, decode_cores=3)).cores == 3


@pytest.mark.parametrize(
    ("n_gpus", "memory", "gpus", "gigabytes"),
    [
        (0, 1000.0, 1, 4),
        (8, 1000.0, 1, 1000 / 64),
        (1, 128.0, 0.5, 8),
        (1, 24.0, 1, 4),
        (1, 2000.0, 1, 16),
        (2, None, 1, 4),
    ],
)
def test_a_worker_holds_more_frames_where_its_gpus_share_of_the_memory_is_large(
    monkeypatch, n_gpus, memory, gpus, gigabytes
):
    monkeypatch.setattr(worker_share, "gpu_gigabytes", lambda: [80.0] * n_gpus)
    monkeypatch.setattr(worker_share, "host_gigabytes", lambda: memory)
    assert worker_share.frame_bytes(Resources(gpus=gpus)) == gigabytes * 1e9
    assert worker_share.frame_bytes(Resources(gpus=gpus, frame_gigabytes=5)) == 5e9


def test_videos_in_work_never_hold_more_than_the_budget_and_a_larger_one_runs_alone():
    memory, largest, concurrent = FrameReservations(100), [], []
    lock, inside, met = threading.Lock(), [], threading.Event()

    def hold(n_bytes):
        with memory.reserved(n_bytes):
            with lock:
                inside.append(n_bytes)
                largest.append(sum(inside))
                concurrent.append(len(inside))
                if len(inside) > 1:
                    met.set()
            met.wait(600 if n_bytes == 40 else 0.002)  # there is room for others beside the first of 40
            with lock:
                inside.remove(n_bytes)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(hold, [40, 30, 60, 300, 20, 50, 10, 90, 40, 40] * 4))
    assert {total for total in largest if total > 100} == {300}
    assert max(concurrent) > 1
    assert memory.n_bytes == 0


def test_an_address_where_no_ray_answers_is_said_at_once():
    with pytest.raises(InvalidInput, match="--address nowhere: give HOST:PORT"):
        check_ray_address("nowhere")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        with pytest.raises(RunError, match=rf"--address 127.0.0.1:{port}: no Ray cluster answers there"):
            check_ray_address(f"127.0.0.1:{port}")
        free.listen()
        check_ray_address(f"ray://127.0.0.1:{port}")
    check_ray_address("auto")


def test_a_run_on_an_address_of_no_cluster_ends_with_one_line_and_loads_no_lmms_eval(tmp_path):
    matrix = write_simulation(tmp_path / "simulation", n_questions=6, n_videos=2)
    command = [sys.executable, "-X", "importtime", "-m", "focus_eval", "run", str(matrix)]
    started = time.monotonic()
    process = subprocess.run(
        [*command, "--engine", "ray", "--address", "nowhere", "--out", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert time.monotonic() - started < 20
    lines = [line for line in process.stderr.splitlines() if not line.startswith("import time:")]
    assert lines == ["focus-eval: --address nowhere: give HOST:PORT or ray://HOST:PORT of a Ray cluster, or auto"]
    assert "lmms_eval" not in process.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("engine", "error"),
    [
        (
            "processes",
            "--engine processes is gone: local decodes in a process for each core by itself; leave --engine out",
        ),
        ("lokal", "unknown engine 'lokal'; did you mean 'local'? known: local, ray"),
    ],
)
def test_an_engine_that_is_none_is_refused_before_anything_that_is_missing(tmp_path, engine, error):
    # The videos of the demo are missing here.
    result = CliRunner().invoke(app, ["run", "demo", "--engine", engine, "--out", str(tmp_path / "run")])
    assert isinstance(result.exception, FocusEvalError)
    assert str(result.exception) == error
    assert list(tmp_path.iterdir()) == []
