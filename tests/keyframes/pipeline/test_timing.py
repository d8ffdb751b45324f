"""Seconds of work that overlaps are shared out so that they add up to the time that really passed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from focus_eval.keyframes.pipeline import timing as costs
from focus_eval.keyframes.pipeline.timing import Meter, SharedClock, charged_rows
from focus_eval.keyframes.rows.records import BLOCKING_STAGES, SelectionRow


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves when told."""
    now = SimpleNamespace(wall=100.0, cpu=5.0)
    stand_in = SimpleNamespace(perf_counter=lambda: now.wall, thread_time=lambda: now.cpu)
    monkeypatch.setattr(costs, "time", stand_in)
    return now


def row(encoder="offline", **seconds):
    return SelectionRow(
        benchmark="b", question_id="q", video="v", query="x", selection_id="s", sampler="focus", options={},
        encoder=encoder, encoder_revision="", k=1, seed=0, bucket="", duration_seconds=1.0, seconds=seconds,
    )  # fmt: skip


def test_jobs_that_run_at_once_share_the_time(clock):
    shared = SharedClock()
    with shared.job() as first:
        clock.wall += 4
        with shared.job() as second:
            clock.wall += 6
            assert second() == 3
        clock.wall += 1
        assert first() == 4 + 3 + 1
    clock.wall += 50  # nobody is charged
    with shared.job() as third:
        clock.wall += 2
        assert third() == 2


def test_rows_served_together_add_up_to_the_time_that_passed():
    rows = [row(open=1.0, encode=5.0, decode=7.0), row(encode=3.0, select=1.0, idle=2.0), row()]
    charged = charged_rows(rows, device_seconds=6.0)
    assert sum(item.seconds.get(stage, 0) for item in charged for stage in BLOCKING_STAGES) == pytest.approx(6.0)
    assert charged[0].seconds == {"open": 0.5, "encode": 2.5, "decode": 7.0}
    assert charged[2] == rows[2]  # an error row has no seconds


def test_loading_an_encoder_is_booked_on_the_rows_that_use_it():
    charged = charged_rows(
        [row(encode=1.0), row(encode=1.0), row(encoder="", select=2.0)], device_seconds=4.0, loading=10.0
    )
    assert [item.seconds for item in charged] == [{"encode": 1.0, "open": 5.0}] * 2 + [{"select": 2.0}]


@pytest.mark.parametrize(("gpus", "paid"), [(0.5, 3.0), (2.0, 12.0), (0.0, 6.0)])
def test_a_worker_pays_for_its_share_of_a_gpu(gpus, paid):
    rows = [row(encode=1.0), row(encode=3.0, select=4.0)]
    charged = charged_rows(rows, device_seconds=5.0, loading=1.0, gpus=gpus)
    assert sum(item.seconds.get(stage, 0) for item in charged for stage in BLOCKING_STAGES) == pytest.approx(paid)


def test_stages_inside_one_another_never_overlap_and_select_counts_the_processor(clock):
    meter = Meter()
    with meter.stage("select"):
        clock.wall, clock.cpu = clock.wall + 9, clock.cpu + 2
        with meter.stage("encode"):
            clock.wall, clock.cpu = clock.wall + 4, clock.cpu + 1
        clock.wall, clock.cpu = clock.wall + 9, clock.cpu + 3
    assert meter.seconds == {"select": 5, "encode": 4}
