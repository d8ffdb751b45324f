"""The demo: the table and the page at its end, and its progress."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from rich.progress import Progress
from typer.testing import CliRunner

from focus_eval.bench.commands.demo import (
    SECONDS_OF_ANSWERS,
    SECONDS_OF_REPORT,
    SECONDS_OF_SELECTING,
    SECONDS_PER_FRAME_DRAWN,
    DemoProgress,
    _print_report,
    _write_report,
)
from focus_eval.bench.demo import photo_events
from focus_eval.bench.report.page.charts import headline, panels_of
from focus_eval.bench.report.run import load_run
from focus_eval.cli import app
from focus_eval.keyframes.encoders.cache import duplicate_cache, using_feature_folder
from focus_eval.keyframes.encoders.offline import OfflineScorer
from tests.bench.report.simulated import Simulation, simulate_run


def a_frame(points):
    """Return rows of one question for each (sampler, label, percent of 1000 frames, recall)."""
    columns = ["sampler", "label", "n_pulls", "recall@2"]
    return pd.DataFrame(points, columns=columns).assign(k=8, n_frames=1000, error=None, has_cost=True)


@pytest.mark.slow
@pytest.mark.usefixtures("unsaved_figures")
def test_the_demo_ends_with_a_short_table_the_answer_and_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    # The demo's own longest name has 31 characters.
    names = ("focus_c", "focus_f", "focus_of_thirty_one_characters_", "uniform", "random", "topk", "aks", "focus")
    folder = simulate_run(tmp_path / "run", Simulation(n_questions=24, samplers=names))
    (tmp_path / "videos").mkdir()
    _print_report(*_write_report(folder, tmp_path / "videos"))
    *table, answer, link = capsys.readouterr().out.rstrip().splitlines()
    assert len(table) <= 16
    assert sum("[" in line for line in table) == len(names)
    assert max(map(len, table)) <= 80
    assert all(any(line.lstrip().startswith(f"{name} ") for line in table) for name in names)
    assert answer == headline(load_run(folder), panels_of(load_run(folder)))
    assert link.endswith((folder / "report.html").as_uri())
    assert (folder / "demo.md").read_text().startswith("#")


def test_the_bar_counts_what_each_stage_has_left():
    bar = Progress(disable=True)
    progress = DemoProgress(bar, n_frames=1000, video_seconds=100, n_answered=1)
    (task,) = bar.tasks
    whole = task.total
    progress.draw(1000)
    drawn = task.completed
    assert drawn == pytest.approx(1000 * SECONDS_PER_FRAME_DRAWN)
    progress.start("select", n_rows=8, work=100.0)
    assert task.total == pytest.approx(whole)
    for _ in range(4):
        progress.advance("select", 2, 0, 25.0)
    assert task.completed == pytest.approx(drawn + 100 * SECONDS_OF_SELECTING)
    progress.start("answer", n_rows=4, work=32.0)
    progress.advance("answer", 4, 0, 32.0)
    progress.begin("report")
    assert whole - task.completed == pytest.approx(SECONDS_OF_REPORT)
    assert task.description == "report"


def test_a_demo_that_goes_on_expects_only_what_is_left():
    bar = Progress(disable=True)
    progress = DemoProgress(bar, n_frames=0, video_seconds=100, n_answered=1)
    (task,) = bar.tasks
    whole = task.total
    progress.start("select", n_rows=1, work=10.0)
    assert whole - task.total == pytest.approx(90 * SECONDS_OF_SELECTING)
    progress.start("answer", n_rows=1, work=8.0)
    assert task.total == pytest.approx(SECONDS_OF_ANSWERS + SECONDS_OF_REPORT)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sampler", "focuss"], "did you mean 'focus'?"),
        (["-k", "0"], "'-k'"),
        (["--seeds", "0"], "'--seeds'"),
    ],
)
def test_a_mistake_on_the_command_line_is_told_before_videos_are_made(tmp_path, monkeypatch, options, message):
    monkeypatch.setenv("FOCUS_EVAL_DEMO", "")  # the command sets it
    result = CliRunner().invoke(app, ["demo", "--data", str(tmp_path), "--out", str(tmp_path / "run"), *options])
    assert result.exit_code != 0
    assert message in f"{result.output}{result.exception}"
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_while_videos_are_made_says_that_finished_videos_are_kept(tmp_path, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setenv("FOCUS_EVAL_DEMO", "")
    monkeypatch.setattr(photo_events, "build_photo_events", interrupted)
    stopped = CliRunner().invoke(app, ["demo", "--data", str(tmp_path), "--out", str(tmp_path / "run")])
    assert stopped.exit_code == 130
    assert "finished videos are kept. Run the same command again to continue" in stopped.output


def test_embeddings_are_shared_with_later_demos_and_not_with_other_encoders(tmp_path):
    encoders = [OfflineScorer(size=size) for size in (224, 64)]
    pictures, embedded = np.zeros((1, 8, 8, 3), np.uint8), []

    def embed(pictures):
        embedded.append(len(pictures))
        return np.ones((len(pictures), 4), np.float32)

    for _ in range(2):
        with using_feature_folder(tmp_path / "features"):
            for encoder in encoders:
                _, computed = duplicate_cache(f"{encoder.name} {encoder.revision}").embed(pictures, embed)
                assert computed.all()
    assert embedded == [1, 1]
    with using_feature_folder(None):
        _, computed = duplicate_cache(f"{encoders[0].name} {encoders[0].revision}").embed(pictures, embed)
    assert not computed.any()
