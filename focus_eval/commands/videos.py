"""`focus-eval videos index`: keep size, checksum and length of the videos in a folder."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class Action(str, Enum):
    """What is done with the videos."""

    INDEX = "index"


def videos(
    action: Annotated[Action, typer.Argument(help="index: write the manifest of a folder.")],
    folder: Annotated[Path, typer.Argument(help="Folder of videos, read with the folders in it.")],
) -> None:
    """Write a manifest of a folder's videos, for later checks.

    `videos.manifest.json` holds size, SHA-256, frames, seconds and rate of each video.

    From then on a file that is not the one that was indexed is refused wherever it is opened, and `plan` reads the
    manifest and not the videos. Do it once the videos are known to be whole: the formats in which damage leaves no
    trace (VP8, VP9, MJPEG above all) are guarded by nothing else. Run it again after downloading videos again.
    """
    from focus_eval.video.indexing import index_folder
    from focus_eval.video.manifest import MANIFEST_NAME

    del action
    entries = index_folder(folder, progress=lambda path: typer.echo(f"reading {path.relative_to(folder)}", err=True))
    failed = {name: entry.error for name, entry in entries.items() if entry.error}
    frames, seconds = (sum(getattr(entry, what) for entry in entries.values()) for what in ("frames", "seconds"))
    typer.echo(f"{folder / MANIFEST_NAME}: {len(entries)} videos, {frames} frames, {seconds / 3600:.2f} hours")
    for name, error in failed.items():
        typer.echo(f"cannot be read: {name}: {error}")
    if failed:
        raise typer.Exit(1)
