"""`focus-eval configs`: list and copy the matrices that come with the package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from focus_eval.matrix.config import MatrixConfig


def configs(
    copy: Annotated[Path | None, typer.Option(help="Copy all matrices to this folder.")] = None,
) -> None:
    """List the matrices that come with the package.

    Shows table, benchmarks, models and size of each; --copy writes them to a folder to edit.
    """
    from focus_eval.matrix.shipped import copy_configs

    if copy is not None:
        made = copy_configs(copy)
        typer.echo(f"{len(made)} files in {copy}; run one with: focus-eval run {copy}/paper/alpha.yaml")
        return
    _print_list()


def _print_list() -> None:
    from focus_eval.commands.tables import print_entries
    from focus_eval.matrix.config import load_matrix
    from focus_eval.matrix.shipped import shipped_matrices, table_of, title_of

    entries = []
    for name, file in shipped_matrices().items():
        matrix = load_matrix(file)
        selections, answers, gigabytes = matrix_size(matrix)
        benchmarks, models = (", ".join(item.name for item in part) for part in (matrix.benchmarks, matrix.models))
        asked = f"{selections} selections" + (f", {answers} answers, {gigabytes} GB of weights" if answers else "")
        over = f"{benchmarks} with {models}" if models else benchmarks
        number = table_of(file)
        table = f" (table {number})" if number.isdecimal() else ""
        entries.append((f"{name}{table}", [title_of(file), over, asked]))
    print_entries(entries)
    print("\nfocus-eval plan NAME and focus-eval run NAME take these names.")


def matrix_size(matrix: MatrixConfig) -> tuple[str, str, str]:
    """Return how many selections and answers `matrix` asks for and the gigabytes of its weights, as texts.

    A benchmark whose config does not state its number of questions makes the sum a lower bound, marked "+".
    """
    from focus_eval.matrix.cells import cells, selection_specs

    specs, answers = selection_specs(matrix), cells(matrix)
    sizes = {benchmark.name: benchmark.questions for benchmark in matrix.benchmarks}
    more = "+" if None in sizes.values() else ""
    chosen = sum(sizes[spec.benchmark.name] or 0 for spec in specs)
    asked = sum(sizes[cell.benchmark.name] or 0 for cell in answers)
    weights = sum(model.disk_gigabytes for model in matrix.models)
    weights += sum(encoder.disk_gigabytes for encoder in matrix.encoders)
    return f"{chosen:,}{more}", f"{asked:,}{more}" if answers else "", f"{weights:.0f}"
