"""Measures of samplers on simulated events: frames inside, events hit, time covered, and KFS-Bench's score."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from focus_eval.benchmarks.evidence import NEAR_SECONDS
from focus_eval.report import recall
from focus_eval.report.measures import recall_figure
from focus_eval.report.run import Run, sampler_order
from focus_eval.report.scenes import Interval, scene_score
from focus_eval.report.table import Table, TableRow

HIT = "events hit"
MEASURES = ("frames inside", HIT, "events covered", "UKSS")


def with_events(frame: pd.DataFrame, run: Run, traces: pd.DataFrame) -> pd.DataFrame:
    """Return the lines of `frame` whose question has events in `traces`, with a column for each of `MEASURES`.

    Args:
        frame: from `lab_frame(run)`.
        traces: from `read_traces`; recorded traces have no "events", and their questions are left out.
    """
    if "events" not in traces:
        return frame.iloc[:0].assign(**dict.fromkeys(MEASURES, np.nan))
    events = traces.dropna(subset="events").set_index(["benchmark", "question_id"])["events"].to_dict()
    selection_ids, lines = set(frame["selection_id"]), []
    for row in run.selections:
        intervals = events.get((row.benchmark, row.question_id))
        if intervals and row.error is None and row.times_seconds is not None and row.selection_id in selection_ids:
            keys = {"benchmark": row.benchmark, "question_id": row.question_id, "selection_id": row.selection_id}
            lines.append({**keys, **event_figures([(a, b) for a, b in intervals], row.times_seconds)})
    measured = pd.DataFrame(lines, columns=["benchmark", "question_id", "selection_id", *MEASURES])
    # A run's own columns of these names are of annotated intervals.
    unmeasured = frame.drop(columns=[name for name in MEASURES if name in frame])
    return unmeasured.merge(measured, on=["benchmark", "question_id", "selection_id"], validate="many_to_one")


def event_figures(intervals: Sequence[Interval], times: recall.Times) -> dict[str, float]:
    """Return `MEASURES` of one question by name, each in [0, 1]; all 0 without `times` (seconds of the keyframes)."""
    if not len(times):
        return dict.fromkeys(MEASURES, 0.0)
    hit = float(recall.recall_within(intervals, times, (0.0,))[0])
    ukss = scene_score([[interval] for interval in intervals], times).ukss
    covered = recall.covered_share(intervals, times, NEAR_SECONDS)
    return dict(zip(MEASURES, (recall.frames_inside(intervals, times), hit, covered, ukss), strict=True))


def event_table(frame: pd.DataFrame) -> Table:
    """Return the table of `MEASURES` per benchmark, K and sampler; `frame` is from `with_events`."""
    groups = frame.groupby(["benchmark", "k", "label"], sort=False)
    order = sorted(groups, key=lambda entry: (entry[0][0], entry[0][1], sampler_order(entry[0][2])))
    rows = [
        TableRow((benchmark, str(k), label), tuple(recall_figure(part, name) for name in MEASURES))
        for (benchmark, k, label), part in order
    ]
    return Table(
        name="events",
        title="Measures of the simulated events (%)",
        key_titles=("Benchmark", "K", "Sampler"),
        columns=MEASURES,
        rows=tuple(rows),
        notes=(
            "frames inside: share of the keyframes in an event. events hit: share of a question's events with a "
            f"keyframe inside. events covered: share of their time within {NEAR_SECONDS:g} s of a keyframe. UKSS: "
            "KFS-Bench's score with every event a scene; here the mean over questions.",
        ),
    )
