"""`focus-eval leaderboard`: published selections, measured from their files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from focus_eval.commands.console import print_table
from focus_eval.core.errors import InvalidInput, unknown_name
from focus_eval.core.resources import resource_path

if TYPE_CHECKING:
    from focus_eval.report.leaderboard import Entry, Ground, Row

ACTIONS = ("show", "add", "measure", "check")


def leaderboard(
    action: Annotated[
        str, typer.Argument(help="show, add (an entry), measure or check (all entries whose files are present).")
    ] = "show",
    entry: Annotated[Path | None, typer.Argument(help="YAML file of the entry to add.")] = None,
    files: Annotated[Path, typer.Option(help="Folder of the published files.")] = Path("."),
    annotations: Annotated[
        list[str], typer.Option(metavar="[BENCHMARK=]FILE", help="Annotation file of each benchmark; repeatable.")
    ] = [],  # noqa: B006
    rates: Annotated[
        Path | None, typer.Option(help="CSV with the columns id, duration_s and fps, for LongVideoBench.")
    ] = None,
    entries: Annotated[Path | None, typer.Option(help="Folder of the entries. [default: the shipped ones]")] = None,
    results: Annotated[Path | None, typer.Option(help="CSV of the figures. [default: the shipped one]")] = None,
    page: Annotated[Path | None, typer.Option(help="Markdown page to put the tables into.")] = None,
) -> None:
    """Show the leaderboard, add an entry, or measure all again."""
    from focus_eval.report.leaderboard import (
        difference_tables,
        leaderboard_tables,
        read_differences,
        read_entry,
        read_rows,
        source_table,
        update_page,
    )
    from focus_eval.report.table import to_markdown

    entries = entries or resource_path("configs") / "leaderboard"
    results = results or resource_path("published") / "leaderboard.csv"
    if action not in ACTIONS:
        raise unknown_name("action", action, ACTIONS)
    known = [read_entry(path) for path in sorted(entries.glob("*.yaml"))]
    paths = dict(_annotation_of(text) for text in annotations)
    if action == "add":
        if entry is None:
            raise InvalidInput("add: name the YAML file of the entry")
        added = read_entry(entry)
        beside = [item for item in known if (item.benchmark, item.k) == (added.benchmark, added.k) and item != added]
        _write([added, *beside], files, paths, rates, results, needed=added)
    elif action == "measure":
        _write(known, files, paths, rates, results)
    elif action == "check":
        _check(known, files, paths, rates, results)
    tables = leaderboard_tables(read_rows(results)) + difference_tables(read_differences(_beside(results)))
    for table in tables:
        print_table(table)
    if page is not None:
        text = "\n".join(to_markdown(table) for table in [*tables, source_table(known)])
        update_page(page, text.replace("### ", "## "))  # the page has one heading above them


def _annotation_of(text: str) -> tuple[str, Path]:
    benchmark, equals, file = text.partition("=")
    return (benchmark, Path(file)) if equals else ("longvideobench", Path(text))


def _beside(results: Path) -> Path:
    """Return the file of the paired differences, which lies beside that of the figures."""
    return results.with_name(f"{results.stem}_differences.csv")


def _write(
    entries: Sequence[Entry],
    files: Path,
    annotations: Mapping[str, Path],
    rates: Path | None,
    results: Path,
    *,
    needed: Entry | None = None,
) -> None:
    from focus_eval.report.leaderboard import (
        read_differences,
        read_rows,
        replaced,
        replaced_differences,
        write_differences,
        write_rows,
    )

    rows, differences = read_rows(results), read_differences(_beside(results))
    for made, paired in _measured(entries, files, annotations, rates, needed=needed):
        rows, differences = replaced(rows, made), replaced_differences(differences, paired)
    write_rows(results, rows)
    write_differences(_beside(results), differences)


def _check(
    entries: Sequence[Entry], files: Path, annotations: Mapping[str, Path], rates: Path | None, results: Path
) -> None:
    from focus_eval.report.leaderboard import read_rows

    stated = {row.texts[:4]: row for row in read_rows(results)}
    for made, _ in _measured(entries, files, annotations, rates):
        for row in made:
            found = stated.get(row.texts[:4])
            if found != row:
                which = f"{row.name}, K = {row.k}, {row.bucket}"
                raise InvalidInput(f"{results}: {which} is {found and found.texts}; measured: {row.texts}")
        for name in dict.fromkeys(row.name for row in made):
            typer.echo(f"{made[0].benchmark}, {name}, K = {made[0].k}: as measured")


def _measured(
    entries: Sequence[Entry],
    files: Path,
    annotations: Mapping[str, Path],
    rates: Path | None,
    *,
    needed: Entry | None = None,
) -> Iterator[tuple[list[Row], list[tuple[str, ...]]]]:
    """Yield the rows and the paired differences of each benchmark and K, from the files that are there."""
    from focus_eval.report.leaderboard import baseline_figures, difference_rows, find_file, question_figures, rows_of

    grounds: dict[str, tuple[Ground, dict[str, float]]] = {}
    for benchmark, k in dict.fromkeys((item.benchmark, item.k) for item in entries):
        figures = {}
        for item in [item for item in entries if (item.benchmark, item.k) == (benchmark, k)]:
            path = find_file(item, files)
            if path is None and item == needed:
                raise InvalidInput(
                    f"{files / item.file}: not there; published at {item.source or 'a place not recorded'}"
                )
            if path is None:
                typer.echo(f"{benchmark}, {item.name}, K = {k}: not measured, {item.file} is not in {files}")
                continue
            if benchmark not in grounds:
                grounds[benchmark] = _ground(benchmark, annotations, rates)
            ground, fps = grounds[benchmark]
            figures[item.name] = question_figures(ground, _times(item, path, annotations[benchmark], fps))
        if figures:
            figures |= baseline_figures(ground, k)
            rows = [row for name, found in figures.items() for row in rows_of(ground, name, k, found)]
            yield rows, difference_rows(ground, k, figures)


def _ground(benchmark: str, annotations: Mapping[str, Path], rates: Path | None) -> tuple[Ground, dict[str, float]]:
    from focus_eval.benchmarks.registry import read_annotations, read_rates, stated_rates
    from focus_eval.report.leaderboard import Ground

    if benchmark not in annotations:
        raise InvalidInput(f"measuring needs the annotation of {benchmark} (--annotations {benchmark}=FILE)")
    questions = read_annotations(benchmark, annotations[benchmark])
    rate_of = stated_rates(questions)
    if not rate_of:
        if rates is None:
            raise InvalidInput(f"{annotations[benchmark]}: states no frame rates; measuring needs --rates")
        rate_of = read_rates(rates)
    fps = {key: float(rate.fps) for key, rate in rate_of.items()}
    return Ground.of(benchmark, questions, fps), fps


def _times(entry: Entry, path: Path, annotation: Path, fps: Mapping[str, float]) -> dict[str, tuple[float, ...]]:
    from focus_eval.benchmarks.registry import read_annotations
    from focus_eval.report.leaderboard import check_file
    from focus_eval.selections import load_selections

    check_file(entry, path)
    questions, left_out = read_annotations(entry.benchmark, annotation), list[str]()
    loaded = load_selections(path, format=entry.format, questions=questions, fps=fps, left_out=left_out)
    for line in left_out:
        typer.echo(f"{entry.name}, K = {entry.k}: {line}")
    return {key: chosen.times_at(fps[key]) for key, chosen in loaded.items()}
