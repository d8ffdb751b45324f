"""Commands that look and plan start without heavy packages, and say in a line what is not installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.support.bench.load import write_load_matrix
from tests.support.bench.made_runs import write_matrix

pytestmark = pytest.mark.slow

HEAVY = ("torch", "torchvision", "transformers", "lmms_eval", "loguru", "accelerate", "pandas", "matplotlib", "scipy")
# What the extras bring: none of it comes with the plain package.
EXTRAS = ("torch", "torchvision", "transformers", "lmms_eval", "loguru", "accelerate", "safetensors", "openvino", "ray")

# Hides packages as if they were not installed, runs a command, and prints which packages it loaded.
STARTER = """
import importlib.machinery, json, sys
hidden, out = json.loads(sys.argv[1]), sys.argv[2]
finder = importlib.machinery.PathFinder
find_spec = finder.find_spec
def find(name, path=None, target=None):
    return None if name.partition(".")[0] in hidden else find_spec(name, path, target)
finder.find_spec = staticmethod(find)
from focus_eval import cli
sys.argv = ["focus-eval", *sys.argv[3:]]
try:
    cli.main()
finally:
    with open(out, "w") as file:
        json.dump(sorted({name.partition(".")[0] for name in sys.modules}), file)
"""


@pytest.fixture
def start(tmp_path):
    """Run a command in an empty folder, without a cache of the hub; return the process and the packages it loaded."""

    def run(*arguments, hidden=()):
        environment = {**os.environ, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1", "COLUMNS": "300"}
        loaded = tmp_path / "loaded.json"
        command = [sys.executable, "-c", STARTER, json.dumps(hidden), str(loaded), *map(str, arguments)]
        result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert "Traceback" not in result.stderr, result.stderr
        return result, set(json.loads(loaded.read_text()))

    return run


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--help",), 0),
        (("report", "--help"), 0),
        (("list",), 0),
        (("list", "samplers"), 0),
        (("list", "configs"), 0),
        (("plan", "alpha"), 1),
        (("plan", "scan", "--limit", "20"), 1),
        (("plan", "alhpa"), 2),
        (("run", "alpha"), 1),
        (("status", "nowhere"), 2),
        (("samplers",), 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_runs_no_model_loads_none_of_the_heavy_packages(start, arguments, code):
    result, loaded = start(*arguments)
    assert result.returncode == code, result.stderr
    assert loaded.isdisjoint(HEAVY), loaded & set(HEAVY)


def test_a_plan_of_an_own_benchmark_with_a_model_loads_none_of_the_heavy_packages(start, tmp_path):
    result, loaded = start("plan", write_matrix(tmp_path / "own", 20))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "for 4 cells of 1 model;" in result.stdout
    assert loaded.isdisjoint(HEAVY), loaded & set(HEAVY)


def test_without_the_extras_a_plan_names_what_to_install(start):
    for command in ("plan", "run"):
        result, _ = start(command, "alpha", hidden=EXTRAS)
        assert result.returncode == 1
        for package, extra in (("lmms-eval", "lmms"), ("torch", "encoders")):
            assert f"- the package {package}\n    pip install" in result.stdout
            assert f'[{extra}]"' in result.stdout


def test_without_the_extras_lists_work_and_the_demo_names_what_to_install(start):
    assert "alpha (table 4)" in start("list", "configs", hidden=EXTRAS)[0].stdout
    result, _ = start("demo", hidden=EXTRAS)
    assert result.returncode == 2
    assert result.stderr.startswith("focus-eval: the demo needs the package lmms-eval: pip install")
    result, _ = start("run", "alpha", "--no-preflight", hidden=EXTRAS)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1


def test_without_the_extras_a_matrix_without_models_runs_to_its_end(start, tmp_path):
    matrix = write_load_matrix(tmp_path / "data", 4, samplers=("uniform", "topk"))
    result, _ = start("run", matrix, "--out", tmp_path / "run", hidden=EXTRAS)
    assert result.returncode == 0, result.stdout + result.stderr
    result, loaded = start("status", tmp_path / "run", hidden=EXTRAS)
    assert "8 of 8 rows, 0 errors" in result.stdout
    assert loaded.isdisjoint(HEAVY)
    result, loaded = start("report", tmp_path / "run")
    assert result.returncode == 0, result.stderr
    assert loaded.isdisjoint(EXTRAS)
