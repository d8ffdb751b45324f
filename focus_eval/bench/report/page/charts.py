"""Plots of a run for its page and for a paper: a measure against its cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from markupsafe import Markup

from focus_eval.bench.benchmarks.question import NEAR_SECONDS
from focus_eval.bench.report import figures, measures
from focus_eval.bench.report.figures import figure_style
from focus_eval.bench.report.layouts import published_value, read_anchors
from focus_eval.bench.report.measures import COSTS, FORWARDS, FRAMES_SCORED
from focus_eval.bench.report.recall import recall_column
from focus_eval.bench.report.rendering import Value
from focus_eval.bench.report.run import CEILING_MARK, Run, rows_in_order, sampler_order
from focus_eval.keyframes.figures import THEME, Style, new_figure, styles_of
from focus_eval.keyframes.rows.records import SelectionRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Largest number of the run's own samplers in the page's first chart, which writes each name beside its mark. Published
# results are added to these.
MAX_LEADING = 6
# Size of a panel on the page, which shows it about one and a half times as large. The first chart has the page's width.
_WIDTH_INCHES, _HEIGHT_INCHES = 3.9, 2.5
_LEAD_INCHES, _NARROW_LEAD_INCHES = (8.0, 2.9), (3.9, 3.2)


_RECALL, _RECALL_TITLE = recall_column(NEAR_SECONDS), f"Evidence recall, {NEAR_SECONDS:g} s (%)"


@dataclass(frozen=True, kw_only=True)
class Point:
    """One mark of a plot of a measure against a cost."""

    label: str
    cost: float
    value: Value
    is_published: bool = False

    @property
    def title(self) -> str:
        """E.g. "focus: 63.1 [60.4, 65.8] % at 1.87"."""
        source = " (published)" if self.is_published else ""
        return f"{self.label}{source}: {self.value.brief_text} % at {self.cost:.3g}"


# K of the published points, which are of LongVideoBench with LLaVA-Video-7B.
PUBLISHED_K = 64


@dataclass(frozen=True)
class Chart:
    """One plot with its caption.

    Args:
        has_published: True if it shows a published figure.
        is_frontier: True if it shows evidence recall against forwards.
    """

    caption: str
    svg: Markup
    has_published: bool = False
    is_frontier: bool = False


@dataclass(frozen=True)
class Panel:
    """One plot of a measure against a cost, at one K; panels of one figure share their scale.

    Args:
        measure, cost: titles of the axes.
    """

    k: int
    measure: str
    cost: str
    points: list[Point]

    @property
    def is_frontier(self) -> bool:
        """True for evidence recall against forwards."""
        return self.cost == FORWARDS and self.measure == _RECALL_TITLE


PanelsByFigure = Mapping[str, list[Panel]]


def charts_of(run: Run, panels_by_figure: PanelsByFigure | None = None) -> list[Chart]:
    """Return the plots against each cost: recall per benchmark, accuracy per benchmark and model.

    Each K has its own panel. The paper's points are drawn in the panel of their benchmark, model and K. Hours are drawn
    if every selection of the benchmark encoded all its frames itself.
    """
    styles = styles_of_run(run)
    charts: list[Chart] = []
    for title, panels in (panels_of(run) if panels_by_figure is None else panels_by_figure).items():
        ends = value_ends(panels)
        charts += [_panel_chart(title, panel, styles, ends) for panel in panels]
    return charts


def panels_of(run: Run) -> PanelsByFigure:
    """Return the panels of each figure by its name: the benchmark for recall, benchmark and model for accuracy."""
    panels: dict[str, list[Panel]] = {}
    for benchmark, selections in run.selection_frame.groupby("benchmark", sort=False):
        panels[str(benchmark)] = recall_panels(selections)
    if run.answers:
        for (benchmark, model), part in run.answer_frame.groupby(["benchmark", "model"], sort=False):
            panels[f"{benchmark}, {model}"] = accuracy_panels(run, part, benchmark=str(benchmark), model=str(model))
    return {title: of_figure for title, of_figure in panels.items() if of_figure}


def lead_panel(run: Run, panels_by_figure: PanelsByFigure) -> tuple[str, Panel] | None:
    """Return (figure's title, panel) that a page begins with; None if no panel is against forward equivalents.

    The panel shows evidence recall if it is known, else accuracy, at a K with answers if there is one.
    """
    answered = set(run.answer_frame["k"]) if run.answers else set()
    candidates = [
        (not panel.is_frontier, panel.k not in answered, title, panel)
        for title, panels in panels_by_figure.items()
        for panel in panels
        if panel.cost == FORWARDS
    ]
    return min(candidates, key=lambda entry: entry[:2])[2:] if candidates else None


def lead_chart(run: Run, panels_by_figure: PanelsByFigure, *, is_narrow: bool = False) -> Chart | None:
    """Return the lead panel as a chart: at most `MAX_LEADING` of the run's samplers, and all published points.

    Uniform and focus come first, then the samplers that no other sampler beats at the same cost or less.

    Args:
        is_narrow: draw the chart for a phone; the normal chart is about twice as wide.
    """
    if (lead := lead_panel(run, panels_by_figure)) is None:
        return None
    title, panel = lead
    by_value = sorted(panel.points, key=lambda point: -point.value.plotted)
    order = [point for point in panel.points if point.label in ("uniform", "focus")] + unbeaten(panel.points)[::-1]
    order += [point for point in by_value if "[" not in point.label] + by_value
    points = list(dict.fromkeys(point for point in order if not point.is_published))[:MAX_LEADING]
    points += [point for point in panel.points if point.is_published]
    part = replace(panel, points=points)
    size = _NARROW_LEAD_INCHES if is_narrow else _LEAD_INCHES
    return _panel_chart(title, part, styles_of_run(run), value_ends([part]), size=size)


def headline(run: Run, panels_by_figure: PanelsByFigure) -> str:
    """Return a sentence with the best figure of the run and that of uniform frames; ceilings do not count.

    "" if there is no figure.
    """
    if (lead := lead_panel(run, panels_by_figure)) is None:
        return ""
    title, panel = lead
    own_points = [point for point in unbeaten(panel.points) if not point.is_published]
    if not own_points:
        return ""
    best, uniform = own_points[-1], next((point for point in panel.points if point.label == "uniform"), None)
    share_text = (
        f"of the evidence has a keyframe within {NEAR_SECONDS:g} s" if panel.is_frontier else "of the answers are right"
    )
    cost = f"{best.cost:.2g} % of the frames encoded" if best.cost else "no frame encoded"
    uniform_text = f"; uniform frames: {uniform.value.brief_text} %" if uniform not in (None, best) else ""
    return f"{title}, K = {panel.k}: with {best.label} {best.value.brief_text} % {share_text}, {cost}{uniform_text}."


def unbeaten(points: Sequence[Point]) -> list[Point]:
    """Return the points that no point of the same or lower cost exceeds, by rising cost, without ceilings."""
    best: list[Point] = []
    for point in sorted(points, key=lambda point: (point.cost, -point.value.plotted)):
        if CEILING_MARK not in point.label and (not best or point.value.plotted > best[-1].value.plotted):
            best.append(point)
    return best


def accuracy_panels(run: Run, part: pd.DataFrame, *, benchmark: str, model: str) -> list[Panel]:
    """Return panels per K: accuracy against forwards and frames scored, and hours if no questions share forwards."""
    costs = list(COSTS)
    if all(paid for (name, _), paid in run.pays_its_own.items() if name == benchmark):
        costs.append("GPU hours" if measures.runs_on_gpu(measures.selections_of(run, part)) else "device-hours (cpu)")
    points_by_k = {int(k): cost_points(run, rows, costs=costs) for k, rows in part.groupby("k")}
    panels = []
    for cost in costs:
        for k, points_by_cost in points_by_k.items():
            points = points_by_cost[cost]
            if points and (benchmark, model, k) == ("longvideobench", "llava_video_7b", PUBLISHED_K):
                points += published_points(cost)
            panels.append(Panel(k, "Accuracy (%)", cost, points))
    return [panel for panel in panels if panel.points]


def recall_panels(selections: pd.DataFrame) -> list[Panel]:
    """Return panels per K of recall within `NEAR_SECONDS` against each cost, for one benchmark's selections."""
    points: dict[tuple[str, int], list[Point]] = {}
    for k, rows in selections[selections[_RECALL].notna()].groupby("k"):
        for label, series_rows in rows.groupby("label"):
            value = measures.recall_figure(series_rows, _RECALL)
            for cost, count in COSTS.items():
                spent = count(series_rows)
                if value.ours is not None and spent is not None:
                    points.setdefault((cost, int(k)), []).append(Point(label=str(label), cost=spent, value=value))
    places = sorted(points, key=lambda key: list(COSTS).index(key[0]))
    return [Panel(k, _RECALL_TITLE, cost, points[cost, k]) for cost, k in places]


def _panel_chart(
    figure_title: str,
    panel: Panel,
    styles: Mapping[str, Style],
    ends: tuple[float, float],
    size: tuple[float, float] = (_WIDTH_INCHES, _HEIGHT_INCHES),
) -> Chart:
    """Return one panel drawn as SVG, with a title that lists its points; `ends` are those of the value axis.

    Names are written beside the points if there are few points.
    """
    with figure_style():
        figure = new_figure(*size)
        axes = figure.subplots()
        axes.grid(axis="y", color=THEME["line"][0], lw=0.6)
        _draw_panel(axes, panel, styles, ends)
        our_points = [point for point in panel.points if not point.is_published]
        if len(our_points) <= figures.MAX_NAMES:
            figures.name_marks(axes, [(point.label, point.cost, point.value.plotted) for point in our_points])
    measure = "accuracy" if panel.measure.startswith("Accuracy") else f"evidence recall within {NEAR_SECONDS:g} s"
    title = f"{panel.measure} against {panel.cost}: {'; '.join(point.title for point in panel.points)}"
    caption = f"{figure_title}: {measure} against {panel.cost}, K={panel.k}"
    has_published = len(our_points) < len(panel.points)
    return Chart(caption, figures.page_svg(figure, title), has_published, is_frontier=panel.is_frontier)


def styles_of_run(run: Run) -> dict[str, Style]:
    """Return the style of each sampler of `run` and of each published one, for use in all plots of the run."""
    labels = sorted(set(run.labels.values()), key=sampler_order)
    published = [name for name in ("uniform", "aks", "focus") if name not in labels]
    return styles_of([*labels, *published])


def cost_points(run: Run, part: pd.DataFrame, *, costs: Sequence[str]) -> dict[str, list[Point]]:
    """Return for each cost a point for each label of `part`.

    Labels without a figure or a cost are left out.

    Args:
        part: answers of one benchmark, model and K.
        costs: keys of `COSTS`; any other text means hours per seed.
    """
    points_by_cost: dict[str, list[Point]] = {cost: [] for cost in costs}
    for label, rows in part.groupby("label"):
        value, selections = measures.reported_figure(rows), measures.selections_of(run, rows)
        for cost, points in points_by_cost.items():
            spent = COSTS.get(cost, measures.hours_per_seed)(selections)
            if value.ours is not None and spent is not None:
                points.append(Point(label=str(label), cost=spent, value=value))
    return points_by_cost


def published_points(cost: str) -> list[Point]:
    """Return the paper's points for LongVideoBench under LLaVA-Video-7B at K = 64; none for hours on a CPU."""
    column = {FRAMES_SCORED: "frames_seen_percent", "GPU hours": "gpu_hours"}.get(cost)
    if column is None:
        return []
    points = [("focus", published_value(item, column), item["accuracy"]) for item in read_anchors("alpha")]
    by_sampler = {
        item["sampler"]: item["overall"] for item in read_anchors("by_length") if item["benchmark"] == "longvideobench"
    }
    for line in read_anchors("efficiency"):
        if line["method"] in by_sampler and line["method"] != "focus":
            points.append((line["method"], published_value(line, column), by_sampler[line["method"]]))
    points.append(("uniform", 0.0, by_sampler["uniform"]))
    return [
        Point(label=label, cost=at, value=Value(ours=float(accuracy)), is_published=True)
        for label, at, accuracy in points
        if at is not None
    ]


def write_figures(run: Run, folder: Path, panels_by_figure: PanelsByFigure) -> list[Path]:
    """Write the page's plots against cost, and the timelines of one telling question, as PDF and PNG."""
    written = []
    for title, panels in panels_by_figure.items():
        name = f"efficiency-{title}.pdf".replace(", ", "-").replace("/", "_")
        written += figures.save_figure(draw_panels(panels, styles_of_run(run)), folder / name)
    rows = [row for row in telling_question(run) if row.times_seconds is not None and row.duration_seconds is not None]
    if rows:
        written += figures.save_figure(figures.draw_timelines(rows, names=run.labels), folder / "timelines.pdf")
    return written


def draw_panels(panels: Sequence[Panel], styles: Mapping[str, Style]) -> Figure:
    """Draw `panels` in a page's width: a row per measure and cost, a column per K, and one scale for all values."""
    kinds = list(dict.fromkeys((panel.measure, panel.cost) for panel in panels))
    ks = sorted({panel.k for panel in panels})
    first_k = {kind: min(panel.k for panel in panels if (panel.measure, panel.cost) == kind) for kind in kinds}
    drawn, ends = {point.label for panel in panels for point in panel.points}, value_ends(panels)
    with figure_style():
        height = 2.0 * len(kinds) + 0.16 * ((len(drawn) + 4) // 4) + 0.2
        figure = new_figure(figures.PAGE_INCHES, height)
        grid = figure.subplots(len(kinds), len(ks), squeeze=False)
        for axes in grid.flat:
            axes.set_axis_off()
        for panel in panels:
            axes = grid[kinds.index((panel.measure, panel.cost)), ks.index(panel.k)]
            axes.set_axis_on()
            axes.set_title(f"K = {panel.k}")
            _draw_panel(axes, panel, styles, ends)
            if panel.k > first_k[panel.measure, panel.cost]:
                axes.set_ylabel("")  # shown by the row's first panel only
        figures.add_shared_legend(figure)
    return figure


def value_ends(panels: Sequence[Panel]) -> tuple[float, float]:
    """Return ends of an axis that holds all values and intervals of `panels`: round numbers, a few steps apart."""
    from matplotlib.ticker import MaxNLocator

    values = [point.value for panel in panels for point in panel.points]
    ends = [end for value in values for end in (value.low, value.ours, value.high) if end is not None]
    ticks = MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(min(ends), max(ends))
    return float(ticks[0]), float(ticks[-1])


def _draw_panel(axes: Axes, panel: Panel, styles: Mapping[str, Style], ends: tuple[float, float]) -> None:
    """Draw the points of a panel with their intervals; published ones are hollow.

    `ends` are those of the value axis.
    """
    axes.set(xlabel=panel.cost[0].upper() + panel.cost[1:], ylabel=panel.measure, ylim=ends)
    figures.log_if_wide(axes, [point.cost for point in panel.points])
    for point in panel.points:
        style, value = styles[point.label], point.value
        x, y, reach = point.cost, value.plotted, None
        if value.ours is not None and value.low is not None and value.high is not None:
            reach = [[max(0.0, value.ours - value.low)], [max(0.0, value.high - value.ours)]]
        if point.is_published:
            (mark,) = axes.plot(x, y, **style.hollow, ms=5, ls="", label="published", clip_on=False)
        else:
            mark = axes.errorbar(
                x, y, reach, label=point.label, **style.filled, ms=4, ls="", capsize=2, elinewidth=0.7, clip_on=False
            ).lines[0]
        mark.set_gid(figures.MARK + point.title)


def telling_question(run: Run) -> list[SelectionRow]:
    """Return the selections of the longest question that has evidence, one per sampler, all of one K and seed."""
    frame = run.selection_frame
    if frame.empty:
        return []
    rows = frame[frame["error"].isna()]
    groups = rows.assign(known=rows[_RECALL].notna()).groupby(["benchmark", "question_id", "k", "seed"], sort=False)
    summary = groups.agg(
        has_evidence=("known", "first"), samplers=("label", "nunique"), seconds=("duration_seconds", "first")
    )
    summary = summary[summary["samplers"] > 1]
    if summary.empty:
        return []
    best = max(summary.itertuples(), key=lambda line: (bool(line.has_evidence), line.samplers, line.seconds)).Index
    part = groups.get_group(best)
    keys = zip(part["benchmark"], part["question_id"], part["selection_id"], strict=True)
    [(_, rows_by_key)] = rows_in_order(run.selections, list(keys))
    row_by_label = {run.labels[row.selection_id]: row for row in rows_by_key.values()}
    return sorted(row_by_label.values(), key=lambda row: (not row.sampler.startswith("uniform"), row.sampler))
