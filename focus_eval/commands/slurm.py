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
# All nodes show Ray the same token; it lies in the home directory, which they share.
export RAY_AUTH_MODE=token
ray get-auth-token --generate > /dev/null
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
address=$head:{port}

# Since Slurm 22.05 a step has one CPU unless it is told.
srun --nodes=1 --ntasks=1 --cpus-per-task={cpus} --nodelist="$head" \\
  ray start --head --port={port} --num-gpus={gpus} --num-cpus={cpus} --block &
sleep 20
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
  others=$((SLURM_JOB_NUM_NODES - 1))
  srun --nodes=$others --ntasks=$others --cpus-per-task={cpus} --exclude="$head" \\
    ray start --address="$address" --num-gpus={gpus} --num-cpus={cpus} --block &
  sleep 20
fi
focus-eval run {matrix} --engine ray --address "$address" --store "${{TMPDIR:-/tmp}}/focus-eval-store.sqlite"{more}
"""


def slurm_script(
    matrix: Annotated[Path, typer.Argument(help="Matrix file (YAML), or the name of a shipped one.")],
    more: Annotated[
        list[str] | None, typer.Argument(help="Further options of run, after two dashes: -- --limit 5.")
    ] = None,
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
    options = "".join(f" {shlex.quote(word)}" for word in more or [])
    values = {"nodes": nodes, "gpus": gpus, "cpus": cpus, "hours": hours, "port": port}
    typer.echo(_TEMPLATE.format(name=name, matrix=shlex.quote(str(matrix)), more=options, **values), nl=False)
