"""`focus-eval import`: published selections become one common file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from focus_eval.benchmarks.question import Question

AnnotationsOption = Annotated[Path | None, typer.Option(help="The benchmark's annotation file.")]
BenchmarkOption = Annotated[str, typer.Option(help="Benchmark by name.")]
SamplerOption = Annotated[str | None, typer.Option(help="Which one, where rows of ours hold several.")]


def import_(
    format: Annotated[str, typer.Argument(help="aks, focus, bolt, qca, wfs, rows, or auto.")],
    file: Annotated[Path, typer.Argument(help="Selection file, or a run's folder (rows).")],
    out: Annotated[Path, typer.Option(help="Parquet file to write.")],
    annotations: AnnotationsOption = None,
    benchmark: BenchmarkOption = "longvideobench",
    rates: Annotated[Path | None, typer.Option(help="CSV of id, duration_s, fps: finds indices past the end.")] = None,
    unit: Annotated[str | None, typer.Option(help="frames or seconds, where it is not the format's habit.")] = None,
    field: Annotated[str | None, typer.Option(help="Field of the frames in the annotation's rows (wfs).")] = None,
    sampler: SamplerOption = None,
    allow_missing: Annotated[bool, typer.Option(help="Leave out questions without frames.")] = False,
) -> None:
    """Read a published selection file, check it against the benchmark, and write the common Parquet file."""
    from focus_eval.benchmarks.rates import read_rates
    from focus_eval.selections import load_selections, selections_hash, write_parquet

    fps = {key: float(rate.fps) for key, rate in read_rates(rates).items()} if rates is not None else None
    selections = load_selections(
        file,
        format=format,
        questions=read_questions(benchmark, annotations),
        unit=unit,
        field=field,
        fps=fps,
        sampler=sampler,
        allow_missing=allow_missing,
    )
    write_parquet(selections, out)
    most = max(one.n_keyframes for one in selections.values())
    typer.echo(f"{out}: {len(selections)} selections of at most {most} frames, id {selections_hash(selections)}")


def read_questions(benchmark: str, annotations: Path | None) -> Sequence[Question] | None:
    """Return the questions of an annotation file, None where none was given."""
    from focus_eval.benchmarks.annotations import read_annotations

    return read_annotations(benchmark, annotations) if annotations is not None else None
