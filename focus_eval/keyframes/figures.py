"""Draws figures with matplotlib: the palette, timelines, contact sheets, accuracy against cost."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypedDict

import numpy as np
from numpy.typing import NDArray

from focus_eval.core.errors import printable
from focus_eval.keyframes.rows.records import SelectionRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# The hues are those of Okabe and Ito, which readers with any kind of colour vision can tell apart. Some are darker
# here, so that lines and text are visible on white. Samplers also differ by mark, for prints without colour. The page
# has a second set of colours for its dark theme.


class FilledMark(TypedDict):
    """Matplotlib's arguments for the filled mark of a measured point."""

    color: str
    marker: str


class HollowMark(FilledMark):
    """Matplotlib's arguments for the outlined mark of a published point."""

    mec: str
    mfc: str


@dataclass(frozen=True)
class Style:
    """Colours and mark of a sampler.

    Args:
        light, dark: colour on a light and on a dark ground; plots on paper take the light one.
        marker: matplotlib's name of its mark.
        colour: CSS class of the colour on the page.
    """

    light: str
    dark: str
    marker: str
    colour: str

    @property
    def css(self) -> str:
        """CSS classes of the colour and of the mark, as text."""
        return f"{self.colour} m{list(_OUTLINES).index(self.marker)}"

    @property
    def filled(self) -> FilledMark:
        """Matplotlib's arguments for the filled mark of a measured point."""
        return {"color": self.light, "marker": self.marker}

    @property
    def hollow(self) -> HollowMark:
        """Matplotlib's arguments for the outlined mark of a published point."""
        return {"color": self.light, "marker": self.marker, "mec": self.light, "mfc": "none"}


# Styles in the order in which samplers get them. When all are used, the colours repeat with other marks, so that no two
# of the first eighty samplers share colour and mark. There is no yellow, because it is hardly visible on white.
STYLES = (
    Style("#0072b2", "#56a8e0", "o", "s0"),
    Style("#d55e00", "#ff8c42", "s", "s1"),
    Style("#009e73", "#34c99d", "^", "s2"),
    Style("#b8578f", "#e08fbe", "D", "s3"),
    Style("#c98500", "#f0b53c", "v", "s4"),
    Style("#3a9bd8", "#8fd0ff", "P", "s5"),
    Style("#8a6d3b", "#c8a972", "X", "s6"),
    Style("#5b4b8a", "#a897dd", "*", "s7"),
    Style("#3f4a54", "#d5dbe2", "p", "s8"),
)
BASELINE = Style("#7d848c", "#a3acb8", "o", "sb")
# The marks as CSS draws them in a square of 100 x 100.
_OUTLINES = {
    "o": "circle(50%)",
    "s": "inset(8%)",
    "^": "polygon(50% 4%, 100% 96%, 0 96%)",
    "D": "polygon(50% 0, 100% 50%, 50% 100%, 0 50%)",
    "v": "polygon(0 4%, 100% 4%, 50% 96%)",
    "P": "polygon(33% 0, 67% 0, 67% 33%, 100% 33%, 100% 67%, 67% 67%, 67% 100%, 33% 100%, 33% 67%, 0 67%, 0 33%, "
    "33% 33%)",
    "X": "polygon(25% 0, 50% 25%, 75% 0, 100% 25%, 75% 50%, 100% 75%, 75% 100%, 50% 75%, 25% 100%, 0 75%, 25% 50%, "
    "0 25%)",
    "*": "polygon(50% 0, 63% 35%, 100% 38%, 71% 61%, 81% 98%, 50% 77%, 19% 98%, 29% 61%, 0 38%, 37% 35%)",
    "p": "polygon(50% 0, 100% 38%, 81% 100%, 19% 100%, 0 38%)",
}
# Colours of the page, without those of samplers: name -> (light theme, dark theme).
THEME = {
    "page": ("#fbfbf9", "#14171b"),
    "card": ("#ffffff", "#1b1f25"),
    "ink": ("#1d2126", "#e8eaed"),
    "soft": ("#5b6470", "#a3acb8"),
    "line": ("#dfe2e6", "#323943"),
    "wash": ("#f1f3f5", "#232830"),
    "accent": ("#0b5cad", "#7ab8ff"),
    "right": ("#17733c", "#6fd092"),
    "wrong": ("#b3261e", "#ff8a80"),
    "odd": ("#8a5a00", "#f0c060"),
    "evidence": ("#9a6b00", "#f0c060"),
}
EVIDENCE, INK, FAINT = THEME["evidence"][0], THEME["ink"][0], BASELINE.light
_STYLE_INDEX = {"focus": 0, "topk": 1, "aks": 2, "focus_released": 3, "random": 4, "uniform_1fps": 8}


def styles_of(labels: Sequence[str]) -> dict[str, Style]:
    """Return the style of each label: well-known samplers have a fixed one, uniform frames are grey."""
    taken_indices = {_STYLE_INDEX[label] for label in labels if label in _STYLE_INDEX}
    # All of `STYLES`, then the same colours again and again, with the marks shifted by one more in each round.
    free = (
        replace(style, marker=STYLES[(at + turn) % len(STYLES)].marker)
        for turn in count()
        for at, style in enumerate(STYLES)
        if turn or at not in taken_indices
    )
    return {
        label: BASELINE if label == "uniform" else STYLES[_STYLE_INDEX[label]] if label in _STYLE_INDEX else next(free)
        for label in labels
    }


def css_variables() -> str:
    """Return the colours as CSS: a variable each, in the light and the dark theme, and a class per style.

    The theme follows the reader's system until the page's button sets `data-theme`.
    """
    light, dark = (
        " ".join(
            [
                *(f"--{name}: {light_and_dark[is_dark]};" for name, light_and_dark in THEME.items()),
                *(f"--{style.colour}: {style.dark if is_dark else style.light};" for style in (*STYLES, BASELINE)),
            ]
        )
        for is_dark in (False, True)
    )
    classes = "\n".join(f".{style.colour} {{ --c: var(--{style.colour}); }}" for style in (*STYLES, BASELINE))
    classes += "".join(f"\n.m{at} {{ --mark: {outline}; }}" for at, outline in enumerate(_OUTLINES.values()))
    return (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f'@media (prefers-color-scheme: dark) {{ :root:not([data-theme="light"]) {{ {dark} }} }}\n'
        ':root[data-theme="light"] { color-scheme: light; }\n'
        f':root[data-theme="dark"] {{ color-scheme: dark; {dark} }}\n'
        f"{classes}\n"
    )


def draw_timeline(axes: Axes, row: SelectionRow, *, colour: str) -> None:
    """Draw `row` over seconds.

    Pulled relevance is drawn as thin bars, final clips as bands, evidence as dashed lines, keyframes as triangles below
    the axis.

    Args:
        colour: of bands and triangles.
    """
    for start, stop, *_, is_final in row.clips:
        if is_final:
            axes.axvspan(*row.seconds_of([start, stop]), color=colour, alpha=0.13, lw=0)
    seconds = row.seconds_of(row.pulled_frames)
    pulled = [(at, value) for at, value in zip(seconds, row.pulled_relevance, strict=True) if value is not None]
    if pulled:
        times, relevance = np.array(sorted(pulled)).T
        axes.vlines(times, 0, relevance, color=FAINT, lw=0.5)
    for time in row.evidence_seconds:
        axes.axvline(time, color=EVIDENCE, lw=1.0, ls=(0, (2, 1.5)))
    if row.times_seconds:  # skip an empty line, which without clipping would break the layout
        axes.plot(row.times_seconds, [-0.16] * len(row.times_seconds), "^", color=colour, ms=3.2, mew=0, clip_on=False)
    axes.set(ylim=(-0.3, 1.05), xlim=(0, row.duration_seconds), yticks=[0, 1])
    axes.tick_params(axis="y", length=0, labelsize=5)


def draw_clip_means(axes: Axes, row: SelectionRow, *, colour: str) -> None:
    """Draw mean relevance and radius of every clip, the final ones in `colour`."""
    for start, stop, _, mean, radius, is_final in row.clips:
        if mean is None:
            continue
        shade, ends = colour if is_final else FAINT, row.seconds_of([start, stop])
        if radius is not None:
            low, high = max(0.0, mean - radius), min(1.0, mean + radius)
            axes.fill_between(ends, low, high, color=shade, alpha=0.12, lw=0)
        axes.plot(ends, [mean, mean], color=shade, lw=1.6)


def add_legend(axes: Axes, row: SelectionRow, *, colour: str) -> None:
    """Add a legend above the axis for the elements of `draw_timeline` and `draw_clip_means`."""
    from matplotlib.lines import Line2D

    entries = [Line2D([], [], marker="^", color=colour, ls="", label=f"keyframes ({len(row.keyframes or ())})")]
    if row.pulled_frames:
        entries.append(Line2D([], [], marker="|", color=FAINT, ls="", label=f"pulled ({len(row.pulled_frames)})"))
    if row.clips:
        entries.append(Line2D([], [], color=colour, label="final clip: mean and radius"))
        entries.append(Line2D([], [], color=FAINT, label="other clip"))
    if row.evidence_seconds:
        entries.append(Line2D([], [], color=EVIDENCE, ls="--", label="evidence"))
    axes.legend(handles=entries, fontsize=7, ncols=len(entries), loc="lower left", bbox_to_anchor=(0, 1), frameon=False)


def new_figure(width_inches: float, height_inches: float) -> Figure:
    """Return an empty figure with a constrained layout."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width_inches, height_inches), layout="constrained")


def write_figure(figure: Figure, target: Path | BinaryIO, *, dpi: int, kind: str) -> None:
    """Write a figure as `kind` (png, pdf or svg); a character that the font lacks is drawn as a box."""
    with warnings.catch_warnings():
        # Drop matplotlib's warnings, two for each missing glyph: the picture shows a box in any case.
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from", UserWarning)
        figure.savefig(target, dpi=dpi, format=kind)


def draw_sheet(row: SelectionRow, thumbnails: list[NDArray[np.uint8]], *, warning: str = "") -> Figure:
    """Return a contact sheet: one thumbnail per keyframe (RGB uint8, any size) over `draw_timeline`.

    Each thumbnail has its time, frame and relevance; the one with the highest relevance is marked.

    Args:
        warning: text below the headline.
    """
    assert row.selection is not None  # keyframes exist: their pictures were read
    frames, times, relevance = row.selection.keyframes, row.times_seconds or [], row.selection.relevance
    best = int(np.nanargmax(relevance)) if np.isfinite(relevance).any() else None
    aspect = max((image.shape[0] / image.shape[1] for image in thumbnails), default=0.0)
    n_across = 4 if aspect <= 1 and len(thumbnails) <= 12 else 8  # show pictures larger if they are few and wide
    columns = min(n_across, max(1, len(thumbnails)))
    lines = math.ceil(len(thumbnails) / columns)
    width = 12.0
    cell = width / columns * min(aspect, 1.4) + 0.32
    plot_height = 1.8 if row.n_scored else 0.9
    figure = new_figure(width, cell * lines + plot_height + 0.8)
    grid = figure.add_gridspec(lines + 1, columns, height_ratios=[cell] * lines + [plot_height])
    for number, image in enumerate(thumbnails):
        axes = figure.add_subplot(grid[number // columns, number % columns], xticks=[], yticks=[])
        axes.imshow(image)
        axes.set_axis_off()
        minutes, seconds = divmod(round(times[number], 2), 60)
        is_best = number == best
        caption = f"{int(minutes)}:{seconds:05.2f}  #{frames[number]}"
        if not np.isnan(relevance[number]):
            caption += f"\n{'best: ' if is_best else ''}relevance {relevance[number]:.2f}"
        # With its height given the title is not moved above ticks, of which an axis that is off has none.
        axes.set_title(caption, fontsize=7, y=1.0, pad=2, fontweight="bold" if is_best else "normal")
    axes = figure.add_subplot(grid[lines, :])
    colour = styles_of([row.sampler])[row.sampler].light
    draw_timeline(axes, row, colour=colour)
    draw_clip_means(axes, row, colour=colour)
    add_legend(axes, row, colour=colour)
    axes.set(xlabel="seconds", ylabel="relevance")
    query = printable(row.query if len(row.query) <= 90 else row.query[:87] + "...")
    cost = f"{row.n_scored} of {row.n_frames} frames scored" if row.n_scored else "no frame scored"
    count_text = "1 frame" if len(frames) == 1 else f"{len(frames)} frames"
    title = f"{query}: {count_text} chosen by {row.sampler}, {cost}"
    # Escape dollar signs, which matplotlib reads as the start of a formula.
    figure.suptitle(f"{title}\n{warning}".rstrip().replace("$", r"\$"), fontsize=10, wrap=True)
    return figure
