"""The command line. A command's code loads when it is called, so that `--help` stays fast."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from focus_eval.commands.acf import acf
from focus_eval.commands.check import check
from focus_eval.commands.compare import compare
from focus_eval.commands.compare_samplers import compare_samplers
from focus_eval.commands.configs import configs
from focus_eval.commands.demo import demo
from focus_eval.commands.doctor import doctor
from focus_eval.commands.evidence import evidence
from focus_eval.commands.export import export
from focus_eval.commands.import_ import import_
from focus_eval.commands.leaderboard import leaderboard
from focus_eval.commands.matrix import run, status
from focus_eval.commands.options import Command
from focus_eval.commands.plan import plan
from focus_eval.commands.recall import recall
from focus_eval.commands.report import report
from focus_eval.commands.samplers import samplers
from focus_eval.commands.select import select
from focus_eval.commands.simulate import simulate
from focus_eval.commands.slurm import slurm_script
from focus_eval.commands.tasks import tasks
from focus_eval.commands.videos import videos
from focus_eval.errors import FocusEvalError, printable

app = typer.Typer(
    name="focus-eval",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,  # markup would take the [start, stop] of a help text for a style
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"focus-eval {version('focus-eval')}")
        raise typer.Exit


@app.callback()
def focus_eval(
    show_version: Annotated[
        bool, typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Choose keyframes of long videos, and measure what that changes."""


app.command(cls=Command)(select)
app.command(cls=Command)(samplers)
app.command(cls=Command)(check)
app.command(cls=Command)(demo)
app.command(cls=Command)(configs)
app.command(cls=Command)(plan)
app.command(cls=Command)(run)
app.command(cls=Command)(status)
app.command(cls=Command)(report)
app.command(cls=Command)(compare)
app.command(cls=Command)(recall)
app.command(cls=Command)(evidence)
app.command(cls=Command)(leaderboard)
app.command(cls=Command)(acf)
app.command(cls=Command)(simulate)
app.command("compare-samplers", cls=Command)(compare_samplers)
app.command("import", cls=Command)(import_)
app.command(cls=Command)(export)
app.command(cls=Command)(tasks)
app.command("slurm-script", cls=Command)(slurm_script)
app.command(cls=Command)(videos)
app.command(cls=Command)(doctor)


def main() -> None:
    """Run the command line; an error meant for the user is one line and exit code 2."""
    try:
        app(prog_name="focus-eval")
    except FocusEvalError as error:
        _end(" ".join(str(error).split()))
    except OSError as error:  # a folder where a file must be, a full disk, no permission
        _end(f"{error.filename}: {error.strerror}" if error.filename else str(error))


def _end(message: str) -> None:
    print(f"focus-eval: {printable(message)}", file=sys.stderr)
    sys.exit(2)
