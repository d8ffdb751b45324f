"""`focus-eval videos`: the manifest, the verdicts and the rates of a folder of videos."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from focus_eval.core.errors import InvalidInput, VideoError
from focus_eval.keyframes.commands.console import count_progress, counted, print_folded, refuse_idle_options


class Action(str, Enum):
    """Action of the command on the videos."""

    INDEX = "index"
    VERIFY = "verify"
    RATES = "rates"


def videos(
    context: typer.Context,
    action: Annotated[Action, typer.Argument(help="What to write about the videos.")],
    folder: Annotated[Path, typer.Argument(help="Folder of videos, read with the folders in it, or one video.")],
    annotations: Annotated[Path | None, typer.Option(help="rates: the benchmark's annotation file.")] = None,
    benchmark: Annotated[str, typer.Option(help="rates: name of the benchmark.")] = "longvideobench",
    out: Annotated[Path | None, typer.Option(help="rates: the CSV to write, with id, duration_s and fps.")] = None,
    jobs: Annotated[int, typer.Option(help="verify: videos decoded at a time.", min=1)] = 1,
) -> None:
    """Verify videos, or write their manifest or rates.

    verify: decodes each video once and writes its damaged frames, if any, to `videos.verified.json`. Later reads
    refuse these frames. A video that has changed since is compared with its earlier state. Exits with code 1 if one
    is damaged or changed.

    rates: writes a CSV with length and rate per question of the annotation, for recall, evidence and logs.

    index: writes size, SHA-256, frames, seconds and rate of each video to `videos.manifest.json`. Later reads refuse
    a file that differs from its entry, and `plan` reads the manifest instead of the videos. Index when the videos are
    known to be whole, and again after a new download: in some formats (VP8, VP9, MJPEG above all) nothing else
    detects damage.
    """
    from focus_eval.keyframes.video.manifest import MANIFEST_NAME
    from focus_eval.keyframes.video.verification import index_folder, manifest_folder

    if action is not Action.RATES:
        refuse_idle_options(context, "but in: focus-eval videos rates", "annotations", "benchmark", "out")
    if action is not Action.VERIFY:
        refuse_idle_options(context, "but in: focus-eval videos verify", "jobs")
    if action is Action.RATES:
        if annotations is None or out is None:
            raise InvalidInput("videos rates: give --annotations, for the ids of the questions, and --out")
        _write_rates(folder, out, benchmark, annotations)
        return
    if action is Action.VERIFY:
        _verify(folder, n_jobs=jobs)
        return
    root = manifest_folder(folder)
    entries = index_folder(folder, progress=lambda path: typer.echo(f"reading {os.path.relpath(path, root)}", err=True))
    failed = {name: entry.error for name, entry in entries.items() if entry.error}
    frames, seconds = (sum(getattr(entry, column) for entry in entries.values()) for column in ("frames", "seconds"))
    typer.echo(f"{root / MANIFEST_NAME}: {counted(len(entries), 'video')}, {frames} frames, {seconds / 3600:.2f} hours")
    for name, entry in entries.items():
        for note in entry.notes:
            print_folded(f"{name}: {note}")
    for name, error in failed.items():
        print_folded(f"cannot be read: {name}: {error}")
    if failed:
        raise typer.Exit(1)


def _verify(folder: Path, *, n_jobs: int) -> None:
    """Verify a folder of videos, or one video; print damaged and changed videos; exit with code 1 if any."""
    from focus_eval.keyframes.video.manifest import VERDICTS_NAME, is_as_verified
    from focus_eval.keyframes.video.verification import manifest_folder, verify_folder

    root = manifest_folder(folder)
    with count_progress("verify", "frames") as on_frames:
        verdicts = verify_folder(
            folder,
            n_jobs=n_jobs,
            progress=lambda path: typer.echo(f"reading {os.path.relpath(path, root)}", err=True),
            on_frames=on_frames,
        )
    damaged = {name: verdict for name, verdict in verdicts.items() if not verdict.is_whole}
    typer.echo(f"{root / VERDICTS_NAME}: {counted(len(verdicts), 'video')}, {len(damaged)} of them damaged")
    for name, verdict in verdicts.items():
        for note in verdict.notes:
            print_folded(f"{name}: {note}")
    for name, verdict in damaged.items():
        print_folded(f"{name}: {verdict.summary()}")
    changed = [name for name in verdicts if not is_as_verified(root / name)]
    for name in changed:
        print_folded(
            f"{name}: not the file its manifest was written for, and so refused: download it again, or accept it with "
            "videos index"
        )
    if damaged or changed:
        raise typer.Exit(1)


def _write_rates(folder: Path, out: Path, benchmark: str, annotations: Path) -> None:
    """Write length and rate of each question's video to `out`; print the videos that cannot be read."""
    from focus_eval.bench.benchmarks.registry import read_annotations, write_rates
    from focus_eval.keyframes.video.manifest import known_info
    from focus_eval.keyframes.video.scan import scan_video

    questions = read_annotations(benchmark, annotations)
    if not folder.is_dir():
        raise InvalidInput(f"{folder}: no such folder")
    info_by_video, failed = {}, []
    for video in dict.fromkeys(question.video for question in questions):
        try:
            info_by_video[video] = known_info(folder / video) or scan_video(folder / video).info
        except VideoError as error:
            failed.append(str(error))
    if not info_by_video:
        raise InvalidInput(f"{folder}: none of {len(failed)} videos can be read; the first: {failed[0]}")
    infos = {question.id: info_by_video[question.video] for question in questions if question.video in info_by_video}
    write_rates(out, infos)
    typer.echo(f"{out}: {len(infos)} of {len(questions)} questions about {len(info_by_video)} videos")
    for line in failed:
        print_folded(f"cannot be read: {line}")
    if failed:
        raise typer.Exit(1)
