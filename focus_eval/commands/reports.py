"""`focus-eval report`, `compare` and `acf`: tables, figures and pages of runs."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from focus_eval.commands.console import print_folded, print_table, write_table
from focus_eval.core.errors import RowsChanged, unknown_name
from focus_eval.video import open_video

if TYPE_CHECKING:
    from focus_eval.report.run import Run
    from focus_eval.report.table import Table


def read_thumbnails(path: Path, frames: Sequence[int], *, height: int = 90) -> Iterator[tuple[int, bytes]]:
    """Yield `frames` and their JPEGs in one pass over the file; without frames it is not opened.

    Raises:
        VideoError: a file or a frame that cannot be read.
    """
    from PIL import Image

    if not frames:
        return
    with open_video(path) as reader:
        for frame, pixels in reader.stream(np.array(frames, dtype=np.int64)):
            image = Image.fromarray(pixels)
            image.thumbnail((height * 3, height))
            buffer = io.BytesIO()
            image.save(buffer, "JPEG", quality=72)
            yield frame, buffer.getvalue()


# A longer table is only written: every two samplers at every distance and K.
_MOST_ROWS_PRINTED = 40
_THUMBNAILS = "report_thumbnails/*.jpg"


def report(
    folder: Annotated[Path, typer.Argument(help="Folder of a run: results/runs/NAME, or a packed run.")],
    table: Annotated[
        str | None, typer.Option(help="Layout of the first table. [default: the matrix's, or the overview]")
    ] = None,
    baseline: Annotated[str | None, typer.Option(help="Sampler to compare with. [default: uniform]")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write to. [default: the run's; NAME-report for NAME.zip]")
    ] = None,
    videos: Annotated[Path | None, typer.Option(help="Folder of the videos, to show keyframes as thumbnails.")] = None,
    thumbnail_megabytes: Annotated[float, typer.Option(help="Limit on the thumbnails in the page.")] = 12.0,
    link_thumbnails: Annotated[
        bool, typer.Option(help="Write all thumbnails to a folder beside the page instead of into it.")
    ] = False,
    html: Annotated[bool, typer.Option(help="Write report.html.")] = True,
) -> None:
    """Write a run's tables, figures and page.

    Prints the first tables; writes report.md, report.tex, report.csv, report.html and figures/ beside the rows.
    """
    options: dict[str, Any] = {"table": table, "baseline": baseline, "videos": videos, "html": html}
    options |= {"thumbnail_megabytes": thumbnail_megabytes, "link_thumbnails": link_thumbnails}
    target = out or (folder if folder.is_dir() else folder.with_name(f"{folder.stem}-report"))
    for reads_left in reversed(range(_READS)):
        try:
            _report_once(folder, target, options)
            break
        except RowsChanged as error:
            if not reads_left:
                raise
            typer.echo(f"note: {error.what}; reading again", err=True)


# Of runs that share cells one may end while the other's report is read.
_READS = 3


def _report_once(folder: Path, target: Path, options: dict[str, Any]) -> None:
    from focus_eval.report.outputs import KeptOutputs, inputs_digest

    inputs = inputs_digest(folder, options={**options, "folders": [folder, target]}, videos=options["videos"])
    kept = KeptOutputs(target / ".report.json", inputs)
    if (printed := kept.printed()) is not None:
        typer.echo(printed, nl=False)
        return
    # Only now: pandas takes longer than all of the above.
    from focus_eval.report.run import load_run

    run = load_run(folder)
    with kept.writing() as written:
        written += write_report(run, target, **options)


def write_report(
    run: Run,
    target: Path,
    *,
    table: str | None = None,
    baseline: str | None = None,
    videos: Path | None = None,
    thumbnail_megabytes: float = 12.0,
    link_thumbnails: bool = False,
    html: bool = True,
) -> list[Path]:
    """Print the first tables of `run` and write all that `report` writes to `target`; the arguments are its options.

    Returns:
        What was written; nothing if some thumbnail failed, which may succeed another time.
    """
    from focus_eval.report.page.charts import write_figures
    from focus_eval.report.page.html import report_tables, write_html
    from focus_eval.report.page.thumbnails import thumbnail_maker
    from focus_eval.report.table import notes_once
    from focus_eval.samplers.registry import sampler_name

    baseline = sampler_name(baseline) if baseline else None
    tables = report_tables(run, table, baseline=baseline)
    # A spreadsheet holds one table: the first is report.csv.
    sheets = ["report.csv", *(f"report-{item.name}.csv" for item in tables[1:])]
    for item, sheet in zip(notes_once(tables), sheets, strict=True):
        if len(item.rows) <= _MOST_ROWS_PRINTED:
            print_table(item)
        else:
            print_folded(f"{item.title}: {len(item.rows)} lines, in report.md and {sheet}")
    written, failures = [], dict[str, str]()
    remove_stale(target)
    for name in ("report.md", "report.tex"):
        write_table(tables, target / name)
        written.append(target / name)
    for item, sheet in zip(tables, sheets, strict=True):
        write_table([item], target / sheet)
        written.append(target / sheet)
    written += write_figures(run, target / "figures")
    if html:
        page = target / "report.html"
        beside = page if link_thumbnails else None
        make = None if videos is None else thumbnail_maker(videos, beside, read=read_thumbnails, failures=failures)
        limit = None if link_thumbnails else int(thumbnail_megabytes * 1e6)
        written.append(write_html(run, page, tables=tables, thumbnails=make, thumbnail_bytes=limit, videos=videos))
    if failures:
        first = next(iter(failures.values()))
        typer.echo(f"note: videos without thumbnails of some frames: {len(failures)}, the first: {first}", err=True)
    for path in written:
        typer.echo(str(path))
    return [] if failures else [*written, *target.glob(_THUMBNAILS)]


def remove_stale(folder: Path) -> None:
    """Remove what an earlier report wrote to `folder`: this one may have fewer tables and figures."""
    from focus_eval.report.comparisons import TABLE_NAMES
    from focus_eval.report.tables import LAYOUTS

    texts = [*(f"report.{suffix}" for suffix in ("md", "tex", "csv", "html"))]
    texts += [f"report-{name}.csv" for name in (*LAYOUTS, *TABLE_NAMES)]
    drawn = [f"figures/{name}.{suffix}" for name in ("efficiency-*", "timelines") for suffix in ("pdf", "png")]
    for path in [path for kind in (*texts, *drawn, _THUMBNAILS) for path in folder.glob(kind)]:
        path.unlink()


def compare(
    a: Annotated[Path, typer.Argument(help="A run: its folder, a packed run, or logs of lmms-eval.")],
    b: Annotated[Path, typer.Argument(help="Another run, likewise.")],
    out: Annotated[
        Path | None, typer.Option(help="Also write the table to this file (.md, .csv, .tex), or a page (.html).")
    ] = None,
) -> None:
    """Compare two runs on the questions that both answered."""
    from focus_eval.report.comparisons import run_comparison

    with TemporaryDirectory() as imported:
        runs = [_run_or_logs(path, Path(imported) / str(number)) for number, path in enumerate((a, b))]
        table = run_comparison(*runs)
        print_table(table)
        if out is not None and out.suffix == ".html":
            _write_comparison(out, runs, table)
        elif out is not None:
            write_table([table], out)


def _run_or_logs(path: Path, place: Path) -> Run:
    """Return a run, or what `import lmms` makes of logs, whose rows then lie in `place`."""
    from focus_eval.commands.logs import import_logs
    from focus_eval.report.run import load_run
    from focus_eval.selections.log_import import LogOptions

    is_run = path.suffix == ".zip" or any((path / kind).is_dir() for kind in ("selections", "answers"))
    if is_run or not ("_samples_" in path.name or any(path.glob("**/*_samples_*.jsonl*"))):
        return load_run(path)
    folder = place / path.resolve().name.partition("_samples_")[0]
    import_logs(path, folder, options=LogOptions())
    return load_run(folder)


def _write_comparison(path: Path, runs: Sequence[Run], table: Table) -> None:
    """Write a page with the comparison and what each run is, which needs no other file."""
    from focus_eval.report.page.html import render_sections, run_facts
    from focus_eval.report.tables import results_table
    from focus_eval.rows.records import write_text

    sections: list[tuple[str, list[str | Table]]] = [("The comparison", [table])]
    for name, run in zip("AB", runs, strict=True):
        said = "; ".join(f"{what}: {text}" for what, text in run_facts(run))
        sections.append((f"{name}: {run.name}", [f"{said}.", results_table(run, "overview")]))
    typer.echo(str(write_text(path, render_sections(table.title, sections))))


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
    from focus_eval.report.figures import draw_acf, relevance_autocorrelation, save_figure
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
    print_folded(
        f"half-life {half}; {curve.videos} videos, {curve.questions} questions, {curve.flat} flat ones left out"
    )
