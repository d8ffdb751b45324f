"""`focus-eval acf`: plot the autocorrelation of relevance."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from focus_eval.errors import unknown_name


def acf(
    run: Annotated[Path, typer.Argument(help="Folder of a run that has a sampler with a regular grid (topk, aks).")],
    out: Annotated[Path, typer.Option(help="Figure to write (.pdf or .svg); a PNG is written too.")],
    sampler: Annotated[
        str | None, typer.Option(help="Sampler to plot. [default: the first with a regular grid]")
    ] = None,
    max_lag_seconds: Annotated[float, typer.Option("--max-lag", help="Longest lag, in seconds.")] = 60.0,
) -> None:
    """Plot the autocorrelation of relevance over time.

    Shows the median and the quartiles over videos, and prints the half-life.
    """
    from focus_eval.report.autocorrelation import relevance_autocorrelation
    from focus_eval.report.figures import draw_acf, save_figure
    from focus_eval.report.run import load_run
    from focus_eval.samplers.registry import sampler_name

    loaded = load_run(run)
    names = list(dict.fromkeys(row.sampler for row in loaded.variants))
    sampler = sampler_name(sampler) if sampler else None
    if sampler is not None and sampler not in names:
        raise unknown_name(f"sampler of {run}:", sampler, names)
    # One sampler's rows only: the same grid pulled by another would count every question twice.
    wanted = sampler or next((name for name in ("aks_dense", "topk", "aks", "bolt") if name in names), None)
    curve = relevance_autocorrelation(
        (row for row in loaded.selections if wanted in (None, row.sampler)), max_lag_seconds=max_lag_seconds
    )
    for path in save_figure(draw_acf(curve), out):
        typer.echo(str(path))
    half = "never" if curve.half_life_seconds is None else f"{curve.half_life_seconds:.1f} s"
    typer.echo(f"half-life {half}; {curve.videos} videos, {curve.questions} questions, {curve.flat} flat ones left out")
