"""`focus-eval import lmms`: make a run of logs that lmms-eval left."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from focus_eval.commands.console import print_folded
from focus_eval.core.errors import InvalidInput, printable

if TYPE_CHECKING:
    from focus_eval.imports.log_import import LogImport, LogOptions


def import_logs(
    path: Path,
    out: Path,
    *,
    options: LogOptions,
    benchmark: str = "",
    annotations: Path | None = None,
    rates: Path | None = None,
) -> int:
    """Write the rows of all logs below `path` to the run folder `out`, print a summary; return their number."""
    from focus_eval.benchmarks.registry import read_rates
    from focus_eval.imports.log_import import read_log_imports
    from focus_eval.imports.run_folder import write_parts

    if out.suffix == ".parquet":
        raise InvalidInput(f"{out}: a log becomes a run's folder, not one file; give --out a folder")
    rate_of = read_rates(rates) if rates is not None else None
    imports = read_log_imports(path, options, benchmark=benchmark, annotations=annotations, rates=rate_of)
    for log in imports:
        write_parts(out, (log.part, log.answers_part), log.rows(), log.cell_document)
        typer.echo("\n".join(_described(log)))
    for line in _warnings(imports):
        print_folded(line)
    return len(imports)


def _warnings(imports: Sequence[LogImport]) -> Iterator[str]:
    """Yield a warning for logs of one task in one folder: a report shows them as several selections."""
    by_place: dict[tuple[Path, str, str], list[str]] = {}
    for log in imports:
        by_place.setdefault((log.log.samples.parent, log.log.task, log.model), []).append(log.name)
    for (folder, task, model), names in by_place.items():
        if len(names) > 1 and task:
            yield (
                f"{folder}: {len(names)} logs of {task} and {model}, each a selection of its own: {', '.join(names)}; "
                "import the file of one to have it alone"
            )


def _described(log: LogImport) -> list[str]:
    """Return the summary of a log's import, in lines."""
    counts = log.counts
    task = f"{log.log.task} ({log.log.split})" if log.log.split else log.log.task or log.log.samples.name
    parts_by_title = {
        "questions": f"{counts.answers:,} about {len(counts.videos):,} videos; {log.source.description}",
        "frames": _frames(log),
        "score": _score(log),
    }
    if counts.unparsed:
        parts_by_title["unparsed"] = (
            f"{counts.unparsed:,} answers name no option: the task guessed, or took them for wrong"
        )
    width = shutil.get_terminal_size().columns
    lines = [f"{log.name}: {task}, {log.model}"]
    for name, text in parts_by_title.items():
        lines += textwrap.wrap(text, width, initial_indent=f"  {name:<10} ", subsequent_indent=" " * 13)
    return [printable(line) for line in lines]


def _frames(log: LogImport) -> str:
    counts, options = log.counts, log.options
    n_with = counts.answers - counts.without_frames
    parts = [f"K = {log.k}"]
    if n_with:
        fewest, largest = counts.fewest_frames, counts.most_frames
        span = f"{fewest} to {largest}" if fewest < largest else str(largest)
        parts.append(f"{options.frames_field} ({options.unit}), {span} in {n_with:,} questions")
    if counts.without_frames:
        assumption = "taken as evenly spaced (assume_uniform)" if options.assume_uniform else "not known"
        reason = f"{options.frames_field!r} is not there" if options.frames_field else "no --frames-field is named"
        parts.append(f"{reason} for {counts.without_frames:,}: {assumption}")
    if counts.unsorted:
        parts.append(f"{counts.unsorted:,} not in order: sorted")
    if counts.past_end:
        parts.append(f"{counts.past_end:,} past the end of the video, the first {counts.first_past_end}")
    if log.rates is None and options.unit == "frames" and (n_with or options.assume_uniform):
        parts.append("times not known without --rates")
    return "; ".join(parts)


def _score(log: LogImport) -> str:
    from focus_eval.imports.log_import import explain_difference, stated_accuracy

    counts = log.counts
    stated_figure, is_equal = stated_accuracy(log)
    mean_text = f"{counts.metric}, mean {counts.accuracy:.5f}"
    if stated_figure is None:
        return f"{mean_text}; the log states no figure of its own"
    if is_equal:
        return f"{mean_text}, equal to the log's {stated_figure!r}"
    return f"{mean_text}, the log says {stated_figure!r}: {explain_difference(log, stated_figure)}"
