"""`focus-eval select`: choose keyframes of one video."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from focus_eval.commands.console import SeedOption, pull_progress, say_if_slow, table_console
from focus_eval.core.errors import InvalidInput
from focus_eval.core.options import parse_assignments
from focus_eval.rows.identity import versions
from focus_eval.rows.records import replace_file
from focus_eval.video import open_video

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from focus_eval.pipeline.selector import Selector
    from focus_eval.rows.records import SelectionRow

# Keyframes whose pictures differ by less than this, of 255 grey levels, look alike.
ALIKE_LEVELS = 4.0


def select(
    video: Annotated[Path, typer.Argument(help="Video file.")],
    query: Annotated[str, typer.Option(help="What to look for, in words.")],
    k: Annotated[int, typer.Option("-k", help="Number of keyframes.")] = 8,
    sampler: Annotated[str, typer.Option(help="Sampler, e.g. focus:alpha=0.1, or FILE.py:Class.")] = "focus",
    option: Annotated[
        list[str], typer.Option("--option", "-o", metavar="NAME=VALUE", help="Option of the sampler; repeatable.")
    ] = [],  # noqa: B006
    encoder: Annotated[str, typer.Option(help="Encoder, e.g. clip:device=cpu.")] = "offline",
    encoder_option: Annotated[
        list[str],
        typer.Option("--encoder-option", "-e", metavar="NAME=VALUE", help="Option of the encoder; repeatable."),
    ] = [],  # noqa: B006
    seed: SeedOption = 0,
    out: Annotated[Path | None, typer.Option(help="Write the selection to this JSON file.")] = None,
    sheet: Annotated[Path | None, typer.Option(help="Write a contact sheet to this file (.png, .pdf or .svg).")] = None,
    store: Annotated[Path | None, typer.Option(help="Keep embeddings in this file for the next run.")] = None,
    backend: Annotated[str, typer.Option(help="Video reader; see focus-eval plugins.")] = "pyav",
) -> None:
    """Choose keyframes of one video for one query."""
    from focus_eval.pipeline.api import query_question

    _check_writable(out, sheet)
    selector = _selector(sampler, option, encoder, encoder_option, k=k, seed=seed, store=store, backend=backend)
    title = f"{sampler} on {video.name}"
    waiting = f"loading encoder {encoder}, decoding the first frames" if selector.encoder else title
    with pull_progress(title, waiting=waiting) as progress:
        row = selector.select(query_question(video, query), video, progress=progress)
    document = selection_document(row, selector)
    pictures = _pictures(row, video, backend)
    if sheet is not None:
        _write_sheet(row, list(pictures.values()), sheet)
    if out is not None:
        _write_json(document, out)
    _print(row, alike_keyframes(pictures))


def _check_writable(*paths: Path | None) -> None:
    """Refuse a place that cannot be written before minutes of work go into it."""
    for path in paths:
        if path is not None and (path.is_dir() or not path.resolve().parent.is_dir()):
            raise InvalidInput(f"{path}: cannot be written; name a file in an existing folder")


def selection_document(row: SelectionRow, selector: Selector) -> dict[str, Any]:
    """Return what `selection.json` holds: the row, frames scored, and the versions of all that took part."""
    return {
        **asdict(row),
        "frames_scored": len(row.pulled_frames) / row.n_frames,
        "sampler_version": selector.sampler.version,
        "versions": versions(),
    }


def _selector(
    sampler: str,
    sampler_options: list[str],
    encoder: str,
    encoder_options: list[str],
    *,
    store: Path | None,
    **rest: Any,
) -> Selector:
    from focus_eval.encoders.registry import make_encoder
    from focus_eval.pipeline.selector import Selector
    from focus_eval.samplers.registry import make_sampler

    made = make_sampler(sampler, **parse_assignments(sampler_options))
    with say_if_slow(f"loading encoder {encoder}"):
        made_encoder = make_encoder(encoder, **parse_assignments(encoder_options)) if made.needs_encoder else None
    kept = None
    if store is not None:
        from focus_eval.encoders.store import RelevanceStore

        kept = RelevanceStore(store)
    return Selector(sampler=made, encoder=made_encoder, store=kept, **rest)


def _write_json(document: dict[str, Any], path: Path) -> None:
    with replace_file(path) as part:
        part.write_text(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def _pictures(row: SelectionRow, video: Path, backend: str) -> dict[int, NDArray[np.uint8]]:
    """Return the keyframes as small pictures, `(height, width, 3)`, in order."""
    from PIL import Image

    pictures = {}
    with open_video(video, backend=backend) as reader:
        for frame, pixels in reader.stream(np.unique(row.keyframes)):
            image = Image.fromarray(pixels)
            image.thumbnail((320, 320))
            pictures[int(frame)] = np.asarray(image)
    return pictures


def alike_keyframes(pictures: Mapping[int, NDArray[np.uint8]]) -> dict[int, int]:
    """Return which keyframes look like an earlier one, and that one: they add little to what a model sees.

    Two pictures are alike where their pixels, averaged over 16 x 16 fields, differ by less than `ALIKE_LEVELS` of 255
    in the mean.
    """
    from PIL import Image

    fields = {
        frame: np.asarray(Image.fromarray(pixels).resize((16, 16), Image.Resampling.BOX), dtype=np.float64)
        for frame, pixels in pictures.items()
    }
    alike: dict[int, int] = {}
    for frame, field in fields.items():
        earlier = [other for other in fields if other < frame and np.abs(fields[other] - field).mean() < ALIKE_LEVELS]
        if earlier:
            alike[frame] = earlier[0]
    return alike


def _write_sheet(row: SelectionRow, thumbnails: list[NDArray[np.uint8]], path: Path) -> None:
    from focus_eval.report.figures import draw_sheet

    figure = draw_sheet(row, thumbnails)
    with replace_file(path) as part:
        figure.savefig(part, dpi=150, format=path.suffix.lstrip(".") or "png")


def _print(row: SelectionRow, alike: Mapping[int, int]) -> None:
    """Print the keyframes; `alike` names the earlier keyframe that one looks like."""
    from rich.table import Table

    table = Table(title=f"{row.sampler}: {len(row.keyframes)} keyframes of {row.n_frames} frames", title_justify="left")
    for name in ("keyframe", "time", "seconds", "relevance", *(["looks like"] if alike else [])):
        table.add_column(name, justify="right", overflow="fold")
    pulled = dict(zip(row.pulled_frames, row.pulled_relevance, strict=True))
    for frame, time in zip(row.keyframes, row.times_seconds, strict=True):
        clock = f"{int(time) // 3600}:{int(time) // 60 % 60:02d}:{int(time) % 60:02d}"
        relevance = pulled.get(frame)
        scored = "not scored" if frame not in pulled else "logits only" if relevance is None else f"{relevance:.4f}"
        table.add_row(str(frame), clock, f"{time:.2f}", scored, *([str(alike.get(frame, ""))] if alike else []))
    console = table_console()
    console.print(table)
    if alike:
        console.print(
            f"{len(alike)} keyframes look like an earlier one: mean pixel difference below {ALIKE_LEVELS:g}/255"
        )
    stages = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in row.seconds.items())
    console.print(f"{len(row.pulled_frames)} frames scored, {len(row.pulled_frames) / row.n_frames:.2%} of the video")
    console.print(f"seconds: {stages}")
