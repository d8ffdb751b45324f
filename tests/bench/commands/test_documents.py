"""The JSON of plan, status, report and compare: one document each, with the keys that its module lists."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from focus_eval.bench.commands import documents
from focus_eval.cli import app
from tests.bench.matrix.conftest import write_simulation
from tests.bench.report.simulated import Simulation, simulate_run

LISTS = ("matrices", "benchmarks", "least_differences", "selections", "missing", "parts", "tables", "rows", "figures")


@pytest.fixture(scope="module")
def listed_keys():
    """Keys by the name in the module's docstring: of a command's document, and of each entry of a list."""
    keys = {}
    for names, listed in re.findall(r"^- ([^:]*): (.*?)$(?=\n- |\n*\Z)", documents.__doc__, re.MULTILINE | re.DOTALL):
        inner = set(re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", listed)))
        for name in re.findall(r"`(\w+)`", names):
            keys[name] = inner
    return keys


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    return simulate_run(tmp_path_factory.mktemp("runs") / "made", Simulation(n_questions=24, models=("zero",)))


def printed(*arguments, codes=(0,)):
    result = CliRunner().invoke(app, [str(argument) for argument in (*arguments, "--json")])
    assert result.exit_code in codes, result.output
    return json.loads(result.stdout)


def check_keys(document, name, listed_keys):
    """Compare a document's keys with the listed ones, and those of the entries of its lists."""
    assert set(document) == listed_keys[name], name
    for key, value in document.items():
        if key in ("table", "group_table") and value is not None:
            check_keys(value, key, listed_keys)
        for item in value if key in LISTS and isinstance(value, list) else ():
            check_keys(item, key, listed_keys)


def test_a_plan_has_the_listed_keys_and_the_figures_that_are_printed(tmp_path, listed_keys):
    matrix = write_simulation(tmp_path / "simulation", n_questions=6, n_videos=2)
    document = printed("plan", matrix)
    check_keys(document, "plan", listed_keys)
    (planned,) = document["matrices"]
    assert [(item["asked"], item["questions"], item["videos"]) for item in planned["benchmarks"]] == [(6, 6, 2)]
    text = CliRunner().invoke(app, ["plan", str(matrix)], env={"COLUMNS": "300"}).output
    for selection in planned["selections"]:
        assert f"{selection['pulls']:,}" in text
    assert planned["hours"] is None
    (with_hours,) = printed("plan", matrix, "--machine", "eight_h100")["matrices"]
    assert set(with_hours["hours"]) == {"choosing", "answering"}


@pytest.mark.slow
def test_a_plan_that_lacks_something_says_what_and_exits_with_1():
    document = printed("plan", "alpha", codes=(1,))
    assert document["missing"]
    assert all(item["problem"] and item["fix"] for item in document["missing"])


@pytest.mark.slow
def test_the_status_of_a_run_has_the_listed_keys(tmp_path, listed_keys):
    matrix = write_simulation(tmp_path / "simulation", n_questions=6, n_videos=2)
    CliRunner().invoke(app, ["run", str(matrix), "--out", str(tmp_path / "run")])
    document = printed("status", tmp_path / "run")
    check_keys(document, "status", listed_keys)
    assert all((part["rows"], part["questions"], part["is_done"]) == (6, 6, True) for part in document["parts"])


@pytest.mark.slow
def test_a_report_has_the_listed_keys_the_tables_and_its_files_also_when_kept(run_folder, listed_keys):
    document = printed("report", run_folder)
    check_keys(document, "report", listed_keys)
    assert all(Path(name).is_file() for name in document["files"])
    figures = [figure for row in document["tables"][0]["rows"] for figure in row["figures"]]
    assert any(figure["low"] is not None and figure["low"] <= figure["value"] <= figure["high"] for figure in figures)
    assert printed("report", run_folder) == document
    assert "evidence recall" in CliRunner().invoke(app, ["report", str(run_folder)]).output


def test_a_comparison_has_the_listed_keys(run_folder, tmp_path, listed_keys):
    document = printed("compare", run_folder, run_folder, "--out", tmp_path / "page.html")
    check_keys(document, "compare", listed_keys)
    assert (tmp_path / "page.html").is_file()
    assert document["a"] == document["b"]
    assert all(row["figures"][0]["value"] == 0 for row in document["table"]["rows"])
