"""`focus-eval demo`: the whole pipeline on a small benchmark, offline."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from focus_eval.commands.console import print_table, progress_bar, say_how_to_continue, write_table
from focus_eval.core.errors import MissingDependency
from focus_eval.core.resources import resource_path

if TYPE_CHECKING:
    import pandas as pd

    from focus_eval.matrix.config import MatrixConfig, SamplerConfig

# A short, a medium and a long video would take minutes: the quick demo shows the way on the short ones.
QUICK_VIDEOS = ("short_a", "short_b")
QUICK_SAMPLERS = ("uniform", "topk", "focus", "even_cover", "scan_cover", "oracle")
RECALL_K = (4, 8, 16, 32)
# Percent of the frames that the picture's samplers score, besides the 2 % that focus scores by default.
BUDGETS = (0.5, 1.0, 4.0)
REPLAY_SEEDS = 5


def demo(
    quick: Annotated[bool, typer.Option(help="Use two short videos and few samplers (under a minute).")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder of the run. [default: results/runs/demo]")] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder for the benchmark's videos. [default: results/demo]")
    ] = None,
    k: Annotated[
        list[int], typer.Option("-k", min=1, metavar="INT", help="Keyframes to answer from; repeatable. [default: 8]")
    ] = [],  # noqa: B006
    sampler: Annotated[
        list[str], typer.Option(metavar="NAME", help="Sampler to add, or FILE.py:Class; repeatable.")
    ] = [],  # noqa: B006
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds: 0, 1, ...")] = 1,
) -> None:
    """Run the whole pipeline offline on a small benchmark.

    Builds videos from photographs, runs samplers and their controls on them, and writes a report. Evidence recall is
    measured from 4 to 32 keyframes; the encoder alone answers from 8.
    """
    name = "demo-quick" if quick else "demo"
    data = data or Path("results") / name
    folder = out or Path("results/runs") / name
    run_demo(name, folder, data, quick=quick, k=k, samplers=sampler, seeds=seeds)
    _show(folder, data / "datasets" / "longvideobench" / "videos", quick=quick)


def run_demo(
    name: str, folder: Path, data: Path, *, quick: bool, k: list[int], samplers: list[str], seeds: int = 1
) -> None:
    """Select and answer at `k`, then select without answers at the other K of the recall table."""
    from focus_eval.matrix.preflight import package_problems

    os.environ["FOCUS_EVAL_DEMO"] = str(data.resolve())
    answered = k or [8]
    matrices = [_matrix(name, quick=quick, k=at, samplers=samplers, seeds=seeds) for at in answered]
    for at in () if quick else sorted(set(RECALL_K) - set(answered)):
        matrices.append(_without_answers(_matrix(name, quick=quick, k=at, samplers=samplers, seeds=seeds)))
    for lack in package_problems(matrices):
        raise MissingDependency(f"the demo needs {lack.problem}: {lack.fix}")
    # After the matrices: a mistake in them is told before the minutes that videos take.
    build_videos(data, quick=quick)
    for matrix in matrices:
        _run(matrix, folder)


def build_videos(data: Path, *, quick: bool) -> None:
    """Make the demo's videos, or the two of the quick one, under a bar."""
    from focus_eval.demo.photo_events import build_photo_events

    with say_how_to_continue("finished videos"), progress_bar("frames") as bar:
        tasks: dict[str, int] = {}

        def show(video_id: str, n_frames: int, total: int) -> None:
            if video_id not in tasks:
                tasks[video_id] = int(bar.add_task(f"rendering {video_id}", total=total))
            bar.update(tasks[video_id], completed=n_frames)  # type: ignore[arg-type]

        build_photo_events(data, video_ids=QUICK_VIDEOS if quick else None, progress=show)


def _matrix(name: str, *, quick: bool, k: int, samplers: list[str], seeds: int) -> MatrixConfig:
    from focus_eval.matrix.cells import check_lists, narrow
    from focus_eval.matrix.config import SamplerConfig, load_matrix

    overrides = {"name": name, "seeds": list(range(seeds)), "k": [k]}
    matrix = load_matrix(resource_path("configs") / "demo.yaml", overrides=overrides)
    if quick:
        matrix = narrow(matrix, {"sampler": list(QUICK_SAMPLERS)})
    sampler_configs = [_fit_aks_depth(sampler, k) for sampler in matrix.samplers]
    names = {item.sampler for item in sampler_configs}
    sampler_configs += [SamplerConfig(sampler=sampler) for sampler in samplers if sampler not in names]
    completed = matrix.model_copy(update={"samplers": sampler_configs})
    check_lists(completed)
    return completed


def _fit_aks_depth(config: SamplerConfig, k: int) -> SamplerConfig:
    """Return AKS with its default depth of 5, or the largest depth at which a segment still yields a frame."""
    if config.sampler != "aks":
        return config
    return config.model_copy(update={"options": {"max_depth": min(5, k.bit_length() - 1)}})


def _without_answers(matrix: MatrixConfig) -> MatrixConfig:
    """Return the matrix without models, and without blind and oracle, whose recall is 0 and 1."""
    samplers = [sampler for sampler in matrix.samplers if sampler.sampler not in ("blind", "oracle")]
    return matrix.model_copy(update={"models": [], "samplers": samplers})


def _run(matrix: MatrixConfig, folder: Path) -> None:
    from focus_eval.commands.runs import run_progress
    from focus_eval.matrix.running import complete_run

    with run_progress() as progress:
        complete_run(matrix, out=folder, progress=progress)


def replay_budgets(folder: Path) -> pd.DataFrame:
    """Return selections at several budgets, replayed from the stored relevance of the run in `folder`.

    A frame has the relevance of the nearest frame that any sampler of the run scored for the question: nothing is
    decoded or scored anew. The rows lie in `budgets` below the run.
    """
    from focus_eval.report.lab import lab_frame
    from focus_eval.report.run import load_run
    from focus_eval.simulation.running import SamplerEntry, SimulationConfig, run_simulation

    even = [SamplerEntry(sampler=name, budgets=True) for name in ("focus", "even_topk", "even_diverse", "even_cover")]
    config = SimulationConfig(
        name="budgets",
        recorded=str(folder),
        samplers=[*even, SamplerEntry(sampler="even_cover", options={"budget_of": "focus"})],
        k=list(RECALL_K),
        budgets=list(BUDGETS),
        # The questions of a video share their draws, as in the run: one draw would be few.
        seeds=list(range(REPLAY_SEEDS)),
    )
    out = folder / "budgets"
    # Made anew: an earlier run may have stored other relevance.
    shutil.rmtree(out, ignore_errors=True)
    run_simulation(config, out)
    return lab_frame(load_run(out))


def _show(folder: Path, videos: Path, *, quick: bool) -> None:
    """Write and print the results; unchanged results of an earlier demo are only printed."""
    from focus_eval.report.outputs import KeptOutputs, inputs_digest

    inputs = inputs_digest(folder, options={"quick": quick, "folder": folder}, videos=videos)
    outputs = KeptOutputs(folder / ".demo.json", inputs)
    if (printed := outputs.printed()) is not None:
        typer.echo(printed, nl=False)
        return
    with outputs.writing() as written:
        written += _write(folder, videos, quick=quick)


def _write(folder: Path, videos: Path, *, quick: bool) -> list[Path]:
    """Write and print report, tables and picture; return their paths."""
    from focus_eval.commands.reports import write_report
    from focus_eval.report.lab import demo_tables, lab_frame, save_frontiers
    from focus_eval.report.run import load_run

    run = load_run(folder)
    # In a process of its own, beside the report: both are a single thread's work.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        replay = None if quick else pool.submit(replay_budgets, folder)
        written = write_report(run, folder, videos=videos, link_thumbnails=True)
        replayed = replay.result() if replay else None
    tables = demo_tables(run, "focus")
    write_table(tables, folder / "demo.md")
    frame = lab_frame(run)
    # Floor and ceiling are lines at 0 and 100 %; the tables have them.
    measured_frame = frame[~frame["sampler"].isin(["blind", "oracle"])]
    picture = save_frontiers(measured_frame, folder / "figures", replayed=replayed)
    for table in reversed(tables[:2]):  # the first stands last, where the terminal ends
        print_table(table)
    for path in (folder / "demo.md", *picture, folder / "report.html"):
        typer.echo(str(path))
    # Nothing counts as current where a thumbnail failed.
    return [*written, folder / "demo.md", *picture] if written else []
