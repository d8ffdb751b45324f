"""Runs a matrix and gives its rows as one table, for tests and scripts."""

from __future__ import annotations

from typing import Any

import pandas as pd

from focus_eval.bench.matrix.cells import SelectionSpec, cells, selection_specs
from focus_eval.bench.matrix.config import MatrixConfig
from focus_eval.bench.matrix.folder import RunFolder
from focus_eval.bench.matrix.plan import load_sets
from focus_eval.bench.matrix.running import complete_run
from focus_eval.keyframes.rows.records import values_of


def run_matrix(matrix: MatrixConfig, **options: Any) -> pd.DataFrame:
    """Call `complete_run` and return all rows: answers, or selections if there are no models."""
    return rows_frame(complete_run(matrix, **options), matrix)


def rows_frame(run: RunFolder, matrix: MatrixConfig) -> pd.DataFrame:
    """Return the rows of a run so far: one per cell and question, or per selection and question without models.

    What was pulled is counted, not listed (`pulls`). Questions that `matrix` does not ask are left out: another run may
    have asked more.
    """
    ids_by_benchmark = {
        name: {question.id for question in questions.questions} for name, questions in load_sets(matrix).items()
    }
    columns_by_selection = {
        spec.name: _selection_columns(run, spec, ids_by_benchmark[spec.benchmark.name])
        for spec in selection_specs(matrix)
    }
    if not matrix.models:
        return pd.DataFrame([row for part in columns_by_selection.values() for row in part.values()])
    rows = []
    for cell in cells(matrix):
        for row in run.answers(cell):
            if row.question_id in ids_by_benchmark[cell.benchmark.name]:
                of_selection = columns_by_selection[cell.selection.name].get(row.question_id, {})
                costs = {key: of_selection.get(key) for key in ("pulls", "n_frames", "forwards")}
                rows.append({**_who(cell.selection), **costs, **values_of(row), "part": cell.name})
    return pd.DataFrame(rows)


def _selection_columns(run: RunFolder, spec: SelectionSpec, question_ids: set[str]) -> dict[str, dict[str, Any]]:
    """Return the columns of a table of rows by question, without those that hold long lists."""
    pulls = ("pulled_frames", "pulled_relevance", "text_pulls", "clips", "frame_seconds")
    long = (*pulls, "scanned_frames", "looked_frames")
    columns = {}
    for row in run.selections(spec):
        if row.question_id in question_ids:
            short = {key: value for key, value in values_of(row).items() if key not in long}
            columns[row.question_id] = {**_who(spec), **short, "pulls": row.n_scored, "part": spec.name}
    return columns


def _who(spec: SelectionSpec) -> dict[str, Any]:
    """Return the columns that tell which selection a row belongs to; the encoder is "" if there is none."""
    encoder = spec.encoder.name if spec.encoder else ""
    return {"sampler": spec.sampler.name, "label": spec.label, "k": spec.k, "seed": spec.seed, "encoder": encoder}
