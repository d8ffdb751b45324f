"""`focus-eval simulate`: samplers on relevance traces with planted evidence, without a video or a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from focus_eval.report.run import Run
    from focus_eval.report.table import Table
    from focus_eval.simulation.config import SimulationConfig


def simulate(
    config: Annotated[Path | None, typer.Argument(help="Simulation file (YAML). [default: the shipped one]")] = None,
    limit: Annotated[int | None, typer.Option(help="Simulate only the first videos of each world.", min=1)] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run. [default: results/runs/NAME]")] = None,
    workers: Annotated[int, typer.Option(help="Number of processes.", min=1)] = 2,
) -> None:
    """Run samplers on simulated or recorded relevance.

    The evidence is known, so the tables show how much of it each sampler finds.

    Rows, tables and figures are those of a real run. The same command continues a stopped run.
    """
    loaded = load_simulation(config)
    loaded.check_baseline()  # before the minutes that a simulation takes
    folder = out or Path("results/runs") / loaded.name
    run_with_progress(loaded, folder, limit=limit, workers=workers)
    for path in show_simulation(folder, baseline=loaded.baseline):
        typer.echo(str(path))


def load_simulation(path: Path | None) -> SimulationConfig:
    """Return the simulation file at `path`, or the shipped one.

    Raises:
        InvalidInput: as the matrix files: `file:line: key: what`.
    """
    from focus_eval.matrix.yaml_source import check, load_yaml
    from focus_eval.resources import resource_path
    from focus_eval.simulation.config import SimulationConfig

    file = path or resource_path("configs") / "simulation.yaml"
    return check(SimulationConfig, load_yaml(file), file)


def run_with_progress(loaded: SimulationConfig, folder: Path, *, limit: int | None, workers: int = 2) -> None:
    """Run a simulation under a bar."""
    from focus_eval.commands.progress import progress_bar, say_what_is_kept
    from focus_eval.simulation.running import run_simulation

    with say_what_is_kept("finished questions"), progress_bar("rows") as bar:
        task = bar.add_task("simulate", total=None)
        run_simulation(
            loaded,
            folder,
            limit=limit,
            n_workers=workers,
            progress=lambda done, of: bar.update(task, completed=done, total=of),
        )


def show_simulation(folder: Path, *, baseline: str) -> list[Path]:
    """Print the tables of a simulation, write them and the figures beside its rows, and return what was written."""
    from focus_eval.commands.tables import print_table, write_table
    from focus_eval.report.run import load_run

    run = load_run(folder)
    tables = simulation_tables(run, folder, baseline)
    for table in tables[:2]:
        print_table(table)
    written = [folder / "simulation.md", folder / "simulation.tex"]
    for path in written:
        write_table(tables, path)
    for table in tables:
        written.append(folder / f"simulation-{table.name}.csv")
        write_table([table], written[-1])
    return [*written, *_figures(run, folder)]


def simulation_tables(run: Run, folder: Path, baseline: str) -> list[Table]:
    """Return recall, its differences to the baseline by length of the video, and by length and height of events."""
    from focus_eval.report.lab import (
        differences_by_event,
        differences_by_length,
        lab_frame,
        read_traces,
        recall_overview,
    )

    frame = lab_frame(run)
    by_event = differences_by_event(frame, read_traces(folder), baseline)
    return [recall_overview(frame), differences_by_length(frame, baseline), *by_event]


def _figures(run: Run, folder: Path) -> list[Path]:
    from focus_eval.report.figures import save_figure
    from focus_eval.report.lab import lab_frame, read_traces
    from focus_eval.report.lab_figures import draw_against, draw_frontier

    frame = lab_frame(run)
    written = save_figure(draw_frontier(frame), folder / "figures" / "frontier.pdf")
    frame = frame.merge(read_traces(folder), on=["benchmark", "question_id"], how="left")
    frame["minutes"] = frame["seconds"] / 60
    figure = draw_against(frame, "minutes", (1, 3, 10, 20, 60, 180, 600), label="Length (min)")
    written += save_figure(figure, folder / "figures" / "by_length.pdf")
    if "event_seconds" in frame:
        figure = draw_against(frame, "event_seconds", (0.5, 1, 2, 4, 8), label="Mean length of events (s)")
        written += save_figure(figure, folder / "figures" / "by_event_length.pdf")
    return written
