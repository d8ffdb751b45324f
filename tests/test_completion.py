"""Completion of the command line: its script for the shell that is named, and what a shell gets from it."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from focus_eval.cli import app
from focus_eval.core.errors import UnknownName

MARKS = {"bash": "complete -o default", "zsh": "#compdef focus-eval", "fish": "complete --command focus-eval"}
REQUESTS = {
    "bash": {"COMP_WORDS": "focus-eval sel", "COMP_CWORD": "1"},
    "zsh": {"_TYPER_COMPLETE_ARGS": "focus-eval sel"},
    "fish": {"_TYPER_COMPLETE_ARGS": "focus-eval sel", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
}


@pytest.mark.parametrize("shell", MARKS)
def test_the_script_of_the_named_shell_is_shown_and_installed(shell, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    printed = CliRunner().invoke(app, ["--show-completion", shell], prog_name="focus-eval")
    assert printed.exit_code == 0
    assert MARKS[shell] in printed.output
    installed = CliRunner().invoke(app, ["--install-completion", shell], prog_name="focus-eval")
    assert installed.exit_code == 0
    files = [path.read_text() for path in tmp_path.rglob("*focus-eval*") if path.is_file()]
    assert [text.strip() for text in files] == [printed.output.strip()]


def test_another_shell_is_refused_with_those_known():
    with pytest.raises(UnknownName, match="unknown shell 'tcsh'; known: bash, fish"):
        CliRunner().invoke(app, ["--show-completion", "tcsh"], catch_exceptions=False)


@pytest.mark.parametrize("shell", REQUESTS)
def test_a_shell_gets_the_commands_that_begin_so(shell):
    request = {"_FOCUS_EVAL_COMPLETE": f"complete_{shell}", **REQUESTS[shell]}
    assert "select" in CliRunner().invoke(app, [], prog_name="focus-eval", env=request).output
