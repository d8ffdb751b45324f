"""Which plots do a run's rows allow: accuracy against cost, accuracy by length?"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from focus_eval.report.anchors import published_value, read_anchors
from focus_eval.report.page.svg import Bar, Point, bars_svg, colour_classes, scatter_svg
from focus_eval.report.run import Run, labels_of, sampler_order
from focus_eval.report.tables import accuracy_figure, runs_on_gpu

_BUCKETS = ("short", "medium", "long")


@dataclass(frozen=True)
class Chart:
    """One plot with its caption."""

    caption: str
    svg: str


def charts_of(run: Run) -> list[Chart]:
    """Return up to three plots per benchmark and model; the paper's points stand where they are about the same.

    Hours are drawn where every selection paid for its own frames.
    """
    if not run.answers:
        return []
    charts: list[Chart] = []
    classes = colours_of(run)
    for (benchmark, model), part in run.answer_frame.groupby(["benchmark", "model"], sort=False):
        where, name = f"{benchmark}, {model}", f"chart{len(charts)}"
        costs = ["frames scored (%)"]
        if all(run.pays_its_own.values()):  # else hours say who asked first
            costs.append("GPU hours" if runs_on_gpu(run.selection_frame) else "device-hours (cpu)")
        for cost in costs:
            points = cost_points(run, part, cost=cost)
            if (benchmark, model) == ("longvideobench", "llava_video_7b"):
                points += published_points(cost)
            svg = scatter_svg(points, classes=classes, cost_title=cost, name=f"{name}-{cost.split()[0]}")
            charts.append(Chart(f"{where}: accuracy against {cost}", svg))
        bars = length_bars(part)
        if bars:
            charts.append(
                Chart(
                    f"{where}: accuracy by length of the video", bars_svg(bars, classes=classes, name=f"{name}-length")
                )
            )
    return charts


def colours_of(run: Run) -> dict[str, str]:
    """Return the colour class of every sampler of `run`, the same wherever it is drawn, and of the published ones."""
    labels = sorted(set(labels_of(run.selections).values()), key=sampler_order)
    return colour_classes([*labels, *(one for one in ("uniform", "aks", "focus") if one not in labels)])


def cost_points(run: Run, part: pd.DataFrame, *, cost: str) -> list[Point]:
    """Return one point per sampler and K of `part`: lines of answers of one benchmark and model."""
    points = []
    several_k = part["k"].nunique() > 1
    for (label, k), here in part.groupby(["label", "k"]):
        figure = accuracy_figure(here)
        if figure.ours is None:
            continue
        chosen = run.selection_frame[run.selection_frame["selection_id"].isin(here["selection_id"].unique())]
        if cost.startswith("frames"):
            spent = 100 * chosen["n_pulls"].sum() / max(1, chosen["n_frames"].sum())
        else:
            spent = chosen["select_seconds"].sum() / 3600 / chosen["seed"].nunique()
        name = f"{label}, K={k}" if several_k else ""
        point = Point(
            label=str(label), name=name, cost=float(spent), accuracy=figure.ours, low=figure.low, high=figure.high
        )
        points.append(point)
    return points


def length_bars(part: pd.DataFrame) -> list[Bar]:
    """Return accuracy by bucket and sampler, at the largest K."""
    part = part[part["k"] == part["k"].max()]
    bars = []
    for bucket in [one for one in _BUCKETS if one in set(part["bucket"])]:
        for label in sorted(set(part["label"]), key=sampler_order):
            figure = accuracy_figure(part[(part["bucket"] == bucket) & (part["label"] == label)])
            if figure.ours is not None and figure.low is not None and figure.high is not None:
                bars.append(Bar(label=label, group=bucket, value=figure.ours, low=figure.low, high=figure.high))
    return bars


def published_points(cost: str) -> list[Point]:
    """Return the paper's points for LongVideoBench under LLaVA-Video-7B; none for hours on a CPU."""
    column = {"frames scored (%)": "frames_seen_percent", "GPU hours": "gpu_hours"}.get(cost)
    if column is None:
        return []
    found = [("focus", published_value(one, column), one["accuracy"]) for one in read_anchors("alpha").lines]
    by_sampler = {
        one["sampler"]: one["overall"]
        for one in read_anchors("by_length").lines
        if one["benchmark"] == "longvideobench"
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
