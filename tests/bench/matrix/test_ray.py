"""The same rows from a real Ray cluster of two nodes, also when one of them is lost in the middle."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest

from focus_eval.bench.matrix.config import Resources, load_matrix
from tests.support.bench.matrix_rows import run_matrix

from .conftest import write_simulation
from .test_running import result_bytes

ray = pytest.importorskip("ray", reason="the ray extra is not installed")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def whatever_is_free():
    """Ray ends workers where memory is short, and stores nothing where the disk is nearly full; here it does not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")  # as in tests/support/bench/machine.py
        patch.setenv("RAY_memory_monitor_refresh_ms", "0")
        patch.setenv("RAY_local_fs_capacity_threshold", "1")
        yield


@pytest.fixture(scope="module")
def cluster(whatever_is_free):
    """Two nodes on this machine, one worker each; the test that loses one of them is the last."""
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 100_000_000, "wait": False}
    ray_cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    ray_cluster.add_node(**node)
    ray_cluster.wait_for_nodes(timeout=600)
    ray.init(address=ray_cluster.address, log_to_driver=False)
    yield ray_cluster
    ray.shutdown()
    ray_cluster.shutdown()


@pytest.fixture
def matrix(tmp_path):
    scan = {"sampler": "scan_cover", "options": {"scan_encoder": "trace", "relative_cost": 0.05}}
    samplers = ["uniform", "focus", "focus_released", scan]
    return load_matrix(write_simulation(tmp_path / "simulation", n_questions=240, n_videos=24, samplers=samplers))


def engine():
    from focus_eval.bench.matrix.engines import RayEngine

    worker = Resources(gpus=0, cpus=1)
    return RayEngine(address=None, store=None, select=worker, answer=worker)


def test_a_cluster_without_the_resources_is_refused(cluster, matrix, tmp_path):
    from focus_eval.bench.matrix.engines import RayEngine
    from focus_eval.core.errors import RunError

    large = Resources(gpus=1, cpus=1)
    with pytest.raises(RunError, match="the Ray cluster has 0 GPUs"):
        run_matrix(matrix, out=tmp_path / "run", engine=RayEngine(address=None, store=None, select=large, answer=large))


def test_what_workers_print_reaches_the_terminal(tmp_path):
    file = write_simulation(tmp_path / "simulation", n_questions=12, n_videos=6)
    small = "{gpus: 0, cpus: 1, decode_cores: 4}"
    result = subprocess.run(
        [sys.executable, "-m", "focus_eval", "run", str(file), "--engine", "ray", "--out", str(tmp_path / "run"),
         "--no-preflight", "--set", f"select_resources={small}", "--set", f"answer_resources={small}"],
        capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "loading encoder trace" in result.stderr + result.stdout


SAMPLER = """
from __future__ import annotations

from dataclasses import dataclass

from focus_eval import Choice, FrameSampler


@dataclass(frozen=True, kw_only=True)
class Mine(FrameSampler):
    name, source, may_return_fewer = "mine", "this file", True
    every_seconds: float = 4.0

    def choose(self, request):
        frames = request.video.frames_every(self.every_seconds)
        return Choice(keyframes=_best(frames, request.ledger.relevance(frames), request.k))


def _best(frames, relevance, k):
    return frames[(-relevance).argsort()[:k]]
"""


def test_a_sampler_from_a_file_chooses_the_same_on_workers(cluster, tmp_path):
    (tmp_path / "mine.py").write_text(SAMPLER)
    file = write_simulation(tmp_path / "simulation", samplers=("topk", f"{tmp_path / 'mine.py'}:Mine"))
    run_matrix(load_matrix(file), out=tmp_path / "here" / "local")
    frame = run_matrix(load_matrix(file), out=tmp_path / "ray", engine=engine())
    assert frame["error"].isna().all()
    assert result_bytes(tmp_path / "ray") == result_bytes(tmp_path / "here" / "local")


def test_a_worker_lost_after_its_last_job_fails_no_run(cluster, matrix, tmp_path, monkeypatch):
    from focus_eval.bench.matrix import engines

    class LostAtTheEnd(engines._PhaseActor):
        def close(self):
            import os

            (tmp_path / f"closed-{os.getpid()}").touch()
            os._exit(1)

    monkeypatch.setattr(engines, "_PhaseActor", LostAtTheEnd)
    frame = run_matrix(matrix, out=tmp_path / "run", engine=engine())
    assert list(tmp_path.glob("closed-*")), "a worker that ends by itself keeps no features"
    assert len(frame) == 240 * 4
    assert frame["error"].isna().all()


def test_two_nodes_write_the_same_bytes_as_this_process_even_when_one_is_lost(cluster, matrix, tmp_path, monkeypatch):
    from focus_eval.bench.matrix.engines import _WorkerPool

    hire, hired = _WorkerPool._hire, itertools.count()

    def hire_and_wait_for_two(pool):
        """Both workers run before the first gets a job; one that replaces a lost one is not waited for."""
        started, worker = hire(pool)
        if next(hired) < 2:
            ray.get(started)
        return started, worker

    run_matrix(matrix, out=tmp_path / "here" / "local")
    whole = run_matrix(matrix, out=tmp_path / "ray", engine=engine())
    assert len(whole) == 240 * 4
    assert result_bytes(tmp_path / "ray") == result_bytes(tmp_path / "here" / "local")

    class LosesANode:
        """Loses a node once each of the two has written rows; no job is handed out meanwhile."""

        is_lost = False

        def start(self, phase, n_rows, work):
            """Nothing is shown."""

        def advance(self, phase, n_rows, n_errors, work):
            files = {path.name for path in lossy.glob("*/*/rows-*-ray-*.jsonl") if path.stat().st_size}
            if len(files) == 2 and not self.is_lost:
                self.is_lost = True
                cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)

    lossy, losing = tmp_path / "apart" / "lossy", LosesANode()
    monkeypatch.setattr(_WorkerPool, "_hire", hire_and_wait_for_two)
    frame = run_matrix(matrix, out=lossy, engine=engine(), progress=losing)
    assert losing.is_lost
    assert len(frame) == 240 * 4
    assert result_bytes(lossy) == result_bytes(tmp_path / "here" / "local")
