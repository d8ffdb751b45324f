"""`focus-eval run` and `status`, and how matrices are named on the command line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from focus_eval.options import parse_assignments

if TYPE_CHECKING:
    from focus_eval.matrix.config import MatrixConfig
    from focus_eval.matrix.preflight import Preflight
    from focus_eval.matrix.running import RunProgress

MatrixArgument = Annotated[
    list[Path], typer.Argument(metavar="MATRIX", help="Matrix files, or names of shipped ones (focus-eval configs).")
]
OnlyOption = Annotated[
    list[str], typer.Option("--only", metavar="LIST=NAMES", help="Run only these, e.g. sampler=focus,aks; repeatable.")
]
SetOption = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="Replace a key of the matrix, e.g. k=16; repeatable.")
]
LimitOption = Annotated[int | None, typer.Option(help="Ask only the first questions of each benchmark.")]
FolderOption = Annotated[
    Path | None,
    typer.Option("--out", help="Folder of the run (of all runs, with several matrices). [default: results/runs/NAME]"),
]


def run(
    matrix: MatrixArgument,
    only: OnlyOption = [],  # noqa: B006
    set_: SetOption = [],  # noqa: B006
    limit: LimitOption = None,
    out: FolderOption = None,
    engine: Annotated[str, typer.Option(help="Where to run: local or ray.")] = "local",
    address: Annotated[str | None, typer.Option(help="Address of the Ray cluster, or auto.")] = None,
    store: Annotated[
        Path | None, typer.Option(help="File that keeps embeddings. [default: store.sqlite beside the run]")
    ] = None,
    retry_errors: Annotated[bool, typer.Option(help="Retry the questions that failed.")] = False,
    preflight: Annotated[
        bool, typer.Option(help="Check for missing files before starting (exit code 1 if any).")
    ] = True,
) -> None:
    """Run matrices; continue runs that were stopped.

    Checks first that nothing is missing. Questions that already have a row are skipped, so the same command continues
    a stopped run.
    """
    from focus_eval.matrix.engine import make_engine
    from focus_eval.matrix.preflight import check_all
    from focus_eval.matrix.running import complete_run

    matrices = with_folders(load_all(matrix, only, set_, limit), out)
    if preflight and print_missing(check_all(matrices, engine=engine, store=store)):
        raise typer.Exit(1)
    for loaded, folder in matrices:
        made = make_engine(engine, store=store or folder.parent / "store.sqlite", matrix=loaded, address=address)
        with run_progress() as progress:
            complete_run(loaded, out=folder, engine=made, retry_errors=retry_errors, progress=progress)
        _print_results(folder)


def _print_results(folder: Path) -> None:
    """Print the first table of a run and where the rest is."""
    from focus_eval.commands.tables import print_table
    from focus_eval.errors import FocusEvalError
    from focus_eval.report.run import load_run
    from focus_eval.report.tables import results_table

    try:
        print_table(results_table(load_run(folder), "overview"))
    except FocusEvalError as error:  # the run itself went well
        typer.echo(f"no table of these rows: {error}")
    typer.echo(f"rows in {folder}; all tables, plots and the page: focus-eval report {folder}")


def status(folder: Annotated[Path, typer.Argument(help="Folder of a run.")]) -> None:
    """Show a run's progress (safe while it is running)."""
    from rich.table import Table

    from focus_eval.commands.tables import table_console
    from focus_eval.matrix.status import run_status

    table = Table(title=str(folder), title_justify="left")
    for name in ("part", "rows", "of", "errors", "left"):
        table.add_column(name, justify="left" if name == "part" else "right", overflow="fold")
    parts = run_status(folder)
    for part in parts:
        left = "done" if part.rows >= part.questions else _duration(part.seconds_left)
        table.add_row(
            f"{part.kind}/{part.name}",
            str(part.rows),
            str(part.questions),
            str(part.errors),
            left,
        )
    table_console().print(table)
    for kind in dict.fromkeys(part.kind for part in parts):
        of_kind = [part for part in parts if part.kind == kind]
        rows, asked, errors = (sum(getattr(part, name) for part in of_kind) for name in ("rows", "questions", "errors"))
        typer.echo(f"{kind}: {rows:,} of {asked:,} rows, {errors:,} errors")


@contextmanager
def run_progress() -> Iterator[RunProgress]:
    """Show a bar per phase, with the time left and the errors so far."""
    os.environ.setdefault("TQDM_DISABLE", "1")  # lmms-eval and its tasks draw bars of their own
    from focus_eval.commands.progress import progress_bar, say_what_is_kept

    with say_what_is_kept("finished questions"), progress_bar("rows") as bar:
        tasks: dict[str, Any] = {}
        errors: dict[str, int] = {}

        class Bars:
            def start(self, phase: str, n_rows: int) -> None:
                tasks[phase], errors[phase] = bar.add_task(phase, total=n_rows), 0

            def advance(self, phase: str, n_rows: int, n_errors: int) -> None:
                errors[phase] += n_errors
                failed = f" ({errors[phase]} errors)" if errors[phase] else ""
                bar.update(tasks[phase], advance=n_rows, description=phase + failed)

        yield Bars()


def load_all(paths: list[Path], only: list[str], set_: list[str], limit: int | None) -> list[MatrixConfig]:
    """Return the matrices that a command names, narrowed and changed by its options.

    Raises:
        InvalidInput: two matrices of one name, whose runs would have one folder.
    """
    from focus_eval.errors import InvalidInput

    loaded = [_load(path, only, set_, limit) for path in paths]
    twice = {selections.name for selections in loaded if sum(selections.name == other.name for other in loaded) > 1}
    if twice:
        raise InvalidInput(f"two matrices are called {min(twice)!r}: their runs would have one folder")
    return loaded


def with_folders(matrices: list[MatrixConfig], out: Path | None) -> list[tuple[MatrixConfig, Path]]:
    """Return each matrix with its run's folder; with several, `out` is the folder of all runs."""
    if out is not None and len(matrices) == 1:
        return [(matrices[0], out)]
    return [(matrice, (out or Path("results/runs")) / matrice.name) for matrice in matrices]


def _load(path: Path, only: list[str], set_: list[str], limit: int | None) -> MatrixConfig:
    from focus_eval.matrix.cells import check_lists
    from focus_eval.matrix.config import load_matrix
    from focus_eval.matrix.narrowing import narrow
    from focus_eval.matrix.yaml_source import read_yaml_value
    from focus_eval.report.layouts import layout_named

    overrides = {key: read_yaml_value(value) for key, value in parse_assignments(set_).items()}
    if "k" in overrides and not isinstance(overrides["k"], list):
        overrides["k"] = [overrides["k"]]
    if limit is not None:
        overrides["limit"] = limit
    chosen = {key: value.split(",") for key, value in parse_assignments(only).items()}
    matrix = narrow(load_matrix(path, overrides=overrides), chosen)
    check_lists(matrix)
    if matrix.anchors:
        layout_named(matrix.anchors)  # the report's layout: better now than after the run
    return matrix


def print_missing(found: Preflight) -> bool:
    """Print all that is missing and what to do about it, in lines that can be copied; return whether anything is."""
    for note in found.notes:
        typer.echo(f"note: {note}")
    if not found.missing:
        typer.echo("nothing is missing")
        return False
    typer.echo(f"missing: {len(found.missing)}")
    for lack in found.missing:
        typer.echo(f"- {lack.what}\n    {lack.fix}")
    return True


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02d}:{int(seconds) % 60:02d}"
