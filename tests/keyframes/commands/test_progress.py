"""Progress in a log file, and what `select` and `run` say when they are done."""

from __future__ import annotations

import io
import re
import threading
from contextlib import redirect_stderr

from rich.progress import Progress

from focus_eval.keyframes.commands.console import (
    PERCENT,
    ProgressLines,
    PullProgress,
    TimeLeft,
    print_if_slow,
    progress_line,
    seconds_left,
)
from focus_eval.keyframes.commands.printing import print_selection
from focus_eval.keyframes.rows.records import SelectionRow
from focus_eval.keyframes.selection import selection_of


def test_a_line_says_rate_and_time_left():
    now = [0.0]
    bar = Progress(disable=True, get_time=lambda: now[0])
    task = bar.add_task("select", total=400)
    now[0] = 20.0
    assert progress_line(bar.tasks[0], "rows") == "select: 0 of 400 rows (0.0 %), none yet after 0:00:20"
    bar.update(task, completed=100)
    now[0] = 50.0
    line = "select: 100 of 400 rows (25.0 %), 2.0 rows/s, about 0:01:30 left"
    assert progress_line(bar.tasks[0], "rows") == line


def test_the_time_left_goes_by_the_later_half_which_loading_is_not_in():
    now = [0.0]
    bar = Progress(disable=True, get_time=lambda: now[0])
    task = bar.add_task("select", total=100)
    seconds_of = {}
    for tick in range(1, 801):
        now[0] = tick / 10
        # Twenty seconds of loading, then two a second, in bursts of five seconds.
        n_done = max(0, 2 * 5 * int((now[0] - 20) / 5))
        bar.update(task, completed=n_done)
        seconds_of[n_done] = seconds_left(bar.tasks[0])
    assert seconds_of[0] is None
    assert len(bar.tasks[0].fields["history"]) < 110
    truth = {n_done: (100 - n_done) / 2 for n_done in (50, 70, 80)}
    assert all(abs(seconds_of[n_done] - left) < left / 3 for n_done, left in truth.items()), seconds_of


def test_work_of_no_unit_is_told_in_percent():
    now = [0.0]
    bar = Progress(disable=True, get_time=lambda: now[0])
    task = bar.add_task("select, 0 of 40 rows", total=1234.5)
    now[0] = 20.0
    assert progress_line(bar.tasks[0], PERCENT) == "select, 0 of 40 rows: 0.0 %, unknown time left after 0:00:20"
    assert TimeLeft().render(bar.tasks[0]).plain == ""
    bar.update(task, completed=1234.5 / 4, description="select, 5 of 40 rows")
    now[0] = 50.0
    assert progress_line(bar.tasks[0], PERCENT) == "select, 5 of 40 rows: 25.0 %, about 0:01:30 left"
    # A burst in the last second changes little.
    now[0] = 99.0
    bar.update(task, completed=1234.5 / 2)
    assert TimeLeft().render(bar.tasks[0]).plain == "0:01:19 left"


class Heard(io.StringIO):
    """Standard error that tells a waiting test of each line."""

    def __init__(self):
        super().__init__()
        self.n_lines = threading.Semaphore(0)

    def flush(self):
        self.n_lines.release()


def test_without_a_terminal_lines_come_at_intervals():
    with redirect_stderr(Heard()) as heard, ProgressLines("rows", every_seconds=0.001) as bar:
        bar.add_task("hidden by --quiet", total=400, visible=False)
        bar.add_task("select", total=400)
        assert heard.n_lines.acquire(timeout=600)
        assert heard.n_lines.acquire(timeout=600)
    assert heard.getvalue().startswith("select: 0 of 400 rows")
    assert "hidden" not in heard.getvalue()


def test_a_short_run_writes_no_progress_lines(capsys):
    with ProgressLines("rows", every_seconds=600) as bar:
        bar.update(bar.add_task("select", total=4), completed=4)
    assert capsys.readouterr().err == ""


def test_slow_loading_is_said_and_fast_loading_is_not():
    with redirect_stderr(Heard()) as heard:
        with print_if_slow("loading encoder blip", after_seconds=0.001):
            assert heard.n_lines.acquire(timeout=600)
        with print_if_slow("loading encoder offline", after_seconds=600):
            pass
    assert heard.getvalue() == "loading encoder blip\n"


def test_loading_is_said_until_the_first_frames_are_scored():
    bar = Progress(disable=True)
    progress = PullProgress(bar, "focus on a.mp4", waiting="loading encoder offline")
    progress.advance(0)
    assert bar.tasks[0].description == "loading encoder offline"
    progress.advance(3)
    assert bar.tasks[0].description == "focus on a.mp4"


def test_select_marks_what_was_not_scored_and_prints_times_at_80_columns(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    row = SelectionRow(
        benchmark="", question_id="1", video="v.mp4", query="a cat", selection_id="1", sampler="focus", options={},
        encoder="offline", encoder_revision="1", k=3, seed=0, bucket="", duration_seconds=7300, n_frames=73000, fps=10,
        keyframes=[10, 650, 72500], times_seconds=[1.0, 65.0, 7250.0], pulled_frames=[650], pulled_relevance=[0.51239],
    )  # fmt: skip
    selection = selection_of(row, sampler_version=1, reopen=lambda: None)
    print_selection(selection)
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    lines = [re.findall(r"[\w.:~]+", line) for line in printed.splitlines() if "│" in line]
    assert lines[-3:] == [
        ["10", "0:00:01", "1.00", "~0.5124"],
        ["650", "0:01:05", "65.00", "0.5124"],
        ["72500", "2:00:50", "7250.00", "~0.5124"],
    ]
