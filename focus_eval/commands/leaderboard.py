"""`focus-eval leaderboard`: evidence recall of published selections, measured from their files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from focus_eval.errors import InvalidInput, unknown_name
from focus_eval.resources import resource_path

if TYPE_CHECKING:
    from focus_eval.report.leaderboard import Entry, Row
    from focus_eval.report.recall import EvidenceCase

ACTIONS = ("show", "add", "check")


def leaderboard(
    action: Annotated[
        str, typer.Argument(help="show, add (an entry), or check (measure all entries whose files are present).")
    ] = "show",
    entry: Annotated[Path | None, typer.Argument(help="YAML file of the entry to add.")] = None,
    files: Annotated[Path, typer.Option(help="Folder of the published files.")] = Path("."),
    annotations: Annotated[Path | None, typer.Option(help="LongVideoBench's annotation file.")] = None,
    rates: Annotated[Path | None, typer.Option(help="CSV with the columns id, duration_s and fps.")] = None,
    entries: Annotated[Path | None, typer.Option(help="Folder of the entries. [default: the shipped ones]")] = None,
    results: Annotated[Path | None, typer.Option(help="CSV of the figures. [default: the shipped one]")] = None,
    page: Annotated[Path | None, typer.Option(help="Markdown page; add updates its table.")] = None,
) -> None:
    """Show the leaderboard, add an entry, or measure all again."""
    from focus_eval.commands.tables import print_table
    from focus_eval.report.leaderboard import (
        baseline_rows,
        leaderboard_table,
        read_entry,
        read_rows,
        replaced,
        source_table,
        update_page,
        write_rows,
    )
    from focus_eval.report.printing import to_markdown

    entries = entries or resource_path("configs") / "leaderboard"
    results = results or resource_path("published") / "leaderboard.csv"
    if action not in ACTIONS:
        raise unknown_name("action", action, ACTIONS)
    if action == "add":
        if entry is None:
            raise InvalidInput("add: name the YAML file of the entry")
        added = read_entry(entry)
        new, cases = _measured(added, files, annotations, rates)
        write_rows(results, replaced(read_rows(results), [*baseline_rows(cases, added.k), new]))
    elif action == "check":
        _check([read_entry(path) for path in sorted(entries.glob("*.yaml"))], files, annotations, rates, results)
    table = leaderboard_table(read_rows(results))
    print_table(table)
    if page is not None:
        known = [read_entry(path) for path in sorted(entries.glob("*.yaml"))]
        text = f"{to_markdown(table)}\n{to_markdown(source_table(known))}"
        update_page(page, text.replace("### ", "## "))  # the page has one heading above them


def _check(known: list[Entry], files: Path, annotations: Path | None, rates: Path | None, results: Path) -> None:
    from focus_eval.report.leaderboard import read_rows

    stated = {row[:2]: row for row in read_rows(results)}
    for entry in known:
        key = (entry.name, str(entry.k))
        if not (files / entry.file).exists():
            typer.echo(f"{entry.name}, K = {entry.k}: not checked, {entry.file} is not in {files}")
            continue
        row, _ = _measured(entry, files, annotations, rates)
        if stated.get(key) != row.texts:
            raise InvalidInput(f"{results}: {entry.name}, K = {entry.k} is {stated.get(key)}; measured: {row.texts}")
        typer.echo(f"{entry.name}, K = {entry.k}: as measured")


def _measured(
    entry: Entry, files: Path, annotations: Path | None, rates: Path | None
) -> tuple[Row, list[EvidenceCase]]:
    from focus_eval.benchmarks.annotations import read_annotations
    from focus_eval.benchmarks.rates import read_rates
    from focus_eval.report.leaderboard import check_file, measured_row
    from focus_eval.report.recall_tables import evidence_cases
    from focus_eval.selections import load_selections

    if annotations is None or rates is None:
        raise InvalidInput("measuring needs --annotations and --rates")
    if not (files / entry.file).exists():
        raise InvalidInput(f"{files / entry.file}: not there; published at {entry.source or 'a place not recorded'}")
    check_file(entry, files / entry.file)
    questions = read_annotations("longvideobench", annotations)
    fps = {key: float(rate.fps) for key, rate in read_rates(rates).items()}
    cases = evidence_cases("longvideobench", questions, fps)
    loaded = load_selections(files / entry.file, format=entry.format, questions=questions, fps=fps)
    return measured_row(entry, {key: selections.times_at(fps[key]) for key, selections in loaded.items()}, cases), cases
