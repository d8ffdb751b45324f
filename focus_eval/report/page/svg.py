"""Draws plots as inline SVG in the page's light or dark colours."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

WIDTH, HEIGHT = 440, 280
LEFT, RIGHT, TOP, BOTTOM = 48, 14, 14, 44
# With more points than this their names would cover each other: the legend has the colours, each mark its title.
MOST_LABELS = 7


@dataclass(frozen=True, kw_only=True)
class Point:
    """One mark of a scatter plot; `low` and `high` None where no interval is known.

    Points of one `label` share a colour and are joined; `name` is what the mark is called, the label by default, and
    `short` is written beside it where there is no room for the name.
    """

    label: str
    cost: float
    accuracy: float
    low: float | None = None
    high: float | None = None
    is_published: bool = False
    name: str = ""
    short: str = ""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One bar of a group, in percent; `low` and `high` None where no interval is known."""

    label: str
    group: str
    value: float
    low: float | None = None
    high: float | None = None


def scatter_svg(
    points: Sequence[Point],
    *,
    classes: Mapping[str, str],
    cost_title: str,
    name: str,
    value_title: str = "Accuracy (%)",
    span: tuple[float, float] | None = None,
) -> str:
    """Return a measure against cost: ours filled with intervals, published hollow; every mark names itself.

    Args:
        span: lowest and highest value of the panels beside this one, for one scale; its own points' by default.
    """
    low, high = span or value_span(points)
    y_ticks = nice_ticks(low, high)
    y = _linear(y_ticks[0], y_ticks[-1], HEIGHT - BOTTOM, TOP)
    x, x_ticks = _cost_scale([point.cost for point in points])
    parts = [_frame(y_ticks, y, value_title)]
    for value, text in x_ticks:
        parts.append(_text(x(value), HEIGHT - BOTTOM + 16, text, "tick", "middle"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, cost_title, "axis", "middle"))
    parts += _joined([point for point in points if not point.is_published], classes, x, y)
    placed: list[tuple[float, float]] = []
    is_crowded = sum(not point.is_published for point in points) > MOST_LABELS
    for point in points:
        parts.append(_mark(point, classes[point.label], x(point.cost), y))
        text = point.short if is_crowded else point.name or point.label
        if not point.is_published and text:
            parts.append(_label(text, x(point.cost), y(point.accuracy), placed))
    title = f"{value_title} against {cost_title}: " + "; ".join(_spoken(point) for point in points)
    return _svg("".join(parts), title, name)


def value_span(points: Sequence[Point]) -> tuple[float, float]:
    """Return the lowest and the highest value of `points` with their intervals."""
    ends = [value for point in points for value in (point.low, point.accuracy, point.high) if value is not None]
    return min(ends), max(ends)


def bars_svg(bars: Sequence[Bar], *, classes: Mapping[str, str], name: str) -> str:
    """Return grouped bars with intervals, groups and bars in the order given."""
    groups = list(dict.fromkeys(bar.group for bar in bars))
    labels = list(dict.fromkeys(bar.label for bar in bars))
    y_ticks = [0.0, 25.0, 50.0, 75.0, 100.0]
    y = _linear(0, 100, HEIGHT - BOTTOM, TOP)
    span = (WIDTH - LEFT - RIGHT) / max(1, len(groups))
    width = min(34.0, span * 0.82 / max(1, len(labels)))
    parts = [_frame(y_ticks, y, "Accuracy (%)")]
    for number, group in enumerate(groups):
        middle = LEFT + span * (number + 0.5)
        parts.append(_text(middle, HEIGHT - BOTTOM + 18, group, "axis", "middle"))
        inside = [bar for bar in bars if bar.group == group]
        for item in inside:
            left = middle + (labels.index(item.label) - len(labels) / 2) * width
            parts.append(_bar(item, classes[item.label], left, width, y))
    title = "Accuracy by length: " + "; ".join(f"{bar.group} {bar.label} {bar.value:.1f} %" for bar in bars)
    return _svg("".join(parts), title, name)


def nice_ticks(low: float, high: float) -> list[float]:
    """Return about six round values that enclose `[low, high]`."""
    span = max(high - low, 1e-9)
    raw = span / 5
    step = next(item for item in _steps(raw) if item >= raw)
    first, last = math.floor(low / step) * step, math.ceil(high / step) * step
    count = round((last - first) / step)
    return [round(first + i * step, 10) for i in range(max(1, count) + 1)]


def _steps(raw: float) -> list[float]:
    power = 10.0 ** math.floor(math.log10(raw))
    return [power, 2 * power, 5 * power, 10 * power]


def _linear(low: float, high: float, start: float, stop: float) -> Callable[[float], float]:
    return lambda value: start + (value - low) / (high - low) * (stop - start)


def _cost_scale(costs: Sequence[float]) -> tuple[Callable[[float], float], list[tuple[float, str]]]:
    """A logarithmic axis where costs span more than a factor of 20, with a place at its left for (almost) 0."""
    least = max(costs, default=0.0) / 2000
    positive = [cost for cost in costs if cost > least]
    start, stop = LEFT + 14.0, WIDTH - RIGHT - 14.0
    if not positive or max(positive) <= 20 * min(positive):
        ticks = nice_ticks(0.0, max(positive, default=1.0))
        return _linear(ticks[0], ticks[-1], start, stop), [(tick, f"{tick:g}") for tick in ticks]
    low, high = math.floor(np.log10(min(positive))), math.ceil(np.log10(max(positive)))
    zero = any(cost <= least for cost in costs)
    logs = _linear(low, high, start + (40.0 if zero else 0.0), stop)
    ticks_log = [(10.0**power, f"{10.0**power:g}") for power in range(low, high + 1)]
    return (
        lambda cost: start if cost <= least else logs(math.log10(cost)),
        ([(0.0, "≈ 0")] if zero else []) + ticks_log,
    )


def _frame(ticks: Sequence[float], y: Callable[[float], float], title: str) -> str:
    lines = [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>'
        + _text(LEFT - 8, y(tick) + 4, f"{tick:g}", "tick", "end")
        for tick in ticks
    ]
    middle = (TOP + HEIGHT - BOTTOM) / 2
    rotated = (
        f'<text class="axis" text-anchor="middle" transform="translate(12 {middle:.0f}) rotate(-90)">{title}</text>'
    )
    return "".join(lines) + rotated


def _joined(
    points: Sequence[Point], classes: Mapping[str, str], x: Callable[[float], float], y: Callable[[float], float]
) -> list[str]:
    lines = []
    for label, css in classes.items():
        same = sorted((point.cost, point.accuracy) for point in points if point.label == label)
        if len(same) > 1:
            path = " ".join(f"{x(cost):.1f},{y(accuracy):.1f}" for cost, accuracy in same)
            lines.append(f'<g class="{css}"><polyline class="joined" points="{path}"/></g>')
    return lines


def _mark(point: Point, css: str, x: float, y: Callable[[float], float]) -> str:
    interval = ""
    if point.low is not None and point.high is not None:
        interval = (
            f'<line class="interval" x1="{x:.1f}" x2="{x:.1f}" y1="{y(point.low):.1f}" y2="{y(point.high):.1f}"/>'
        )
    kind = "published" if point.is_published else "ours"
    circle = f'<circle class="{kind}" cx="{x:.1f}" cy="{y(point.accuracy):.1f}" r="5"/>'
    return f'<g class="mark {css}"><title>{escape(_spoken(point))}</title>{interval}{circle}</g>'


def _label(text: str, x: float, y: float, placed: list[tuple[float, float]]) -> str:
    """The label beside its mark, moved down while another label is near."""
    to_left = x > WIDTH - 150
    place = y - 7
    while any(abs(place - other) < 13 and abs(x - other_x) < 110 for other_x, other in placed):
        place += 13
    placed.append((x, place))
    return _text(x - 9 if to_left else x + 9, place, text, "label", "end" if to_left else "start")


def _bar(bar: Bar, css: str, left: float, width: float, y: Callable[[float], float]) -> str:
    top, middle = y(bar.value), left + width / 2
    size = f'width="{width - 2:.1f}" height="{max(0.0, y(0) - top):.1f}"'
    spoken, whisker = f"{bar.group}, {bar.label}: {bar.value:.1f} %", ""
    if bar.low is not None and bar.high is not None:
        spoken += f" [{bar.low:.1f}, {bar.high:.1f}]"
        ends = f'y1="{y(bar.low):.1f}" y2="{y(bar.high):.1f}"'
        whisker = f'<line class="whisker" x1="{middle:.1f}" x2="{middle:.1f}" {ends}/>'
    return (
        f'<g class="mark {css}"><title>{escape(spoken)}</title>'
        f'<rect class="bar" x="{left + 1:.1f}" y="{top:.1f}" {size}/>{whisker}</g>'
    )


def _spoken(point: Point) -> str:
    interval = "" if point.low is None or point.high is None else f" [{point.low:.1f}, {point.high:.1f}]"
    whose = " (published)" if point.is_published else ""
    return f"{point.name or point.label}{whose}: {point.accuracy:.1f} %{interval} at {point.cost:.3g}"


def _text(x: float, y: float, text: str, css: str, anchor: str) -> str:
    return f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(body: str, title: str, name: str) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="{name}-title">'
        f'<title id="{name}-title">{escape(title)}</title>{body}</svg>'
    )
