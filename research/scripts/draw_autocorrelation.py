"""Draw the autocorrelation of relevance over time, figure 1 of the paper: median and quartiles over videos.

    python research/scripts/draw_autocorrelation.py RUN --out acf.pdf [--sampler topk] [--max-lag 60]

Reads a run with a sampler whose pulls are a regular grid (topk, aks, aks_dense); prints the half-life.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from focus_eval.bench.report.figures import COLUMN_INCHES, figure_style, save_figure
from focus_eval.bench.report.run import load_run
from focus_eval.core.errors import InvalidInput, unknown_name
from focus_eval.core.types import FloatArray
from focus_eval.keyframes.figures import FAINT, STYLES, new_figure
from focus_eval.keyframes.rows.records import SelectionRow
from focus_eval.keyframes.samplers.registry import sampler_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Looked for in this order if no sampler is named.
GRID_SAMPLERS = ("aks_dense", "topk", "aks", "bolt")


@dataclass(frozen=True)
class Autocorrelation:
    """Autocorrelation of relevance over lag, summarised over videos.

    Args:
        lags_seconds: shape `(n,)`, from 0.
        low, median, high: quartiles over videos at each lag, shape `(n,)`.
        videos, questions: numbers of videos and questions in the curve.
        flat: number of questions left out because their relevance never changes.
        half_life_seconds: first lag at which the median falls to 0.5, interpolated; None where it never does.
    """

    lags_seconds: FloatArray
    low: FloatArray
    median: FloatArray
    high: FloatArray
    videos: int
    questions: int
    flat: int
    half_life_seconds: float | None


def relevance_autocorrelation(rows: Iterable[SelectionRow], *, max_lag_seconds: float = 60.0) -> Autocorrelation:
    """Return the autocorrelation of relevance of rows whose sampler pulled a regular grid (topk, aks, aks_dense).

    For each question, take the usual biased estimate `sum (r_t - m)(r_{t+lag} - m) / sum (r_t - m)^2`. Average it over
    each video's questions, then take quartiles over videos. Lags are in steps of one second. A video counts at lags
    up to half its length.

    Raises:
        InvalidInput: no row with a regular grid of pulls at about one a second or denser.
    """
    lags = np.arange(0.0, max_lag_seconds + 0.5)
    by_video: dict[str, list[FloatArray]] = {}
    flat = questions = 0
    for row in rows:
        series = _series(row)
        if series is None:
            continue
        values, step_seconds = series
        if np.ptp(values) < 1e-9:
            flat += 1
            continue
        questions += 1
        by_video.setdefault(row.video, []).append(_at_lags(values, step_seconds, lags))
    if not by_video:
        raise InvalidInput(
            "autocorrelation needs rows whose pulls are a regular grid (topk, aks, aks_dense); there is none"
        )
    # Masked: a mean over the questions that are long enough for the lag, NaN where none is.
    curves = np.array([np.ma.masked_invalid(item).mean(axis=0).filled(np.nan) for item in by_video.values()])
    has_values = ~np.isnan(curves).all(axis=0)
    low, median, high = np.nanquantile(curves[:, has_values], [0.25, 0.5, 0.75], axis=0)
    lags = lags[has_values]
    return Autocorrelation(lags, low, median, high, len(by_video), questions, flat, half_life(lags, median))


def half_life(lags_seconds: FloatArray, curve: FloatArray) -> float | None:
    """Return the first lag at which `curve` falls to 0.5, linearly interpolated; None if it never does."""
    lags_below_half = np.flatnonzero(curve <= 0.5)
    if lags_below_half.size == 0 or lags_below_half[0] == 0:
        return None
    i = int(lags_below_half[0])
    share = (curve[i - 1] - 0.5) / (curve[i - 1] - curve[i])
    return float(lags_seconds[i - 1] + share * (lags_seconds[i] - lags_seconds[i - 1]))


def autocorrelation(values: FloatArray) -> FloatArray:
    """Return the biased autocorrelation of `values`, shape `(n,)`, at all lags from 0; 1 at lag 0."""
    from statsmodels.tsa.stattools import acf

    # By Fourier transform: a dense row has 10^5 values.
    return np.asarray(acf(values, nlags=values.size - 1, fft=True))


def _series(row: SelectionRow) -> tuple[FloatArray, float] | None:
    """Return relevance in time order and its step in seconds; None if the pulls are not a regular grid."""
    if row.error is not None or row.fps is None or len(row.pulled_frames) < 8:
        return None
    if any(value is None for value in row.pulled_relevance):
        return None
    order = np.argsort(row.pulled_frames)
    steps = np.diff(np.asarray(row.pulled_frames)[order])
    if (steps != steps[0]).any() or steps[0] / row.fps > 1.5:
        return None
    return np.asarray(row.pulled_relevance, dtype=np.float64)[order], float(steps[0] / row.fps)


def _at_lags(values: FloatArray, step_seconds: float, lags: FloatArray) -> FloatArray:
    """Return the autocorrelation at these lags, NaN beyond half the length of the values."""
    curve = autocorrelation(values)
    usable = curve[: max(2, values.size // 2)]
    return np.interp(lags, np.arange(usable.size) * step_seconds, usable, right=np.nan)


def draw_autocorrelation(curve: Autocorrelation) -> Figure:
    """Return the figure: median and quartiles over videos, and the half-life."""
    with figure_style():
        figure = new_figure(COLUMN_INCHES, 2.2)
        axes, (first, second, *_) = figure.subplots(), STYLES
        lags, half = curve.lags_seconds, curve.half_life_seconds
        axes.fill_between(lags, curve.low, curve.high, color=first.light, alpha=0.2, lw=0, label="quartiles")
        axes.plot(lags, curve.median, color=first.light, lw=1.4, label=f"median of {curve.videos} videos")
        axes.axhline(0.5, color=FAINT, lw=0.7, ls=(0, (4, 3)))
        if half is not None:
            axes.plot([half] * 2, [0, 0.5], color=second.light, lw=0.9)
            axes.plot(half, 0.5, "o", color=second.light, ms=3.5)
            axes.annotate(f"half-life {half:.1f} s", (half, 0.5), (5, 5), textcoords="offset points", fontsize=7)
        axes.set(xlabel="Lag (s)", ylabel="Autocorrelation", xlim=(0, lags[-1]))
        axes.set_ylim(min(0.0, float(curve.low.min())) - 0.02, 1.02)
        axes.legend(frameon=False, loc="upper right")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="folder of a run, or a packed run")
    parser.add_argument("--out", type=Path, required=True, help="figure to write (.pdf or .svg); a PNG is written too")
    parser.add_argument("--sampler", default="", help="sampler to plot; the first with a regular grid by default")
    parser.add_argument("--max-lag", type=float, default=60.0, metavar="SECONDS", help="longest lag")
    arguments = parser.parse_args()
    run = load_run(arguments.run)
    names = list(dict.fromkeys(row.sampler for row in run.variants))
    if arguments.sampler and sampler_name(arguments.sampler) not in names:
        raise unknown_name(f"sampler of {arguments.run}:", arguments.sampler, names)
    # One sampler's rows only: the same grid pulled by another would count every question twice.
    sampler = (
        sampler_name(arguments.sampler)
        if arguments.sampler
        else next((name for name in GRID_SAMPLERS if name in names), None)
    )
    rows = (row for row in run.selections if sampler in (None, row.sampler))
    curve = relevance_autocorrelation(rows, max_lag_seconds=arguments.max_lag)
    for path in save_figure(draw_autocorrelation(curve), arguments.out):
        print(path)
    half = "never" if curve.half_life_seconds is None else f"{curve.half_life_seconds:.1f} s"
    print(f"half-life {half}; {curve.videos} videos, {curve.questions} questions, {curve.flat} flat ones left out")


if __name__ == "__main__":
    main()
