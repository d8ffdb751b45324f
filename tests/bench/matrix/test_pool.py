"""Runs beside each other share one pool of rows: found by identity, never lost, whoever writes at the same time."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading

import pytest
from typer.testing import CliRunner

from focus_eval.bench.matrix import cells
from focus_eval.bench.matrix.cells import selection_specs
from focus_eval.bench.matrix.config import load_matrix
from focus_eval.bench.matrix.folder import RunFolder
from focus_eval.bench.matrix.plan import make_plan, pooled, run_status
from focus_eval.bench.report.run import load_run
from focus_eval.cli import app
from focus_eval.core.errors import InvalidInput, RunError
from tests.support.bench.matrix_rows import run_matrix

from .conftest import write_simulation

RATES = {"n_questions": 24, "n_videos": 6}


@pytest.fixture
def two(tmp_path):
    """Two tables over the same questions with `topk` and two seeds in common."""
    first = write_simulation(tmp_path / "simulation", samplers=("uniform", "topk"))
    second = first.with_name("second.yaml")
    second.write_text(first.read_text().replace("- uniform", "- focus").replace("name: simulation", "name: second"))
    return [load_matrix(file, overrides={"seeds": [0, 1]}) for file in (first, second)]


class Counted:
    """Counts the rows that a run writes."""

    def __init__(self):
        self.rows = 0

    def start(self, phase, n_rows, work):
        pass

    def advance(self, phase, n_rows, n_errors, work):
        self.rows += n_rows


def run(matrix, folder):
    progress = Counted()
    frame = run_matrix(matrix, out=folder, progress=progress)
    return frame, progress.rows


def test_what_one_table_has_the_next_one_finds(two, tmp_path):
    first, second = two
    assert run(first, tmp_path / "runs" / "first")[1] == 24 * 2  # neither draws: one seed each
    frame, written = run(second, tmp_path / "runs" / "second")
    assert written == 24 * 2  # focus alone, under both seeds; topk is there
    assert sorted(frame["sampler"].unique()) == ["focus", "topk"]
    assert len(frame) == 24 * (2 + 1)
    assert {row.sampler for row in load_run(tmp_path / "runs" / "second").selections} == {"focus", "topk"}
    separate, _ = run(second, tmp_path / "apart" / "second")
    columns = ["part", "question_id", "keyframes"]
    assert frame[columns].values.tolist() == separate[columns].values.tolist()


def test_the_plan_of_several_counts_what_is_distinct(two):
    plans = [make_plan(matrix) for matrix in two]
    assert pooled(plans)["selections"] == (24 * (2 + 3), 24 * (1 + 1 + 2))
    assert pooled(plans[:1])["selections"] == (24 * 2, 24 * 2)
    assert pooled(plans)["answers"] == (0, 0)


def test_of_two_plans_with_one_part_the_larger_number_of_questions_counts(two):
    whole, few = make_plan(two[0]), make_plan(two[0].model_copy(update={"limit": 3}))
    assert pooled([whole, few])["selections"] == pooled([few, whole])["selections"] == (2 * (24 + 3), 2 * 24)


def test_a_table_shows_only_the_questions_it_asked(two, tmp_path):
    run(two[0], tmp_path / "runs" / "whole")
    limited = two[0].model_copy(update={"limit": 3, "name": "few"})
    frame, written = run(limited, tmp_path / "runs" / "few")
    assert written == 0
    assert len(frame) == 3 * 2
    assert len(load_run(tmp_path / "runs" / "few").selections) == 3 * 2
    assert len(load_run(tmp_path / "runs" / "whole").selections) == 24 * 2


def test_other_questions_under_the_same_ids_are_other_rows(two, tmp_path):
    run(two[0], tmp_path / "runs" / "before")
    file = tmp_path / "simulation" / "questions.json"
    rows = json.loads(file.read_text())
    rows[5]["question"] = "What happens instead?"
    file.write_text(json.dumps(rows))
    assert run(two[0], tmp_path / "runs" / "before")[1] == 24 * 2
    run_rows = load_run(tmp_path / "runs" / "before").selections
    assert len(run_rows) == 24 * 2, "the earlier rows stay in the pool and leave the table"
    assert {row.query for row in run_rows if row.question_id == "q5"} == {"What happens instead?"}


def test_selections_that_pay_alone_are_not_those_that_shared(two, tmp_path):
    run(two[0], tmp_path / "runs" / "shared")
    unshared = two[0].model_copy(update={"share_frames": False, "name": "alone"})
    assert run(unshared, tmp_path / "runs" / "alone")[1] == 24 * 2


HOLDER = """
import sys, pathlib
from focus_eval.bench.matrix.folder import Pool
with Pool(pathlib.Path(sys.argv[1])).writing():
    print("writing", flush=True)
    sys.stdin.read()
"""


def test_the_rows_of_a_run_that_still_writes_are_left_where_they_are(two, tmp_path):
    """The second run ends first: it must not take away the file the first one appends to."""
    first, second = tmp_path / "runs" / "first", tmp_path / "runs" / "second"
    run(two[0], tmp_path / "apart" / "done")
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(first)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"writing\n"
    spec = next(spec for spec in selection_specs(two[0]) if spec.sampler.name == "topk")
    rows = list(RunFolder(tmp_path / "apart" / "done").selections(spec))
    writer = RunFolder(first).writer(spec, "local")
    for row in rows[:7]:
        writer.write(row)
    frame, written = run(two[1], second)
    assert written == 24 * 3 - 7
    assert len(frame) == 24 * 3
    assert writer.path.exists()
    writer.write(rows[7])  # it goes on writing
    writer.close()
    broken = RunFolder(second)
    broken.errors = lambda spec: {rows[0].question_id: None, rows[1].question_id: "broken"}
    with pytest.raises(RunError, match="another run writes here"):
        broken.drop_errors([spec])
    holder.kill()  # from now on nobody holds the file
    holder.wait()
    whole, _ = run(two[0], first)
    assert not list(RunFolder(first).part(spec).glob("*.jsonl"))
    assert len(whole) == 24 * 2
    assert whole["error"].isna().all()


def test_a_part_stays_as_it_is_while_a_run_reads_it(two, tmp_path):
    """Else the run that reads ends with an error, and the cells it has not come to stay without rows."""
    run(two[0], tmp_path / "apart" / "done")
    spec = next(spec for spec in selection_specs(two[0]) if spec.sampler.name == "topk")
    rows = list(RunFolder(tmp_path / "apart" / "done").selections(spec))
    first, second = (RunFolder(tmp_path / "runs" / name) for name in ("first", "second"))
    writer = first.writer(spec, "local")
    for row in rows:
        writer.write(row)
    writer.close()
    compacting = threading.Thread(target=first.compact, args=(spec, [row.question_id for row in rows]))
    with second.part_lock(spec):
        reading = iter(second.selections(spec))
        read = [next(reading)]
        compacting.start()
        compacting.join(0.3)
        assert [*read, *reading] == rows
        assert not (first.part(spec) / "rows.parquet").exists()
    compacting.join()
    assert list(second.selections(spec)) == rows
    assert not list(first.part(spec).glob("*.jsonl"))


def test_parts_named_before_with_a_colon_are_read_and_gone_on_with(two, tmp_path, monkeypatch):
    first = two[0].model_copy(update={"queries": ["a photo of: {question}", "question"]})
    folder = tmp_path / "runs" / "first"
    with monkeypatch.context() as earlier_version:
        earlier_version.setattr(cells, "safe_name", lambda text: text)
        _, written = run(first.model_copy(update={"limit": 10}), folder)
        former_names = {spec.name for spec in cells.selection_specs(first)}
    assert written == 10 * 3  # uniform, and topk with each query
    names = {spec.name for spec in cells.selection_specs(first)}
    assert (sum(":" in name for name in former_names), sum(":" in name for name in names)) == (1, 0)
    assert sum(status.rows for status in run_status(folder)) == written
    frame, written = run(first, folder)
    assert (len(frame), written) == (24 * 3, 14 * 3)
    assert [status.rows for status in run_status(folder)] == [24] * 3
    assert len(load_run(folder).selections) == 24 * 3
    # The former name is found from another run, and once: in the pool, and as a link of each run.
    assert run(first.model_copy(update={"name": "third"}), folder.with_name("third"))[1] == 0
    for place in (folder, folder.with_name("third"), folder.with_name("pool")):
        assert {path.name for path in (place / "selections").iterdir()} == former_names


def test_the_results_folder_can_be_moved(two, tmp_path):
    run(two[0], tmp_path / "runs" / "first")
    (tmp_path / "runs").rename(tmp_path / "moved")
    assert len(load_run(tmp_path / "moved" / "first").selections) == 24 * 2
    shutil.copytree(tmp_path / "moved" / "first", tmp_path / "copy")  # follows the links
    assert len(load_run(tmp_path / "copy").selections) == 24 * 2


def test_no_run_is_called_pool(two, tmp_path):
    with pytest.raises(InvalidInput, match="runs share this folder for their rows"):
        run(two[0], tmp_path / "runs" / "pool")


def test_several_matrices_run_with_one_command(two, tmp_path):
    files = [str(tmp_path / "simulation" / name) for name in ("matrix.yaml", "second.yaml")]
    result = CliRunner().invoke(app, ["run", *files, "--out", str(tmp_path / "runs"), "--limit", "4"])
    assert result.exit_code == 0, result.output
    for name in ("simulation", "second"):
        assert len(load_run(tmp_path / "runs" / name).selections) == 4 * 2
    planned = CliRunner().invoke(app, ["plan", *files, "--limit", "4"]).output
    assert "all 2 matrices: 16 selections, 12 of them distinct" in planned
    second = CliRunner().invoke(app, ["run", files[0], files[0]])
    assert isinstance(second.exception, InvalidInput)
