"""Which commands are there? Each command's code loads when it is called, so that `--help` stays light."""

from __future__ import annotations

import sys

import typer

from focus_eval.commands.acf import acf
from focus_eval.commands.compare import compare
from focus_eval.commands.configs import configs
from focus_eval.commands.demo import demo
from focus_eval.commands.doctor import doctor
from focus_eval.commands.export import export
from focus_eval.commands.import_ import import_
from focus_eval.commands.matrix import plan, run, status
from focus_eval.commands.recall import recall
from focus_eval.commands.report import report
from focus_eval.commands.samplers import samplers
from focus_eval.commands.select import select
from focus_eval.commands.slurm import slurm_script
from focus_eval.commands.tasks import tasks
from focus_eval.errors import FocusEvalError

app = typer.Typer(
    name="focus-eval",
    help="Choose keyframes of long videos, and measure what that changes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

app.command()(select)
app.command()(tasks)
app.command()(samplers)
app.command()(doctor)
app.command()(demo)
app.command()(configs)
app.command()(plan)
app.command()(run)
app.command()(status)
app.command("slurm-script")(slurm_script)
app.command()(report)
app.command()(recall)
app.command("import")(import_)
app.command()(export)
app.command()(compare)
app.command()(acf)


def main() -> None:
    """Run the command line; an error meant for the user is one line and exit code 2."""
    try:
        app()
    except FocusEvalError as error:
        print(f"focus-eval: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
