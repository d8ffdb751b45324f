"""What `focus-eval select` and `ask` print of selections: tables of keyframes, cost and warnings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from focus_eval.core.errors import printable
from focus_eval.keyframes.commands.console import clock_text, counted, print_folded, table_console

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from focus_eval.keyframes.rows.records import SelectionRow
    from focus_eval.keyframes.selection import VideoSelection

# Limit of videos that a warning names.
MAX_SHOWN_NAMES = 5


def print_selection(selection: VideoSelection, *, verbose: bool = False) -> None:
    """Print the keyframes with relevance, and cost; with `verbose` the seconds of each stage."""
    from rich.table import Table

    from focus_eval.keyframes.export import MAX_SHOWN

    row = selection.row
    if len(selection.keyframes) > MAX_SHOWN:
        print_folded(f"{row.sampler}: {len(selection.keyframes)} keyframes; --out FILE writes them")
        return
    table = Table(
        title=f"{row.sampler}: {counted(len(selection), 'keyframe')} of {counted(selection.video.n_frames, 'frame')}",
        title_justify="left",
    )
    for name in ("keyframe", "time", "seconds", "relevance"):
        table.add_column(name, justify="right", overflow="fold")
    subtitles = _subtitle_cells(selection)
    if subtitles is not None:
        table.add_column("subtitle", overflow="fold")
    for at, (frame, time, relevance, is_scored) in enumerate(
        zip(selection.keyframes, selection.times, selection.relevance, selection.is_scored, strict=True)
    ):
        value = f"{'' if is_scored or np.isnan(relevance) else '~'}{_relevance_text(relevance)}"
        subtitle_cell = [] if subtitles is None else [subtitles[at]]
        table.add_row(str(frame), clock_text(time), f"{time:.2f}", value, *subtitle_cell)
    table_console().print(table)
    print_unspoken(selection)
    if len(selection.keyframes) < row.k:
        print_folded(f"fewer than k = {row.k}: {_why_fewer(row, selection.video.n_frames)}")
    if not selection.is_scored.all() and selection.n_pulls:
        print_folded("~: not scored; between the nearest scored frames")
    if row.text_pulls:
        print_folded(f"{counted(len(row.encoded_frames), 'frame')} scored for {1 + len(row.text_pulls)} texts")
    else:
        print_folded(f"{counted(selection.n_pulls, 'frame')} scored, {selection.share_scored:.2%} of the video")
    if row.asked.get("calls"):
        print_folded(_model_usage_line(row))
    elif row.asked.get("dollars"):
        print_folded(f"The encoder {row.encoder} was paid {row.asked['dollars']:.4f} dollars")
    if row.scan_encoder:
        print_folded(_scan_line(row))
    if row.encoder:
        print_folded(f"encoder: {row.encoder} ({row.encoder_revision})")
    if verbose:
        print_folded(_seconds_line(row))
    if selection.warning:
        print_folded(selection.warning)


def print_selections(selections: Sequence[VideoSelection], *, verbose: bool = False) -> None:
    """Print the keyframes of several videos in one table, and warnings; with `verbose` the seconds of each stage."""
    table_console().print(keyframe_table(selections))
    for selection in selections if verbose else ():
        print_folded(f"{selection.path.name}: {_seconds_line(selection.row)}")
    for line in _warning_lines(selections):
        print_folded(line)


def keyframe_table(selections: Sequence[VideoSelection]) -> RichTable:
    """Return the keyframes of several videos as one table."""
    from rich.table import Table

    table = Table()
    n_videos_by_name = Counter(path.name for path in {selection.path for selection in selections})
    has_subtitles = any(selection.subtitles for selection in selections)
    for name in ("video", "keyframe", "time", "relevance", *(["subtitle"] if has_subtitles else [])):
        table.add_column(name, justify="left" if name in ("video", "subtitle") else "right", overflow="fold")
    for selection in selections:
        name = selection.path.name if n_videos_by_name[selection.path.name] == 1 else str(selection.path)
        subtitles = _subtitle_cells(selection) or [""] * len(selection)
        for (frame, seconds, relevance), subtitle in zip(selection, subtitles, strict=True):
            cells = (name, str(frame), clock_text(seconds), _relevance_text(relevance))
            table.add_row(*cells, *([subtitle] if has_subtitles else []))
    return table


def print_unspoken(selection: VideoSelection) -> None:
    """Print a line if none of the video's subtitles belongs to a keyframe."""
    if selection.subtitles and not any(selection.keyframe_lines):
        last = max(line.stop_seconds for line in selection.subtitles)
        n_lines = counted(len(selection.subtitles), "line")
        print_folded(f"no subtitle at a keyframe: the file has {n_lines}, the last ends at {clock_text(last)}")


def _warning_lines(selections: Sequence[VideoSelection]) -> list[str]:
    """The warnings about several selections, each once, with the names of its videos unless it is about all."""
    names_by_warning: dict[str, list[str]] = {}
    for selection in selections:
        names_by_warning.setdefault(selection.warning, []).append(selection.path.name)
    lines = []
    for warning, names in names_by_warning.items():
        videos_text = ", ".join(names[:MAX_SHOWN_NAMES])
        rest_text = f" and {len(names) - MAX_SHOWN_NAMES} more" if len(names) > MAX_SHOWN_NAMES else ""
        lines += (
            [warning if len(names) == len(selections) else f"{videos_text}{rest_text}: {warning}"] if warning else []
        )
    return lines


def _subtitle_cells(selection: VideoSelection) -> list[str] | None:
    """The text of the subtitles of each keyframe for a table; None without subtitles."""
    if not selection.subtitles:
        return None
    return [printable(" / ".join(line.text for line in lines)) for lines in selection.keyframe_lines]


def _relevance_text(relevance: float) -> str:
    """Relevance with four decimals; "-" for NaN."""
    return "-" if np.isnan(relevance) else f"{relevance:.4f}"


def _why_fewer(row: SelectionRow, n_frames: int) -> str:
    first, stop = row.facts.get("stretch_frames", (0, n_frames))
    n_damaged, _ = row.facts.get("damaged_frames", (0, 0))
    n_usable = stop - first - n_damaged
    if len(row.keyframes or ()) < min(row.k, n_usable):
        return f"sampler {row.sampler} may leave keyframes out (docs/samplers.md)"
    part = "this part of the video" if "stretch_frames" in row.facts else "the video"
    return f"{part} has {counted(n_usable, 'frame')}{' that can be decoded' if n_damaged else ''}"


def _seconds_line(row: SelectionRow) -> str:
    return "seconds: " + ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in row.seconds.items())


def _model_usage_line(row: SelectionRow) -> str:
    """A line on the sampler's model: calls, pictures, tokens, dollars and stored answers."""
    usage = row.asked
    is_known = {"input", "output"} <= usage.keys()
    tokens = f"{usage['input'] + usage['output']:,.0f} tokens" if is_known else "tokens unknown"
    dollars = f", {usage['dollars']:.4f} dollars" if "dollars" in usage else ""
    return (
        f"{row.llm} asked {usage['calls']:.0f} times about {usage['images']:.0f} pictures, {tokens}{dollars}; "
        f"{usage['replayed']:.0f} answered by the store"
    )


def _scan_line(row: SelectionRow) -> str:
    """A line on the scanned frames, and on all work as a number of the main encoder's forwards."""
    from focus_eval.keyframes.rows.cost import forward_equivalents, unit_costs

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
