"""Where did the hours of choosing go?"""

from __future__ import annotations

from typing import Any

from focus_eval.report.cells import Figure, Table, TableRow
from focus_eval.report.rows import SELECT_STAGES, Run, sampler_order


def cost_tables(run: Run) -> list[Table]:
    """Return the table of hours by stage, per benchmark, sampler and K; none for a run without selections."""
    frame = run.selection_frame
    if frame.empty:
        return []
    rows = []
    for keys, part in sorted(frame.groupby(["benchmark", "label", "k"]), key=_order):
        seeds = part["seed"].nunique()
        parts = [float(part[f"seconds_{stage}"].sum()) / 3600 / seeds for stage in SELECT_STAGES]
        figures: list[Figure | str] = [Figure(ours=hours, digits=3) for hours in [sum(parts), *parts]]
        pulls, forwards = part["n_pulls"].sum() / seeds, part["forwards"].sum() / seeds
        rows.append(TableRow(tuple(map(str, keys)), (f"{pulls:,.0f}", f"{forwards:,.0f}", *figures)))
    devices = ", ".join(sorted(set(frame["select_device"]) - {""})) or "not recorded"
    return [
        Table(
            name="cost",
            title="Where the hours of choosing went",
            key_titles=("Benchmark", "Sampler", "K"),
            columns=("Frames seen", "Forwards made", "All", *(stage.capitalize() for stage in SELECT_STAGES)),
            rows=tuple(rows),
            notes=(
                f"Device: {devices}. Hours of wall clock, per seed.",
                "Frames seen: every frame scored for every question, as the paper counts. Forwards made: those "
                "really run, for embeddings are shared by the questions of a video and kept between runs.",
            ),
        )
    ]


def _order(group: tuple[Any, Any]) -> tuple[Any, ...]:
    benchmark, label, k = group[0]
    return (benchmark, *sampler_order(label), k)
