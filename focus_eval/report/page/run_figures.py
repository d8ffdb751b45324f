"""Writes the figures of a run: the page's plots against cost as PDF, and the timelines of one question."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from focus_eval.report.figures import PAGE_INCHES, draw_timelines, figure_style, log_if_wide, save_figure
from focus_eval.report.labels import sampler_order
from focus_eval.report.page.charts import Panel, figures_of
from focus_eval.report.page.svg import Point, nice_ticks, value_span
from focus_eval.report.palette import Style, styles_of
from focus_eval.report.run import Run
from focus_eval.rows.records import SelectionRow

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def write_figures(run: Run, folder: Path) -> list[Path]:
    """Write the page's plots against cost, and the timelines of one telling question, as PDF and PNG."""
    written = []
    labels = sorted(set(run.labels.values()), key=sampler_order)
    for where, panels in figures_of(run).items():
        name = f"efficiency-{where}.pdf".replace(", ", "-").replace("/", "_")
        written += save_figure(draw_panels(panels, labels=labels), folder / name)
    rows = telling_question(run)
    if rows:
        figure = draw_timelines(rows, names=run.labels)
        written += save_figure(figure, folder / "timelines.pdf")
    return written


def draw_panels(panels: Sequence[Panel], *, labels: Sequence[str]) -> Figure:
    """Return `panels` in a page's width: a row per measure and cost, a column per K, one scale of values.

    Args:
        labels: every sampler of the run, so that each has the same colour in all figures.
    """
    from matplotlib.figure import Figure

    kinds = list(dict.fromkeys((panel.measure, panel.cost) for panel in panels))
    ks = sorted({panel.k for panel in panels})
    drawn = {point.label for panel in panels for point in panel.points}
    with figure_style():
        height = 2.0 * len(kinds) + 0.16 * ((len(drawn) + 4) // 4) + 0.2
        figure = Figure(figsize=(PAGE_INCHES, height), layout="constrained")
        grid = figure.subplots(len(kinds), len(ks), squeeze=False)
        ticks = nice_ticks(*value_span([point for panel in panels for point in panel.points]))
        styles = styles_of([*labels, *sorted(drawn - set(labels))])
        for axes in grid.flat:
            axes.set_axis_off()
        for panel in panels:
            axes = grid[kinds.index((panel.measure, panel.cost)), ks.index(panel.k)]
            axes.set_axis_on()
            axes.set(title=f"K = {panel.k}", xlabel=panel.cost.capitalize(), ylim=(ticks[0], ticks[-1]))
            axes.set_ylabel(panel.measure)
            log_if_wide(axes, [point.cost for point in panel.points])
            for point in panel.points:
                _draw_point(axes, point, styles[point.label])
        handles: dict[str, Artist] = {}
        for axes in grid.flat:
            found, names = axes.get_legend_handles_labels()
            handles |= dict(zip(names, found, strict=True))
        figure.legend(list(handles.values()), list(handles), frameon=False, ncols=4, loc="outside lower center")
    return figure


def _draw_point(axes: Axes, point: Point, style: Style) -> None:
    """Draw one mark: ours filled with its interval, the published one hollow."""
    if point.is_published:
        axes.plot(point.cost, point.accuracy, **style.hollow, ms=5, ls="", label="published")
        return
    low = point.accuracy if point.low is None else point.low
    high = point.accuracy if point.high is None else point.high
    errors = [[max(0.0, point.accuracy - low)], [max(0.0, high - point.accuracy)]]
    axes.errorbar(
        point.cost, point.accuracy, errors, **style.filled, ms=4, ls="", capsize=2, elinewidth=0.7,
        label=point.label,
    )  # fmt: skip


def telling_question(run: Run) -> list[SelectionRow]:
    """Return the selections of the longest question that has evidence, one per sampler, all of one K and seed."""
    frame = run.selection_frame
    if frame.empty:
        return []
    chosen = frame[frame["error"].isna()]
    asked = chosen.groupby(["benchmark", "question_id", "k", "seed"], sort=False)
    about = asked.agg(
        has_evidence=("recall@1", lambda recalls: recalls.notna().iloc[0]),
        samplers=("label", "nunique"),
        seconds=("duration_seconds", "first"),
    )
    about = about[about["samplers"] > 1]
    if about.empty:
        return []
    best = max(about.itertuples(), key=lambda line: (bool(line.has_evidence), line.samplers, line.seconds)).Index
    rows = {
        run.labels[row.selection_id]: row
        for row in run.selections
        if row.error is None and (row.benchmark, row.question_id, row.k, row.seed) == best
    }
    return sorted(rows.values(), key=lambda row: (not row.sampler.startswith("uniform"), row.sampler))
