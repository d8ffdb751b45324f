"""`focus-eval import`: convert published selections."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from focus_eval.errors import InvalidInput

if TYPE_CHECKING:
    from focus_eval.benchmarks.question import Question

AnnotationsOption = Annotated[Path | None, typer.Option(help="The benchmark's annotation file.")]
BenchmarkOption = Annotated[str, typer.Option(help="Name of the benchmark.")]
SamplerOption = Annotated[str | None, typer.Option(help="Sampler to take, if the file has several.")]


def import_(
    format: Annotated[str, typer.Argument(help="aks, focus, bolt, qca, wfs, toolmerge, answers, rows, or auto.")],
    file: Annotated[Path, typer.Argument(help="Selection file, or a run's folder (rows).")],
    out: Annotated[Path, typer.Option(help="Parquet file, or run folder, to write.")],
    annotations: AnnotationsOption = None,
    benchmark: BenchmarkOption = "longvideobench",
    rates: Annotated[
        Path | None, typer.Option(help="CSV with the columns id, duration_s and fps; finds indices past the end.")
    ] = None,
    unit: Annotated[str | None, typer.Option(help="frames or seconds. [default: the format's own]")] = None,
    field: Annotated[str | None, typer.Option(help="Name of the field that holds the frames (format wfs).")] = None,
    sampler: SamplerOption = None,
    allow_missing: Annotated[bool, typer.Option(help="Leave out questions without frames.")] = False,
    column: Annotated[
        list[str], typer.Option(metavar="NAME=FIELD", help="Field of the format answers; repeatable.")
    ] = [],  # noqa: B006
    model: Annotated[str, typer.Option(help="Name of the model that gave the answers.")] = "",
    name: Annotated[str, typer.Option(help="Name of the selection in the rows. [default: the file's]")] = "",
) -> None:
    """Convert a published selection file.

    Writes Parquet (frames only), or a run folder for `focus-eval report` (with the answers). The frames are checked
    against the benchmark's questions first.
    """
    from focus_eval.benchmarks.rates import read_rates
    from focus_eval.options import parse_assignments
    from focus_eval.selections import load_selections, selections_hash, write_parquet
    from focus_eval.selections.published_rows import published_rows, write_run

    rate_of = read_rates(rates) if rates is not None else None
    questions = read_questions(benchmark, annotations)
    fps = {key: float(rate.fps) for key, rate in rate_of.items()} if rate_of is not None else None
    selections = load_selections(
        file,
        format=format,
        questions=questions,
        unit=unit,
        field=field,
        fps=fps,
        sampler=sampler,
        allow_missing=allow_missing,
        columns=parse_assignments(column),
    )
    if out.suffix != ".parquet":
        if questions is None or rate_of is None:
            raise InvalidInput(f"{out}: a run's folder needs --annotations and --rates; a .parquet file does not")
        made = published_rows(selections, questions, rate_of, name=name or file.stem, model=model)
        for path in write_run(out, made):
            typer.echo(str(path))
        return
    write_parquet(selections, out)
    most = max(selection.n_keyframes for selection in selections.values())
    typer.echo(f"{out}: {len(selections)} selections of at most {most} frames, id {selections_hash(selections)}")


def read_questions(benchmark: str, annotations: Path | None) -> Sequence[Question] | None:
    """Return the questions of an annotation file, None where none was given."""
    from focus_eval.benchmarks.annotations import read_annotations

    return read_annotations(benchmark, annotations) if annotations is not None else None
