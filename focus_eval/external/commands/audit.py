"""`focus-eval audit`: check logs, selections and runs for faults."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from focus_eval.core.errors import InvalidInput, printable
from focus_eval.keyframes.commands.console import AnnotationsFile, print_folded, refuse_idle_options


def audit(
    context: typer.Context,
    paths: Annotated[list[Path], typer.Argument(help="Logs of lmms-eval, selection files, folders of them, or runs.")],
    frames_field: Annotated[
        str, typer.Option(help="Field of the logs that holds the frames that were fed; frames are not read without it.")
    ] = "",
    benchmark: Annotated[str, typer.Option(help="Name of the benchmark of --annotations.")] = "longvideobench",
    annotations: AnnotationsFile = None,
    rates: Annotated[
        Path | None, typer.Option(help="CSV with the columns id, duration_s and fps. [default: as stated]")
    ] = None,
) -> None:
    """Check logs, selections and runs for faults.

    Prints a line for each finding with its count and the worst case, faults before notes. Exits with code 1 if there is
    a fault.
    """
    from focus_eval.bench.benchmarks.registry import read_annotations, read_rates, stated_rates
    from focus_eval.external.audit import FAULT, series_of
    from focus_eval.external.audit import audit as check_series
    from focus_eval.external.reading import ReadingOptions, read_runs

    if annotations is None:
        refuse_idle_options(context, "without --annotations: give both, or neither", "benchmark")
    if rates is not None and annotations is None:
        raise InvalidInput("--rates need --annotations: they are by question id")
    questions = read_annotations(benchmark, annotations) if annotations is not None else None
    options = ReadingOptions(
        frames_field=frames_field,
        questions=questions,
        rates=read_rates(rates) if rates is not None else stated_rates(questions or ()),
    )
    runs, notes = read_runs(paths, options)
    series = series_of(runs, questions or ())
    findings = check_series(series)
    if other := [f"{item.name} ({item.benchmark})" for item in series if questions and item.ids and not item.expected]:
        notes.append(f"{annotations}: for {', '.join(other)}; it is of {benchmark} (--benchmark names another)")
    for line in [*map(str, findings), *(f"not read: {note}" for note in notes)]:
        print_folded(printable(line))
    n_answered = sum(bool(item.answers) for item in series)
    n_faults = sum(finding.severity == FAULT for finding in findings)
    checked = f"{_counted(n_answered, 'run')} with answers and {_counted(len(series) - n_answered, 'selection')}"
    counts = f"{_counted(n_faults, 'fault')} and {_counted(len(findings) - n_faults, 'note')}"
    print_folded(f"{counts if findings else 'no findings'} in {checked}")
    if n_faults:
        raise typer.Exit(1)


def _counted(number: int, name: str) -> str:
    """E.g. "1 fault", "3 notes" or "no faults"."""
    return f"{number or 'no'} {name}{'' if number == 1 else 's'}"
