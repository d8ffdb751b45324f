"""`focus-eval export`: write selections as files that other pipelines read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from focus_eval.commands.import_ import BenchmarkOption, SamplerOption, read_questions
from focus_eval.errors import InvalidInput, unknown_name


def export(
    format: Annotated[str, typer.Argument(help="Format: aks or focus.")],
    source: Annotated[Path, typer.Argument(help="Folder of a run, or a selection file of any known format.")],
    out: Annotated[Path, typer.Option(help="File to write, e.g. selected_frames.json.")],
    annotations: Annotated[
        Path | None, typer.Option(help="The benchmark's annotation file; gives the order of rows.")
    ] = None,
    benchmark: BenchmarkOption = "longvideobench",
    sampler: SamplerOption = None,
) -> None:
    """Write selections in the format of AKS or FOCUS.

    Both list frames in the order of the annotation's rows.
    """
    from focus_eval.selections import export_aks, export_focus, load_selections

    writers = {"aks": export_aks, "focus": export_focus}
    if format not in writers:
        raise unknown_name("export format", format, writers)
    questions = read_questions(benchmark, annotations)
    if questions is None:
        raise InvalidInput("these formats list selections in the order of the annotations; give --annotations")
    selections = load_selections(source, questions=questions, sampler=sampler)
    for path in writers[format](selections, out, questions=questions):
        typer.echo(str(path))
