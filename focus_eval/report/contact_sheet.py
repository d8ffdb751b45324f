"""Draws a contact sheet: the keyframes of one selection over its timeline."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from focus_eval.report.palette import styles_of
from focus_eval.report.timeline import add_legend, draw_clip_means, draw_timeline
from focus_eval.rows.records import SelectionRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_sheet(row: SelectionRow, thumbnails: list[NDArray[np.uint8]]) -> Figure:
    """Return a contact sheet: one thumbnail per keyframe (RGB uint8, any size) over `draw_timeline`."""
    from matplotlib.figure import Figure

    columns = min(8, max(1, len(thumbnails)))
    lines = math.ceil(len(thumbnails) / columns)
    aspect = max(image.shape[0] / image.shape[1] for image in thumbnails)
    width = 12.0
    cell = width / columns * min(aspect, 1.4) + 0.22
    figure = Figure(figsize=(width, cell * lines + 3.2), layout="constrained")
    grid = figure.add_gridspec(lines + 1, columns, height_ratios=[cell] * lines + [2.4])
    for number, image in enumerate(thumbnails):
        axes = figure.add_subplot(grid[number // columns, number % columns])
        axes.imshow(image)
        axes.set_axis_off()
        axes.set_title(_caption(row, number), fontsize=7, pad=2)
    axes = figure.add_subplot(grid[lines, :])
    colour = styles_of([row.sampler])[row.sampler].light
    draw_timeline(axes, row, colour=colour)
    draw_clip_means(axes, row, colour=colour)
    add_legend(axes, row, colour=colour)
    axes.set(xlabel="seconds", ylabel="relevance")
    figure.suptitle(_headline(row), fontsize=10, wrap=True)
    return figure


def _caption(row: SelectionRow, number: int) -> str:
    minutes, seconds = divmod(row.times_seconds[number], 60)
    return f"{int(minutes)}:{seconds:05.2f}  #{row.keyframes[number]}"


def _headline(row: SelectionRow) -> str:
    seen = f"{len(row.pulled_frames)} of {row.n_frames} frames scored ({len(row.pulled_frames) / row.n_frames:.2%})"
    query = row.query if len(row.query) <= 90 else row.query[:87] + "..."
    sampler = " ".join([row.sampler, *(f"{name}={value}" for name, value in row.changed_options.items())])
    # A dollar sign would start mathematics.
    return f"{query!r}   {sampler}, k = {row.k}, {seen}".replace("$", r"\$")
