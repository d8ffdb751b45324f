"""Writes the figures of a run: accuracy against cost, and the timelines of one question."""

from __future__ import annotations

from math import nan
from pathlib import Path

from focus_eval.report.figures import draw_efficiency, draw_timelines, save_figure
from focus_eval.report.page.charts import cost_points
from focus_eval.report.run import Run
from focus_eval.rows.records import SelectionRow


def write_figures(run: Run, folder: Path) -> list[Path]:
    """Write accuracy against frames scored per benchmark and model, and the timelines of one telling question each."""
    from focus_eval.report.run import labels_of

    written = []
    if run.answers:
        for (benchmark, model), part in run.answer_frame.groupby(["benchmark", "model"], sort=False):
            points: dict[str, list[tuple[float, float, float, float]]] = {}
            texts: dict[str, list[str]] = {}
            for cost_point in cost_points(run, part, cost="frames scored (%)"):
                ends = (
                    (nan, nan)
                    if cost_point.low is None or cost_point.high is None
                    else (cost_point.low, cost_point.high)
                )
                points.setdefault(cost_point.label, []).append((cost_point.cost, cost_point.accuracy, *ends))
                texts.setdefault(cost_point.label, []).append(cost_point.short)
            if points:
                name = f"efficiency-{benchmark}-{model}.pdf".replace("/", "_")
                written += save_figure(draw_efficiency(points, texts=texts), folder / name)
    rows = telling_question(run)
    if rows:
        figure = draw_timelines(rows, names=labels_of(run.selections))
        written += save_figure(figure, folder / "timelines.pdf")
    return written


def telling_question(run: Run) -> list[SelectionRow]:
    """Return the selections of the longest question that has evidence, one per sampler, all of one K and seed."""
    from focus_eval.report.run import labels_of

    labels = labels_of(run.selections)
    by_question: dict[tuple[str, str, int, int], dict[str, SelectionRow]] = {}
    for row in run.selections:
        if row.error is None:
            key = (row.benchmark, row.question_id, row.k, row.seed)
            by_question.setdefault(key, {})[labels[row.selection_id]] = row
    several = [rows for rows in by_question.values() if len(rows) > 1]
    if not several:
        return []
    best = max(
        several,
        key=lambda rows: (
            bool(next(iter(rows.values())).evidence_seconds),
            len(rows),
            next(iter(rows.values())).duration_seconds,
        ),
    )
    return sorted(best.values(), key=lambda row: (not row.sampler.startswith("uniform"), row.sampler))
