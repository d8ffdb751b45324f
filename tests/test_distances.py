"""The distances of evidence recall stand in one constant: changed there, every table, figure and command follows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from focus_eval.bench.benchmarks import question
from focus_eval.bench.report.recall import recall_column
from focus_eval.bench.report.run import load_run
from focus_eval.external.evidence import evidence_tables
from tests.bench.report.simulated import Simulation, simulate_run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
# Changes the constant as an edit of its file would, before anything has read it; then runs commands, one a line.
CHANGED = """
import json, sys, importlib.util
spec = importlib.util.find_spec("focus_eval.bench.benchmarks.question")
module = importlib.util.module_from_spec(spec)
source = open(spec.origin, encoding="utf-8").read()
before = "RECALL_SECONDS = (1.0, 2.0, 5.0)"
assert source.count(before) == 1
sys.modules[spec.name] = module
exec(compile(source.replace(before, "RECALL_SECONDS = " + sys.argv[1]), spec.origin, "exec"), module.__dict__)

from focus_eval.cli import app
from focus_eval.bench.report import figures
figures.save_figure = lambda figure, path: []  # files that nothing here looks into
for arguments in json.loads(sys.argv[2]):
    print("##", arguments[0])
    app(arguments, standalone_mode=False)

from focus_eval.bench.report.recall_layouts import demo_tables
from focus_eval.bench.report.run import load_run
run = load_run(sys.argv[3])
for table in demo_tables(run, "uniform"):
    print("##", table.name, table.title, table.columns)
"""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Two runs, a simulation file, and an annotation of three lengths with a selection file."""
    folder = tmp_path_factory.mktemp("distances")
    for name, samplers in (("run", ("uniform", "topk", "focus")), ("other", ("uniform",))):
        simulate_run(folder / name, Simulation(n_questions=60, samplers=samplers, models=("m",)))
    (folder / "simulation.yaml").write_text(
        "videos: 6\nminutes: [1, 90]\nsamplers: [uniform, focus]\nk: [4]\nbaseline: uniform\n"
    )
    documents = [
        {
            "id": f"q{at}", "video_path": f"v{at}.mp4", "question": "Which?", "candidates": ["a", "b"],
            "correct_choice": 0, "duration": seconds, "position": [24 * 30],
        }
        for at, seconds in enumerate((100.0, 600.0, 1500.0))
    ]  # fmt: skip
    (folder / "annotation.json").write_text(json.dumps(documents))
    rates = "".join(f"q{at},{row['duration']},10\n" for at, row in enumerate(documents))
    (folder / "rates.csv").write_text("id,duration_s,fps\n" + rates)
    (folder / "chosen.json").write_text(json.dumps({row["id"]: [270, 300] for row in documents}))
    return folder


@pytest.mark.parametrize("distances", [(1.0, 5.0), (0.5, 3.0, 10.0)])
def test_changed_distances_are_those_of_every_command(prepared, tmp_path, distances):
    annotated = ["--annotations", prepared / "annotation.json", "--rates", prepared / "rates.csv"]
    commands = [
        ["report", prepared / "run"],
        ["evidence", prepared / "run", "--min-seconds", "0"],
        ["compare", prepared / "run", prepared / "other"],
        ["recall", *annotated, "--selections", f"mine={prepared / 'chosen.json'}", "--format", "qca"],
        ["simulate", prepared / "simulation.yaml", "--out", tmp_path / "simulation", "--workers", "1"],
    ]
    texts = json.dumps([[str(item) for item in arguments] for arguments in commands])
    process = subprocess.run(
        [sys.executable, "-c", CHANGED, repr(distances), texts, str(prepared / "run")],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr[-3000:]
    near_seconds, last = distances[len(distances) // 2], distances[-1]
    csv = (prepared / "run" / "report.csv").read_text()
    page = (prepared / "run" / "report.html").read_text(encoding="utf-8")
    for distance in distances:
        assert f"Recall@{distance:g} s (%)" in csv
        assert f"Recall@{distance:g} s (%)" in page
    assert f"evidence recall within {near_seconds:g} s" in page
    assert f"Evidence recall difference to uniform within {near_seconds:g} s" in process.stdout
    assert f"evidence in view within {last:g} s" in " ".join(process.stdout.split())
    assert "@2" not in csv
    assert "within 2 s" not in page + process.stdout


def test_the_distances_ascend_and_the_ones_that_stand_for_all_are_among_them():
    assert list(question.RECALL_SECONDS) == sorted(set(question.RECALL_SECONDS))
    assert {question.NEAR_SECONDS, question.IN_VIEW_SECONDS} <= set(question.RECALL_SECONDS)
    assert recall_column(question.NEAR_SECONDS) == "recall@2"


def test_a_distance_that_rows_are_not_measured_at_is_refused(prepared):
    from focus_eval.core.errors import InvalidInput

    with pytest.raises(InvalidInput, match="measured within 1, 2, 5 s, not 3"):
        evidence_tables(load_run(prepared / "run"), distance=3.0)
