"""The command line. A command's code loads when it is called, so that `--help` stays fast."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from focus_eval.commands.audit import audit
from focus_eval.commands.compare import compare_samplers
from focus_eval.commands.demo import demo
from focus_eval.commands.doctor import doctor
from focus_eval.commands.exchange import evidence, export, import_, recall
from focus_eval.commands.lab import check, simulate
from focus_eval.commands.lists import configs, plugins, samplers, slurm_script, tasks, videos
from focus_eval.commands.packing import cite, pack, unpack
from focus_eval.commands.predict import predict
from focus_eval.commands.registry import registry
from focus_eval.commands.reports import acf, compare, report
from focus_eval.commands.runs import plan, run, status
from focus_eval.commands.select import select
from focus_eval.commands.submit import submit
from focus_eval.core.errors import FocusEvalError, printable

_MOST_CHARACTERS = 2000  # of an error message

app = typer.Typer(
    name="focus-eval",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
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


app.command()(select)
app.command()(samplers)
app.command()(plugins)
app.command()(check)
app.command()(demo)
app.command()(configs)
app.command()(plan)
app.command()(run)
app.command()(status)
app.command()(report)
app.command()(compare)
app.command()(pack)
app.command()(unpack)
app.command()(cite)
app.command()(audit)
app.command()(recall)
app.command()(evidence)
app.command()(predict)
app.command()(submit)
app.command()(registry)
app.command()(acf)
app.command()(simulate)
app.command("compare-samplers")(compare_samplers)
app.command("import")(import_)
app.command()(export)
app.command()(tasks)
app.command("slurm-script")(slurm_script)
app.command()(videos)
app.command()(doctor)


def main() -> None:
    """Run the command line; an error meant for the user is one line and exit code 2."""
    try:
        app(prog_name="focus-eval")
    except FocusEvalError as error:
        _end(str(error))
    except OSError as error:  # a folder where a file must be, a full disk, no permission
        _end(f"{error.filename}: {error.strerror}" if error.filename else str(error))


def _end(message: str) -> None:
    line = printable(" ".join(message.split()))
    # A text of others may be megabytes long: file and place stand at the front, the fix at the end.
    line = line if len(line) <= _MOST_CHARACTERS else f"{line[:1500]} ... {line[-400:]}"
    print(f"focus-eval: {line}", file=sys.stderr)
    sys.exit(2)
