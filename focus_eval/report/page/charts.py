"""The plots of the page: accuracy against cost, accuracy by length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from focus_eval.report.anchors import published_value, read_anchors
from focus_eval.report.labels import sampler_order
from focus_eval.report.measures import (
    accuracy_figure,
    frames_scored_percent,
    hours_per_seed,
    recall_figure,
    reported_figure,
    runs_on_gpu,
    selections_of,
)
from focus_eval.report.page.svg import Bar, Point, bars_svg, scatter_svg, value_span
from focus_eval.report.palette import styles_of
from focus_eval.report.run import Run

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
