"""`focus-eval samplers`, `plugins`, `tasks`, `configs`, `videos` and `slurm-script`."""

from __future__ import annotations

import json
import shlex
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from focus_eval.commands.console import print_entries, print_folded
from focus_eval.core.errors import InvalidInput, VideoError
from focus_eval.core.resources import resource_path
from focus_eval.core.types import VideoInfo

if TYPE_CHECKING:
    from focus_eval.matrix.config import MatrixConfig
    from focus_eval.samplers.base import FrameSampler


def samplers(
    k: Annotated[int, typer.Option("-k", help="Keyframes of the example video.")] = 64,
    minutes: Annotated[float, typer.Option(help="Length of the example video, in minutes.")] = 60.0,
    fps: Annotated[float, typer.Option(help="Frame rate of the example video.")] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the samplers with their options and cost.

    The cost is the number of frames scored on an example video.
    """
    from focus_eval.samplers.registry import sampler_classes

    if not (0 < minutes < float("inf") and 0 < fps < float("inf") and k > 0):
        raise InvalidInput(f"minutes, fps and k must be numbers above 0, got {minutes}, {fps} and {k}")
    video = VideoInfo(n_frames=max(1, int(minutes * 60 * fps)), fps=fps)
    rows = [sampler_row(kind, video, k) for kind in sampler_classes().values()]
    if as_json:
        print(json.dumps({"n_frames": video.n_frames, "fps": video.fps, "k": k, "samplers": rows}, indent=2))
    else:
        _print_samplers(rows, f"pulls of {minutes:g} min at {fps:g} fps, k = {k}")


# What a scanned frame costs in the list of samplers: CLIP B/32 over BLIP large.
LISTED_SCAN_COST = 1 / 43


def sampler_row(kind: type[FrameSampler], video: VideoInfo, k: int) -> dict[str, Any]:
    """Return name, source, version, needs, options with defaults and cost of one sampler, JSON values only."""
    sampler = kind()
    pulls = sampler.at_cost(LISTED_SCAN_COST).count_pulls(video, k=k)
    of_encoder = "logits" if kind.needs_logits else "embeddings" if kind.needs_embeddings else "relevance"
    needs = ["a scan"] if kind.needs_scan and not pulls else [of_encoder] if kind.needs_encoder else []
    needs += ["a model"] if kind.needs_llm else []
    return {
        "name": kind.name,
        "source": kind.source,
        "version": kind.version,
        "needs": " and ".join(needs) or "nothing",
        "options": sampler.options,
        "pulls": pulls,
        "frames_scored": pulls / video.n_frames,
    }


def _print_samplers(rows: list[dict[str, Any]], cost_title: str) -> None:
    entries = []
    for row in rows:
        options = " ".join(f"{name}={_as_text(value)}" for name, value in row["options"].items())
        cost = f"{row['pulls']} ({100 * row['frames_scored']:.2f} %) {cost_title}; needs {row['needs']}"
        entries.append((row["name"], [row["source"], *([f"-o {options}"] if options else []), cost]))
    print_entries(entries)


def _as_text(value: Any) -> str:
    """Return `value` as it is written after `-o name=`."""
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def plugins() -> None:
    """List all that can be named, by kind.

    Samplers, encoders, models that samplers ask, video readers, formats of selections, benchmarks and models that
    answer: ours, and those of installed packages, which register theirs under the entry-point group shown.
    """
    from focus_eval.benchmarks.registry import BENCHMARKS
    from focus_eval.encoders.registry import ENCODERS
    from focus_eval.llms.registry import LLMS
    from focus_eval.lmms.manifests import MODELS, known_models
    from focus_eval.samplers.registry import SAMPLERS
    from focus_eval.selections.loading import FORMATS
    from focus_eval.video import READERS

    entries = []
    for registry in (SAMPLERS, ENCODERS, LLMS, READERS, FORMATS, BENCHMARKS, MODELS):
        found = registry.plugins.values()
        names = known_models() if registry is MODELS else [plugin.name for plugin in found]
        lines = [", ".join(sorted(names))]
        lines += [f"{plugin.name}: {plugin.facts['summary']}" for plugin in found if "summary" in plugin.facts]
        lines += [f"{plugin.name} is {plugin.where}" for plugin in found if plugin.point is not None]
        entries.append((f"{registry.noun}s ({registry.group})", lines if registry is not FORMATS else lines[1:]))
    print_entries(entries)


def tasks(
    install_path: Annotated[
        bool, typer.Option("--install-path", help="Print only the folder, for lmms-eval's --include_path.")
    ] = False,
) -> None:
    """List the lmms-eval tasks of this package.

    They use the official prompts, read answers strictly and report accuracy by length.
    """
    folder = resource_path("tasks")
    if install_path:
        print(folder)
        return
    files = sorted(folder.glob("*.yaml"))
    print_entries([(file.stem, [file.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")]) for file in files])
    print()
    print_folded(f"lmms-eval --include_path {folder} --tasks {files[0].stem} ...")


def configs(copy: Annotated[Path | None, typer.Option(help="Copy all matrices to this folder.")] = None) -> None:
    """List the matrices that come with the package.

    Shows table, benchmarks, models and size of each; --copy writes them to a folder to edit.
    """
    from focus_eval.matrix.config import copy_configs

    if copy is not None:
        made = copy_configs(copy)
        print_folded(f"{len(made)} files in {copy}; run one with: focus-eval run {copy}/paper/alpha.yaml")
        return
    _print_configs()


def _print_configs() -> None:
    from focus_eval.matrix.config import load_matrix, shipped_matrices, table_of, title_of

    entries = []
    for name, file in shipped_matrices().items():
        matrix = load_matrix(file)
        selections, answers, gigabytes = matrix_size(matrix)
        benchmarks, models = (", ".join(item.name for item in part) for part in (matrix.benchmarks, matrix.models))
        asked = f"{selections} selections" + (f", {answers} answers, {gigabytes} GB of weights" if answers else "")
        over = f"{benchmarks} with {models}" if models else benchmarks
        number = table_of(file)
        table = f" (table {number})" if number.isdecimal() else ""
        entries.append((f"{name}{table}", [title_of(file), over, asked]))
    print_entries(entries)
    print("\nfocus-eval plan NAME and focus-eval run NAME take these names.")


def matrix_size(matrix: MatrixConfig) -> tuple[str, str, str]:
    """Return how many selections and answers `matrix` asks for and the gigabytes of its weights, as texts.

    A benchmark whose config does not state its number of questions makes the sum a lower bound, marked "+".
    """
    from focus_eval.matrix.cells import all_encoders, cells, selection_specs

    specs, answers = selection_specs(matrix), cells(matrix)
    sizes = {benchmark.name: benchmark.questions for benchmark in matrix.benchmarks}
    more = "+" if None in sizes.values() else ""
    chosen = sum(sizes[spec.benchmark.name] or 0 for spec in specs)
    asked = sum(sizes[cell.benchmark.name] or 0 for cell in answers)
    weights = sum(model.disk_gigabytes for model in matrix.models)
    weights += sum(encoder.disk_gigabytes for encoder in all_encoders(matrix))
    return f"{chosen:,}{more}", f"{asked:,}{more}" if answers else "", f"{weights:.0f}"


class Action(str, Enum):
    """What is written of the videos."""

    INDEX = "index"
    RATES = "rates"


def videos(
    action: Annotated[Action, typer.Argument(help="index: the manifest of a folder; rates: the CSV for --rates.")],
    folder: Annotated[Path, typer.Argument(help="Folder of videos, read with the folders in it.")],
    annotations: Annotated[Path | None, typer.Option(help="rates: the benchmark's annotation file.")] = None,
    benchmark: Annotated[str, typer.Option(help="rates: name of the benchmark.")] = "longvideobench",
    out: Annotated[Path | None, typer.Option(help="rates: the CSV to write, with id, duration_s and fps.")] = None,
) -> None:
    """Write a manifest or the rates of a folder of videos.

    rates: a line per question of the annotation, for recall, evidence and logs.

    index: `videos.manifest.json` holds size, SHA-256, frames, seconds and rate of each video.

    From then on a file that is not the one that was indexed is refused wherever it is opened, and `plan` reads the
    manifest and not the videos. Do it once the videos are known to be whole: the formats in which damage leaves no
    trace (VP8, VP9, MJPEG above all) are guarded by nothing else. Run it again after downloading videos again.
    """
    from focus_eval.video.manifest import MANIFEST_NAME
    from focus_eval.video.manifest_writer import index_folder

    if action is Action.RATES:
        if annotations is None or out is None:
            raise InvalidInput("videos rates: give --annotations, for the ids of the questions, and --out")
        _write_rates(folder, out, benchmark, annotations)
        return
    entries = index_folder(folder, progress=lambda path: typer.echo(f"reading {path.relative_to(folder)}", err=True))
    failed = {name: entry.error for name, entry in entries.items() if entry.error}
    frames, seconds = (sum(getattr(entry, what) for entry in entries.values()) for what in ("frames", "seconds"))
    typer.echo(f"{folder / MANIFEST_NAME}: {len(entries)} videos, {frames} frames, {seconds / 3600:.2f} hours")
    for name, entry in entries.items():
        for note in entry.notes:
            print_folded(f"{name}: {note}")
    for name, error in failed.items():
        print_folded(f"cannot be read: {name}: {error}")
    if failed:
        raise typer.Exit(1)


def _write_rates(folder: Path, out: Path, benchmark: str, annotations: Path) -> None:
    from focus_eval.benchmarks.registry import read_annotations, write_rates
    from focus_eval.video.manifest import known_info
    from focus_eval.video.scan_cache import scan_video

    questions = read_annotations(benchmark, annotations)
    if not folder.is_dir():
        raise InvalidInput(f"{folder}: no such folder")
    found, failed = {}, []
    for video in dict.fromkeys(question.video for question in questions):
        try:
            found[video] = known_info(folder / video) or scan_video(folder / video).info
        except VideoError as error:
            failed.append(str(error))
    if not found:
        raise InvalidInput(f"{folder}: none of {len(failed)} videos can be read; the first: {failed[0]}")
    infos = {question.id: found[question.video] for question in questions if question.video in found}
    write_rates(out, infos)
    typer.echo(f"{out}: {len(infos)} of {len(questions)} questions about {len(found)} videos")
    for line in failed:
        print_folded(f"cannot be read: {line}")
    if failed:
        raise typer.Exit(1)


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
    from focus_eval.matrix.config import load_matrix

    name = load_matrix(matrix).name
    options = "".join(f" {shlex.quote(word)}" for word in more or [])
    values = {"nodes": nodes, "gpus": gpus, "cpus": cpus, "hours": hours, "port": port}
    typer.echo(_TEMPLATE.format(name=name, matrix=shlex.quote(str(matrix)), more=options, **values), nl=False)
