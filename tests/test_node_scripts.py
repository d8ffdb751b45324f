"""The scripts that measure and simulate a node give tables that can stand in a page, and sums that add up."""

from __future__ import annotations

import argparse
import importlib
import itertools
import re
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from focus_eval.bench.matrix.hours import load_machine

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    yield importlib.import_module
    for path in SCRIPTS.glob("*.py"):
        sys.modules.pop(path.stem, None)


PRINTED = """# BLIP-ITM tiny, random weights
| precision | frames/s | TFLOP/s |
|---|---|---|
| fp32 | 61.4 | 0.3 |
| bf16, fp32_batches 2 | 18.0 | 0.1 |
spread of relevance over frames: 0.1
| 360p | pyav | 71 | 14.1 | 0 of 60 |
| 720p | pya"""


def test_what_a_part_printed_has_no_heading_no_half_line_and_whole_tables(script):
    text = script("measure_node").whole_lines(PRINTED)
    lines = text.splitlines()
    assert lines[:3] == ["BLIP-ITM tiny, random weights", "", "| precision | frames/s | TFLOP/s |"]
    assert "pya" not in lines[-1].replace("pyav", "")
    for line, next_line in itertools.pairwise(lines):
        assert line.startswith("|") == next_line.startswith("|") or "" in (line, next_line)


def test_rates_and_costs_are_read_from_whole_lines_only(script):
    measure = script("measure_node")
    text = measure.whole_lines(PRINTED)
    assert measure.rates_in(text) == {"fp32": 61.4, "bf16": 18.0}
    assert measure.decode_seconds_in(text) == pytest.approx(0.0141)
    assert measure.decode_seconds_in("| 360p | pyav | clip: no such file | | |\n") is None
    assert measure.rates_in("| fp32 | not measured | |\n") == {}


def test_the_limits_of_the_parts_stay_within_the_time_allowed_and_leave_some_for_each(script):
    measure = script("measure_node")
    seconds_left = measure._SECONDS
    for part in measure.parts_of(argparse.Namespace(annotations=None, rates=None, tiny=False)):
        assert (SCRIPTS / part.command[0]).is_file()
        assert 10 < part.share * seconds_left <= seconds_left < 600
        seconds_left -= part.share * seconds_left


@pytest.mark.slow
def test_without_a_gpu_every_part_runs_and_page_and_machine_say_that_it_was_a_dry_run(script, monkeypatch, tmp_path):
    pytest.importorskip("lmms_eval")
    page, machine = tmp_path / "performance.md", tmp_path / "node.yaml"
    measure = script("measure_node")
    estimates = (
        "| selection | pulls | published | fp32, estimated |\n|---|---:|---:|---:|\n| aks | 7,200 | 9.3 | .02 |\n"
    )
    page.write_text(f"before\n{measure.BEGIN}\n{estimates}{measure.END}\nafter\n")
    monkeypatch.setattr(sys, "argv", ["measure_node.py", "--tiny", "--page", str(page), "--machine", str(machine)])
    measure.main()
    text = page.read_text()
    assert (text.startswith("before\n"), text.endswith("after\n"), "estimated" in text) == (True, True, False)
    parts = [part.name for part in measure.parts_of(measure.arguments())]
    positions = [text.index(f"### {part}: ") for part in parts]
    assert positions == sorted(positions)
    assert "**Not" not in text
    assert "Tiny networks: these figures say that the script runs" in text
    assert re.search(r"720p \| 0 of \d+ values differ", text), "parity compared something"
    assert re.search(r"\| 360p \| fp32 \| [1-9]\d* \|", text), "the worker scored frames"
    settings = load_machine(machine)
    fp32 = settings.frames_per_second["blip"]["fp32"]
    (hours,) = re.findall(r"\| aks \| 7,200 \| 9.3 \| ([\de.+-]+) \|", text)
    assert float(hours) == pytest.approx(2 / fp32, rel=0.01)
    assert (settings.rates_are, set(settings.frames_per_second["blip"]) >= {"fp32", "bf16"}) == ("estimated", True)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("print('| a |')\nimport time\ntime.sleep(600)", "**Not finished**: stopped after 1 s."),
        ("print('| a |')\nraise SystemExit('no GPU here')", "| a |\n\n**Not measured**: no GPU here"),
        ("print('| a |')", "| a |"),
    ],
)
def test_a_part_that_hangs_or_fails_says_so_and_the_others_go_on(script, tmp_path, code, message):
    measure = script("measure_node")
    (tmp_path / "part.py").write_text(code)
    limit = 1.0 if "sleep" in code else 600.0
    part = measure.Part("part", (str(tmp_path / "part.py"),), 1.0)
    assert measure.run_part(part, seconds=limit).endswith(message)
    if "sleep" not in code:
        assert measure.run_here(part).endswith(message.replace("no GPU here", "SystemExit: no GPU here"))


def costs(simulation, **changes):
    rates = simulation.Costs(decode=0.5, locked=0.1, open=2.0, index=0.01, encode=0.25, launch=1.0, select=0.125)
    return replace(rates, **changes)


def test_one_run_of_one_video_takes_the_sum_of_its_parts(script):
    simulation = script("node_simulation")
    job = simulation.Job(100, ((simulation.Run(3, 12),),))
    setting = simulation.Setting(cores=1, videos=1, threads=1, batch=4, fills=False)
    result = simulation.simulate([job], costs(simulation), setting)
    assert result.seconds == pytest.approx(2.0 + 1.0 + 12 * 0.5 + (1.0 + 3 * 0.25) + 0.125)
    assert result.busy == pytest.approx((1.0 + 3 * 0.25) / result.seconds)
    padded = simulation.simulate([job], costs(simulation), replace(setting, fills=True))
    assert padded.seconds == pytest.approx(result.seconds + 0.25)  # the fourth frame is padding


def test_runs_are_decoded_side_by_side_and_frames_wait_for_those_before_them(script):
    simulation = script("node_simulation")
    job = simulation.Job(0, (tuple(simulation.Run(1, passed) for passed in (8, 2, 2, 2)),))
    setting = simulation.Setting(cores=2, videos=1, threads=2, batch=4, fills=False)
    free = costs(simulation, locked=0.0, open=0.0, encode=0.0, launch=0.0, select=0.0)
    # Of two threads, one decodes the first run, the other two more; the fourth is begun once the first was given out.
    assert simulation.simulate([job], free, setting).seconds == pytest.approx((8 + 2) * 0.5)
    one_core = simulation.simulate([job], free, replace(setting, cores=1))
    assert one_core.seconds == pytest.approx(14 * 0.5)
    all_locked = simulation.simulate([job], replace(free, locked=0.5), setting)
    assert all_locked.seconds == pytest.approx(14 * 0.5)


def test_several_videos_fill_batches_and_the_gpu_computes_each_frame_once(script):
    simulation = script("node_simulation")
    jobs = [simulation.Job(0, ((simulation.Run(16, 16),),)) for _ in range(6)]
    setting = simulation.Setting(cores=2, videos=2, threads=1, batch=32, fills=True)
    result = simulation.simulate(jobs, costs(simulation), setting)
    assert result.busy * result.seconds == pytest.approx(3 * (1.0 + 32 * 0.25))


def test_the_next_batch_is_loaded_while_the_gpu_computes(script):
    simulation, seconds = script("node_simulation"), 16 * 0.1 + 2 * 5.0
    job = simulation.Job(0, ((simulation.Run(32, 32),),))
    setting = simulation.Setting(cores=1, videos=1, threads=1, batch=16, fills=True)
    free = costs(simulation, decode=0.0, locked=0.0, open=0.0, select=0.0, load=0.1, resize=0.0)
    result = simulation.simulate([job], free, setting)
    assert result.seconds == pytest.approx(seconds)
    assert result.busy == pytest.approx(10.0 / seconds)
    resized = simulation.simulate([job], replace(free, resize=0.05), setting)
    assert resized.seconds == pytest.approx(seconds + 32 * 0.05)
    assert resized.busy * resized.seconds == pytest.approx(10.0), "resizing is not what a GPU is for"


def test_the_stand_in_copies_frames_of_several_videos_and_says_what_it_saw(script):
    """As a GPU's encoder: it takes its seconds, and what comes out is of the frames that went in."""
    node, simulation = script("bench_node"), script("node_simulation")
    encoder = node.StandIn(costs(simulation, encode=0.002, launch=0.0), batch_size=4, fills=True)
    frames = [np.full((n, 32, 48, 3), level, np.uint8) for n, level in ((3, 40), (1, 90))]
    started = time.perf_counter()
    parts = encoder.queue_parts(frames)()
    assert parts[:, 0].tolist() == [40.0, 40.0, 40.0, 90.0]
    assert time.perf_counter() - started >= 4 * 0.002
    assert (encoder.n_batches, encoder.device_seconds) == (1, pytest.approx(4 * 0.002))


def test_a_simulated_model_waits_for_what_is_not_prepared_ahead(script):
    answers = script("answer_simulation")
    questions = [answers.Question(decode=4.0, prepare=2.0, forward=1.0)] * 20
    between, _ = answers.busy(questions, cores=64, method=answers.Way(2, prepares=False))
    assert between == pytest.approx(4 / answers.READERS + 20 * (2.0 + 1.0))
    utilisation, share = answers.busy(questions, cores=64, method=answers.Way(16, prepares=True))
    assert utilisation == pytest.approx(4 / answers.READERS + 2.0 + 20 * 1.0)
    assert share == pytest.approx(20 / utilisation)
    shared = [answers.Question(4.0, 2.0, 1.0, part=number // 4) for number in range(20)]
    assert answers.busy(shared, cores=2, method=answers.Way(16, True, 2))[0] >= (5 * 4.0 + 20 * 2.0) / 2
    assert answers.busy(questions, cores=2, method=answers.Way(16, True))[0] >= 20 * (4.0 + 2.0) / 2


def test_a_frame_costs_those_before_it_in_its_group(script):
    answers = script("answer_simulation")
    assert answers.passed(np.array([0])) == 1
    assert answers.passed(np.array([3, 149, 150, 310])) == 150 + 1 + 11


def test_a_second_simulated_run_finds_all_on_one_node_and_less_on_many(script):
    pool = script("pool_simulation")
    requests = {}
    for n_workers in (8, 100):
        first = pool.simulate(n_workers, seed=0)
        second = pool.simulate(n_workers, seed=1, earlier=first)
        assert set(first.node_of) == set(range(pool.VIDEOS))
        assert 0 <= second.reused < second.frames
        requests[n_workers] = second.reused / second.frames
    assert requests[8] > 0.49 > 0.25 > requests[100]
