"""Makes the JSON that `plan`, `status`, `report` and `compare` print with `--json`. Its keys:

- `plan`: `matrices`, `missing`, `notes`
- each of `matrices`: `name`, `benchmarks`, `selections`, `cells` (their number), `hours` (null without `--machine`;
  else `choosing`, `answering`)
- each of `benchmarks`: `name`, `asked`, `questions` (in all), `videos`, `least_differences`
- each of `least_differences`: `points` that a single comparison can show with 80 % power, for the assumed
  `discordance` and `video_correlation` and their `source`
- each of `selections`: `benchmark`, `sampler`, `encoder`, `k`, `seed`, `questions`, `unknown` (of unknown length);
  sums over questions: `pulls`, `frames` of the videos, `keyframes`, `encoded_alone`, `encoded_shared`,
  `scanned_alone`, `scanned_shared`, `forward_equivalents_alone`, `forward_equivalents_shared`; `model_usage`
  (`calls`, `images`, `tokens_sent`, `tokens_back`), `warnings`
- each of `missing`: `problem`, `fix`, `gigabytes` to fetch
- `status`: `run`, `parts`
- each of `parts`: `kind` (selections or answers), `name`, `rows`, `questions`, `errors`, `is_done`, `seconds_left`
- `report`: `run`, `faults`, `tables`, `files`
- `compare`: `a`, `b`, `table`, `group_table` (of group scores; null without any)
- each of `tables`, `table` and `group_table`: `name`, `title`, `keys` and `columns` (their headings), `rows`, `notes`
- each of `rows`: `keys`, `figures`
- each of `figures`: `value`, `low` and `high` (95 %), `published`, in the unit of the column; `text` as printed
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from focus_eval.bench.matrix.hours import Machine
    from focus_eval.bench.matrix.plan import PartStatus, Plan, SelectionPlan
    from focus_eval.bench.matrix.preflight import Preflight
    from focus_eval.bench.report.power import Discordance
    from focus_eval.bench.report.rendering import Table, Value
    from focus_eval.bench.report.run import Run

Differences = Mapping[str, Sequence[tuple["Discordance", float | None]]]


def plan_document(
    plans: Sequence[tuple[Plan, Differences]], preflight: Preflight, machine: Machine | None
) -> dict[str, object]:
    """Return the document of `plan`.

    Args:
        plans: each plan with the smallest difference that its questions can show, by benchmark and assumed discordance.
        machine: whose hours are estimated; None for no estimate.
    """
    return {
        "matrices": [_matrix_document(plan, differences, machine) for plan, differences in plans],
        "missing": [
            {"problem": item.problem, "fix": item.fix, "gigabytes": item.gigabytes} for item in preflight.missing
        ],
        "notes": list(preflight.notes),
    }


def _matrix_document(plan: Plan, differences: Differences, machine: Machine | None) -> dict[str, object]:
    from focus_eval.bench.matrix.hours import answering_hours, choosing_hours

    hours = None
    if machine is not None:
        hours = {"choosing": choosing_hours(plan, machine), "answering": answering_hours(plan, machine)}
    return {
        "name": plan.matrix.name,
        "benchmarks": [
            {
                "name": name,
                "asked": n_asked,
                "questions": n_questions,
                "videos": len(plan.questions_per_video.get(name, ())),
                "least_differences": [
                    {
                        "points": None if difference is None else 100 * difference,
                        "discordance": discordance.share,
                        "video_correlation": discordance.video_correlation,
                        "source": discordance.source,
                    }
                    for discordance, difference in differences.get(name, ())
                ],
            }
            for name, (n_asked, n_questions) in plan.questions.items()
        ],
        "selections": [_selection_document(selection, plan) for selection in plan.selections],
        "cells": len(plan.cells),
        "hours": hours,
    }


def _selection_document(selection: SelectionPlan, plan: Plan) -> dict[str, object]:
    spec = selection.spec
    forwards = [selection.forward_equivalents(shared=shared, unit=plan.forward_gmacs) for shared in (False, True)]
    alone, shared = (None if isnan(count) else count for count in forwards)
    return {
        "benchmark": spec.benchmark.name,
        "sampler": spec.label,
        "encoder": spec.encoder.name if spec.encoder else None,
        "k": spec.k,
        "seed": spec.seed,
        "questions": selection.questions,
        "unknown": selection.unknown,
        "pulls": selection.pulls,
        "frames": selection.frames,
        "keyframes": selection.keyframes,
        "encoded_alone": selection.embedded_alone,
        "encoded_shared": selection.embedded_shared,
        "scanned_alone": selection.scanned,
        "scanned_shared": selection.scanned_shared,
        "forward_equivalents_alone": alone,
        "forward_equivalents_shared": shared,
        "model_usage": dict(selection.model_usage),
        "warnings": [warning.text for warning in selection.warnings],
    }


def status_document(folder: Path, parts: Sequence[PartStatus]) -> dict[str, object]:
    """Return the document of `status`."""
    return {
        "run": str(folder),
        "parts": [
            {
                "kind": part.kind,
                "name": part.name,
                "rows": part.rows,
                "questions": part.questions,
                "errors": part.errors,
                "is_done": part.is_done,
                "seconds_left": part.seconds_left,
            }
            for part in parts
        ],
    }


def report_document(run: Run, tables: Sequence[Table], written: Sequence[Path]) -> dict[str, object]:
    """Return the document of `report`."""
    return {
        "run": run.name,
        "faults": list(run.faults),
        "tables": [table_document(table) for table in tables],
        "files": [str(path) for path in written],
    }


def compare_document(a: Run, b: Run, table: Table, group_table: Table | None) -> dict[str, object]:
    """Return the document of `compare`."""
    groups = None if group_table is None else table_document(group_table)
    return {"a": a.name, "b": b.name, "table": table_document(table), "group_table": groups}


def table_document(table: Table) -> dict[str, object]:
    """Return a table as JSON values: headings of keys and columns, and the keys and figures of each row."""
    return {
        "name": table.name,
        "title": table.title,
        "keys": list(table.key_titles),
        "columns": list(table.columns),
        "rows": [
            {"keys": list(row.keys), "figures": [_figure(figure) for figure in row.figures]} for row in table.rows
        ],
        "notes": list(table.notes),
    }


def _figure(figure: Value | str) -> dict[str, object]:
    """Value, interval ends and published value, each None if there is none, and the text that a table prints."""
    if isinstance(figure, str):
        return {"value": None, "low": None, "high": None, "published": None, "text": figure}
    return {
        "value": figure.ours,
        "low": figure.low,
        "high": figure.high,
        "published": figure.published,
        "text": figure.ours_text,
    }
