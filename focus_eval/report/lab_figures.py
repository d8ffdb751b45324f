"""Pictures of evidence recall without a model: against frames scored, video length and event length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from focus_eval.report.figures import PAGE_INCHES, figure_style, log_if_wide
from focus_eval.report.lab import RECALL
from focus_eval.report.palette import FAINT, Style, styles_of

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# A series whose label has one of these is a budget of the frontier, not a sampler of its own.
BUDGETS = "every_seconds=|clip_seconds=|share="


def draw_frontier(frame: pd.DataFrame, *, replayed: pd.DataFrame | None = None) -> Figure:
    """Return recall within 2 s against frames scored, one panel per K, one line per sampler over its budgets.

    Args:
        frame: `Run.selection_frame`; several benchmarks are pooled.
        replayed: the same samplers at several budgets on relevance that was stored; the lines are then theirs, with
            hollow marks, and `frame` gives filled marks alone.
    """
    ks = sorted(set(frame["k"]))
    samplers = set(frame["sampler"]) | (set() if replayed is None else set(replayed["sampler"]))
    styles = styles_of(sorted(samplers))
    with figure_style():
        figure, panels = _panels(len(ks))
        for axes, k in zip(panels, ks, strict=True):
            costs = [] if replayed is None else _draw_budgets(axes, replayed[replayed["k"] == k], styles, hollow=True)
            costs += _draw_budgets(axes, frame[frame["k"] == k], styles, lw=1 if replayed is None else 0)
            axes.set(xlabel="Frames scored (%)", title=f"K = {k}")
            log_if_wide(axes, costs)
        if replayed is not None:
            panels[0].plot([], [], color=FAINT, marker="o", mfc="none", ms=3, lw=1, label="replayed at other budgets")
        _finish(figure, panels)
        return figure


def _draw_budgets(
    axes: Axes, part: pd.DataFrame, styles: Mapping[str, Style], *, lw: float = 1, hollow: bool = False
) -> list[float]:
    """Draw recall over frames scored of each sampler in `part`; return the percentages of frames."""
    costs: list[float] = []
    for sampler, rows in part[part["error"].isna()].groupby("sampler"):
        points = sorted(
            (100 * same["n_pulls"].sum() / same["n_frames"].sum(), 100 * same[RECALL].mean())
            for _, same in rows.groupby("label")
        )
        cost, recall = np.array(points).T
        costs += cost.tolist()
        style = styles[str(sampler)]
        # Hollow marks stay out of the legend: the filled one of the same sampler names both.
        drawn = {**style.hollow, "ms": 3} if hollow else {**style.filled, "ms": 4, "label": str(sampler)}
        axes.plot(cost, recall, **drawn, lw=lw)
    return costs


def draw_against(frame: pd.DataFrame, column: str, edges: Sequence[float], *, label: str) -> Figure:
    """Return recall within 2 s against `column` in bins between `edges`, one panel per K, defaults of every sampler."""
    shown = frame[~frame["label"].str.contains(BUDGETS)]
    ks = sorted(set(shown["k"]))
    with figure_style():
        figure, panels = _panels(len(ks))
        styles = styles_of(sorted(set(shown["label"])))
        middles = np.sqrt(np.asarray(edges[:-1]) * np.asarray(edges[1:]))
        for axes, k in zip(panels, ks, strict=True):
            for sampler, rows in shown[shown["k"] == k].groupby("label"):
                bins = pd.cut(rows[column], list(edges), labels=middles, include_lowest=True)
                means = 100 * rows.groupby(bins, observed=True)[RECALL].mean()
                style = styles[str(sampler)]
                axes.plot(
                    means.index.astype(float),
                    means,
                    **style.filled,
                    ms=4,
                    lw=1,
                    label=str(sampler),
                )
            axes.set(xlabel=label, title=f"K = {k}", xscale="log")
        _finish(figure, panels)
        return figure


def _panels(n: int) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(PAGE_INCHES, 3.0), layout="constrained")
    return figure, list(figure.subplots(1, n, sharey=True, squeeze=False)[0])


def _finish(figure: Figure, panels: Sequence[Axes]) -> None:
    panels[0].set_ylabel("Evidence recall within 2 s (%)")
    named: dict[str, Artist] = {}  # a sampler may stand in one panel only
    for axes in panels:
        named.update(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(list(named.values()), list(named), frameon=False, ncols=4, loc="outside lower center")
