"""Writes docs/commands.md, the overview of the command line, from the help texts of the commands.

python -m scripts.pages.write_commands
"""

from __future__ import annotations

from pathlib import Path

from typer.core import TyperGroup
from typer.main import get_command

from focus_eval.cli import COMMANDS, app

PAGE = Path(__file__).resolve().parents[2] / "docs" / "commands.md"
HEAD = """# Command line

<!-- written by scripts/pages/write_commands.py -->

Each command with an example. `--help` behind it prints the rest.
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
            condition = label.removeprefix("Example").removeprefix(", ")
            intro = f"{condition[0].upper()}{condition[1:]}:\n\n" if condition else ""
            example = intro + "\n".join(f"  {line}" for line in lines.splitlines())
            summary = (command.help or "").partition("\n")[0]
            sections.append(f"### {name}\n\n{summary}\n\n{example}\n")
    return "\n".join(sections) + "\n<!-- end -->\n"


def main() -> None:
    """Write the page."""
    PAGE.write_text(command_reference(), encoding="utf-8")


if __name__ == "__main__":
    main()
