"""The batch script: valid shell, the numbers asked for, and no script for a broken matrix."""

from __future__ import annotations

import subprocess

from typer.testing import CliRunner

from focus_eval.cli import app
from focus_eval.core.errors import InvalidInput
from focus_eval.core.resources import resource_path


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
