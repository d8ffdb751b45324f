"""A slice of the rehearsal: shipped configs unchanged, from an empty machine to reports whose figures are checked.

All of it is `make rehearsal`.
"""

from __future__ import annotations

import pytest

from tests.rehearsal import tables as rehearsal
from tests.support.bench.machine import build_machine
from tests.support.keyframes.chat_server import ChatServer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    root = tmp_path_factory.mktemp("rehearsal") / "machine"
    return build_machine(root, models=["qwen2_vl_7b"], encoders=["blip"], benchmarks=["longvideobench", "mlvu"])


@pytest.fixture(scope="module")
def chat():
    with ChatServer() as server:
        yield server


@pytest.fixture(scope="module")
def steps(machine, chat):
    """A part of two shipped matrices, run in one process: what it imports takes longer than the runs."""
    options_by_matrix = {
        "main_results": ["--only", "model=gpt4o,qwen2_vl_7b", "--only", "benchmark=longvideobench"],
        "more_benchmarks": ["--only", "model=qwen2_vl_7b", "--only", "benchmark=mlvu"],
    }
    limits = {"main_results": 5, "more_benchmarks": 6}
    return {step.name: step for step in rehearsal.run_matrices(machine, chat, limits, options_by_matrix)}


def test_the_videos_lie_where_lmms_eval_unpacks_them(machine):
    assert (machine.hf_home / "datasets/longvideobench/videos/lvb0000000.mp4").is_file()
    assert (machine.hf_home / "mlvu/plotQA_0.mp4").is_file()


@pytest.mark.slow
def test_a_service_and_a_local_model_answer_table_1(steps, chat):
    step = steps["main_results"]
    assert step.wrong == []
    assert (step.rows, step.errors) == (2 * 3 * 5, 0)
    assert step.figures > 100
    assert chat.n_images >= 3 * 5 * 20


def test_mlvu_is_reported_as_the_mean_of_its_task_types(steps, machine):
    step = steps["more_benchmarks"]
    assert step.wrong == []
    assert (step.rows, step.errors) == (4 * 6, 0)
    header = (machine.work / "results/runs/more_benchmarks/report.csv").read_text().splitlines()[0].split(",")
    assert "MLVU" in header
