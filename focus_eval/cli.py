"""The command line. A command's code loads when it is called, so that `--help` stays fast."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.completion import install_callback, show_callback
from typer.core import TyperGroup

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
from focus_eval.core.errors import FocusEvalError, printable, unknown_name

_MOST_CHARACTERS = 2000  # of an error message
_SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")


class _Commands(TyperGroup):
    """typer's options for completion detect the shell; here they take one that is named, too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        match args:
            case [("--show-completion" | "--install-completion") as option, shell]:
                if shell not in _SHELLS:
                    raise unknown_name("shell", shell, _SHELLS)
                callback = show_callback if option == "--show-completion" else install_callback
                callback(ctx, self.params[0], shell)
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="focus-eval",
    cls=_Commands,
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
