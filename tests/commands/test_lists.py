"""samplers, slurm-script and the other lists print what there is."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from focus_eval.cli import app
from focus_eval.core.errors import InvalidInput
from focus_eval.core.resources import resource_path
from focus_eval.samplers.registry import make_sampler, sampler_classes

# Does `focus-eval samplers` list what there is?


def test_json_lists_every_sampler_with_options_and_pulls():
    result = CliRunner().invoke(app, ["samplers", "--json", "-k", "16", "--minutes", "10"])
    assert result.exit_code == 0, result.output
    listing = json.loads(result.stdout)
    assert listing["n_frames"] == 18_000
    assert [row["name"] for row in listing["samplers"]] == sorted(sampler_classes())
    for row in listing["samplers"]:
        assert row["options"] == make_sampler(row["name"]).options
        assert (row["pulls"] == 0) == (row["needs"] in ("nothing", "a scan", "a model"))
    assert {row["name"]: row["pulls"] for row in listing["samplers"]}["topk"] == 600


def test_the_table_names_sampler_source_option_and_cost(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    result = CliRunner().invoke(app, ["samplers"])
    assert result.exit_code == 0, result.output
    for text in ("focus_released", "Algorithm 2", "region_half_window_sec=none", "alpha=0.25", "1587 (1.47 %)"):
        assert text in result.stdout


# The batch script: valid shell, the numbers asked for, and no script for a broken matrix.


def test_the_script_is_shell_and_runs_the_matrix_on_the_allocation():
    matrix = resource_path("configs") / "paper" / "alpha.yaml"
    done = CliRunner().invoke(app, ["slurm-script", str(matrix), "--nodes", "3", "--gpus", "4"])
    assert done.exit_code == 0
    assert "#SBATCH --nodes=3" in done.stdout
    assert "#SBATCH --gpus-per-node=4" in done.stdout
    assert f"focus-eval run {matrix} --engine ray" in done.stdout
    subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=True)


def test_options_of_run_are_passed_on():
    done = CliRunner().invoke(app, ["slurm-script", "alpha", "--", "--limit", "5", "--set", "k=[8, 16]"])
    assert done.exit_code == 0
    assert done.stdout.rstrip().endswith("--limit 5 --set 'k=[8, 16]'")


def test_a_broken_matrix_gives_no_script(tmp_path):
    (tmp_path / "m.yaml").write_text("benchmark: [x]")
    done = CliRunner().invoke(app, ["slurm-script", str(tmp_path / "m.yaml")])
    assert isinstance(done.exception, InvalidInput)
    assert "#SBATCH" not in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands(shell):
    words = {"COMP_WORDS": "focus-eval comp", "COMP_CWORD": "1", "_TYPER_COMPLETE_ARGS": "focus-eval comp"}
    asked = {**words, "_TYPER_COMPLETE_FISH_ACTION": "get-args", "_FOCUS_EVAL_COMPLETE": f"complete_{shell}"}
    done = subprocess.run(
        [sys.executable, "-m", "focus_eval"], env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )
    assert "compare-samplers" in done.stdout
    assert "registry" not in done.stdout
