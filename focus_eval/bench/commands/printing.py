"""Print tables in a terminal and write them to files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from focus_eval.core.errors import InvalidInput
from focus_eval.core.files import write_text
from focus_eval.keyframes.commands.console import table_console

if TYPE_CHECKING:
    from focus_eval.bench.report.rendering import Table


def print_table(table: Table) -> None:
    """Print a table, in several parts if it is wider than the console."""
    from focus_eval.bench.report.rendering import narrowed, to_terminal

    console, screen_table = table_console(), narrowed(table)
    console.print(screen_table.title, style="italic")  # rich would fold a table's own title to the table's width
    for part in to_terminal(screen_table, console.width):
        caption, part.caption = part.caption, None
        console.print(part)
        console.print()
        if caption:
            console.print(caption, style="dim")


def print_tables(tables: Sequence[Table], out: Path | None = None) -> None:
    """Print tables, each note once, and write them to `out` if it is given (see `write_table`)."""
    from focus_eval.bench.report.rendering import notes_once

    for table in notes_once(tables):
        print_table(table)
    if out is not None:
        write_table(tables, out)


def write_table(tables: Sequence[Table], path: Path) -> None:
    """Write `tables` one after the other in the format of the suffix: .md, .csv or .tex.

    Raises:
        InvalidInput: another suffix.
    """
    from focus_eval.bench.report.rendering import notes_once, to_csv, to_latex, to_markdown

    writers: dict[str, Callable[[Table], str]] = {".md": to_markdown, ".csv": to_csv, ".tex": to_latex}
    if path.suffix not in writers:
        raise InvalidInput(f"{path}: tables are written as {', '.join(writers)}")
    # In Markdown each note appears once. A LaTeX table keeps its notes, since it may be used alone.
    tables = notes_once(tables) if path.suffix == ".md" else tables
    write_text(path, "\n".join(writers[path.suffix](table) for table in tables))
