"""`focus-eval plan` and `run` as their user sees them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from typer.testing import CliRunner

from focus_eval.cli import app
from focus_eval.matrix import selecting

CONFTEST = Path(__file__).parents[1] / "matrix" / "conftest.py"


@pytest.fixture
def simulation(tmp_path):
    made = importlib.util.spec_from_file_location("simulations", CONFTEST)
    simulations = importlib.util.module_from_spec(made)
    made.loader.exec_module(simulations)
    return simulations.write_simulation(tmp_path / "simulation", n_questions=6, n_videos=2)


def invoke(*arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments])


def test_the_plan_says_once_what_all_selections_share(simulation):
    lines = invoke("plan", simulation).output.splitlines()
    assert lines[0] == "simulated: 6 questions"
    assert lines[1].strip() == "selections of simulation (benchmark simulated, K 8, seed 0)"
    (heading,) = [line.split() for line in lines if "pulls" in line and "sampler" in line]
    assert heading[:5] == ["encoder", "sampler", "pulls", "frames", "scored"]
    assert " ".join(heading[5:]) == "embedded, each question alone embedded, shared by a video"
    # 3 questions about 60 seconds, 3 about 157, one frame a second; two videos
    assert ["trace", "topk", "651", "3.33%", "651", "217"] in [line.split() for line in lines]
    assert any("frames to embed: all share one store" in line for line in lines)
    alone = invoke("plan", simulation, "--set", "share_frames=false").output
    assert "each question pays for its own" in alone


def test_an_interrupted_run_says_that_nothing_is_lost(simulation, tmp_path, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(selecting.SelectWorker, "run", interrupted)
        stopped = invoke("run", simulation, "--out", tmp_path / "run")
    assert stopped.exit_code == 130
    assert "run the same command again to go on" in stopped.output
    assert invoke("run", simulation, "--out", tmp_path / "run").exit_code == 0
