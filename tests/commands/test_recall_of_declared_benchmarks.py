"""Evidence of other data sets, on made-up files of their shapes: intervals and moments, in the units they use."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from focus_eval.cli import app

# Data set -> what its rows hold as evidence, the unit, and the figures of frames at 10 and 50 s, by hand.
SHAPES = {
    "lvbench": ({"time_reference": "00:08-00:12"}, "time_reference", "clock", ("0.5000", "1.0000")),
    "cgbench": ({"clue_intervals": [[9, 11], [70, 80]]}, "clue_intervals", "intervals", ("0.5000", "0.5000")),
    "kfsbench": ({"scenes": [[0, 5], [49, 51], [9, 12]]}, "scenes", "intervals", ("1.0000", "0.6667")),
    "lvhaystack": ({"keyframes": [10.5, 90.0]}, "keyframes", "seconds", ("0.5000", "0.5000")),
    "frames": ({"position": [252, 2160]}, "position", "frames@24", ("0.5000", "0.5000")),
}


@pytest.mark.parametrize("name", SHAPES)
def test_recall_of_a_declared_benchmark(tmp_path, name):
    evidence, field, unit, expected = SHAPES[name]
    row = {"id": "q1", "question": "what is it?", "video": "v.mp4", "answer": "A", "options": ["a", "b"]}
    (tmp_path / "annotation.json").write_text(json.dumps([{**row, "seconds": 100.0, **evidence}]))
    declared = f"benchmark: {name}\nfields:\n  options: options\n  duration: seconds\n  evidence: {field}\n"
    (tmp_path / f"{name}.yaml").write_text(f"{declared}  evidence_unit: {unit}\n")
    (tmp_path / "rates.csv").write_text("id,duration_s,fps\nq1,100,10\n")
    (tmp_path / "chosen.json").write_text(json.dumps({"q1": [100, 500]}))
    arguments = ["recall", "--benchmark", tmp_path / f"{name}.yaml", "--annotations", tmp_path / "annotation.json"]
    arguments += ["--rates", tmp_path / "rates.csv", "--selections", f"mine={tmp_path / 'chosen.json'}"]
    done = CliRunner().invoke(app, [str(item) for item in [*arguments, "--format", "qca", "--out", tmp_path / "t.csv"]])
    assert done.exit_code == 0, (done.output, done.exception)
    mine = next(line for line in (tmp_path / "t.csv").read_text().splitlines() if line.startswith("mine"))
    for figure in expected:
        assert figure in mine
