"""The plots of the page: accuracy against cost, accuracy by length."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from focus_eval.report.anchors import published_value, read_anchors
from focus_eval.report.measures import (
    accuracy_figure,
    frames_scored_percent,
    hours_per_seed,
    reported_figure,
    runs_on_gpu,
    selections_of,
)
from focus_eval.report.page.svg import Bar, Point, bars_svg, colour_classes, scatter_svg
from focus_eval.report.run import Run, labels_of, sampler_order

_BUCKETS = ("short", "medium", "long")
# The frames shown in the published points: LongVideoBench under LLaVA-Video-7B.
PUBLISHED_K = 64


@dataclass(frozen=True)
class Chart:
    """One plot with its caption."""

    caption: str
    svg: str


def charts_of(run: Run) -> list[Chart]:
    """Return the plots per benchmark and model: accuracy against each cost, and by length once per K.

    The paper's points stand where they are about the same benchmark, model and K. Hours are drawn where every
    selection of the benchmark paid for its own frames.
    """
    if not run.answers:
        return []
    charts: list[Chart] = []
    classes = colours_of(run)
    for (benchmark, model), part in run.answer_frame.groupby(["benchmark", "model"], sort=False):
        where, name = f"{benchmark}, {model}", f"chart{len(charts)}"
        costs = ["frames scored (%)"]
        if all(paid for (name_of, _), paid in run.pays_its_own.items() if name_of == benchmark):
            costs.append("GPU hours" if runs_on_gpu(selections_of(run, part)) else "device-hours (cpu)")
        for cost in costs:
            points = cost_points(run, part, cost=cost)
            if not points:
                continue
            if (benchmark, model) == ("longvideobench", "llava_video_7b") and PUBLISHED_K in set(part["k"]):
                points += published_points(cost, k=PUBLISHED_K if part["k"].nunique() > 1 else None)
            svg = scatter_svg(points, classes=classes, cost_title=cost, name=f"{name}-{cost.split()[0]}")
            charts.append(Chart(f"{where}: accuracy against {cost}", svg))
        for k, here in part.groupby("k"):
            bars = length_bars(here)
            if bars:
                svg = bars_svg(bars, classes=classes, name=f"{name}-length-{k}")
                charts.append(Chart(f"{where}: accuracy by length of the video, K={k}", svg))
    return charts


def colours_of(run: Run) -> dict[str, str]:
    """Return the colour class of every sampler of `run`, the same wherever it is drawn, and of the published ones."""
    labels = sorted(set(labels_of(run.selections).values()), key=sampler_order)
    return colour_classes([*labels, *(item for item in ("uniform", "aks", "focus") if item not in labels)])


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


def published_points(cost: str, *, k: int | None = None) -> list[Point]:
    """Return the paper's points for LongVideoBench under LLaVA-Video-7B at K = 64; none for hours on a CPU.

    Args:
        k: named with each point, in a plot of several K.
    """
    column = {"frames scored (%)": "frames_seen_percent", "GPU hours": "gpu_hours"}.get(cost)
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
        Point(
            label=label,
            cost=at,
            accuracy=float(accuracy),
            is_published=True,
            name="" if k is None else f"{label}, K={k}",
        )
        for label, at, accuracy in found
        if at is not None
    ]
