"""`list` prints what there is, by kind; retired commands name what replaces them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from focus_eval.bench.commands.lists import KINDS
from focus_eval.cli import app
from focus_eval.core.errors import InvalidInput, UnknownName
from focus_eval.keyframes.samplers.registry import make_sampler, sampler_classes


def listed(*arguments):
    result = CliRunner().invoke(app, ["list", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_json_lists_every_sampler_with_options_and_pulls():
    listing = json.loads(listed("samplers", "--json", "-k", "16", "--minutes", "10"))
    assert listing["n_frames"] == 18_000
    assert [row["name"] for row in listing["samplers"]] == sorted(sampler_classes())
    for row in listing["samplers"]:
        assert row["options"] == make_sampler(row["name"]).options
        assert (row["pulls"] == 0) == (row["needs"] in ("nothing", "a scan", "a model"))
    assert {row["name"]: row["pulls"] for row in listing["samplers"]}["topk"] == 600


def test_the_table_names_sampler_source_option_and_cost(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    printed = listed("samplers")
    for text in ("focus_released", "Algorithm 2", "region_half_window_sec=none", "alpha=0.25", "1587 (1.47 %)"):
        assert text in printed


# Kind -> a name, and what is printed below it.
DESCRIPTIONS = {
    "encoders": ("blip", "blip-itm-large-coco (1.78 GB)"),
    "models": ("focus_llava_video", "configs: llava_video_72b, llava_video_7b"),
    "benchmarks": (
        "longvideobench",
        "source longvideobench/LongVideoBench, 1,337 questions",
    ),
    "tasks": ("focus_mlvu", "MLVU dev: lmms-eval's mlvu_dev, read strictly"),
    "configs": ("alpha (table 4)", "8,022 selections, 8,022 answers"),
    "formats": ("kfs", "rows of `id` and `frame_timestamps` in seconds"),
    "readers": ("torchcodec", "needs torchcodec"),
    "llms": ("chat", "model=NAME: name of the model at the service"),
}


@pytest.mark.upper_rooms
@pytest.mark.parametrize("kind", DESCRIPTIONS)
def test_each_kind_is_listed_for_people_and_for_programs(kind, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    name, description = DESCRIPTIONS[kind]
    lines = listed(kind).splitlines()
    lines_below = lines[lines.index(name) + 1 :]
    assert any(description in line for line in lines_below[:4])
    entries = {entry["name"]: " ".join(entry["about"]) for entry in json.loads(listed(kind, "--json"))[kind]}
    assert description in entries[name.partition(" ")[0]]


@pytest.mark.upper_rooms
def test_without_a_kind_every_name_is_listed(monkeypatch):
    monkeypatch.setenv("COLUMNS", "4000")
    lines = listed().splitlines()
    for kind in KINDS:
        (at,) = [at for at, line in enumerate(lines) if line.partition(" ")[0] == kind]
        assert lines[at + 1].strip() == ", ".join(entry.name for entry in KINDS[kind]())


def test_a_wrong_kind_or_an_option_of_another_kind_is_refused():
    with pytest.raises(UnknownName, match="unknown kind 'sampler'; did you mean 'samplers'"):
        CliRunner().invoke(app, ["list", "sampler"], catch_exceptions=False)
    for kind, option in (("tasks", ("--copy", "x")), ("configs", ("--install-path",))):
        with pytest.raises(InvalidInput, match="goes with: focus-eval list"):
            CliRunner().invoke(app, ["list", kind, *option], catch_exceptions=False)


@pytest.mark.upper_rooms
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands(shell):
    words = {"COMP_WORDS": "focus-eval comp", "COMP_CWORD": "1", "_TYPER_COMPLETE_ARGS": "focus-eval comp"}
    request = {**words, "_TYPER_COMPLETE_FISH_ACTION": "get-args", "_FOCUS_EVAL_COMPLETE": f"complete_{shell}"}
    result = subprocess.run(
        [sys.executable, "-m", "focus_eval"], env={**os.environ, **request}, capture_output=True, text=True, check=False
    )
    assert "compare-samplers" in result.stdout
    assert "status" not in result.stdout
