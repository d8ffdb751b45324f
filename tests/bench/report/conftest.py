"""Runs that the tests of reports share."""

from __future__ import annotations

import pytest

from focus_eval.bench.report.run import load_run
from tests.bench.report.simulated import PAPERS, Simulation, simulate_run

_SAMPLERS = ("uniform", "topk", "focus", "focus_released")


@pytest.fixture(scope="session")
def by_length_run(tmp_path_factory):
    """A run in the layout of the paper's table 2, with other settings than the paper's."""
    simulation = Simulation(n_questions=120, samplers=_SAMPLERS, models=("llava_video_7b",))
    return load_run(simulate_run(tmp_path_factory.mktemp("runs") / "by_length", simulation, anchors="by_length"))


@pytest.fixture(scope="session")
def papers_run(tmp_path_factory):
    """A run beside the paper's table 2."""
    simulation = Simulation(n_questions=120, samplers=_SAMPLERS, **PAPERS)
    return load_run(simulate_run(tmp_path_factory.mktemp("runs") / "papers", simulation, anchors="by_length"))


@pytest.fixture(scope="session")
def demo_run(tmp_path_factory):
    """A run like the demo's: no published table, two seeds."""
    simulation = Simulation(n_questions=108, samplers=("uniform", "topk", "focus"), seeds=(0, 1))
    return load_run(simulate_run(tmp_path_factory.mktemp("runs") / "demo", simulation))


@pytest.fixture(scope="session")
def hostile_run(tmp_path_factory):
    """A run whose questions are markup."""
    simulation = Simulation(n_questions=45, samplers=("uniform", "focus"), hostile=True)
    return load_run(simulate_run(tmp_path_factory.mktemp("runs") / "hostile_&_<b>", simulation))
