"""`focus-eval select`: choose keyframes of one video."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from focus_eval.commands.console import (
    SamplerOptions,
    clock_text,
    completed,
    print_folded,
    print_if_slow,
    pull_progress,
    table_console,
)
from focus_eval.core.errors import InvalidInput
from focus_eval.core.options import parse_assignments
from focus_eval.rows.records import write_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from focus_eval.api import VideoSelection
    from focus_eval.encoders.weights import Checkpoint
    from focus_eval.rows.records import SelectionRow

# Keyframes whose pictures differ by less than this, of 255 grey levels, look alike.
ALIKE_LEVELS = 4.0

SamplerOption = Annotated[
    str | None,
    typer.Option(
        help="Sampler, e.g. focus:alpha=0.1, or FILE.py:Class. [default: even_cover, 600 frames scored]",
        autocompletion=completed("sampler"),
    ),
]
EncoderOption = Annotated[
    str | None,
    typer.Option(
        help="Encoder, e.g. clip:device=cpu. [default: the best whose weights are here, else offline]",
        autocompletion=completed("encoder"),
    ),
]
BackendOption = Annotated[
    str, typer.Option(help="Video reader; see focus-eval list readers.", autocompletion=completed("video reader"))
]


def select(
    video: Annotated[Path, typer.Argument(help="Video file, or a folder of pictures (with --fps).")],
    query: Annotated[str, typer.Option(help="What to look for, in words.")],
    k: Annotated[int, typer.Option("-k", help="Number of keyframes.")] = 8,
    sampler: SamplerOption = None,
    option: SamplerOptions = [],  # noqa: B006
    share: Annotated[
        float | None, typer.Option(help="Share of the video's frames that even_cover scores, e.g. 0.05.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Score as many frames with even_cover as take about so long.")
    ] = None,
    encoder: EncoderOption = None,
    encoder_option: Annotated[
        list[str],
        typer.Option("--encoder-option", "-e", metavar="NAME=VALUE", help="Option of the encoder; repeatable."),
    ] = [],  # noqa: B006
    seed: Annotated[int, typer.Option(help="Seed of all random choices.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Write the selection to this JSON file; - for standard output.")
    ] = None,
    sheet: Annotated[Path | None, typer.Option(help="Write a contact sheet to this file (.png, .pdf or .svg).")] = None,
    store: Annotated[Path | None, typer.Option(help="Keep embeddings in this file for the next run.")] = None,
    backend: BackendOption = "pyav",
    fps: Annotated[float | None, typer.Option(help="Pictures per second of a folder of pictures.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the selection as JSON and nothing else.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Download an encoder if none is here and none is named.")] = False,
) -> None:
    """Choose keyframes of one video for one query."""
    from focus_eval.api import Budget, check_shown, make_selector, open_source, select_with

    to_stdout = as_json or out == Path("-")
    out = None if out == Path("-") else out
    _check_writable(out, sheet, video=video)
    check_shown(0 if sheet is None else k)
    budget = Budget(share=share, seconds=seconds)
    options, of_encoder = parse_assignments(option), parse_assignments(encoder_option)
    may_download = partial(_may_download, yes=yes, is_silent=quiet or to_stdout)
    settings = {"k": k, "seed": seed, "store": store, "backend": backend, "may_download": may_download}
    with print_if_slow("loading the encoder"):
        selector = make_selector(sampler, options, encoder, of_encoder, budget, **settings)
    reopen = partial(open_source, video, fps=fps, backend=backend, store=selector.store)
    title = f"{selector.sampler.name} on {video.name}"
    waiting = f"loading encoder {selector.encoder.name}, decoding the first frames" if selector.encoder else title
    with pull_progress(title, waiting=waiting) if not quiet else nullcontext() as progress:
        selection = select_with(selector, reopen, [query], budget, progress=progress)[0]
    if sheet is not None:
        selection.save_sheet(sheet)
    if out is not None:
        write_text(out, selection.to_json())
    if to_stdout:
        typer.echo(selection.to_json(), nl=False)
    elif not quiet:
        _print(selection)


def _may_download(checkpoint: Checkpoint, *, yes: bool, is_silent: bool) -> bool:
    """Return True if the user allows the download: by option, by environment, or by an answer in a terminal."""
    from focus_eval.encoders.default import DOWNLOAD_VARIABLE, is_download_allowed, offer_text

    offer = offer_text(checkpoint)
    if yes or is_download_allowed():
        typer.echo(f"downloading {offer}", err=True)
        return True
    if is_silent:
        return False
    if sys.stdin.isatty() and sys.stderr.isatty():
        return typer.confirm(f"Download {offer}?", default=False, err=True)
    typer.echo(f"--yes or {DOWNLOAD_VARIABLE}=1 downloads {offer}", err=True)
    return False


def _check_writable(*paths: Path | None, video: Path) -> None:
    """Refuse output paths that cannot be written, or that are the video itself."""
    for path in paths:
        if path is not None and path.resolve() == video.resolve() and not path.is_dir():
            raise InvalidInput(f"{path}: this is the video, which would be lost; name another file")
        if path is not None and (path.is_dir() or not path.resolve().parent.is_dir()):
            raise InvalidInput(f"{path}: cannot be written; name a file in an existing folder")


def alike_keyframes(pictures: Mapping[int, NDArray[np.uint8]]) -> dict[int, int]:
    """Return for each keyframe that resembles an earlier one the earlier one.

    Two pictures are alike if their pixels, averaged over 16 x 16 fields, differ by less than `ALIKE_LEVELS` of 255 in
    the mean.
    """
    from PIL import Image

    fields = {
        frame: np.asarray(Image.fromarray(pixels).resize((16, 16), Image.Resampling.BOX), dtype=np.float64)
        for frame, pixels in pictures.items()
    }
    alike: dict[int, int] = {}
    for frame, field in fields.items():
        earlier_frames = [
            earlier for earlier in fields if earlier < frame and np.abs(fields[earlier] - field).mean() < ALIKE_LEVELS
        ]
        if earlier_frames:
            alike[frame] = earlier_frames[0]
    return alike


def _print(selection: VideoSelection) -> None:
    """Print the keyframes with relevance, similar earlier ones, and cost."""
    from rich.table import Table

    from focus_eval.api import MOST_SHOWN

    row = selection.row
    if len(selection.keyframes) > MOST_SHOWN:
        print_folded(f"{row.sampler}: {len(selection.keyframes)} keyframes; --out FILE writes them")
        return
    alike = alike_keyframes(selection.thumbnails)
    table = Table(
        title=f"{row.sampler}: {len(selection.keyframes)} keyframes of {selection.video.n_frames} frames",
        title_justify="left",
    )
    for name in ("keyframe", "time", "seconds", "relevance", *(["looks like"] if alike else [])):
        table.add_column(name, justify="right", overflow="fold")
    for frame, time, relevance, is_scored in zip(
        selection.keyframes, selection.times, selection.relevance, selection.is_scored, strict=True
    ):
        value = "-" if np.isnan(relevance) else f"{relevance:.4f}" if is_scored else f"~{relevance:.4f}"
        alike_cell = [str(alike.get(frame, ""))] if alike else []
        table.add_row(str(frame), clock_text(time), f"{time:.2f}", value, *alike_cell)
    table_console().print(table)
    if len(selection.keyframes) < min(row.k, selection.video.n_frames):
        print_folded(f"fewer than k = {row.k}: sampler {row.sampler} may leave keyframes out (docs/samplers.md)")
    if not selection.is_scored.all() and selection.n_pulls:
        print_folded("~: not scored; between the nearest scored frames")
    if alike:
        print_folded(
            f"keyframes that look like an earlier one: {len(alike)} (mean pixel difference below {ALIKE_LEVELS:g}/255)"
        )
    stages = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in row.seconds.items())
    if row.text_pulls:
        print_folded(f"{len(row.encoded_frames)} frames scored for {1 + len(row.text_pulls)} texts")
    else:
        print_folded(f"{selection.n_pulls} frames scored, {selection.share_scored:.2%} of the video")
    if row.asked.get("calls"):
        print_folded(_model_usage_line(row))
    elif row.asked.get("dollars"):
        print_folded(f"The encoder {row.encoder} was paid {row.asked['dollars']:.4f} dollars")
    if row.scan_encoder:
        print_folded(_scan_line(row))
    if row.encoder:
        print_folded(f"encoder: {row.encoder} ({row.encoder_revision})")
    print_folded(f"seconds: {stages}")
    if selection.warning:
        print_folded(selection.warning)


def _model_usage_line(row: SelectionRow) -> str:
    usage = row.asked
    is_known = {"input", "output"} <= usage.keys()
    tokens = f"{usage['input'] + usage['output']:,.0f} tokens" if is_known else "tokens unknown"
    dollars = f", {usage['dollars']:.4f} dollars" if "dollars" in usage else ""
    return (
        f"{row.llm} asked {usage['calls']:.0f} times about {usage['images']:.0f} pictures, {tokens}{dollars}; "
        f"{usage['replayed']:.0f} answered by the store"
    )


def _scan_line(row: SelectionRow) -> str:
    from focus_eval.report.cost import forward_equivalents, unit_costs

    units = unit_costs(row.gmacs, relative_cost=row.options.get("relative_cost"))
    pulls = row.n_scored
    total = float(forward_equivalents(units, encoded=pulls, scanned=row.frames_scanned, pulls=pulls))
    scan_encoder = row.options.get("scan_encoder") or row.scan_encoder
    identity_note = ", the main encoder itself" if row.facts.get("scan_encoder_is_encoder") else ""
    share_note = "" if pulls or "share" not in row.options else "; share leaves the main encoder none: -o share=0.05"
    return (
        f"{row.frames_scanned} frames scanned with {scan_encoder}{identity_note}, each {units[1]:.3g} of a forward: "
        f"as much work as {total:.1f} forwards in all{share_note}"
    )
