"""The frontier of the demo: budgets replayed from a run, and how they are drawn."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from focus_eval.bench.commands.demo import RECALL_K
from focus_eval.bench.matrix.config import load_matrix
from focus_eval.bench.report.measures import FRAMES_SCORED
from focus_eval.lab.overview import draw_frontier
from scripts.pages.draw_demo_frontier import BUDGETS, replay_budgets
from tests.bench.matrix.conftest import write_simulation
from tests.support.bench.matrix_rows import run_matrix

pytestmark = pytest.mark.slow

MEASURED = ["benchmark", "question_id", "label", "k", "n_pulls", "recall@2"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on two videos whose samplers scored one frame a second and more."""
    folder = tmp_path_factory.mktemp("replayed")
    matrix = write_simulation(folder, n_questions=4, n_videos=2, samplers=("topk", "focus"))
    run_matrix(load_matrix(matrix), out=folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def replayed(run):
    return replay_budgets(run)


def test_every_sampler_is_replayed_at_every_budget_and_k(replayed):
    assert replayed["error"].isna().all()
    assert set(replayed["k"]) == set(RECALL_K)
    n_budgets = replayed.groupby(["sampler", "k"])["label"].nunique()
    # Besides the budgets, as many frames as focus scores.
    assert set(n_budgets) == {len(BUDGETS) + 1}
    assert set(n_budgets.index.get_level_values("sampler")) == {"focus", "even_topk", "even_diverse", "even_cover"}


def test_the_even_samplers_score_the_share_of_frames_that_the_budget_says(replayed):
    longest = replayed[(replayed["n_frames"] == replayed["n_frames"].max()) & (replayed["k"] == 8)]
    for label, percent in (("every_seconds=1 ", 4.0), ("every_seconds=4 ", 1.0), ("share=0.04", 4.0)):
        rows = longest[longest["label"].str.contains(label)]
        # Percent of 25 frames a second; these videos have 30.
        assert np.allclose(100 * rows["n_pulls"] / rows["n_frames"], percent * 25 / 30, rtol=0.05), label


def test_a_replay_is_the_same_again_and_changes_nothing_of_the_run(run, replayed):
    files = sorted((path.name, path.stat().st_mtime_ns) for path in (run / "selections").rglob("*"))
    repeated = replay_budgets(run)
    pd.testing.assert_frame_equal(repeated[MEASURED], replayed[MEASURED])
    assert files == sorted((path.name, path.stat().st_mtime_ns) for path in (run / "selections").rglob("*"))


def a_frame(points):
    """Return rows of one question for each (sampler, label, percent of 1000 frames, recall)."""
    columns = ["sampler", "label", "n_pulls", "recall@2"]
    return pd.DataFrame(points, columns=columns).assign(k=8, n_frames=1000, error=None, has_cost=True)


def test_lines_are_the_replayed_budgets_and_filled_marks_the_run():
    measured = a_frame([("focus", "focus", 20, 0.5), ("topk", "topk", 40, 0.7)])
    replayed = a_frame([("focus", "focus a", 40, 0.6), ("focus", "focus b", 10, 0.3)])
    (axes,) = draw_frontier(measured, replayed=replayed, cost=FRAMES_SCORED).axes
    lines = [line for line in axes.lines if len(line.get_xdata())]
    hollow = [line for line in lines if line.get_markerfacecolor() == "none"]
    filled = {line.get_label(): line for line in lines if line not in hollow}
    (line,) = hollow
    assert (line.get_xdata().tolist(), line.get_ydata().tolist()) == ([1.0, 4.0], [30.0, 60.0])
    assert line.get_linewidth() > 0
    assert set(filled) == {"focus", "topk"}
    assert (filled["focus"].get_xdata().tolist(), filled["focus"].get_ydata().tolist()) == ([2.0], [50.0])
    assert {line.get_linewidth() for line in filled.values()} == {0}
    assert line.get_color() == filled["focus"].get_color()
