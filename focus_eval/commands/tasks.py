"""`focus-eval tasks`: which lmms-eval tasks do we bring, and where are they?"""

from __future__ import annotations

from typing import Annotated

import typer


def tasks(
    install_path: Annotated[
        bool, typer.Option("--install-path", help="Print only the folder, for lmms-eval's --include_path.")
    ] = False,
) -> None:
    """List the task files for lmms-eval: official prompts, strict reading of answers, length buckets as metrics."""
    from focus_eval.resources import resource_path

    folder = resource_path("tasks")
    if install_path:
        print(folder)
        return
    for file in sorted(folder.glob("*.yaml")):
        first_line = file.read_text(encoding="utf-8").partition("\n")[0]
        print(f"{file.stem}: {first_line.lstrip('# ')}")
    print(f"\nlmms-eval --include_path {folder} --tasks {next(folder.glob('*.yaml')).stem} ...")
