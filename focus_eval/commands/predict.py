"""`focus-eval predict`: the accuracy that a model is expected to reach from a selection."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from focus_eval.commands.console import (
    AllowMissing,
    AllowOutside,
    AlsoOption,
    BenchmarkOption,
    FormatsOption,
    MinSecondsOption,
    print_folded,
    print_tables,
)
from focus_eval.commands.exchange import selection_files
from focus_eval.core.options import parse_assignments

if TYPE_CHECKING:
    from focus_eval.report.run import Run


def predict(
    selections: Annotated[list[str], typer.Argument(metavar="[NAME=]FILE...", help="Selection files, or a run.")],
    logs: Annotated[list[Path], typer.Option(metavar="RUN", help="Run with the model's answers; repeatable.")],
    annotations: Annotated[Path, typer.Option(help="The benchmark's annotation file.")],
    rates: Annotated[Path, typer.Option(help="CSV with the columns id, duration_s and fps.")],
    format: FormatsOption = [],  # noqa: B006
    family: Annotated[
        list[str],
        typer.Option(metavar="NAME=PATTERN", help="Runs of one method; repeatable. Without it there is no interval."),
    ] = [],  # noqa: B006
    benchmark: BenchmarkOption = "longvideobench",
    allow_missing: AllowMissing = False,
    allow_outside: AllowOutside = False,
    min_seconds: MinSecondsOption = 0.0,
    out: AlsoOption = None,
) -> None:
    """Predict a model's accuracy from a selection.

    Uses the model's answers from other selections (focus-eval import lmms). Exits with code 1 if a selection lies
    outside their range.
    """
    from focus_eval.report.predict import predict_tables
    from focus_eval.report.run import load_runs

    left_out: list[str] | None = [] if allow_outside else None
    reading_options = {"allow_missing": allow_missing, "left_out": left_out}
    selection_run = _selections(
        selections, format, reading_options, benchmark=benchmark, annotations=annotations, rates=rates
    )
    tables = predict_tables(
        load_runs(logs), selection_run, families=dict(parse_assignments(family)), min_seconds=min_seconds
    )
    print_tables(tables, out)
    for line in left_out or ():
        print_folded(line)
    if any(row.figures[-1] for row in tables[0].rows):
        raise typer.Exit(1)


def _selections(
    texts: list[str],
    formats: list[str],
    reading_options: Mapping[str, Any],
    *,
    benchmark: str,
    annotations: Path,
    rates: Path,
) -> Run:
    """Return selection files as a run without answers, for the questions and frame rates given."""
    from focus_eval.benchmarks.registry import frame_rates, read_annotations, read_rates
    from focus_eval.imports.loading import load_selections
    from focus_eval.imports.selection_rows import selection_rows
    from focus_eval.report.run import Run

    questions, rate_of = read_annotations(benchmark, annotations), read_rates(rates)
    fps = frame_rates(rate_of)
    rows = []
    for name, file, kind in selection_files(texts, formats):
        loaded = load_selections(file, format=kind, questions=questions, fps=fps, **reading_options)
        rows += selection_rows(loaded, questions, rate_of, name=name)
    return Run("selections", rows, [])
