"""`focus-eval audit`: check logs, selections and runs before believing their figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from focus_eval.commands.console import AnnotationsFile, print_folded
from focus_eval.core.errors import InvalidInput, printable


def audit(
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
    """Check logs, selections and runs.

    Prints a line for each finding with its count and the worst case. Exits with code 1 if there is any.
    """
    from focus_eval.benchmarks.registry import read_annotations, read_rates, stated_rates
    from focus_eval.report.audit import audit as findings_of
    from focus_eval.report.audit_reading import AuditSource, position_fps_of, read_paths

    if rates is not None and annotations is None:
        raise InvalidInput("--rates need --annotations: they are by question id")
    questions = read_annotations(benchmark, annotations) if annotations is not None else None
    source = AuditSource(
        frames_field=frames_field,
        questions=questions,
        rates=read_rates(rates) if rates is not None else stated_rates(questions or ()),
        position_fps=position_fps_of(benchmark) if questions is not None else 0.0,
    )
    found = read_paths(paths, source)
    findings = findings_of(found.runs)
    for finding in findings:
        print_folded(printable(str(finding)))
    for note in found.notes:
        print_folded(printable(f"note: {note}"))
    n_runs = sum(bool(run.answers) for run in found.runs)
    checked = f"{n_runs} runs with answers and {len(found.runs) - n_runs} selections"
    print_folded(f"{len(findings) or 'no'} finding{'s' if len(findings) != 1 else ''} in {checked}")
    if findings:
        raise typer.Exit(1)
