"""Runs that the tests of reports share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# The simulation stands beside the tests and is no part of the package.
sys.path.insert(0, str(Path(__file__).parent))

from simulated import Simulation, simulate_run

from focus_eval.report.run import load_run


@pytest.fixture(scope="session")
def by_length_run(tmp_path_factory):
    """A run beside the paper's table 2."""
    what = Simulation(
        n_questions=120, samplers=("uniform", "topk", "focus", "focus_released"), models=("llava_video_7b",)
    )
    return load_run(simulate_run(tmp_path_factory.mktemp("runs") / "by_length", what, anchors="by_length"))


@pytest.fixture(scope="session")
def demo_run(tmp_path_factory):
    """A run like the demo's: no published table, two seeds."""
    what = Simulation(n_questions=108, samplers=("uniform", "topk", "focus"), seeds=(0, 1))
    return load_run(simulate_run(tmp_path_factory.mktemp("runs") / "demo", what))


@pytest.fixture(scope="session")
def hostile_run(tmp_path_factory):
    """A run whose questions are markup."""
    what = Simulation(n_questions=45, samplers=("uniform", "focus"), hostile=True)
    return load_run(simulate_run(tmp_path_factory.mktemp("runs") / "hostile_&_<b>", what))
