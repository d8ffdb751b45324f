"""Pictures of evidence recall without a model: against frames scored, video length and event length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from focus_eval.report.figures import PAGE_INCHES, figure_style, log_if_wide
from focus_eval.report.lab import RECALL
from focus_eval.report.palette import styles_of

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# A series whose label has one of these is a budget of the frontier, not a sampler of its own.
BUDGETS = "every_seconds=|clip_seconds=|share="


def draw_frontier(frame: pd.DataFrame) -> Figure:
    """Return recall within 2 s against frames scored, one panel per K, one line per sampler over its budgets.

    Args:
        frame: `Run.selection_frame`; several benchmarks are pooled.
    """
    ks = sorted(set(frame["k"]))
    with figure_style():
        figure, panels = _panels(len(ks))
        styles = styles_of(sorted(set(frame["sampler"])))
        for axes, k in zip(panels, ks, strict=True):
            part = frame[(frame["k"] == k) & frame["error"].isna()]
            costs: list[float] = []
            for sampler, rows in part.groupby("sampler"):
                points = sorted(
                    (100 * one["n_pulls"].sum() / one["n_frames"].sum(), 100 * one[RECALL].mean())
                    for _, one in rows.groupby("label")
                )
                cost, recall = np.array(points).T
                costs += cost.tolist()
                colour, marker = styles[str(sampler)]
                axes.plot(cost, recall, color=colour, marker=marker, ms=4, lw=1, label=str(sampler))
            axes.set(xlabel="Frames scored (%)", title=f"K = {k}")
            log_if_wide(axes, costs)
        _finish(figure, panels)
        return figure


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
                colour, marker = styles[str(sampler)]
                axes.plot(means.index.astype(float), means, color=colour, marker=marker, ms=4, lw=1, label=str(sampler))
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
