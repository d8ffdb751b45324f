"""Writes docs/commands.md, the reference of the command line, from the help texts of the commands.

python scripts/pages/write_commands.py
"""

from __future__ import annotations

import re
from pathlib import Path

from typer.cli import get_docs_for_click
from typer.core import TyperGroup
from typer.main import get_command

from focus_eval.cli import app

PAGE = Path(__file__).resolve().parents[2] / "docs" / "commands.md"


def command_reference() -> str:
    """Return the reference of all commands as Markdown."""
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    text = get_docs_for_click(obj=group, ctx=group.make_context("focus-eval", [], resilient_parsing=True))
    title = "# Command line\n\n<!-- written by scripts/pages/write_commands.py -->"
    text = text.replace("# `focus-eval`", title, 1).rstrip() + "\n\n<!-- end -->\n"
    # The example of a command, which its help ends with, becomes a block of code.
    text = re.sub(r"^\x08\n(Example.*:)\n((?:  .+\n)+)", _as_block, text, flags=re.MULTILINE)
    # Arguments say what a usage line says, and every command has --help.
    text = re.sub(r"^\*\*Usage\*\*:\n\n```console\n.+\n```\n\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^\* `-h, --help`: .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^\*\*Options\*\*:\n\n\n", "", text, flags=re.MULTILINE)
    # typer cuts the list's descriptions at 45 characters; the whole ones begin each command's section.
    whole = dict(re.findall(r"^## `focus-eval ([\w-]+)`\n\n(.+)$", text, flags=re.MULTILINE))
    line = re.compile(r"^\* `([a-z][\w-]*)`: .*$", re.MULTILINE)
    return line.sub(lambda match: f"* `{match[1]}`: {whole.get(match[1], '')}", text)


def _as_block(example: re.Match[str]) -> str:
    """Return the heading of an example and its command, indented as code."""
    return f"{example[1]}\n\n" + "".join(f"  {line}\n" for line in example[2].splitlines())


def main() -> None:
    """Write the page."""
    PAGE.write_text(command_reference(), encoding="utf-8")


if __name__ == "__main__":
    main()
