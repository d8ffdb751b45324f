"""The plots of the page: accuracy against cost, accuracy by length."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from focus_eval.report.figures import (
    PAGE_INCHES,
    Style,
    draw_timelines,
    figure_style,
    log_if_wide,
    save_figure,
    styles_of,
)
from focus_eval.report.measures import (
    accuracy_figure,
    frames_scored_percent,
    hours_per_seed,
    recall_figure,
    reported_figure,
    runs_on_gpu,
    selections_of,
)
from focus_eval.report.run import Run, sampler_order
from focus_eval.report.tables import published_value, read_anchors
from focus_eval.rows.records import SelectionRow

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


WIDTH, HEIGHT = 440, 280
LEFT, RIGHT, TOP, BOTTOM = 48, 14, 14, 44
# With more points than this their names would cover each other: the legend has the colours, each mark its title.
MOST_LABELS = 7


@dataclass(frozen=True, kw_only=True)
class Point:
    """One mark of a scatter plot; `low` and `high` None where no interval is known.

    Points of one `label` share a colour and are joined; `name` is what the mark is called, the label by default, and
    `short` is written beside it where there is no room for the name.
    """

    label: str
    cost: float
    accuracy: float
    low: float | None = None
    high: float | None = None
    is_published: bool = False
    name: str = ""
    short: str = ""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One bar of a group, in percent; `low` and `high` None where no interval is known."""

    label: str
    group: str
    value: float
    low: float | None = None
    high: float | None = None


def scatter_svg(
    points: Sequence[Point],
    *,
    classes: Mapping[str, str],
    cost_title: str,
    name: str,
    value_title: str = "Accuracy (%)",
    span: tuple[float, float] | None = None,
) -> str:
    """Return a measure against cost: ours filled with intervals, published hollow; every mark names itself.

    Args:
        span: lowest and highest value of the panels beside this one, for one scale; its own points' by default.
    """
    low, high = span or value_span(points)
    y_ticks = nice_ticks(low, high)
    y = _linear(y_ticks[0], y_ticks[-1], HEIGHT - BOTTOM, TOP)
    x, x_ticks = _cost_scale([point.cost for point in points])
    parts = [_frame(y_ticks, y, value_title)]
    for value, text in x_ticks:
        parts.append(_text(x(value), HEIGHT - BOTTOM + 16, text, "tick", "middle"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, cost_title, "axis", "middle"))
    parts += _joined([point for point in points if not point.is_published], classes, x, y)
    placed: list[tuple[float, float]] = []
    is_crowded = sum(not point.is_published for point in points) > MOST_LABELS
    for point in points:
        parts.append(_mark(point, classes[point.label], x(point.cost), y))
        text = point.short if is_crowded else point.name or point.label
        if not point.is_published and text:
            parts.append(_label(text, x(point.cost), y(point.accuracy), placed))
    title = f"{value_title} against {cost_title}: " + "; ".join(_spoken(point) for point in points)
    return _svg("".join(parts), title, name)


def value_span(points: Sequence[Point]) -> tuple[float, float]:
    """Return the lowest and the highest value of `points` with their intervals."""
    ends = [value for point in points for value in (point.low, point.accuracy, point.high) if value is not None]
    return min(ends), max(ends)


def bars_svg(bars: Sequence[Bar], *, classes: Mapping[str, str], name: str) -> str:
    """Return grouped bars with intervals, groups and bars in the order given."""
    groups = list(dict.fromkeys(bar.group for bar in bars))
    labels = list(dict.fromkeys(bar.label for bar in bars))
    y_ticks = [0.0, 25.0, 50.0, 75.0, 100.0]
    y = _linear(0, 100, HEIGHT - BOTTOM, TOP)
    span = (WIDTH - LEFT - RIGHT) / max(1, len(groups))
    width = min(34.0, span * 0.82 / max(1, len(labels)))
    parts = [_frame(y_ticks, y, "Accuracy (%)")]
    for number, group in enumerate(groups):
        middle = LEFT + span * (number + 0.5)
        parts.append(_text(middle, HEIGHT - BOTTOM + 18, group, "axis", "middle"))
        inside = [bar for bar in bars if bar.group == group]
        for item in inside:
            left = middle + (labels.index(item.label) - len(labels) / 2) * width
            parts.append(_bar(item, classes[item.label], left, width, y))
    title = "Accuracy by length: " + "; ".join(f"{bar.group} {bar.label} {bar.value:.1f} %" for bar in bars)
    return _svg("".join(parts), title, name)


def nice_ticks(low: float, high: float) -> list[float]:
    """Return about six round values that enclose `[low, high]`."""
    span = max(high - low, 1e-9)
    raw = span / 5
    step = next(item for item in _steps(raw) if item >= raw)
    first, last = math.floor(low / step) * step, math.ceil(high / step) * step
    count = round((last - first) / step)
    return [round(first + i * step, 10) for i in range(max(1, count) + 1)]


def _steps(raw: float) -> list[float]:
    power = 10.0 ** math.floor(math.log10(raw))
    return [power, 2 * power, 5 * power, 10 * power]


def _linear(low: float, high: float, start: float, stop: float) -> Callable[[float], float]:
    return lambda value: start + (value - low) / (high - low) * (stop - start)


def _cost_scale(costs: Sequence[float]) -> tuple[Callable[[float], float], list[tuple[float, str]]]:
    """A logarithmic axis where costs span more than a factor of 20, with a place at its left for (almost) 0."""
    least = max(costs, default=0.0) / 2000
    positive = [cost for cost in costs if cost > least]
    start, stop = LEFT + 14.0, WIDTH - RIGHT - 14.0
    if not positive or max(positive) <= 20 * min(positive):
        ticks = nice_ticks(0.0, max(positive, default=1.0))
        return _linear(ticks[0], ticks[-1], start, stop), [(tick, f"{tick:g}") for tick in ticks]
    low, high = math.floor(np.log10(min(positive))), math.ceil(np.log10(max(positive)))
    zero = any(cost <= least for cost in costs)
    logs = _linear(low, high, start + (40.0 if zero else 0.0), stop)
    ticks_log = [(10.0**power, f"{10.0**power:g}") for power in range(low, high + 1)]
    return (
        lambda cost: start if cost <= least else logs(math.log10(cost)),
        ([(0.0, "≈ 0")] if zero else []) + ticks_log,
    )


def _frame(ticks: Sequence[float], y: Callable[[float], float], title: str) -> str:
    lines = [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>'
        + _text(LEFT - 8, y(tick) + 4, f"{tick:g}", "tick", "end")
        for tick in ticks
    ]
    middle = (TOP + HEIGHT - BOTTOM) / 2
    rotated = (
        f'<text class="axis" text-anchor="middle" transform="translate(12 {middle:.0f}) rotate(-90)">{title}</text>'
    )
    return "".join(lines) + rotated


def _joined(
    points: Sequence[Point], classes: Mapping[str, str], x: Callable[[float], float], y: Callable[[float], float]
) -> list[str]:
    lines = []
    for label, css in classes.items():
        same = sorted((point.cost, point.accuracy) for point in points if point.label == label)
        if len(same) > 1:
            path = " ".join(f"{x(cost):.1f},{y(accuracy):.1f}" for cost, accuracy in same)
            lines.append(f'<g class="{css}"><polyline class="joined" points="{path}"/></g>')
    return lines


def _mark(point: Point, css: str, x: float, y: Callable[[float], float]) -> str:
    interval = ""
    if point.low is not None and point.high is not None:
        interval = (
            f'<line class="interval" x1="{x:.1f}" x2="{x:.1f}" y1="{y(point.low):.1f}" y2="{y(point.high):.1f}"/>'
        )
    kind = "published" if point.is_published else "ours"
    circle = f'<circle class="{kind}" cx="{x:.1f}" cy="{y(point.accuracy):.1f}" r="5"/>'
    return f'<g class="mark {css}"><title>{escape(_spoken(point))}</title>{interval}{circle}</g>'


def _label(text: str, x: float, y: float, placed: list[tuple[float, float]]) -> str:
    """The label beside its mark, moved down while another label is near."""
    to_left = x > WIDTH - 150
    place = y - 7
    while any(abs(place - other) < 13 and abs(x - other_x) < 110 for other_x, other in placed):
        place += 13
    placed.append((x, place))
    return _text(x - 9 if to_left else x + 9, place, text, "label", "end" if to_left else "start")


def _bar(bar: Bar, css: str, left: float, width: float, y: Callable[[float], float]) -> str:
    top, middle = y(bar.value), left + width / 2
    size = f'width="{width - 2:.1f}" height="{max(0.0, y(0) - top):.1f}"'
    spoken, whisker = f"{bar.group}, {bar.label}: {bar.value:.1f} %", ""
    if bar.low is not None and bar.high is not None:
        spoken += f" [{bar.low:.1f}, {bar.high:.1f}]"
        ends = f'y1="{y(bar.low):.1f}" y2="{y(bar.high):.1f}"'
        whisker = f'<line class="whisker" x1="{middle:.1f}" x2="{middle:.1f}" {ends}/>'
    return (
        f'<g class="mark {css}"><title>{escape(spoken)}</title>'
        f'<rect class="bar" x="{left + 1:.1f}" y="{top:.1f}" {size}/>{whisker}</g>'
    )


def _spoken(point: Point) -> str:
    interval = "" if point.low is None or point.high is None else f" [{point.low:.1f}, {point.high:.1f}]"
    whose = " (published)" if point.is_published else ""
    return f"{point.name or point.label}{whose}: {point.accuracy:.1f} %{interval} at {point.cost:.3g}"


def _text(x: float, y: float, text: str, css: str, anchor: str) -> str:
    return f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(body: str, title: str, name: str) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="{name}-title">'
        f'<title id="{name}-title">{escape(title)}</title>{body}</svg>'
    )


_BUCKETS = ("short", "medium", "long")
# The frames shown in the published points: LongVideoBench under LLaVA-Video-7B.
PUBLISHED_K = 64
FRAMES_SCORED = "frames scored (%)"


@dataclass(frozen=True)
class Chart:
    """One plot with its caption."""

    caption: str
    svg: str


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


def charts_of(run: Run) -> list[Chart]:
    """Return the plots: recall per benchmark, accuracy per benchmark and model against each cost, and by length.

    Every K has a panel of its own. The paper's points stand where they are about the same benchmark, model and K.
    Hours are drawn where every selection of the benchmark paid for its own frames.
    """
    charts: list[Chart] = []
    classes = colours_of(run)
    for where, panels in figures_of(run).items():
        charts += _panel_charts(where, panels, classes, name=f"chart{len(charts)}")
    if not run.answers:
        return charts
    for (benchmark, model), part in run.answer_frame.groupby(["benchmark", "model"], sort=False):
        for k, here in part.groupby("k"):
            bars = length_bars(here)
            if bars:
                svg = bars_svg(bars, classes=classes, name=f"chart{len(charts)}-length-{k}")
                charts.append(Chart(f"{benchmark}, {model}: accuracy by length of the video, K={k}", svg))
    return charts


def figures_of(run: Run) -> dict[str, list[Panel]]:
    """Return the panels of each figure by its name: the benchmark for recall, benchmark and model for accuracy."""
    figures: dict[str, list[Panel]] = {}
    for benchmark, chosen in run.selection_frame.groupby("benchmark", sort=False):
        figures[str(benchmark)] = recall_panels(chosen)
    if run.answers:
        for (benchmark, model), part in run.answer_frame.groupby(["benchmark", "model"], sort=False):
            figures[f"{benchmark}, {model}"] = accuracy_panels(run, part, benchmark=str(benchmark), model=str(model))
    return {where: panels for where, panels in figures.items() if panels}


def accuracy_panels(run: Run, part: pd.DataFrame, *, benchmark: str, model: str) -> list[Panel]:
    """Return accuracy against frames scored, and hours where they are each question's own, once per K."""
    costs = [FRAMES_SCORED]
    if all(paid for (name, _), paid in run.pays_its_own.items() if name == benchmark):
        costs.append("GPU hours" if runs_on_gpu(selections_of(run, part)) else "device-hours (cpu)")
    panels = []
    for cost in costs:
        for k, here in part.groupby("k"):
            points = cost_points(run, here, cost=cost)
            if points and (benchmark, model, k) == ("longvideobench", "llava_video_7b", PUBLISHED_K):
                points += published_points(cost)
            panels.append(Panel(int(k), "Accuracy (%)", cost, points))
    return [panel for panel in panels if panel.points]


def recall_panels(chosen: pd.DataFrame) -> list[Panel]:
    """Return evidence recall within 2 s against frames scored, once per K, for lines of selections of a benchmark."""
    panels = []
    for k, here in chosen[chosen["recall@2"].notna()].groupby("k"):
        points = []
        for label, same in here.groupby("label"):
            figure, spent = recall_figure(same, "recall@2"), frames_scored_percent(same)
            if figure.ours is not None and spent is not None:
                point = Point(label=str(label), cost=spent, accuracy=figure.ours, low=figure.low, high=figure.high)
                points.append(point)
        panels.append(Panel(int(k), "Evidence recall, 2 s (%)", FRAMES_SCORED, points))
    return [panel for panel in panels if panel.points]


def _panel_charts(where: str, panels: list[Panel], classes: Mapping[str, str], *, name: str) -> list[Chart]:
    charts = []
    span = value_span([point for panel in panels for point in panel.points])
    for number, panel in enumerate(panels):
        svg = scatter_svg(
            panel.points,
            classes=classes,
            cost_title=panel.cost,
            name=f"{name}-{number}",
            value_title=panel.measure,
            span=span,
        )
        measure = "accuracy" if panel.measure.startswith("Accuracy") else "evidence recall within 2 s"
        charts.append(Chart(f"{where}: {measure} against {panel.cost}, K={panel.k}", svg))
    return charts


def colours_of(run: Run) -> dict[str, str]:
    """Return the colour class of every sampler of `run`, the same wherever it is drawn, and of the published ones."""
    labels = sorted(set(run.labels.values()), key=sampler_order)
    published = [name for name in ("uniform", "aks", "focus") if name not in labels]
    return {label: style.css for label, style in styles_of([*labels, *published]).items()}


def cost_points(run: Run, part: pd.DataFrame, *, cost: str) -> list[Point]:
    """Return one point per sampler and K of `part`: lines of answers of one benchmark and model."""
    points = []
    several_k = part["k"].nunique() > 1
    for (label, k), here in part.groupby(["label", "k"]):
        figure = reported_figure(here)
        chosen = selections_of(run, here)
        spent = frames_scored_percent(chosen) if cost.startswith("frames") else hours_per_seed(chosen)
        if figure.ours is None or spent is None:
            continue
        points.append(
            Point(
                label=str(label),
                name=f"{label}, K={k}" if several_k else "",
                short=f"K={k}" if several_k else "",
                cost=spent,
                accuracy=figure.ours,
                low=figure.low,
                high=figure.high,
            )
        )
    return points


def length_bars(part: pd.DataFrame) -> list[Bar]:
    """Return accuracy by bucket and sampler of `part`: lines of answers of one benchmark, model and K."""
    bars = []
    for bucket in [item for item in _BUCKETS if item in set(part["bucket"])]:
        for label in sorted(set(part["label"]), key=sampler_order):
            figure = accuracy_figure(part[(part["bucket"] == bucket) & (part["label"] == label)])
            if figure.ours is not None:
                bars.append(Bar(label=label, group=bucket, value=figure.ours, low=figure.low, high=figure.high))
    return bars


def published_points(cost: str) -> list[Point]:
    """Return the paper's points for LongVideoBench under LLaVA-Video-7B at K = 64; none for hours on a CPU."""
    column = {FRAMES_SCORED: "frames_seen_percent", "GPU hours": "gpu_hours"}.get(cost)
    if column is None:
        return []
    found = [("focus", published_value(item, column), item["accuracy"]) for item in read_anchors("alpha").lines]
    by_sampler = {
        item["sampler"]: item["overall"]
        for item in read_anchors("by_length").lines
        if item["benchmark"] == "longvideobench"
    }
    for line in read_anchors("efficiency").lines:
        if line["method"] in by_sampler and line["method"] != "focus":
            found.append((line["method"], published_value(line, column), by_sampler[line["method"]]))
    found.append(("uniform", 0.0, by_sampler["uniform"]))
    return [
        Point(label=label, cost=at, accuracy=float(accuracy), is_published=True)
        for label, at, accuracy in found
        if at is not None
    ]


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
