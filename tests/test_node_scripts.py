"""The scripts that measure and simulate a node give tables that can stand in a page, and sums that add up."""

from __future__ import annotations

import argparse
import itertools
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from focus_eval.bench.matrix.hours import load_machine
from scripts.node import measure

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"


PRINTED = """# BLIP-ITM tiny, random weights
| precision | frames/s | TFLOP/s |
|---|---|---|
| fp32 | 61.4 | 0.3 |
| bf16, fp32_batches 2 | 18.0 | 0.1 |
spread of relevance over frames: 0.1
| 360p | pyav | 71 | 14.1 | 0 of 60 |
| 720p | pya"""


def test_what_a_part_printed_has_no_heading_no_half_line_and_whole_tables():
    text = measure.whole_lines(PRINTED)
    lines = text.splitlines()
    assert lines[:3] == ["BLIP-ITM tiny, random weights", "", "| precision | frames/s | TFLOP/s |"]
    assert "pya" not in lines[-1].replace("pyav", "")
    for line, next_line in itertools.pairwise(lines):
        assert line.startswith("|") == next_line.startswith("|") or "" in (line, next_line)


def test_rates_and_costs_are_read_from_whole_lines_only():
    text = measure.whole_lines(PRINTED)
    assert measure.rates_in(text) == {"fp32": 61.4, "bf16": 18.0}
    assert measure.decode_seconds_in(text) == pytest.approx(0.0141)
    assert measure.decode_seconds_in("| 360p | pyav | clip: no such file | | |\n") is None
    assert measure.rates_in("| fp32 | not measured | |\n") == {}


def test_the_limits_of_the_parts_stay_within_the_time_allowed_and_leave_some_for_each():
    seconds_left = measure._SECONDS
    for part in measure.parts_of(argparse.Namespace(annotations=None, rates=None, tiny=False)):
        assert (SCRIPTS / part.command[0]).is_file()
        assert 10 < part.share * seconds_left <= seconds_left < 600
        seconds_left -= part.share * seconds_left


@pytest.mark.slow
def test_without_a_gpu_every_part_runs_and_page_and_machine_say_that_it_was_a_dry_run(monkeypatch, tmp_path):
    pytest.importorskip("lmms_eval")
    page, machine = tmp_path / "performance.md", tmp_path / "node.yaml"
    estimates = (
        "| selection | pulls | published | fp32, estimated |\n|---|---:|---:|---:|\n| aks | 7,200 | 9.3 | .02 |\n"
    )
    page.write_text(f"before\n{measure.BEGIN}\n{estimates}{measure.END}\nafter\n")
    monkeypatch.setattr(sys, "argv", ["measure.py", "--tiny", "--page", str(page), "--machine", str(machine)])
    measure.main()
    text = page.read_text()
    assert (text.startswith("before\n"), text.endswith("after\n"), "estimated" in text) == (True, True, False)
    parts = [part.name for part in measure.parts_of(measure.arguments())]
    positions = [text.index(f"### {part}: ") for part in parts]
    assert positions == sorted(positions)
    assert "**Not" not in text
    assert "Tiny networks: these figures say that the script runs" in text
    assert re.search(r"720p \| 0 of \d+ values differ", text), "parity compared something"
    assert re.search(r"\| 360p \| processes \| fp32 \| 32 \| [1-9]\d* \|", text), "the worker scored frames"
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
def test_a_part_that_hangs_or_fails_says_so_and_the_others_go_on(tmp_path, code, message):
    (tmp_path / "part.py").write_text(code)
    limit = 1.0 if "sleep" in code else 600.0
    part = measure.Part("part", (str(tmp_path / "part.py"),), 1.0)
    assert measure.run_part(part, seconds=limit).endswith(message)
    if "sleep" not in code:
        assert measure.run_here(part).endswith(message.replace("no GPU here", "SystemExit: no GPU here"))


def costs(simulation, **changes):
    rates = simulation.Costs(decode=0.5, locked=0.1, open=2.0, index=0.01, encode=0.25, launch=1.0, select=0.125)
    return replace(rates, **changes)
