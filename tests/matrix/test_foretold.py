"""A table's frames and hours are foretold before its data is there, from shipped lengths and stated rates."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from focus_eval.core.resources import resource_path
from focus_eval.matrix.config import load_matrix
from focus_eval.matrix.foretold import answer_lines, stated_sets
from focus_eval.matrix.plan import load_machine, make_plan
from tests.conftest import shared_path

PAPER = resource_path("paper")


@pytest.fixture(scope="module")
def alpha():
    return load_matrix("alpha")


@pytest.fixture(scope="module")
def plan(alpha):
    return make_plan(alpha, sets=stated_sets(alpha))


def test_frames_scored_by_the_shipped_lengths_are_those_of_the_paper(plan):
    published = [float(row["frames_seen_percent"]) for row in csv.DictReader((PAPER / "alpha.csv").open())]
    shares = {item.spec.label: 100 * item.share_scored for item in plan.selections}
    labels = ("focus,alpha=0.1", "focus", "focus,alpha=0.5")
    assert [shares[label] for label in labels] == pytest.approx(published, abs=0.1)
    assert plan.questions == {"longvideobench": (1337, 1337)}


@pytest.mark.parametrize(
    ("name", "file", "video", "seconds"),
    [("longvideobench", "lvb_val.json", "video_id", "duration"), ("mlvu", "mlvu_dev.json", "video_name", "duration")],
)
def test_shipped_lengths_add_up_to_those_of_the_annotation(name, file, video, seconds):
    documents = json.loads(shared_path(f"data/{file}").read_text())
    matrix = SimpleNamespace(benchmarks=[SimpleNamespace(name=name, benchmark=name)], limit=None)
    questions = stated_sets(matrix)[name].questions
    assert len(questions) == len(documents)
    assert len({question.video for question in questions}) == len({document[video] for document in documents})
    total = sum(float(document[seconds]) for document in documents)
    assert sum(question.duration_seconds for question in questions) == pytest.approx(total, rel=0.001)


def test_hours_of_answering_are_the_products_over_the_rate_reached(plan):
    machine = load_machine("eight_h100").model_copy(
        update={"gpus": 2, "gpu_tflops": 100.0, "gpu_terabytes_per_second": 2.0, "share_reached": 0.5}
    )
    (line,) = answer_lines(plan, machine)
    answers = 6 * 1337
    tokens = answers * (64 * 210 + 300)
    assert (line.answers, line.tokens, line.dollars) == (answers, tokens, None)
    seconds = 2e9 * (7.6 * tokens + 335 * 64 * answers) / 50e12 + answers * 2 * 7.6e9 * 2 / 2e12
    assert line.hours == pytest.approx(seconds / 2 / 3600)
    assert answer_lines(plan, machine.model_copy(update={"gpu_tflops": None}))[0].hours is None


def test_a_service_costs_dollars_and_no_hours():
    matrix = load_matrix("main_results", overrides={"models": ["gpt4o"], "benchmarks": ["longvideobench"]})
    (line,) = answer_lines(make_plan(matrix, sets=stated_sets(matrix)), load_machine("eight_h100"))
    assert line.hours is None
    assert line.dollars == pytest.approx(line.answers * (32 * 425 + 300) * 5 / 1e6)


def test_plan_foretells_a_matrix_without_its_data_and_without_torch(tmp_path):
    code = (
        "import sys; from focus_eval.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code, "plan", "alpha", "--machine", "eight_h100"]
    environment = {"HF_HOME": str(tmp_path), "PATH": "", "COLUMNS": "200"}
    process = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, cwd=tmp_path)
    assert "planned from shipped lengths" in process.stdout, process.stderr
    assert "5.5 GPU hours" in process.stdout
    assert "its cost is not known" not in process.stdout
    assert process.stdout.strip().endswith("False")
