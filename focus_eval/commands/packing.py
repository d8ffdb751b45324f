"""`focus-eval pack`: a run as one file that can be moved, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def pack(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run; with --undo a packed run.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Zip file to write; with --undo a new folder. [default: the run's name, here]"),
    ] = None,
    pictures: Annotated[bool, typer.Option(help="Pack figures and linked thumbnails too.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Unpack, and check against the checksums.")] = False,
) -> None:
    """Pack a run into one file, or unpack it with --undo.

    A run's folder holds links into a pool that several runs share; a plain copy of it has no rows. The packed file
    holds rows, costs, descriptions, prompts, the report and checksums. report, compare and audit read it directly.

    --undo refuses files whose paths leave the folder, links, and files that grow out of proportion.
    """
    from focus_eval.rows.packed import pack_run, unpack_run

    if undo:
        typer.echo(str(unpack_run(path, out)))
        return
    out = out or Path(f"{path.resolve().name}.zip")
    names = pack_run(path, out, pictures=pictures)
    typer.echo(f"{out}: {len(names)} files, {out.stat().st_size / 1e6:.1f} MB")
