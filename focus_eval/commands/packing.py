"""`focus-eval pack`, `unpack` and `cite`: a run as one file that can be moved, and what a paper says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def pack(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    out: Annotated[Path, typer.Option(help="Zip file to write, here or at a URL that fsspec knows (s3://...).")],
    pictures: Annotated[bool, typer.Option(help="Pack figures and linked thumbnails too.")] = False,
) -> None:
    """Pack a run into one file.

    A run is links into a pool that several runs share; a copy of its folder has no rows. The file holds rows, costs,
    descriptions, what the models were sent, the report and checksums. report, compare and audit read it as it is,
    also from a URL.
    """
    from focus_eval.rows.packed import pack_run

    kept = pack_run(run, out, pictures=pictures)
    size = f", {out.stat().st_size / 1e6:.1f} MB" if out.exists() else ""
    typer.echo(f"{out}: {len(kept)} files{size}")


def unpack(
    file: Annotated[Path, typer.Argument(help="File that focus-eval pack wrote.")],
    out: Annotated[Path | None, typer.Option(help="New folder of the run. [default: the run's name]")] = None,
) -> None:
    """Unpack a run, and check it against its checksums.

    Refuses files whose paths leave the folder, links, and files that grow out of proportion.
    """
    from focus_eval.rows.packed import unpack_run

    typer.echo(str(unpack_run(file, out)))


def cite(
    run: Annotated[Path, typer.Argument(help="Folder of a run, or a packed run.")],
    out: Annotated[Path | None, typer.Option(help="File to write. [default: the terminal]")] = None,
) -> None:
    """Write a run's methods, table and references in LaTeX.

    The paragraph states versions, settings and what was asked otherwise than in the paper; BibTeX of samplers,
    encoders, benchmarks and models follows, and what has no reference on file is named.
    """
    from focus_eval.registry.cards import read_registry
    from focus_eval.registry.cite import cited
    from focus_eval.report.run import load_run
    from focus_eval.rows.records import write_text

    text = cited(load_run(run), read_registry())
    if out is None:
        typer.echo(text, nl=False)
    else:
        typer.echo(str(write_text(out, text)))
