"""Figures of runs for papers and the page: their style, their files, and the legends of several panels."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from focus_eval.core.errors import InvalidInput
from focus_eval.keyframes.figures import BASELINE, INK, STYLES, THEME, draw_timeline, new_figure, styles_of
from focus_eval.keyframes.rows.records import SelectionRow

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


COLUMN_INCHES = 3.35
PAGE_INCHES = 6.9
# The type is Any because matplotlib's stubs require every parameter by name.
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
    # Write TrueType text to PDF and real text to SVG, which stay editable and searchable, and which publishers accept.
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "focus-eval",
}


def draw_timelines(rows: Sequence[SelectionRow], *, names: Mapping[str, str] | None = None) -> Figure:
    """Return the selections of one question over one timeline each, as the paper's figure 3.

    Pulled relevance is drawn as bars, final arms as bands, evidence as vertical lines, keyframes as triangles below.

    Args:
        names: label by selection id; a row without one is labelled with its sampler.

    Raises:
        InvalidInput: no rows, or rows of several questions.
    """
    if not rows or len({(row.benchmark, row.question_id, row.k) for row in rows}) != 1:
        raise InvalidInput("timelines show the selections of one question, of one K")
    with figure_style():
        figure = new_figure(PAGE_INCHES, 0.62 * len(rows) + 0.75)
        grid = figure.subplots(len(rows), 1, sharex=True, squeeze=False)[:, 0]
        row_names = [(names or {}).get(row.selection_id, row.sampler) for row in rows]
        styles = styles_of(row_names)
        for axes, row, name in zip(grid, rows, row_names, strict=True):
            draw_timeline(axes, row, colour=styles[name].light)
            axes.set_ylabel(name, rotation=0, ha="right", va="center")
        is_at_mean_rate = any(row.frame_seconds is None and (row.pulled_frames or row.clips) for row in rows)
        grid[-1].set_xlabel("Time (s)" + is_at_mean_rate * ", scored frames by the mean rate of the video")
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
        figure.set_layout_engine("none")  # the layout is done: repeating it would take a third of the drawing time
        figure.savefig(path.with_suffix(".png"), dpi=300)
    return [vector, path.with_suffix(".png")]


# An element whose gid begins with this gets the rest of the gid as its tooltip in `page_svg`.
MARK = "mark:"
_SVG, _XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"


def page_svg(figure: Figure, title: str) -> Markup:
    """Return `figure` as SVG for a page: in the page's font and the colours of its theme.

    The page's policy forbids style attributes, so each declaration becomes an attribute of its own. An element whose
    gid is `MARK` and a text gets the text as its tooltip; the first such element is a tab stop.

    Args:
        title: description of the drawing for screen readers.
    """
    from xml.etree import ElementTree

    written = io.StringIO()
    with figure_style():
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
    text = written.getvalue()
    colours = {light: f"var(--{name})" for name, (light, _) in THEME.items()}
    colours |= {style.light: f"var(--{style.colour})" for style in (*STYLES, BASELINE)} | {"#000000": "var(--soft)"}
    referenced = set(re.findall(r'(?:href="|url\()#(\w+)', text))
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _XLINK)
    root = ElementTree.fromstring(text)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith(("}metadata", "}style")):
                parent.remove(child)
    has_points = False
    for element in root.iter():
        for declaration in filter(None, element.attrib.pop("style", "").split(";")):
            name, value = (part.strip() for part in declaration.split(":", 1))
            if name != "font-family":
                element.set(name, colours.get(value, value))
        for name in {"d", "x", "y", "transform"} & set(element.attrib):  # two decimals of a point are enough
            element.set(name, re.sub(r"(\.\d\d)\d+", r"\1", element.attrib[name]))
        if element.get("id", "").startswith(MARK):
            title_element = ElementTree.Element(f"{{{_SVG}}}title")
            title_element.text = element.attrib["id"].removeprefix(MARK)
            element.insert(0, title_element)
            stop, has_points = "-1" if has_points else "0", True
            element.attrib.update({"class": "point", "role": "img", "aria-label": title_element.text, "tabindex": stop})
        if element.get("id") not in referenced:
            element.attrib.pop("id", None)
    for name in ("width", "height", "version"):
        del root.attrib[name]
    # Screen readers skip the children of role img: use group if points have labels.
    root.attrib.update({"class": "chart", "role": "group" if has_points else "img", "aria-label": title})
    return Markup(re.sub(r"\s*\n\s*", " ", ElementTree.tostring(root, encoding="unicode")))


def add_shared_legend(figure: Figure) -> None:
    """Add one legend for all panels below them; a sampler may be in only one of the panels."""
    handles: dict[str, Artist] = {}
    for axes in figure.axes:
        handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(list(handles.values()), list(handles), frameon=False, ncols=4, loc="outside lower center")


# Limit of names beside marks: more would overlap, so a legend takes their place, and tooltips on the page.
MAX_NAMES = 7


def name_marks(axes: Axes, marks: Sequence[tuple[str, float, float]]) -> None:
    """Write the name of each mark (name, x, y) beside it, at the nearest free height where marks are close."""
    axes.autoscale_view()
    to_axes = axes.transScale + axes.transLimits
    taken_places: list[tuple[float, float]] = []
    for name, *values in marks:
        x, y = to_axes.transform(values)
        taken_heights = [height for at, height in taken_places if abs(x - at) < 0.35]
        heights = (y + 0.03 + 0.07 * n for n in sorted(range(-2 * MAX_NAMES, 2 * MAX_NAMES), key=abs))
        free = (at for at in heights if 0 < at < 1 and all(abs(at - height) > 0.069 for height in taken_heights))
        place = next(free)
        taken_places.append((x, place))
        side = "right" if x > 0.6 else "left"
        shift = -0.02 if x > 0.6 else 0.02
        axes.text(x + shift, place, name, transform=axes.transAxes, ha=side, va="center", fontsize=7)


def figure_style() -> AbstractContextManager[None]:
    """Return a context manager within which figures are drawn and saved in this project's style."""
    from matplotlib import rc_context

    return rc_context(_STYLE)


def log_if_wide(axes: Axes, costs: Sequence[float]) -> None:
    """Make the cost axis logarithmic if the positive costs span more than a factor of 20; 0 stays on it."""
    from matplotlib.ticker import FuncFormatter

    positive = [cost for cost in costs if cost > 0]
    if positive and max(positive) > 20 * min(positive):
        axes.set_xscale("symlog", linthresh=min(positive), linscale=0.5)
        # Hide the power of ten that would overlap the 0.
        axes.xaxis.set_major_formatter(
            FuncFormatter(lambda value, _place: "" if 0 < value < min(positive) / 2 else f"{value:g}")
        )
