"""Lines of commands: folded in a terminal with commands to copy, whole in a pipe; and what shells complete."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest
from typer.testing import CliRunner

from focus_eval.cli import app
from focus_eval.keyframes.commands.console import folded
from focus_eval.keyframes.encoders.weights import known_checkpoints

SAY = """
from focus_eval.keyframes.commands.console import print_folded, table_console
print_folded("a word " * 30)
table_console().print("b" * 300)
"""


def said(**environment):
    """Return what a process prints into a terminal of 60 columns, and what into a pipe."""
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    variables = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "FORCE_COLOR")}
    run = [sys.executable, "-c", SAY]
    piped = subprocess.run(run, env=variables | environment, stdout=subprocess.PIPE, text=True, check=True, stdin=inner)
    subprocess.run(run, env=variables | environment, stdout=inner, check=True)
    os.close(inner)
    return os.read(outer, 10_000).decode().splitlines(), piped.stdout.splitlines()


@pytest.mark.parametrize(("environment", "width"), [({}, 120), ({"FORCE_COLOR": "1"}, 120), ({"COLUMNS": "60"}, 60)])
def test_a_line_is_folded_in_a_terminal_and_whole_in_a_pipe_whatever_the_environment_says(environment, width):
    terminal, (line, *of_console) = said(**environment)
    assert max(map(len, terminal)) == 60
    assert line == "a word " * 30
    assert max(map(len, of_console)) == width


@pytest.mark.parametrize("width", [40, 79, 80])
@pytest.mark.parametrize("name", ["clip-vit-base-patch32", "PE-Core-B-16"])
def test_a_shell_reads_a_folded_command_as_the_whole_one(name, width):
    command = known_checkpoints()[name].fetch_command
    after_colon = folded(f"   missing: {command}", width, 5)
    in_backticks = folded(f"it is not on this machine: where there is a network run `{command}`, then copy it", width)
    cut = [after_colon.partition("missing: ")[2], in_backticks.split("`")[1], folded(command, width)]
    for text in cut:
        read = subprocess.run(["sh", "-c", f"printf '%s ' {text}"], stdout=subprocess.PIPE, text=True, check=True)
        assert read.stdout.split() == command.replace('"', "").split()
    assert not any(line.endswith("\\") for line in folded(f"a remark on hf and pip {'word ' * 40}", width).splitlines())
    longest = max(map(len, command.split()))
    assert max(map(len, after_colon.splitlines())) <= max(width, longest + 7)


SHELLS = {
    "bash": lambda words: {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))},
    "zsh": lambda words: {"_TYPER_COMPLETE_ARGS": words},
    "fish": lambda words: {"_TYPER_COMPLETE_ARGS": words, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("words", "offered", "withheld"),
    [
        ("focus-eval sel", "select", "status"),
        ("focus-eval select --sampler foc", "focus_released", "even_cover"),
        ("focus-eval select --encoder off", "offline", "clip"),
        ("focus-eval plan alpha", "alpha_by_clip_length", "bernstein"),
    ],
)
def test_a_shell_completes_commands_and_names(shell, words, offered, withheld):
    environment = {"_FOCUS_EVAL_COMPLETE": f"complete_{shell}", **SHELLS[shell](words)}
    result = CliRunner().invoke(app, [], env=environment, prog_name="focus-eval")
    assert result.exit_code == 0
    assert offered in result.stdout
    assert withheld not in result.stdout
