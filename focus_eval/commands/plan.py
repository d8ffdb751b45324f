"""`focus-eval plan`: what a matrix will run, what it costs and what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from focus_eval.commands.matrix import (
    FolderOption,
    LimitOption,
    MatrixArgument,
    OnlyOption,
    SetOption,
    load_all,
    print_missing,
    with_folders,
)

if TYPE_CHECKING:
    from focus_eval.matrix.config import MatrixConfig
    from focus_eval.matrix.hours import Machine
    from focus_eval.matrix.planning import Plan
    from focus_eval.report.table import Table


def plan(
    matrix: MatrixArgument,
    annotations: Annotated[Path | None, typer.Option(help="Annotation file to use instead of the matrix's.")] = None,
    rates: Annotated[
        Path | None, typer.Option(help="CSV with the columns id, duration_s and fps, if there are no videos.")
    ] = None,
    only: OnlyOption = [],  # noqa: B006
    set_: SetOption = [],  # noqa: B006
    limit: LimitOption = None,
    out: FolderOption = None,
    calibrate: Annotated[bool, typer.Option(help="Measure this machine to estimate the hours.")] = False,
    machine: Annotated[
        str | None,
        typer.Option(help="Estimate hours on this machine: a YAML file, or a shipped name (eight_h100)."),
    ] = None,
) -> None:
    """Show what a matrix will run, its cost and what is missing.

    Exits with code 1 if something is missing.
    """
    from focus_eval.matrix.hours import load_machine
    from focus_eval.matrix.planning import make_plan
    from focus_eval.matrix.preflight import check_all

    node = load_machine(machine) if machine else None
    loaded = [with_files(item, annotations, rates) for item in load_all(matrix, only, set_, limit)]
    found = check_all(with_folders(loaded, out))
    plans = []
    for selections in loaded:
        if not all(f"{selections.name}/{benchmark.name}" in found.sets for benchmark in selections.benchmarks):
            continue  # what it lacks is listed below
        with plan_progress() as progress:
            plans.append(make_plan(selections, progress=progress))
        _print_plan(plans[-1], calibrate, is_estimated=node is not None)
    if len(plans) > 1:
        _print_pool(plans)
    if node is not None and plans:
        _print_hours(plans, node)
    if print_missing(found):
        raise typer.Exit(1)


@contextmanager
def plan_progress() -> Iterator[Callable[[int, int], None]]:
    """Show a bar of the selections that are counted, with the time left."""
    from focus_eval.commands.progress import progress_bar

    with progress_bar("selections") as bar:
        task = bar.add_task("counting pulls", total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


def with_files(matrix: MatrixConfig, annotations: Path | None, rates: Path | None) -> MatrixConfig:
    """Return `matrix` with the files of --annotations and --rates; --rates stands in for the videos when planning."""
    if annotations is None and rates is None:
        return matrix
    from focus_eval.errors import InvalidInput

    if len(matrix.benchmarks) != 1:
        raise InvalidInput("--annotations and --rates need one benchmark; narrow the matrix with --only benchmark=NAME")
    changes: dict[str, Any] = {"annotations": str(annotations)} if annotations else {}
    changes |= {"rates": str(rates)} if rates else {}
    return matrix.model_copy(update={"benchmarks": [matrix.benchmarks[0].model_copy(update=changes)]})


def _print_plan(plan: Plan, calibrate: bool, *, is_estimated: bool) -> None:
    from focus_eval.commands.tables import print_table, table_console

    console = table_console()
    for name, (asked, everything) in plan.questions.items():
        part = "" if asked == everything else f" of {everything}"
        console.print(f"{name}: {asked}{part} questions")
    print_table(_selection_table(plan))
    unknown = next((selection for selection in plan.selections if selection.unknown), None)
    if unknown:
        console.print(f"{unknown.unknown} questions have a video of unknown length: {unknown.reason}")
    for line in _warning_lines(plan):
        console.print(line, soft_wrap=True, markup=False, highlight=False)
    _print_sharing(plan, calibrate, is_estimated=is_estimated)


def _warning_lines(plan: Plan) -> list[str]:
    """Return one line for each thing that will go wrong with a sampler, whatever encoder and seed."""
    lines = [
        f"warning: {selection.spec.sampler.name}, K {selection.spec.k}: {warning.questions} of "
        f"{selection.questions} questions (first: {warning.first}) {warning.text}"
        for selection in plan.selections
        for warning in selection.warnings
    ]
    return list(dict.fromkeys(lines))


def _selection_table(plan: Plan) -> Table:
    from focus_eval.report.table import Table, TableRow

    has_unknown = any(selection.unknown for selection in plan.selections)
    rows = []
    for selection in plan.selections:
        spec, encoder = selection.spec, selection.spec.encoder.name if selection.spec.encoder else ""
        keys = (spec.benchmark.name, encoder, str(spec.k), str(spec.seed), spec.label)
        share = f"{selection.frames_scored:.2%}" if selection.frames else "-"
        embedded = (f"{selection.embedded_alone:,}", f"{selection.embedded_shared:,}")
        rows.append(
            TableRow(keys, (f"{selection.pulls:,}", share, *embedded, str(selection.unknown or ""))[: 4 + has_unknown])
        )
    columns = ("pulls", "frames scored", "embedded, each question alone", "embedded, shared by a video", "unknown")
    return Table(
        name="plan",
        title=f"selections of {plan.matrix.name}",
        key_titles=("benchmark", "encoder", "K", "seed", "sampler"),
        columns=columns[: 4 + has_unknown],
        rows=tuple(rows),
    )


def _print_sharing(plan: Plan, calibrate: bool, *, is_estimated: bool) -> None:
    from focus_eval.commands.tables import table_console
    from focus_eval.matrix.calibration import calibrated_seconds

    console = table_console()
    console.print(
        f"{len(plan.selections)} selections serve {len(plan.cells)} cells of {len(plan.matrix.models)} models; "
        "each model is loaded once"
    )
    for encoder in plan.matrix.encoders:
        pulls, shared = plan.pulls_by_encoder.get(encoder.name, 0), plan.forwards_by_encoder.get(encoder.name, 0)
        how = "all share one store" if plan.matrix.share_frames else "each question pays for its own"
        console.print(f"{encoder.name}: {pulls:,} pulls, {shared:,} frames to embed: {how}")
        speed = calibrated_seconds(encoder, measure=calibrate)
        if speed is None and not is_estimated:
            console.print(f"{encoder.name}: no estimate of hours; measure this machine with --calibrate")
        elif speed is not None:
            hours, rate = shared * speed.seconds_per_frame / 3600, 1 / speed.seconds_per_frame
            console.print(f"{encoder.name}: about {hours:.2f} hours on {speed.device} ({rate:.0f} frames/s)")


def _print_hours(plans: list[Plan], machine: Machine) -> None:
    """Print what each matrix takes on `machine`, what a cheaper setting would make of that, and all matrices."""
    from focus_eval.commands.tables import print_table, table_console
    from focus_eval.matrix.hours import hours_lines, hours_totals, time_text
    from focus_eval.matrix.planning import load_sets
    from focus_eval.report.table import Table, TableRow

    lines = {plan.matrix.name: list(hours_lines(plan, machine, load_sets(plan.matrix))) for plan in plans}
    everything = [line for several in lines.values() for line in several]
    if not everything:
        known = ", ".join(machine.frames_per_second) or "none"
        table_console().print(f"{machine.name}: no hours, for it has rates of other encoders or precisions ({known})")
        return
    groups = {name: hours_totals(several) for name, several in lines.items()}
    if len(plans) > 1:
        groups["all, each selection once"] = hours_totals(everything)
    rows = []
    for name, totals in groups.items():
        for total in totals:
            changed = f"{total.changed} of {total.selections}" if total.setting else f"all {total.selections}"
            times = (total.encode_hours, total.decode_hours, total.hours, total.gpu_hours)
            values = (changed, f"{total.frames:,}", *(time_text(hours) for hours in times))
            rows.append(TableRow((name, total.setting or "as it is"), values))
    table = Table(
        name="hours",
        title=f"time to choose frames on {machine.name}: {machine.cores} cores, {machine.gpus} GPUs",
        key_titles=("matrix", "setting"),
        columns=("selections", "frames", "encoding, one GPU", "decoding, one core", "at least", "GPUs held"),
        rows=tuple(rows),
        notes=(
            f"Rates: {machine.source or 'of unknown source'}. At least: the slower of both stages, on all GPUs and "
            "cores. A setting is applied to the selections that have it. Frames that selections share count for each.",
        ),
    )
    print_table(table)


def _print_pool(plans: list[Plan]) -> None:
    """Say how many answers the matrices ask for in all, and how many of them are distinct."""
    from focus_eval.commands.tables import table_console
    from focus_eval.matrix.planning import pooled

    for what, (asked, distinct) in pooled(plans).items():
        table_console().print(f"all {len(plans)} matrices: {asked:,} {what}, {distinct:,} of them distinct")
