"""What a run survives: kills, torn writes, a folder it may not write, a clock that is set back."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

from focus_eval.bench.matrix.config import load_matrix
from focus_eval.bench.matrix.plan import run_status
from focus_eval.bench.matrix.running import complete_run
from focus_eval.core.errors import FocusEvalError
from focus_eval.keyframes.encoders.store import RelevanceStore
from tests.support.bench import kill_roads, kills
from tests.support.bench.kills import kill_again_and_again, row_digests
from tests.support.bench.matrix_rows import run_matrix

from .conftest import write_simulation


@pytest.mark.slow
def test_kills_and_writes_cut_at_any_byte_lose_nothing_and_change_no_byte(tmp_path):
    matrix = load_matrix(write_simulation(tmp_path / "simulation", n_questions=60))
    survived = kill_again_and_again(lambda run: complete_run(matrix, out=run), tmp_path / "runs", n_kills=6, seed=1)
    assert sum(survived.kills.values()) == 6
    assert (survived.lost, survived.repeated, survived.wrong) == (0, 0, [])
    assert survived.rounds


def test_a_run_killed_while_lines_become_parquet_loses_nothing(tmp_path):
    road = kill_roads.compacting(tmp_path / "made", 20)
    survived = kill_again_and_again(
        road.command, tmp_path / "runs", n_kills=3, seed=2, prepare=road.prepare, digests=road.digests
    )
    assert sum(survived.kills.values()) == 3
    assert (survived.lost, survived.repeated, survived.wrong) == (0, 0, [])
    n_rows = sum(1 for _ in kills.row_texts(tmp_path / "runs" / "round0" / "run"))
    assert n_rows == 20 * 3


def test_a_store_that_differs_is_seen(tmp_path):
    """What the kill test compares of a store is all that it holds."""
    differences = []
    for value in (0.5, 0.25):
        run = tmp_path / str(value) / "run"
        run.mkdir(parents=True)
        store = RelevanceStore(run.parent / "store.sqlite")
        store.put_relevance("clip 1", "v", "a dog", np.array([3]), np.array([value]))
        store.put_embeddings("clip 1", "v", np.array([3]), np.ones((1, 4), np.float32))
        store.close()
        differences.append(kill_roads.rows_and_store(run))
    assert differences[0]["store"] == "ok"
    assert differences[0]["embedding"] == differences[1]["embedding"]
    assert differences[0]["relevance"] != differences[1]["relevance"]


def test_a_folder_that_cannot_be_written_is_one_clear_error(simulation, tmp_path):
    blocked = tmp_path / "blocked"
    if os.getuid() == 0:  # root may write anywhere but where there is no folder
        blocked.write_text("a file")
    else:
        blocked.mkdir(mode=0o500)
    with pytest.raises((FocusEvalError, OSError), match="blocked"):
        complete_run(load_matrix(simulation), out=blocked / "run")


def test_a_clock_that_is_set_back_changes_no_row(simulation, tmp_path, monkeypatch):
    matrix = load_matrix(simulation)
    complete_run(matrix, out=tmp_path / "apart" / "run")
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() - 86400 * 365)
    complete_run(matrix.model_copy(update={"limit": 9}), out=tmp_path / "run")
    assert all(part.rows_per_second is None or part.rows_per_second > 0 for part in run_status(tmp_path / "run"))
    frame = run_matrix(matrix, out=tmp_path / "run")
    assert frame["error"].isna().all()
    assert row_digests(tmp_path / "run") == row_digests(tmp_path / "apart" / "run")
    assert all(seconds >= 0 for row in frame["seconds"] for seconds in row.values())
