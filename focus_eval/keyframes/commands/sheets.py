"""Shared parts of `select --from` and `ask --from`: options, progress and last lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from focus_eval.core.errors import InvalidInput, printable
from focus_eval.core.options import parse_assignments
from focus_eval.core.types import whole_number
from focus_eval.keyframes.commands.console import (
    counted,
    is_given,
    print_folded,
    print_link,
    progress_bar,
    say_how_to_continue,
)

if TYPE_CHECKING:
    from focus_eval.keyframes.many_videos import Result, Search
    from focus_eval.keyframes.pipeline.selector import Selector
    from focus_eval.keyframes.question_sheet import Sheet
    from focus_eval.keyframes.sheet_folder import AsksRows

# Options that are refused without a sheet.
ONLY_WITH_SHEET = {
    "column": "--column", "videos_folder": "--videos", "workers": "--workers", "no_sheets": "--no-sheets"
}  # fmt: skip
# Limit of errors that are printed; the table lists all of them.
MAX_SHOWN_ERRORS = 5

FromOption = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="SHEET",
        help="A .csv, .jsonl or .parquet file with columns video and query, a row per question; --out is a folder.",
    ),
]
ColumnOptions = Annotated[
    list[str],
    typer.Option("--column", metavar="ROLE=NAME", help="Column of a sheet, e.g. video=path; repeatable."),
]
VideosOption = Annotated[
    Path | None, typer.Option("--videos", metavar="FOLDER", help="Folder of a sheet's videos. [default: the sheet's]")
]
SheetsOption = Annotated[bool, typer.Option("--no-sheets", help="Draw no contact sheets of a sheet's rows.")]
WorkersOption = Annotated[
    int, typer.Option("--workers", help="Videos of a sheet at once, each with a process that decodes.")
]


@dataclass(frozen=True, kw_only=True)
class SheetOptions:
    """The options of a command that belong to a sheet.

    Args:
        columns: "ROLE=NAME" texts.
        out: folder of the results, or path of the table in this folder.
        draws_sheets: draw a contact sheet of each row.
    """

    columns: list[str]
    videos: Path | None
    workers: int
    out: Path | None
    fps: float | None = None
    draws_sheets: bool = True


def check_sheet_options(context: typer.Context, not_with_sheet: Mapping[str, str]) -> bool:
    """Return True if the user named a sheet.

    Args:
        not_with_sheet: parameters of the command that are refused beside a sheet, with their names in messages.

    Raises:
        InvalidInput: a parameter of `not_with_sheet` beside a sheet, or an option of a sheet without a sheet.
    """
    has_sheet = is_given(context, "questions")
    refused = not_with_sheet if has_sheet else ONLY_WITH_SHEET
    fix = (
        "not with --from, whose sheet has a row for each question"
        if has_sheet
        else "belongs to a sheet; name it with --from"
    )
    if name := next((text for parameter, text in refused.items() if is_given(context, parameter)), ""):
        raise InvalidInput(f"{name}: {fix}")
    return has_sheet


def open_sheet(path: Path, options: SheetOptions) -> Sheet:
    """Read the sheet of a command.

    Raises:
        InvalidInput: a sheet that cannot be read, a folder that is missing, or no `--out`.
    """
    from focus_eval.keyframes.question_sheet import read_sheet

    whole_number(options.workers, "--workers")
    if options.out is None:
        raise InvalidInput("--from: where to? --out FOLDER takes the table, the pictures and a page to look through")
    if options.videos is not None and not options.videos.is_dir():
        raise InvalidInput(f"--videos {options.videos}: no such folder")
    columns = {role: str(name) for role, name in parse_assignments(options.columns).items()}
    return read_sheet(path, columns=columns, videos=options.videos)


def select_sheet(
    sheet: Sheet, selector: Selector, options: SheetOptions, *, quiet: bool, answers: AsksRows | None = None
) -> int:
    """Choose keyframes of all rows of a sheet, and ask about them; return how many rows failed."""
    from focus_eval.keyframes.many_videos import SearchPool
    from focus_eval.keyframes.sheet_folder import SheetFolder, SheetPlace

    assert options.out is not None
    place = SheetPlace.of(options.out)
    n_rows = len(sheet.ids)
    folder_of_sheet = SheetFolder(sheet, place, selector, answers=answers, draws_sheets=options.draws_sheets)
    with say_how_to_continue("finished rows"), folder_of_sheet as folder:
        if folder.n_finished and not quiet:
            print_folded(f"{counted(folder.n_finished, 'row')} of {n_rows} finished by an earlier start")
        searches = folder.open_searches()
        with progress_bar("rows") as bar, SearchPool(selector, workers=options.workers, fps=options.fps) as pool:
            folder.answer_earlier(pool.opener)
            task = bar.add_task("select" if answers is None else "ask", total=len(searches), visible=not quiet)

            def take(search: Search, result: Result) -> None:
                """Write a row, and move the bar."""
                folder.write(search, result)
                bar.advance(task)

            pool.run(searches, take)
        n_failed = n_rows - folder.n_finished
    if not quiet:
        result = "with keyframes" if answers is None else "answered"
        print_folded(f"{counted(n_rows - n_failed, 'row')} of {n_rows} {result}: {place.table}")
        print_link("look through them", (place.folder / "index.html").absolute())
    if n_failed:
        for row_id, text in folder.errors[:MAX_SHOWN_ERRORS]:
            typer.echo(f"focus-eval: row {printable(row_id)}: {printable(text)}", err=True)
        limit_text = f", the first {MAX_SHOWN_ERRORS} above" if n_failed > MAX_SHOWN_ERRORS else ""
        typer.echo(
            f"{counted(n_failed, 'row')} failed{limit_text}; see the column error, and run again when mended", err=True
        )
    return n_failed
