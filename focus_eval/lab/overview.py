"""Overview and frontiers of samplers, for simulations and `compare-samplers`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from focus_eval.bench.benchmarks.question import RECALL_SECONDS
from focus_eval.bench.report.figures import (
    MAX_NAMES,
    PAGE_INCHES,
    add_shared_legend,
    figure_style,
    log_if_wide,
    name_marks,
    save_figure,
)
from focus_eval.bench.report.measures import (
    COSTS,
    FORWARDS,
    FRAMES_SCORED,
    forwards_notes,
    llm_notes,
    recall_figure,
    scan_notes,
)
from focus_eval.bench.report.recall import recall_column
from focus_eval.bench.report.recall_layouts import GROUP_KEYS, RECALL, WITHIN_NEAR, at_any_size, cost_values, sizes_note
from focus_eval.bench.report.rendering import Table, Value
from focus_eval.bench.report.run import Run, sampler_groups
from focus_eval.keyframes.figures import FAINT, Style, new_figure, styles_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def recall_overview(frame: pd.DataFrame) -> Table:
    """Return a table of evidence recall within each distance, frames scored and time, by sampler and K."""
    titles = [f"within {RECALL_SECONDS[0]:g} s (%)", *(f"{seconds:g} s" for seconds in RECALL_SECONDS[1:])]
    lines: list[tuple[tuple[str, ...], Mapping[str, Value | str]]] = []
    for (benchmark, k, label), part in sampler_groups(frame, [*GROUP_KEYS, "label"]):
        successful = part[part["error"].isna()]
        recalls = [recall_figure(successful, recall_column(seconds)) for seconds in RECALL_SECONDS]
        cells = {
            **cost_values(successful),
            **dict(zip(titles, recalls, strict=True)),
            "near frames": Value(ours=_mean(successful["near_frames"]), digits=2),
            **at_any_size(frame, successful),
            "ms": Value(ours=_mean(1000 * successful["select_seconds"]), digits=1),
            "questions": str(len(successful)),
            "errors": str(int(part["error"].notna().sum()) or ""),
        }
        lines.append(((benchmark, str(k), label), cells))
    return Table.of(
        lines,
        name="recall",
        title="Evidence recall",
        key_titles=("Benchmark", "K", "Sampler"),
        notes=(
            "Recall: share of a question's evidence moments with a keyframe that near, then the mean over questions, "
            "with a 95 % interval (t on the logit scale, clustered by video).",
            "Near frames: log(1 + keyframes within 5 s), mean over a question's moments, then over questions.",
            "Frames scored: pulls over frames, summed over questions. ms: time of choosing, without any encoder.",
            *sizes_note(frame),
            *forwards_notes(frame),
            *scan_notes(frame),
            *llm_notes(frame),
            *_error_notes(frame),
        ),
    )


def _mean(values: pd.Series) -> float | None:
    mean = float(values.astype(float).mean())
    return None if np.isnan(mean) else mean


def _error_notes(frame: pd.DataFrame) -> list[str]:
    """A note with the first error of each sampler that failed on a question."""
    first = frame[frame["error"].notna()].drop_duplicates("label")
    return [
        f"{row.label} failed, first on {row.question_id} at K = {row.k}: {row.error}." for row in first.itertuples()
    ]


def off_grid_lines(run: Run) -> list[str]:
    """Return a sentence on the pulls, and one on the scans, that fell between recorded frames; [] if none did."""
    lines = []
    for kind, fact, count_field in (
        ("Pulls", "pulls_off_grid", "n_scored"),
        ("Scans", "scans_off_grid", "frames_scanned"),
    ):
        off, of = Counter[str](), Counter[str]()
        for row in run.selections:
            off[row.sampler] += int(row.facts.get(fact, 0))
            of[row.sampler] += getattr(row, count_field)
        texts = ", ".join(f"{name} {n:,} of {of[name]:,}" for name, n in sorted(off.items()) if n)
        lines += [f"{kind} between recorded frames, which took the relevance of the nearest: {texts}."] if texts else []
    return lines


def save_frontiers(frame: pd.DataFrame, folder: Path, *, replayed: pd.DataFrame | None = None) -> list[Path]:
    """Draw recall against forward equivalents and against frames scored; return the written files."""
    written = []
    for name, cost in (("frontier", FORWARDS), ("frontier_pulls", FRAMES_SCORED)):
        written += save_figure(draw_frontier(frame, replayed=replayed, cost=cost), folder / f"{name}.pdf")
    return written


def draw_frontier(frame: pd.DataFrame, *, replayed: pd.DataFrame | None = None, cost: str = FORWARDS) -> Figure:
    """Draw near recall against a cost: one panel per K, and in it one line per sampler over its budgets.

    With at most two panels and `MAX_NAMES` samplers the names stand at the ends of the lines, else in a legend.

    Args:
        frame: `Run.selection_frame`; several benchmarks are pooled.
        cost: one of `COSTS`; a sampler of unknown cost is not drawn.
        replayed: rows of the same samplers at several budgets on stored relevance, drawn as lines with hollow marks.
            The rows of `frame` are then drawn as filled marks without lines.
    """
    ks = sorted(set(frame["k"]))
    samplers = set(frame["sampler"]) | (set() if replayed is None else set(replayed["sampler"]))
    styles = styles_of(sorted(samplers))
    with figure_style():
        figure = new_figure(PAGE_INCHES, 3.0)
        panels = list(figure.subplots(1, len(ks), sharey=True, squeeze=False)[0])
        for axes, k in zip(panels, ks, strict=True):
            costs = []
            if replayed is not None:
                costs += _draw_budgets(axes, replayed[replayed["k"] == k], styles, cost, hollow=True)
            costs += _draw_budgets(axes, frame[frame["k"] == k], styles, cost, lw=1 if replayed is None else 0)
            axes.set(xlabel=cost.capitalize(), title=f"K = {k}")
            log_if_wide(axes, costs)
        panels[0].set_ylabel(f"Evidence recall {WITHIN_NEAR} (%)")
        if replayed is not None:
            panels[0].plot([], [], color=FAINT, marker="o", mfc="none", ms=3, lw=1, label="replayed at other budgets")
        if replayed is None and len(panels) <= 2 and len(samplers) <= MAX_NAMES:
            for axes in panels:
                lines = [(str(line.get_label()), np.asarray(line.get_xydata())) for line in axes.lines]
                name_marks(axes, [(name, float(points[-1, 0]), float(points[-1, 1])) for name, points in lines])
        else:
            add_shared_legend(figure)
        return figure


def _draw_budgets(
    axes: Axes, part: pd.DataFrame, styles: Mapping[str, Style], cost: str, *, lw: float = 1, hollow: bool = False
) -> list[float]:
    """Draw recall over cost of each sampler in `part`; return the costs in percent."""
    costs: list[float] = []
    for sampler, rows in part[part["error"].isna()].groupby("sampler"):
        budgets = [(COSTS[cost](line), 100 * line[RECALL].mean()) for _, line in rows.groupby("label")]
        points = sorted((spent, recall) for spent, recall in budgets if spent is not None)
        if not points:
            continue
        spent, recall = np.array(points).T
        costs += spent.tolist()
        style = styles[str(sampler)]
        # Hollow marks have no legend entry of their own: the sampler's filled mark covers both.
        if hollow:
            axes.plot(spent, recall, **style.hollow, ms=3, lw=lw)
        else:
            axes.plot(spent, recall, **style.filled, ms=4, label=str(sampler), lw=lw)
    return costs
