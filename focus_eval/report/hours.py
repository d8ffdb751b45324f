"""Tables of the hours that choosing took, by stage."""

from __future__ import annotations

from typing import Any

from focus_eval.report.labels import sampler_order
from focus_eval.report.run import Run
from focus_eval.report.table import Figure, Table, TableRow
from focus_eval.rows.records import BESIDE_STAGES, HELD_STAGES

STAGES_SHOWN = (*HELD_STAGES, *BESIDE_STAGES)


def cost_tables(run: Run) -> list[Table]:
    """Return the table of hours by stage, per benchmark, sampler and K; none for a run without selections."""
    frame = run.selection_frame
    frame = frame if frame.empty else frame[frame["has_cost"]]
    if frame.empty:
        return []
    rows = []
    for keys, part in sorted(frame.groupby(["benchmark", "label", "k"]), key=_order):
        seeds = part["seed"].nunique()
        held, beside = (
            [float(part[f"seconds_{stage}"].sum()) / 3600 / seeds for stage in stages]
            for stages in (HELD_STAGES, BESIDE_STAGES)
        )
        figures: list[Figure | str] = [Figure(ours=hours, digits=4) for hours in [sum(held), *held, *beside]]
        pulls, forwards = part["n_pulls"].sum() / seeds, part["forwards"].sum() / seeds
        rows.append(TableRow(tuple(map(str, keys)), (f"{pulls:,.0f}", f"{forwards:,.0f}", *figures)))
    devices = ", ".join(sorted(set(frame["select_device"]) - {""})) or "not recorded"
    return [
        Table(
            name="cost",
            title="Where the hours of choosing went",
            key_titles=("Benchmark", "Sampler", "K"),
            columns=("Frames scored", "Forwards made", "All", *(stage.capitalize() for stage in STAGES_SHOWN)),
            rows=tuple(rows),
            notes=(
                f"Device: {devices}. All: hours of wall clock that it was held, per seed, shared out among the lines "
                "served at once. Decode and preprocess run beside the rest, in other threads, and are not in it.",
                "Frames scored: every frame scored for every question, as the paper counts. Forwards made: those "
                "really run, for embeddings are shared by the questions of a video and kept between runs.",
            ),
        )
    ]


def _order(group: tuple[Any, Any]) -> tuple[Any, ...]:
    benchmark, label, k = group[0]
    return (benchmark, *sampler_order(label), k)
