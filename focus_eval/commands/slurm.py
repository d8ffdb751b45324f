"""`focus-eval slurm-script`: a batch script that starts Ray on an allocation and runs a matrix there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_TEMPLATE = """#!/bin/bash
#SBATCH --job-name=focus-eval-{name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={gpus}
#SBATCH --cpus-per-task={cpus}
#SBATCH --time={hours}:00:00
# The run's folder and the videos must lie on storage that every node sees; the store is a file of each node.
set -euo pipefail
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
address=$head:{port}

srun --nodes=1 --ntasks=1 --nodelist="$head" \\
  ray start --head --port={port} --num-gpus={gpus} --num-cpus={cpus} --block &
sleep 20
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
  srun --nodes=$((SLURM_JOB_NUM_NODES - 1)) --ntasks=$((SLURM_JOB_NUM_NODES - 1)) --exclude="$head" \\
    ray start --address="$address" --num-gpus={gpus} --num-cpus={cpus} --block &
  sleep 20
fi
focus-eval run {matrix} --engine ray --address "$address" --store "${{TMPDIR:-/tmp}}/focus-eval-store.sqlite"
"""


def slurm_script(
    matrix: Annotated[Path, typer.Argument(help="Matrix file (YAML), or the name of a shipped one.")],
    nodes: Annotated[int, typer.Option(min=1, help="Nodes of the allocation.")] = 2,
    gpus: Annotated[int, typer.Option(min=0, help="GPUs per node.")] = 8,
    cpus: Annotated[int, typer.Option(min=1, help="CPUs per node.")] = 32,
    hours: Annotated[int, typer.Option(min=1, help="Time limit.")] = 12,
    port: Annotated[int, typer.Option(help="Port of the Ray head.")] = 6379,
) -> None:
    """Print a Slurm batch script that runs a matrix.

    Use it so: focus-eval slurm-script MATRIX > job.sh && sbatch job.sh

    The matrix is read first, so that a mistake in it shows before the job waits in a queue.
    """
    import shlex

    from focus_eval.matrix.config import load_matrix

    name = load_matrix(matrix).name
    values = {"nodes": nodes, "gpus": gpus, "cpus": cpus, "hours": hours, "port": port}
    typer.echo(_TEMPLATE.format(name=name, matrix=shlex.quote(str(matrix)), **values), nl=False)
