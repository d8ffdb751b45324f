"""Does every shipped matrix of the paper have the settings of the figures that its table puts beside it?"""

from __future__ import annotations

from types import SimpleNamespace

import pandas as pd
import pytest

from focus_eval.bench.matrix.cells import _encoders, _frame_counts, _instances
from focus_eval.bench.matrix.config import load_matrix
from focus_eval.bench.report.layouts import has_published_settings, read_anchors
from focus_eval.core.resources import resource_path

SHIPPED = sorted(path.stem for path in (resource_path("configs") / "paper").glob("*.yaml"))
ANCHORED = [name for name in SHIPPED if load_matrix(name).anchors]


def selections(matrix):
    """Return every sampler of the matrix as a row would state it, with model and K."""
    for model in matrix.models or [None]:
        for entry in matrix.samplers:
            for sampler in _instances(entry):
                defaults = type(sampler)().options
                changed = {name: value for name, value in sampler.options.items() if value != defaults[name]}
                for encoder in _encoders(matrix, sampler, entry.encoders):
                    for k in _frame_counts(matrix, model):
                        fields = {"sampler": sampler.name, "changed_options": changed}
                        row = SimpleNamespace(selection_id="s", encoder=encoder.name if encoder else "", **fields)
                        yield model.name if model else None, k, row


@pytest.mark.parametrize("name", ANCHORED)
def test_the_lines_of_a_shipped_matrix_have_the_published_settings(name):
    matrix = load_matrix(name)
    for model, k, row in selections(matrix):
        if row.sampler.startswith(("even_", "scan_")):
            continue  # ours: nobody published a figure
        part = pd.DataFrame({"k": [k], "selection_id": ["s"], **({"model": [model]} if model else {})})
        lines = [line for line in read_anchors(matrix.anchors) if line.get("model") in (None, model)]
        assert lines
        assert has_published_settings(matrix.anchors, lines[0], part, [row]), (name, model, k, row)
        part["k"] = k + 1
        assert not has_published_settings(matrix.anchors, lines[0], part, [row])
