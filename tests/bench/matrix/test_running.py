"""Runs that select: counted as planned, resumed after any kill, refused to a second writer."""

from __future__ import annotations

import hashlib
import json
import random
import signal
import subprocess
import sys
from contextlib import contextmanager

import pandas as pd
import pytest

from focus_eval.bench.matrix.cells import selection_specs
from focus_eval.bench.matrix.config import load_matrix
from focus_eval.bench.matrix.folder import RunFolder
from focus_eval.bench.matrix.plan import make_plan, run_status
from focus_eval.bench.rows import store as rowfiles
from focus_eval.core.errors import RunError
from tests.support.bench.matrix_rows import run_matrix
from tests.support.bench.warm_process import WarmProcess

from .conftest import write_simulation


def result_bytes(folder):
    """Digest of every file of rows that depends on the configuration alone."""
    files = sorted(folder.glob("*/*/rows.parquet"))
    assert files
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_a_run_writes_one_row_per_selection_and_question(simulation, tmp_path):
    frame = run_matrix(load_matrix(simulation), out=tmp_path / "run")
    assert len(frame) == 24 * 4
    assert frame["error"].isna().all()
    assert (frame.groupby("sampler")["question_id"].nunique() == 24).all()
    assert (frame["keyframes"].map(len) == 8).all()


def test_planned_pulls_are_the_pulls_made(simulation, tmp_path):
    matrix = load_matrix(simulation)
    planned = {part.spec.name: (part.pulls, part.frames) for part in make_plan(matrix).selections}
    frame = run_matrix(matrix, out=tmp_path / "run")
    for part, rows in frame.groupby("part"):
        pulls = int(rows["pulls"].sum())
        if rows["sampler"].iloc[0] == "focus_released":  # its fine pulls depend on which windows overlap
            assert pulls == pytest.approx(planned[part][0], rel=0.05)
        else:
            assert pulls == planned[part][0]
        assert int(rows["n_frames"].sum()) == planned[part][1]


def test_a_second_run_does_nothing_and_gives_the_same(simulation, tmp_path):
    matrix = load_matrix(simulation)
    first = run_matrix(matrix, out=tmp_path / "run")
    first_bytes = result_bytes(tmp_path / "run")
    started: list[str] = []

    class RunProgress:
        def start(self, phase, n_rows, work):
            started.append(phase)

        def advance(self, phase, n_rows, n_errors, work):
            raise AssertionError("nothing was left to do")

    second_run = run_matrix(matrix, out=tmp_path / "run", progress=RunProgress())
    assert started == []
    pd.testing.assert_frame_equal(first, second_run)
    assert result_bytes(tmp_path / "run") == first_bytes


def test_a_longer_limit_adds_only_what_is_missing(simulation, tmp_path):
    matrix = load_matrix(simulation)
    run_matrix(matrix.model_copy(update={"limit": 10}), out=tmp_path / "run")
    counts = {"rows": 0}

    class RunProgress:
        def start(self, phase, n_rows, work):
            counts["planned"] = n_rows

        def advance(self, phase, n_rows, n_errors, work):
            counts["rows"] += n_rows

    run_matrix(matrix, out=tmp_path / "run", progress=RunProgress())
    assert counts == {"planned": 14 * 4, "rows": 14 * 4}
    run_matrix(matrix, out=tmp_path / "apart" / "whole")
    assert result_bytes(tmp_path / "run") == result_bytes(tmp_path / "apart" / "whole")


@pytest.mark.slow
def test_a_run_killed_five_times_ends_as_an_undisturbed_one(tmp_path):
    file = write_simulation(tmp_path / "simulation", n_questions=150, n_videos=6)
    matrix = load_matrix(file)
    run_matrix(matrix, out=tmp_path / "apart" / "undisturbed")
    command = ["focus_eval", "run", str(file), "--out", str(tmp_path / "killed")]
    imports = ["focus_eval.bench.matrix.running", "focus_eval.bench.commands.runs"]
    rng = random.Random(0)
    finished: set[tuple[str, str]] = set()
    with WarmProcess(imports, folder=tmp_path) as warm:
        for _ in range(5):
            n_rows = rng.randrange(1, 100)
            killed = warm.run(command, kill_at_row=n_rows)
            assert killed.returncode == -signal.SIGKILL, killed.stderr
            written = whole_rows(tmp_path / "killed", matrix)
            assert len(written) == len(set(written)), "rows repeated"
            assert finished < set(written), "rows lost"
            assert len(written) == len(finished) + n_rows
            finished = set(written)
        assert warm.run(command).returncode == 0
    assert result_bytes(tmp_path / "killed") == result_bytes(tmp_path / "apart" / "undisturbed")


def whole_rows(folder, matrix):
    """Return every row of the run as (part, question), as often as it was written."""
    written = []
    for spec in selection_specs(matrix):
        part = RunFolder(folder).part(spec)
        if files := list(part.glob("*.parquet")):
            written += [(spec.name, question_id) for question_id in pd.read_parquet(files[0])["question_id"]]
            continue
        for path in part.glob("*.jsonl"):
            lines = path.read_bytes().split(b"\n")[:-1]  # what follows the last line break is torn
            written += [(spec.name, json.loads(line)["question_id"]) for line in lines]
    return written


def test_a_torn_last_line_is_done_again(simulation, tmp_path):
    matrix = load_matrix(simulation).model_copy(update={"limit": 5})
    run_matrix(matrix, out=tmp_path / "run")
    whole = result_bytes(tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    spec = selection_specs(matrix)[2]
    rows = list(run.selections(spec))
    for path in run.part(spec).glob("*.parquet"):
        path.unlink()
    writer = run.writer(spec, "local")
    for row in rows[:3]:
        writer.write(row)
    writer.close()
    with open(writer.path, "ab") as file:
        file.write(b'{"benchmark":"longvideobench","question_id":"q3","vid')
    assert len(run.selections(spec)) == 3
    run_matrix(matrix, out=tmp_path / "run")
    assert result_bytes(tmp_path / "run") == whole


def test_two_runs_on_one_folder_the_second_says_so(simulation, tmp_path):
    holder = (
        "import sys, pathlib; from focus_eval.bench.matrix.folder import RunFolder\n"
        "with RunFolder(pathlib.Path(sys.argv[1])).locked(): print('held', flush=True); sys.stdin.read()"
    )
    first = subprocess.Popen(
        [sys.executable, "-c", holder, str(tmp_path / "run")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert first.stdout.readline() == b"held\n"
    with pytest.raises(RunError, match="another run writes here"):
        run_matrix(load_matrix(simulation), out=tmp_path / "run")
    first.kill()  # the lock goes with the process
    first.wait()
    run_matrix(load_matrix(simulation), out=tmp_path / "run")


def test_an_error_is_one_row_and_can_be_tried_again(simulation, tmp_path):
    matrix = load_matrix(simulation)
    trace = simulation.parent / "trace.npy"
    whole = trace.read_bytes()
    import numpy as np

    np.save(trace, np.load(trace)[: 30 * 200])  # too short for the longer videos
    with pytest.raises(RunError, match=r"rows record an error, max_error_share = 2%.*has no relevance"):
        run_matrix(matrix, out=tmp_path / "run")
    failed = [part for part in run_status(tmp_path / "run") if part.errors]
    assert failed
    assert all(part.rows == part.questions for part in failed)
    np.save(trace, np.load(trace)[:1])
    pulling_samplers = [sampler for sampler in matrix.samplers if sampler.sampler in ("topk", "focus")]
    tolerant_matrix = matrix.model_copy(update={"max_error_share": 1.0, "samplers": pulling_samplers})
    with pytest.raises(RunError, match=r"(\d+) of \1 rows record an error"):
        run_matrix(tolerant_matrix, out=tmp_path / "all")
    trace.write_bytes(whole)
    frame = run_matrix(matrix, out=tmp_path / "run", retry_errors=True)
    assert frame["error"].isna().all()


def test_the_provenance_names_matrix_versions_and_device(simulation, tmp_path):
    import json

    run_matrix(load_matrix(simulation), out=tmp_path / "run")
    written = json.loads((tmp_path / "run" / "run.json").read_text())
    assert written["matrix"]["name"] == "simulation"
    start = written["starts"][0]
    assert start["engine"] == "local"
    assert start["device"]
    assert "focus-eval" in start["versions"]


def test_a_damaged_description_of_a_run_is_kept_aside_and_written_again(simulation, tmp_path, capsys):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text('{"name": "simulation", ')
    assert (
        run_matrix(load_matrix(simulation).model_copy(update={"limit": 1}), out=tmp_path / "run")["error"].isna().all()
    )
    assert "run.json: damaged, kept as run.json.damaged" in capsys.readouterr().err
    assert (tmp_path / "run" / "run.json.damaged").read_text() == '{"name": "simulation", '


def test_a_run_killed_while_a_finished_part_grows_goes_on(simulation, tmp_path, monkeypatch):
    """Costs are in place already, the rows they belong to are still lines."""
    matrix = load_matrix(simulation)
    run_matrix(matrix, out=tmp_path / "apart" / "whole")
    run_matrix(matrix.model_copy(update={"limit": 5}), out=tmp_path / "run")
    replace = rowfiles.replace_file

    @contextmanager
    def killed(path):
        with replace(path) as part:
            yield part
            if path.name == "rows.parquet":
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(rowfiles, "replace_file", killed)
        with pytest.raises(KeyboardInterrupt):
            run_matrix(matrix, out=tmp_path / "run")
    run_matrix(matrix, out=tmp_path / "run")
    assert result_bytes(tmp_path / "run") == result_bytes(tmp_path / "apart" / "whole")


def test_a_question_without_a_rate_is_one_error_row(tmp_path):
    file = write_simulation(tmp_path / "simulation")
    rates = tmp_path / "simulation" / "rates.csv"
    rates.write_text("".join(line for line in rates.open() if not line.startswith("q4,")))
    frame = run_matrix(load_matrix(file, overrides={"max_error_share": 0.5}), out=tmp_path / "run")
    assert set(frame[frame["error"].notna()]["question_id"]) == {"q4"}
    assert len(frame) == 24 * 4


def test_a_sampler_that_draws_nothing_is_run_under_one_seed():
    from focus_eval.bench.matrix.cells import cells, selection_specs
    from focus_eval.bench.matrix.config import load_matrix

    matrix = load_matrix("main_results").model_copy(update={"seeds": [3, 1, 2]})
    seeds = {}
    for spec in selection_specs(matrix):
        seeds.setdefault(spec.sampler.name, set()).add(spec.seed)
    assert seeds["uniform"] == {3}
    assert seeds["focus"] == {1, 2, 3}
    uniform_cells = [cell for cell in cells(matrix) if cell.selection.sampler.name == "uniform"]
    assert len(uniform_cells) == len({(cell.model.name, cell.benchmark.name) for cell in uniform_cells})
