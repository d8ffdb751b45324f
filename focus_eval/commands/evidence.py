"""`focus-eval evidence`: accuracy with and without the evidence in view."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from focus_eval.errors import InvalidInput

if TYPE_CHECKING:
    from focus_eval.report.run import Run


def evidence(
    run: Annotated[Path | None, typer.Argument(help="Folder of a run, instead of --selections.")] = None,
    annotations: Annotated[Path | None, typer.Option(help="The benchmark's annotation file.")] = None,
    rates: Annotated[
        Path | None, typer.Option(help="CSV with the columns id, duration_s and fps, if there are no videos.")
    ] = None,
    selections: Annotated[
        list[str], typer.Option(metavar="[NAME=]FILE", help="Selections published with answers; repeatable.")
    ] = [],  # noqa: B006
    format: Annotated[
        list[str], typer.Option(metavar="FORMAT", help="Format of each selection file, in order; repeatable.")
    ] = [],  # noqa: B006
    column: Annotated[
        list[str], typer.Option(metavar="NAME=FIELD", help="Field of the format answers; repeatable.")
    ] = [],  # noqa: B006
    model: Annotated[str, typer.Option(help="Name of the model that gave the answers.")] = "model",
    benchmark: Annotated[str, typer.Option(help="Name of the benchmark.")] = "longvideobench",
    distance: Annotated[float, typer.Option(help="Seconds within which evidence is in view: 1, 2 or 5.")] = 5.0,
    min_seconds: Annotated[float, typer.Option(help="Leave out videos shorter than this.")] = 180.0,
    estimate: Annotated[
        list[str], typer.Option(metavar="[NAME=]FILE", help="Estimate the accuracy of these selections; repeatable.")
    ] = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option(help="Also write the tables to this file (.md, .csv or .tex).")] = None,
) -> None:
    """Compare accuracy with and without the evidence in view.

    Prints tables by distance, video length and category, and by question.
    """
    from focus_eval.commands.tables import print_table, write_table
    from focus_eval.report.estimate_tables import estimate_table
    from focus_eval.report.evidence_tables import evidence_tables
    from focus_eval.report.run import load_run

    if (run is None) == (not selections):
        raise InvalidInput("give the folder of a run, or --selections with --annotations and --rates")
    if run is not None:
        if estimate:
            raise InvalidInput("--estimate goes with --selections, --annotations and --rates")
        answered, others = load_run(run), None
    else:
        answered, others = _from_files(
            selections, format, column, estimate, benchmark=benchmark, model=model, annotations=annotations, rates=rates
        )
    tables = evidence_tables(answered, distance=distance, min_seconds=min_seconds)
    if others is not None:
        tables.append(estimate_table(answered, others, min_seconds=min_seconds))
    for table in tables:
        print_table(table)
    if out is not None:
        write_table(tables, out)


def _from_files(
    selections: Sequence[str],
    formats: Sequence[str],
    columns: Sequence[str],
    estimate: Sequence[str],
    *,
    benchmark: str,
    model: str,
    annotations: Path | None,
    rates: Path | None,
) -> tuple[Run, Run | None]:
    """Return the rows of published files as a run, and those to estimate as another."""
    from focus_eval.benchmarks.annotations import read_annotations
    from focus_eval.benchmarks.rates import read_rates
    from focus_eval.options import parse_assignments
    from focus_eval.report.run import Run
    from focus_eval.selections import load_selections
    from focus_eval.selections.published_rows import published_rows

    if annotations is None or rates is None:
        raise InvalidInput("--selections need --annotations and --rates")
    if formats and len(formats) not in (1, len(selections)):
        raise InvalidInput(f"{len(formats)} formats for {len(selections)} selection files; give one, or one for each")
    questions, rate_of = read_annotations(benchmark, annotations), read_rates(rates)
    fps = {key: float(rate.fps) for key, rate in rate_of.items()}
    named = dict(parse_assignments(list(columns)))
    kinds = list(formats) * len(selections) if len(formats) == 1 else list(formats) or ["auto"] * len(selections)
    made = []
    for text, kind in [*zip(selections, kinds, strict=True), *((text, "auto") for text in estimate)]:
        name, equals, file = text.partition("=")
        name, file = (name, file) if equals else (Path(text).stem, text)
        loaded = load_selections(file, format=kind, questions=questions, fps=fps, columns=named)
        made.append(published_rows(loaded, questions, rate_of, name=name, model=model))
    answered, others = made[: len(selections)], made[len(selections) :]
    without = next((item.name for item in answered if not item.answers), None)
    if without is not None:
        raise InvalidInput(f"{without}: the file has no answers; focus-eval recall measures frames alone")
    run = Run(
        "published answers",
        [row for item in answered for row in item.selections],
        [row for item in answered for row in item.answers],
    )
    return run, Run("to estimate", [row for other in others for row in other.selections], []) if others else None
