"""`focus-eval pack` and `unpack`: a run as one file that can be moved."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def pack(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    out: Annotated[Path, typer.Option(help="Zip file to write.")],
    pictures: Annotated[bool, typer.Option(help="Pack figures and linked thumbnails too.")] = False,
) -> None:
    """Pack a run into one file.

    A run is links into a pool that several runs share; a copy of its folder has no rows. The file holds rows, costs,
    descriptions, what the models were sent, the report and checksums. report, compare and audit read it as it is.
    """
    from focus_eval.rows.packed import pack_run

    kept = pack_run(run, out, pictures=pictures)
    typer.echo(f"{out}: {len(kept)} files, {out.stat().st_size / 1e6:.1f} MB")


def unpack(
    file: Annotated[Path, typer.Argument(help="File that focus-eval pack wrote.")],
    out: Annotated[Path | None, typer.Option(help="New folder of the run. [default: the run's name]")] = None,
) -> None:
    """Unpack a run, and check it against its checksums.

    Refuses files whose paths leave the folder, links, and files that grow out of proportion.
    """
    from focus_eval.rows.packed import unpack_run

    typer.echo(str(unpack_run(file, out)))
