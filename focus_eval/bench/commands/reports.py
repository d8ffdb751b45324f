"""`focus-eval report` and `compare`: tables, figures and pages of runs."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from focus_eval.bench.commands.documents import compare_document, report_document
from focus_eval.bench.commands.printing import print_table, write_table
from focus_eval.bench.commands.runs import JsonOption
from focus_eval.bench.rows.store import run_folders
from focus_eval.core.errors import InvalidInput, RowsChanged, RunError
from focus_eval.core.offers import offered
from focus_eval.core.options import make, parse_assignments
from focus_eval.core.processes import follow_parent, n_cores
from focus_eval.keyframes.commands.console import naming_out, print_folded, refuse_idle_options
from focus_eval.keyframes.video import displayed, open_video

if TYPE_CHECKING:
    from focus_eval.bench.report.page.charts import PanelsByFigure
    from focus_eval.bench.report.page.thumbnails import ReadThumbnails, Thumbnails
    from focus_eval.bench.report.rendering import Table
    from focus_eval.bench.report.run import Run


def read_thumbnails(path: Path, frames: Sequence[int], *, height: int = 90) -> Iterator[tuple[int, bytes]]:
    """Yield frame numbers and JPEGs in one pass over the file; without frames the file is not opened.

    Raises:
        VideoError: a file or a frame that cannot be read.
    """
    from PIL import Image

    if not frames:
        return
    with open_video(path, backend=displayed("pyav"), n_threads=1) as reader:
        for frame, pixels in reader.stream(np.array(frames, dtype=np.int64)):
            image = Image.fromarray(pixels)
            image.thumbnail((height * 3, height))
            buffer = io.BytesIO()
            image.save(buffer, "JPEG", quality=72)
            yield frame, buffer.getvalue()


@contextmanager
def _reading_processes() -> Iterator[ReadThumbnails]:
    """Yield a function that runs `read_thumbnails` in a pool of processes, one per core.

    With threads, decoding would have to share Python's lock with the tables and charts that are made meanwhile.
    """
    pool = ProcessPoolExecutor(n_cores(), mp_context=get_context("spawn"), initializer=follow_parent)

    def read(path: Path, frames: Sequence[int], *, height: int) -> list[tuple[int, bytes]]:
        """Return the thumbnails of a video; raise RunError if the process that reads them was killed."""
        try:
            return pool.submit(_thumbnails, path, frames, height).result()
        except BrokenProcessPool as error:
            raise RunError(f"{path}: the process that read its thumbnails was killed; free some memory") from error

    try:
        yield read
    finally:
        # Without this, an error or Ctrl-C would wait until the remaining videos are decoded.
        pool.shutdown(cancel_futures=True)


def _thumbnails(path: Path, frames: Sequence[int], height: int) -> list[tuple[int, bytes]]:
    return list(read_thumbnails(path, frames, height=height))


# Limit of printed rows: longer tables are only written to files.
_MAX_ROWS_PRINTED = 40
_THUMBNAILS = "report_thumbnails/*.jpg"


def report(
    context: typer.Context,
    folder: Annotated[
        Path, typer.Argument(help="Folder of a run (results/runs/NAME, or a packed run), or of several runs.")
    ],
    table: Annotated[
        str | None, typer.Option(help="Layout of the first table. [default: the matrix's, or the overview]")
    ] = None,
    baseline: Annotated[str | None, typer.Option(help="Sampler to compare with. [default: uniform]")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write to. [default: the run's; NAME-report for NAME.zip]")
    ] = None,
    videos: Annotated[Path | None, typer.Option(help="Folder of the videos, to show keyframes as thumbnails.")] = None,
    link_thumbnails: Annotated[
        bool, typer.Option(help="Write all thumbnails beside the page; the page itself holds at most 12 MB.")
    ] = False,
    html: Annotated[bool, typer.Option(help="Write report.html.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Write a run's tables, figures and page.

    Prints the first tables; writes report.md, report.tex, report.csv, report.html and figures/ beside the rows, and for
    a paper methods.md (versions, settings) and references.bib. Of a folder of runs it writes index.html, a
    table of them all that links to their pages.
    """
    if folders := run_folders(folder):
        if as_json:
            raise InvalidInput(f"{folder}: holds several runs; --json is for one: {folders[0]}")
        names = ("table", "baseline", "videos", "link_thumbnails")
        refuse_idle_options(context, f"on a folder of runs: name one of them, e.g. {folders[0]}", *names)
        from focus_eval.bench.report.page.html import write_index

        with naming_out(out or folder):
            typer.echo(str(write_index(folders, (out or folder) / "index.html")))
        return
    if not html:
        refuse_idle_options(context, "with --no-html: leave one of them out", "videos", "link_thumbnails")
    if videos is None:
        refuse_idle_options(context, "without --videos: give both, or neither", "link_thumbnails")
    target = out or (folder if folder.is_dir() else folder.with_name(f"{folder.stem}-report"))
    write = partial(
        write_report,
        target=target,
        table=table,
        baseline=baseline,
        videos=videos,
        html=html,
        link_thumbnails=link_thumbnails,
        as_json=as_json,
    )
    for reads_left in reversed(range(_READS)):
        try:
            with naming_out(target):
                _report_once(folder, write, prints_rates=not as_json)
            break
        except RowsChanged as error:
            if not reads_left:
                raise
            typer.echo(f"note: {error.what}; reading again", err=True)


# Number of attempts to read a run: another run may finish a shared cell, and so move its rows, during the reading.
_READS = 3


def _report_once(folder: Path, write: Callable[..., None], *, prints_rates: bool) -> None:
    """Write and print the report."""
    from focus_eval.bench.report.run import load_run

    write(load_run(folder))
    if (folder / "run.json").is_file() and prints_rates:
        from focus_eval.bench.commands.runs import print_rates

        print_rates(folder)


def write_report(
    run: Run,
    target: Path,
    *,
    table: str | None = None,
    baseline: str | None = None,
    videos: Path | None = None,
    link_thumbnails: bool = False,
    html: bool = True,
    as_json: bool = False,
    page_panels: PanelsByFigure | None = None,
) -> None:
    """Print the first tables of `run`, or all as JSON, and write all files of `report` to `target`.

    With `page_panels`, the panels of the page from `panels_of`, nothing is printed and no figure files are drawn.
    """
    from focus_eval.bench.report.methods import write_methods
    from focus_eval.bench.report.page.browser import MAX_THUMBNAIL_BYTES, pack_browser
    from focus_eval.bench.report.page.charts import panels_of, write_figures
    from focus_eval.bench.report.page.html import check_names, report_tables, write_html
    from focus_eval.bench.report.page.thumbnails import thumbnail_maker
    from focus_eval.keyframes.samplers.registry import sampler_name

    baseline = sampler_name(baseline) if baseline else None
    check_names(run, table, baseline=baseline)  # check before anything is overwritten
    failures = dict[str, str]()
    thumbnails: Thumbnails | None = None
    thumbnail_bytes = None if link_thumbnails else MAX_THUMBNAIL_BYTES
    page = target / "report.html"
    remove_stale(target)
    panels = page_panels or panels_of(run)
    with ThreadPoolExecutor(1, thread_name_prefix="browser") as pool, _reading_processes() as read:
        if videos is not None:
            linking_page = page if link_thumbnails else None
            thumbnails = thumbnail_maker(videos, linking_page, read=read, failures=failures)
        # Pack in the background, so that videos are decoded while tables and charts are made.
        pack = partial(pack_browser, run, thumbnails=thumbnails, thumbnail_bytes=thumbnail_bytes)
        packing = pool.submit(pack) if html else None
        tables = report_tables(run, table, baseline=baseline)
        # A CSV file holds one table. That of the first table is report.csv.
        sheets = ["report.csv", *(f"report-{item.name}.csv" for item in tables[1:])]
        if page_panels is None and not as_json:
            for fault in run.faults:
                print_folded(f"fault: {fault}")
            _print_short_tables(tables, sheets)
        written = [*_write_tables(run, target, tables, sheets), *write_methods(run, target)]
        written += write_figures(run, target / "figures", panels) if page_panels is None else []
        if packing is not None:
            browser = packing.result()
            options = {"tables": tables, "panels": panels, "thumbnails": thumbnails, "browser": browser}
            written.append(write_html(run, page, videos=videos, **options))
    if failures:
        first = next(iter(failures.values()))
        typer.echo(f"note: videos without thumbnails of some frames: {len(failures)}, the first: {first}", err=True)
    if as_json:
        typer.echo(json.dumps(report_document(run, tables, written), indent=1, ensure_ascii=False))
    for path in written if page_panels is None and not as_json else ():
        typer.echo(str(path))


def _write_tables(run: Run, target: Path, tables: Sequence[Table], sheets: Sequence[str]) -> list[Path]:
    """Write all tables as Markdown (after the run's faults), LaTeX and CSV files; return the paths."""
    from focus_eval.core.files import write_text

    paths = [target / name for name in ("report.md", "report.tex", *sheets)]
    for path in paths[:2]:
        write_table(tables, path)
    if run.faults:
        fault_lines = "".join(f"**Fault: {fault}**\n\n" for fault in run.faults)
        write_text(paths[0], fault_lines + paths[0].read_text(encoding="utf-8"))
    for item, path in zip(tables, paths[2:], strict=True):
        write_table([item], path)
    return paths


def _print_short_tables(tables: Sequence[Table], sheets: Sequence[str]) -> None:
    """Print tables, each note once; for a long table print only the names of its files."""
    from focus_eval.bench.report.rendering import notes_once

    for item, sheet in zip(notes_once(tables), sheets, strict=True):
        if len(item.rows) <= _MAX_ROWS_PRINTED:
            print_table(item)
        else:
            print_folded(f"{item.title}: {len(item.rows)} lines, in report.md and {sheet}")


def remove_stale(folder: Path) -> None:
    """Remove the files of an earlier report, which may have had more tables and figures."""
    from focus_eval.bench.report.comparisons import TABLE_NAMES
    from focus_eval.bench.report.layouts import LAYOUTS

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
    option: Annotated[
        list[str],
        typer.Option(
            "--option",
            "-o",
            metavar="NAME=VALUE",
            help="Of logs, as in import lmms: k=32, metric=NAME, id_field=NAME, video_field=NAME; repeatable.",
        ),
    ] = [],  # noqa: B006
    margin: Annotated[
        float | None, typer.Option(help="Points: also test that the two differ by less than this.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare two runs on the questions that both answered."""
    from focus_eval.bench.report.comparisons import group_comparison, run_comparison
    from focus_eval.bench.report.run import is_run_path, load_run

    values, n_logs = parse_assignments(option), 0

    def read(path: Path) -> Run:
        nonlocal n_logs
        if is_run_path(path):
            return load_run(path)
        results = offered("results")
        if not results.is_log_path(path):
            return load_run(path)
        n_logs += 1
        run: Run = results.run_of_logs(path, make("import lmms", results.LogOptions, values))
        return run

    runs = [read(path) for path in (a, b)]
    if values and not n_logs:
        raise InvalidInput("-o is for logs of lmms-eval; both of these are runs")
    table, groups = run_comparison(*runs, margin=margin), group_comparison(*runs, margin=margin)
    tables = [table, groups] if groups else [table]
    if as_json:
        typer.echo(json.dumps(compare_document(runs[0], runs[1], table, groups), indent=1, ensure_ascii=False))
    else:
        from focus_eval.bench.report.rendering import notes_once

        for item in notes_once(tables):
            print_table(item)
    if out is not None and out.suffix == ".html":
        typer.echo(str(_write_comparison(out, runs, tables)), err=as_json)
    elif out is not None:
        write_table(tables, out)


def _write_comparison(path: Path, runs: Sequence[Run], tables: Sequence[Table]) -> Path:
    """Write a self-contained page with the comparison and the facts of both runs; return `path`."""
    from focus_eval.bench.report.layouts import results_table
    from focus_eval.bench.report.page.html import render_sections, run_facts
    from focus_eval.core.files import write_text

    sections: list[tuple[str, list[str | Table]]] = [("The comparison", [*tables])]
    for name, run in zip("AB", runs, strict=True):
        facts = "; ".join(f"{title}: {text}" for title, text in run_facts(run))
        sections.append((f"{name}: {run.name}", [f"{facts}.", results_table(run, "overview")]))
    return write_text(path, render_sections(tables[0].title, sections))
