"""Runs commands of the package in this process, as tests of commands call them."""

from __future__ import annotations

from typer.testing import CliRunner

from focus_eval.cli import app


def called(*arguments: object) -> str:
    """Run a command; return what it printed, or raise the error that the command line would print as one line."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output
