"""`focus-eval report`: a run's tables, figures and page, beside its rows."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from focus_eval.errors import InvalidInput

if TYPE_CHECKING:
    from focus_eval.report.page.question_browser import Thumbnails
    from focus_eval.report.run import Run
    from focus_eval.rows.records import SelectionRow

_THUMBNAIL_HEIGHT = 90
# A longer table is only written: every two samplers at every distance and K.
_MOST_ROWS_PRINTED = 40


def report(
    folder: Annotated[Path, typer.Argument(help="Folder of a run: results/runs/NAME.")],
    table: Annotated[
        str | None, typer.Option(help="Layout of the first table; the matrix's own, else the overview.")
    ] = None,
    baseline: Annotated[str | None, typer.Option(help="Sampler to compare with; uniform by default.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write to; the run's own by default.")] = None,
    videos: Annotated[
        Path | None, typer.Option(help="Folder of the videos: keyframes stand in the page as thumbnails.")
    ] = None,
    thumbnail_megabytes: Annotated[float, typer.Option(help="Most megabytes of thumbnails in the page.")] = 12.0,
    link_thumbnails: Annotated[
        bool, typer.Option(help="Write thumbnails to a folder beside the page and link them, all of them.")
    ] = False,
    html: Annotated[bool, typer.Option(help="Write the page too.")] = True,
) -> None:
    """Print a run's table, and write report.md, .tex, .csv, .html and figures/ beside its rows."""
    from focus_eval.commands.tables import print_table, write_table
    from focus_eval.report.page.html import report_tables, write_html
    from focus_eval.report.run import load_run

    run = load_run(folder)
    target = out or folder
    tables = report_tables(run, table, baseline=baseline)
    for one in tables:
        if len(one.rows) <= _MOST_ROWS_PRINTED:
            print_table(one)
        else:
            typer.echo(f"{one.title}: {len(one.rows)} lines, in report.md and report-{one.name}.csv")
    written = []
    remove_stale(target)
    for name in ("report.md", "report.tex"):
        write_table(tables, target / name)
        written.append(target / name)
    # A spreadsheet holds one table: the first is report.csv.
    for number, one in enumerate(tables):
        written.append(target / ("report.csv" if number == 0 else f"report-{one.name}.csv"))
        write_table([one], written[-1])
    written += write_figures(run, target / "figures")
    if html:
        page = target / "report.html"
        make = thumbnail_maker(videos, page if link_thumbnails else None) if videos is not None else None
        limit = 10**12 if link_thumbnails else int(thumbnail_megabytes * 1e6)
        written.append(write_html(run, page, tables=tables, thumbnails=make, thumbnail_bytes=limit))
    for path in written:
        typer.echo(str(path))


def write_figures(run: Run, folder: Path) -> list[Path]:
    """Write accuracy against frames scored per benchmark and model, and the timelines of one telling question each."""
    from focus_eval.report.figures import draw_efficiency, draw_timelines, save_figure
    from focus_eval.report.page.charts import cost_points
    from focus_eval.report.run import labels_of

    written = []
    if run.answers:
        for (benchmark, model), part in run.answer_frame.groupby(["benchmark", "model"], sort=False):
            points: dict[str, list[tuple[float, float, float, float]]] = {}
            texts: dict[str, list[str]] = {}
            for one in cost_points(run, part, cost="frames scored (%)"):
                ends = (nan, nan) if one.low is None or one.high is None else (one.low, one.high)
                points.setdefault(one.label, []).append((one.cost, one.accuracy, *ends))
                texts.setdefault(one.label, []).append(one.short)
            if points:
                name = f"efficiency-{benchmark}-{model}.pdf".replace("/", "_")
                written += save_figure(draw_efficiency(points, texts=texts), folder / name)
    rows = telling_question(run)
    if rows:
        figure = draw_timelines(rows, names=labels_of(run.selections))
        written += save_figure(figure, folder / "timelines.pdf")
    return written


def remove_stale(folder: Path) -> None:
    """Remove what an earlier report wrote to `folder`: this one may have fewer tables and figures."""
    from focus_eval.report.comparisons import TABLE_NAMES
    from focus_eval.report.layouts import LAYOUTS

    texts = [*(f"report.{suffix}" for suffix in ("md", "tex", "csv", "html"))]
    texts += [f"report-{name}.csv" for name in (*LAYOUTS, *TABLE_NAMES)]
    drawn = [f"figures/{name}.{suffix}" for name in ("efficiency-*", "timelines") for suffix in ("pdf", "png")]
    for path in [path for kind in (*texts, *drawn) for path in folder.glob(kind)]:
        path.unlink()


def telling_question(run: Run) -> list[SelectionRow]:
    """Return the selections of the longest question that has evidence, one per sampler, all of one K and seed."""
    from focus_eval.report.run import labels_of

    labels = labels_of(run.selections)
    by_question: dict[tuple[str, str, int, int], dict[str, SelectionRow]] = {}
    for row in run.selections:
        if row.error is None:
            key = (row.benchmark, row.question_id, row.k, row.seed)
            by_question.setdefault(key, {})[labels[row.selection_id]] = row
    several = [rows for rows in by_question.values() if len(rows) > 1]
    if not several:
        return []
    best = max(
        several,
        key=lambda rows: (
            bool(next(iter(rows.values())).evidence_seconds),
            len(rows),
            next(iter(rows.values())).duration_seconds,
        ),
    )
    return sorted(best.values(), key=lambda row: (not row.sampler.startswith("uniform"), row.sampler))


def thumbnail_maker(videos: Path, page: Path | None) -> Thumbnails:
    """Return a function from a question's selections to their keyframes as small JPEGs, or as links beside `page`.

    Raises:
        InvalidInput: no such folder.
    """
    if not videos.is_dir():
        raise InvalidInput(f"{videos}: no such folder; --videos is the folder that the rows' video paths start from")
    known: dict[tuple[str, int], bytes | str] = {}

    def make(rows: Sequence[SelectionRow]) -> Mapping[int, bytes | str]:
        video = rows[0].video
        frames = sorted({frame for row in rows for frame in row.keyframes})
        missing = [frame for frame in frames if (video, frame) not in known]
        for frame, image in _read_thumbnails(videos / video, missing):
            known[video, frame] = image if page is None else _linked(image, page, video, frame)
        return {frame: known[video, frame] for frame in frames}

    return make


def _read_thumbnails(path: Path, frames: list[int]) -> Iterator[tuple[int, bytes]]:
    """Yield frames and their JPEGs in one pass over the file, which is not opened for nothing."""
    import numpy as np
    from PIL import Image

    from focus_eval.video import open_video

    if not frames:
        return
    with open_video(path) as reader:
        for frame, pixels in reader.stream(np.array(frames, dtype=np.int64)):
            image = Image.fromarray(pixels)
            image.thumbnail((_THUMBNAIL_HEIGHT * 3, _THUMBNAIL_HEIGHT))
            buffer = io.BytesIO()
            image.save(buffer, "JPEG", quality=72)
            yield frame, buffer.getvalue()


def _linked(image: bytes, page: Path, video: str, frame: int) -> str:
    from urllib.parse import quote

    name = f"{video.replace('/', '_')}-{frame}.jpg"
    folder = page.with_name(f"{page.stem}_thumbnails")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(image)
    return quote(f"{folder.name}/{name}")
