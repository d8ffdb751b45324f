"""Prints tables and writes them to files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from focus_eval.errors import InvalidInput

if TYPE_CHECKING:
    from rich.console import Console

    from focus_eval.report.table import Table


# Where output goes into a file or a pipe and COLUMNS is not set.
PIPED_WIDTH = 120


def table_console() -> Console:
    """Return the console: as wide as the terminal or `COLUMNS`, else `PIPED_WIDTH`; without markup."""
    from rich.console import Console

    # Without markup: an interval such as [0.1, 0.2] is text, not a style.
    console = Console(markup=False, highlight=False)
    if console.is_terminal or os.environ.get("COLUMNS", "").isdecimal():
        return console
    return Console(markup=False, highlight=False, width=PIPED_WIDTH)


def print_table(table: Table) -> None:
    """Print a table, in several parts where it is wider than the console."""
    from focus_eval.report.printing import to_terminal
    from focus_eval.report.table import narrowed

    console, shown = table_console(), narrowed(table)
    console.print(shown.title, style="italic")  # as a table's title it would be folded to the table's width
    for drawn in to_terminal(shown, console.width):
        caption, drawn.caption = drawn.caption, None
        console.print(drawn)
        console.print()
        if caption:
            console.print(caption, style="dim")


def print_entries(entries: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Print a list of (name, lines about it): the name alone on a line, what is said of it indented and folded."""
    import textwrap

    from rich.text import Text

    console = table_console()
    for name, lines in entries:
        console.print(Text(name, style="bold"))
        for line in lines:
            console.print(Text(textwrap.indent(textwrap.fill(line, console.width - 4, break_on_hyphens=False), "    ")))


def write_table(tables: Sequence[Table], path: Path) -> None:
    """Write `tables` one after the other in the format of the suffix: .md, .csv or .tex.

    Raises:
        InvalidInput: another suffix.
    """
    from focus_eval.report.printing import to_csv, to_latex, to_markdown
    from focus_eval.rows.records import replace_file

    writers: dict[str, Callable[[Table], str]] = {".md": to_markdown, ".csv": to_csv, ".tex": to_latex}
    if path.suffix not in writers:
        raise InvalidInput(f"{path}: tables are written as {', '.join(writers)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as part:
        part.write_text("\n".join(writers[path.suffix](table) for table in tables), encoding="utf-8")
