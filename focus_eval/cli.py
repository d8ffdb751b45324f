"""The command line. A command's code loads when it is called, so that `--help` stays fast."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Annotated, Any

import typer
from typer.completion import install_callback, show_callback
from typer.core import TyperGroup

from focus_eval.core.errors import FocusEvalError, printable, unknown_name
from focus_eval.core.extras import install_command

# Use one BLAS thread: our matrix products are small, and more threads doubled the processor time of the demo's report.
# Networks set their own threads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

_MAX_CHARACTERS = 2000  # limit of an error message
_SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")


class _Commands(TyperGroup):
    """The commands, listed in the help under the headings of `COMMANDS`.

    The options for completion also accept the name of a shell, which typer's own options can only detect.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line; options for completion may be followed by the name of a shell."""
        match args:
            case [("--show-completion" | "--install-completion") as option, shell]:
                if shell not in _SHELLS:
                    raise unknown_name("shell", shell, _SHELLS)
                callback = show_callback if option == "--show-completion" else install_callback
                callback(ctx, self.params[0], shell)
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands under the headings of `COMMANDS`."""
        width = max(map(len, self.commands))
        limit = formatter.width - 6 - width
        for heading, commands in COMMANDS.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [(f"{name:<{width}}", self.commands[name].get_short_help_str(limit)) for name in commands]
                )


app = typer.Typer(
    name="focus-eval",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # markup would read the [start, stop] of a help text as a style
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(value: bool) -> None:
    """Print the version and exit, if the option was given."""
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


def _commands_by_heading() -> dict[str, dict[str, tuple[Callable[..., None], str]]]:
    """The commands of this install with an example each, by heading."""
    by_heading: dict[str, dict[str, tuple[Callable[..., None], str]]] = {}
    for room in ("keyframes", "bench", "lab", "external"):
        # lab, external and bench may be removed from an install; the others still work.
        if find_spec(f"focus_eval.{room}") is not None:
            for heading, commands in import_module(f"focus_eval.{room}.commands.index").COMMANDS.items():
                by_heading.setdefault(heading, {}).update(commands)
    return by_heading


COMMANDS = _commands_by_heading()
# Commands whose example needs a folder that the demo makes.
_AFTER_DEMO = ("run", "status", "report", "pack")
for _commands in COMMANDS.values():
    for _name, (_function, _example) in _commands.items():
        _condition = ", after focus-eval demo" if _name in _AFTER_DEMO else ""
        # \b on its own line keeps click from rewrapping the example.
        app.command(_name, epilog=f"\b\nExample{_condition}:\n  {_example}")(_function)


def main() -> None:
    """Run the command line; an error meant for the user is one line and exit code 2."""
    try:
        app(prog_name="focus-eval")
    except FocusEvalError as error:
        _end(str(error))
    except ModuleNotFoundError as error:
        if (error.name or "focus_eval").partition(".")[0] == "focus_eval":
            raise
        _end(f"this needs {error.name}, which is not installed: {install_command('all')}")
    except OSError as error:  # a folder where a file must be, a full disk, no permission
        _end(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except Exception as error:  # only errors raised inside a user's plugin are reported here
        from focus_eval.core.plugins import place_in_plugin

        place = place_in_plugin(error, unless_ours=True)
        if place is None:
            raise
        _end(f"{place[0]}, line {place[1]}: {type(error).__name__}: {error}")


def _end(message: str) -> None:
    """Print the message as one line, cut in the middle if long, and exit with code 2."""
    line = printable(" ".join(message.split()))
    # Quoted input may be megabytes long. Keep both ends: file and place come first, the fix last.
    line = line if len(line) <= _MAX_CHARACTERS else f"{line[:1500]} ... {line[-400:]}"
    print(f"focus-eval: {line}", file=sys.stderr)
    sys.exit(2)
