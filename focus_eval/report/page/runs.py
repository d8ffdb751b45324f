"""The index of several runs: one row for each sampler of each run, linked to the run's page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from focus_eval.benchmarks.question import NEAR_SECONDS
from focus_eval.report.measures import FORWARDS
from focus_eval.report.page.charts import Point, panels_of
from focus_eval.report.page.html import render_sections
from focus_eval.report.run import Run, load_run
from focus_eval.report.table import Table, TableRow, Value
from focus_eval.rows.records import write_text


def write_index(folders: Sequence[Path], path: Path) -> Path:
    """Write the index of the runs in `folders` as a page that opens offline; return its path."""
    rows = tuple(row for folder in folders for row in _rows(folder.name, load_run(folder)))
    table = Table(
        name="runs",
        title="Runs",
        key_titles=("Benchmark", "Model", "K", "Sampler", "Run"),
        columns=(f"recall within {NEAR_SECONDS:g} s (%)", "accuracy (%)", FORWARDS, "date"),
        rows=rows,
        notes=("Evidence recall and accuracy with 95 % intervals, by video. The last start of a run is its date.",),
    )
    pages = {
        folder.name: quote(Path(os.path.relpath(page, path.parent)).as_posix())
        for folder in folders
        if (page := folder / "report.html").is_file()
    }
    without_page = ", ".join(folder.name for folder in folders if folder.name not in pages)
    lines = [f"Without a page, which focus-eval report RUN writes: {without_page}."] if without_page else []
    title = f"{len(folders)} runs"
    return write_text(path, render_sections(title, [(title, [table, *lines])], links=pages))


def _rows(name: str, run: Run) -> list[TableRow]:
    """Return a row for each benchmark, model, K and sampler of `run`."""
    points: dict[tuple[str, str, int], dict[str, Point]] = {}
    for title, panels in panels_of(run).items():
        benchmark, _, model = title.partition(", ")
        for panel in panels:
            if panel.cost == FORWARDS:
                own_points = {point.label: point for point in panel.points if not point.is_published}
                points[benchmark, model, panel.k] = own_points
    starts = run.provenance.get("starts", [])
    date = str(starts[-1].get("time", ""))[:10] if starts else ""
    rows = []
    for (benchmark, model, k), by_label in points.items():
        is_answered = any(key[0] == benchmark and key[2] == k for key in points if key[1])
        if not model and is_answered:
            continue  # its recall stands beside the accuracy
        recalls = points.get((benchmark, "", k), {})
        for label, point in by_label.items():
            recall = recalls[label].value if label in recalls else Value()
            figures = (recall, point.value if model else Value(), Value(ours=point.cost, digits=2), date)
            rows.append(TableRow((benchmark, model, str(k), label, name), figures))
    return rows
