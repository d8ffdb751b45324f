"""The help of the command line: groups by what one has, and an example at the end of each command's help."""

from __future__ import annotations

import shlex

import pytest
from typer.testing import CliRunner

from focus_eval.cli import COMMANDS, app

from .pages import ROOT, shell_lines

NAMES = [name for commands in COMMANDS.values() for name in commands]


def help_of(*words, width=80):
    result = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": str(width), "TERMINAL_WIDTH": str(width)})
    assert result.exit_code == 0, result.output
    return result.stdout


def test_commands_stand_under_what_one_has_and_each_once():
    lines = help_of().partition("A video:\n")[2].splitlines()
    headings = [line.removesuffix(":") for line in lines if line and not line.startswith(" ")]
    assert ["A video", *headings] == [*COMMANDS]
    assert [line.split()[0] for line in lines if line.startswith("  ")] == NAMES
    assert len({*NAMES}) == len(NAMES) == len(app.registered_commands)


@pytest.mark.parametrize("name", NAMES)
def test_help_ends_with_an_example_that_fits_the_terminal_and_runs_with_the_commands_of_the_pages(name):
    printed = help_of(name)
    example = printed.rpartition("Example")[2].partition(":\n")[2]
    assert example.startswith(f"    focus-eval {name}")
    assert max(map(len, example.splitlines())) <= 80
    words = tuple(shlex.split(example.replace("\\\n", " ")))
    assert words in {line.words for line in shell_lines(ROOT / "docs/commands.md")}
