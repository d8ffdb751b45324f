"""Draws the paper's figures: autocorrelation, accuracy against cost, timelines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from focus_eval.errors import InvalidInput
from focus_eval.report.autocorrelation import Autocorrelation
from focus_eval.report.palette import FAINT, INK, STYLES, styles_of
from focus_eval.report.timeline import draw_timeline
from focus_eval.rows.records import SelectionRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN_INCHES = 3.35
PAGE_INCHES = 6.9
# Any: matplotlib's stubs list every parameter by name.
_STYLE: Any = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.edgecolor": INK,
    "text.color": INK,
    # TrueType text in PDF and real text in SVG: editable, searchable, accepted by publishers.
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "focus-eval",
}


def draw_acf(curve: Autocorrelation) -> Figure:
    """Return the paper's figure 1: median and quartiles over videos, and the half-life."""
    with figure_style():
        return _acf_figure(curve)


def _acf_figure(curve: Autocorrelation) -> Figure:
    figure, axes = _column(2.2)
    colour = STYLES[0].light
    axes.fill_between(curve.lags_seconds, curve.low, curve.high, color=colour, alpha=0.2, lw=0, label="quartiles")
    axes.plot(curve.lags_seconds, curve.median, color=colour, lw=1.4, label=f"median of {curve.videos} videos")
    axes.axhline(0.5, color=FAINT, lw=0.7, ls=(0, (4, 3)))
    if curve.half_life_seconds is not None:
        axes.plot([curve.half_life_seconds] * 2, [0, 0.5], color=STYLES[1].light, lw=0.9)
        axes.plot(curve.half_life_seconds, 0.5, "o", color=STYLES[1].light, ms=3.5)
        axes.annotate(
            f"half-life {curve.half_life_seconds:.1f} s",
            (curve.half_life_seconds, 0.5),
            xytext=(5, 5),
            textcoords="offset points",
            fontsize=7,
        )
    axes.set(xlabel="Lag (s)", ylabel="Autocorrelation", xlim=(0, curve.lags_seconds[-1]))
    axes.set_ylim(min(0.0, float(curve.low.min())) - 0.02, 1.02)
    axes.legend(frameon=False, loc="upper right")
    return figure


def draw_timelines(rows: Sequence[SelectionRow], *, names: Mapping[str, str] | None = None) -> Figure:
    """Return the selections of one question over one timeline each, as the paper's figure 3.

    Pulled relevance is drawn as bars, final arms as bands, evidence as vertical lines, keyframes as triangles below.

    Args:
        names: what a row is called, by selection id; its sampler otherwise.

    Raises:
        InvalidInput: no rows, or rows of several questions.
    """
    if not rows or len({(row.benchmark, row.question_id, row.k) for row in rows}) != 1:
        raise InvalidInput("timelines show the selections of one question, of one K")
    from matplotlib.figure import Figure

    with figure_style():
        figure = Figure(figsize=(PAGE_INCHES, 0.62 * len(rows) + 0.75), layout="constrained")
        grid = figure.subplots(len(rows), 1, sharex=True, squeeze=False)[:, 0]
        called = [(names or {}).get(row.selection_id, row.sampler) for row in rows]
        styles = styles_of(called)
        for axes, row, name in zip(grid, rows, called, strict=True):
            draw_timeline(axes, row, colour=styles[name].light)
            axes.set_ylabel(name, rotation=0, ha="right", va="center")
        grid[-1].set_xlabel("Time (s)")
        query = rows[0].query if len(rows[0].query) <= 110 else rows[0].query[:107] + "..."
        figure.suptitle(f"{query}   K = {rows[0].k}".replace("$", r"\$"), fontsize=8)
    return figure


def save_figure(figure: Figure, path: Path) -> list[Path]:
    """Write `figure` as a vector (the suffix's if it is .pdf or .svg, else .pdf) and as PNG; return both paths."""
    vector = path if path.suffix in (".pdf", ".svg") else path.with_suffix(".pdf")
    path.parent.mkdir(parents=True, exist_ok=True)
    # Without a date the same rows give the same bytes.
    undated = {"CreationDate": None} if vector.suffix == ".pdf" else {"Date": None}
    with figure_style():
        figure.savefig(vector, metadata=undated)
        figure.savefig(path.with_suffix(".png"), dpi=300)
    return [vector, path.with_suffix(".png")]


def figure_style() -> AbstractContextManager[None]:
    """Return the style of every figure, to be drawn or saved in."""
    from matplotlib import rc_context

    return rc_context(_STYLE)


def _column(height_inches: float) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(COLUMN_INCHES, height_inches), layout="constrained")
    return figure, figure.subplots()


def log_if_wide(axes: Axes, costs: Sequence[float]) -> None:
    """A cost axis over more than a factor of 20 is logarithmic near its far end; 0 (uniform frames) stays on it."""
    from matplotlib.ticker import FuncFormatter

    positive = [cost for cost in costs if cost > 0]
    if positive and max(positive) > 20 * min(positive):
        axes.set_xscale("symlog", linthresh=min(positive), linscale=0.5)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:g}"))
