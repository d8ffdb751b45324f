"""The same rows from a real Ray cluster of two nodes, also when one of them is lost in the middle."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from focus_eval.matrix.config import Resources, load_matrix
from focus_eval.matrix.running import run_matrix

from .conftest import write_simulation
from .test_running import result_bytes

ray = pytest.importorskip("ray", reason="the ray extra is not installed")
pytestmark = pytest.mark.slow


@pytest.fixture
def cluster():
    """Two nodes on this machine, one worker each."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.add_node(num_cpus=1)
    made.wait_for_nodes()
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def matrix(tmp_path):
    return load_matrix(write_simulation(tmp_path / "simulation", n_questions=240, n_videos=24))


def engine():
    from focus_eval.matrix.ray_engine import RayEngine

    worker = Resources(gpus=0, cpus=1)
    return RayEngine(address=None, store=None, select=worker, answer=worker)


def test_two_nodes_write_the_same_bytes_as_this_process_even_when_one_is_lost(cluster, matrix, tmp_path):
    run_matrix(matrix, out=tmp_path / "here" / "local")
    whole = run_matrix(matrix, out=tmp_path / "ray", engine=engine())
    assert len(whole) == 240 * 4
    assert result_bytes(tmp_path / "ray") == result_bytes(tmp_path / "here" / "local")

    lost = threading.Event()

    def lose_a_node():
        folder = tmp_path / "apart" / "lossy"
        while not lost.is_set():
            if len({path.name for path in folder.glob("*/*/rows-*-ray-*.jsonl") if path.stat().st_size}) >= 2:
                cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
                lost.set()
            time.sleep(0.01)

    killer = threading.Thread(target=lose_a_node, daemon=True)
    killer.start()
    frame = run_matrix(matrix, out=tmp_path / "apart" / "lossy", engine=engine())
    assert lost.is_set(), "the run ended before the node was lost"
    killer.join()
    assert len(frame) == 240 * 4
    assert result_bytes(tmp_path / "apart" / "lossy") == result_bytes(tmp_path / "here" / "local")


def test_a_cluster_without_the_resources_is_refused(cluster, matrix, tmp_path):
    from focus_eval.errors import RunError
    from focus_eval.matrix.ray_engine import RayEngine

    large = Resources(gpus=1, cpus=1)
    with pytest.raises(RunError, match="the Ray cluster has 0 GPUs"):
        run_matrix(matrix, out=tmp_path / "run", engine=RayEngine(address=None, store=None, select=large, answer=large))


def test_what_workers_print_reaches_the_terminal(tmp_path):
    file = write_simulation(tmp_path / "simulation", n_questions=12, n_videos=6)
    small = "{gpus: 0, cpus: 1, decode_cores: 4}"
    done = subprocess.run(
        [sys.executable, "-m", "focus_eval", "run", str(file), "--engine", "ray", "--out", str(tmp_path / "run"),
         "--no-preflight", "--set", f"select_resources={small}", "--set", f"answer_resources={small}"],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "loading encoder trace" in done.stderr + done.stdout
