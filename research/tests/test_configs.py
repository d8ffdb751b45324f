"""The matrices and simulations of research are read as `run` and `simulate` read them."""

from __future__ import annotations

import pytest

from focus_eval.bench.matrix.cells import selection_specs
from focus_eval.bench.matrix.config import load_matrix
from focus_eval.lab.commands.check import load_simulation
from tests.pages import ROOT

FILES = sorted((ROOT / "research/configs").glob("*.yaml"))


MATRICES = [file for file in FILES if file.stem.startswith("demo_")]
SIMULATIONS = [file for file in FILES if file.stem.startswith("simulation_")]


@pytest.mark.parametrize("file", MATRICES, ids=lambda file: file.stem)
def test_a_matrix_loads_and_has_selections(file):
    assert selection_specs(load_matrix(file))


@pytest.mark.parametrize("file", SIMULATIONS, ids=lambda file: file.stem)
def test_a_simulation_loads_and_names_samplers(file):
    assert load_simulation(file).samplers
