"""`focus-eval compare`: compare two runs on the same questions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def compare(
    a: Annotated[Path, typer.Argument(help="Folder of a run.")],
    b: Annotated[Path, typer.Argument(help="Folder of another run.")],
    out: Annotated[Path | None, typer.Option(help="Also write the table to this file (.md, .csv or .tex).")] = None,
) -> None:
    """Compare two runs on the questions that both answered."""
    from focus_eval.commands.tables import print_table, write_table
    from focus_eval.report.comparisons import run_comparison
    from focus_eval.report.run import load_run

    table = run_comparison(load_run(a), load_run(b))
    print_table(table)
    if out is not None:
        write_table([table], out)
