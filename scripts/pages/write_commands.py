"""Writes docs/commands.md, the overview of the command line, from the help texts of the commands.

python scripts/pages/write_commands.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typer.core import TyperGroup
from typer.main import get_command

from focus_eval.cli import COMMANDS, app

PAGE = Path(__file__).resolve().parents[2] / "docs" / "commands.md"
HEAD = """# Command line

<!-- written by scripts/pages/write_commands.py -->

What each command does, an example, and its arguments and options by name (`--help` describes them).
"""


def command_reference() -> str:
    """Return the overview of all commands as Markdown, grouped as in the help."""
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    sections = [HEAD]
    for heading, names in COMMANDS.items():
        sections.append(f"## {heading}\n")
        for name in names:
            command = group.commands[name]
            label, _, lines = (command.epilog or "").removeprefix("\b\n").partition(":\n")
            example = f"{label}:\n\n" + "\n".join(f"  {line}" for line in lines.splitlines())
            params = " ".join(f"`{param_name(param)}`" for param in command.params)
            sections.append(f"### {name}\n\n{command.help}\n\n{example}\n\n{params}\n")
    return "\n".join(sections) + "\n<!-- end -->\n"


def param_name(param: Any) -> str:
    """Return an argument in capitals, or the names of an option; of a flag that is on, the one that turns it off."""
    if param.param_type_name == "argument":
        return str(param.metavar or param.name).upper()
    is_on = getattr(param, "is_flag", False) and param.default is True
    names = param.secondary_opts if is_on and param.secondary_opts else param.opts
    return "/".join(sorted(names, key=len))


def main() -> None:
    """Write the page."""
    PAGE.write_text(command_reference(), encoding="utf-8")


if __name__ == "__main__":
    main()
