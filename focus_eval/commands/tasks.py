"""`focus-eval tasks`: list the lmms-eval tasks of this package."""

from __future__ import annotations

from typing import Annotated

import typer


def tasks(
    install_path: Annotated[
        bool, typer.Option("--install-path", help="Print only the folder, for lmms-eval's --include_path.")
    ] = False,
) -> None:
    """List the lmms-eval tasks of this package.

    They use the official prompts, read answers strictly and report accuracy by length.
    """
    from focus_eval.resources import resource_path

    folder = resource_path("tasks")
    if install_path:
        print(folder)
        return
    for file in sorted(folder.glob("*.yaml")):
        first_line = file.read_text(encoding="utf-8").partition("\n")[0]
        print(f"{file.stem}: {first_line.lstrip('# ')}")
    print(f"\nlmms-eval --include_path {folder} --tasks {next(folder.glob('*.yaml')).stem} ...")
