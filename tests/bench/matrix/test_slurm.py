"""The batch file for Slurm, run by bash with stand-ins for Slurm's and Ray's commands."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.pages import ROOT

BATCH_FILE = ROOT / "docs" / "examples" / "slurm.sbatch"
STAND_INS = {
    # Two writes: a reader that leaves after the first line would end it.
    "scontrol": "echo node1; sleep 0.2; printf 'node2\\nnode3\\n'",
    "srun": 'echo "srun $*" >> "$LOG"',
    "ray": "true",
    "focus-eval": 'echo "focus-eval $*" >> "$LOG"; printf "%s|" "$@" >> "$LOG.arguments"',
}


@pytest.mark.parametrize(("n_nodes", "n_steps"), [(1, 1), (3, 2)])
def test_ray_starts_on_every_node_and_runs_the_matrix_with_its_options(tmp_path, n_nodes, n_steps):
    for name, body in STAND_INS.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "LOG": str(tmp_path / "log"),
        "TMPDIR": str(tmp_path),
        "SLURM_JOB_NODELIST": "node[1-3]",
        "SLURM_JOB_NUM_NODES": str(n_nodes),
        "SLURM_CPUS_PER_TASK": "4",
        "SLURM_GPUS_ON_NODE": "8",
        "RAY_START_SECONDS": "0.5",
    }
    subprocess.run(["bash", BATCH_FILE, "alpha", "--set", "k=[8, 16]"], env=environment, check=True)
    *steps, run = (tmp_path / "log").read_text().splitlines()
    assert len(steps) == n_steps
    assert steps[0].startswith("srun --nodes=1 --ntasks=1 --cpus-per-task=4 --nodelist=node1 ray start --head")
    assert all(step.endswith("--num-gpus=8 --num-cpus=4 --block") for step in steps)
    if n_nodes > 1:
        assert "--nodes=2 --ntasks=2 --cpus-per-task=4 --exclude=node1 ray start --address=node1:6379" in steps[1]
    store = tmp_path / "focus-eval-store.sqlite"
    assert run == f"focus-eval run alpha --set k=[8, 16] --engine ray --address node1:6379 --store {store}"
    assert "|k=[8, 16]|" in (tmp_path / "log.arguments").read_text()
