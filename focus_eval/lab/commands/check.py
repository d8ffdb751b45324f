"""`focus-eval check` tests whether a sampler keeps the contract; `simulate` runs samplers in simulated worlds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from focus_eval.bench.commands.printing import print_table, write_table
from focus_eval.core.options import parse_assignments
from focus_eval.core.resources import resource_path
from focus_eval.keyframes.commands.console import (
    SamplerOptions,
    count_progress,
    name_completion,
    print_folded,
    say_how_to_continue,
)

if TYPE_CHECKING:
    from focus_eval.lab.contract import CheckResult
    from focus_eval.lab.simulation import SimulationConfig


def check(
    sampler: Annotated[
        str,
        typer.Argument(
            help="Name of a sampler, or FILE.py:Class, with :OPTION=VALUE.", autocompletion=name_completion("sampler")
        ),
    ],
    option: SamplerOptions = [],  # noqa: B006
    seconds: Annotated[float, typer.Option(help="Processor seconds allowed for a ten-hour video.")] = 30.0,
) -> None:
    """Check that a sampler keeps the sampler contract.

    Tries counts, ranges, determinism and budgets on videos from one frame to ten hours. Exits with code 1 if a rule of
    the contract is broken.
    """
    from focus_eval.lab.contract import check_sampler

    verdict = check_sampler(sampler, parse_assignments(option), seconds_allowed=seconds)
    print_folded(f"{sampler}{_declared(sampler, verdict)}")
    _print_promises(verdict)
    _print_end(verdict)
    if verdict.broken:
        raise typer.Exit(1)


def _declared(sampler: str, verdict: CheckResult) -> str:
    """The class's declarations as text, if the class can be loaded."""
    from focus_eval.lab.subprocess_sampler import class_apart

    if any(item.promise == "class" for item in verdict.broken):
        return ""
    kind = class_apart(sampler)
    names = ("may_return_fewer", "may_return_more", "may_repeat", "needs_scan", "needs_logits", "needs_embeddings",
             "needs_texts", "needs_subtitles", "needs_llm", "needs_evidence")  # fmt: skip
    declarations = [name for name in names if getattr(kind, name)]
    pulls = "pulls through the ledger" if kind.needs_encoder else "never pulls"
    return f" ({kind.name}, {kind.role}; declares: {', '.join([pulls, *declarations])})"


def _print_promises(verdict: CheckResult) -> None:
    """Print for each tested promise whether the sampler keeps it, and the smallest case of a broken promise."""
    from focus_eval.lab.contract import PROMISES

    broken = {entry.promise: entry for entry in verdict.broken}
    for promise, text in PROMISES.items():
        if promise not in broken:
            if promise not in verdict.not_tried:
                print_folded(f"  ok      {promise:<12} {text}", 23)
            continue
        item = broken[promise]
        print_folded(f"  BROKEN  {promise:<12} {text}", 23)
        if item.case is not None:
            print_folded(f"          smallest case: {item.case}", 12)
        print_folded(f"          {item.message}", 12)


def _print_end(verdict: CheckResult) -> None:
    """Print what was not tried, the outcome, and the time of ten hours of video."""
    if verdict.not_tried:
        print_folded(f"  not tried until the rest is fixed: {', '.join(verdict.not_tried)}", 4)
    took = ""
    if verdict.ten_hours_seconds is not None:
        took = f"; ten hours of video took {verdict.ten_hours_seconds:.2f} s and {verdict.ten_hours_pulls} pulls"
    n = len(verdict.broken)
    outcome = "every promise is kept" if n == 0 else f"{n} {'promise is' if n == 1 else 'promises are'} broken"
    print_folded(f"{outcome} on {verdict.n_cases} questions{took}")


RelevanceOption = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Replay this relevance, of a run or of focus-eval import relevance.")
]
ScanRelevanceOption = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="With --relevance: the scan encoder's relevance."),
]


def replayed(relevance: Path | None, scan_relevance: Path | None) -> dict[str, object]:
    """Return the settings of a simulation for those of the options --relevance and --scan-relevance that are given."""
    if scan_relevance is not None and relevance is None:
        raise typer.BadParameter("goes with --relevance", param_hint="--scan-relevance")
    folders = {"recorded": relevance, "scan_recorded": scan_relevance}
    return {key: str(path) for key, path in folders.items() if path is not None}


def simulate(
    config: Annotated[Path | None, typer.Argument(help="Simulation file (YAML). [default: the shipped one]")] = None,
    limit: Annotated[int | None, typer.Option(help="Simulate only the first videos of each world.", min=1)] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run. [default: results/runs/NAME]")] = None,
    workers: Annotated[int, typer.Option(help="Number of processes.", min=1)] = 2,
    relevance: RelevanceOption = None,
    scan_relevance: ScanRelevanceOption = None,
) -> None:
    """Run samplers on simulated or recorded relevance.

    The evidence is known, so the tables show how much of it each sampler finds.

    Rows, tables and figures are those of a real run. The same command continues a stopped run.
    """
    from focus_eval.lab.simulation import with_fresh_seed

    loaded = load_simulation(config).model_copy(update=replayed(relevance, scan_relevance))
    loaded.check_baseline()  # fail now, not after minutes of simulation
    folder = out or Path("results/runs") / loaded.name
    loaded = with_fresh_seed(loaded, folder)
    print_infeasible(loaded, limit=limit)
    run_with_progress(loaded, folder, limit=limit, workers=workers)
    for path in show_simulation(folder, baseline=loaded.baseline):
        typer.echo(str(path))


def load_simulation(path: Path | None) -> SimulationConfig:
    """Return the simulation in the file at `path`, or the shipped one.

    Raises:
        InvalidInput: a mistake in the file, as `file:line: key: message`.
    """
    from focus_eval.bench.matrix.config import check, load_yaml
    from focus_eval.lab.simulation import SimulationConfig

    file = path or resource_path("configs") / "simulation.yaml"
    return check(SimulationConfig, load_yaml(file), file)


def print_infeasible(config: SimulationConfig, *, limit: int | None = None) -> None:
    """Print a line with the reason for each sampler and K that cannot choose frames of some videos.

    Args:
        limit: only the first videos of each world.
    """
    from focus_eval.lab.simulation import infeasible_lines

    for line in infeasible_lines(config, limit):
        print_folded(line)


def run_with_progress(loaded: SimulationConfig, folder: Path, *, limit: int | None, workers: int = 2) -> None:
    """Run a simulation, on the first `limit` videos of each world if given, and show a progress bar."""
    from focus_eval.lab.simulation import run_simulation

    with say_how_to_continue("finished questions"), count_progress("simulate", "rows") as progress:
        run_simulation(loaded, folder, limit=limit, n_workers=workers, progress=progress)


def show_simulation(folder: Path, *, baseline: str) -> list[Path]:
    """Print the tables of a simulation, write them and the figures beside its rows, and return what was written."""
    from focus_eval.bench.report.recall_layouts import differences_by_length, lab_frame
    from focus_eval.bench.report.run import load_run
    from focus_eval.lab.overview import off_grid_lines, recall_overview, save_frontiers

    run = load_run(folder)
    frame = lab_frame(run)
    tables = [recall_overview(frame), differences_by_length(frame, baseline)]
    for table in tables:
        print_table(table)
    for line in off_grid_lines(run):
        print_folded(line)
    written = [folder / "simulation.md", folder / "simulation.tex"]
    for path in written:
        write_table(tables, path)
    for table in tables:
        written.append(folder / f"simulation-{table.name}.csv")
        write_table([table], written[-1])
    return [*written, *save_frontiers(frame, folder / "figures")]
