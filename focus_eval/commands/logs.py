"""`focus-eval import lmms`: make a run of logs that lmms-eval left."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from focus_eval.core.errors import InvalidInput, UnknownName, printable

if TYPE_CHECKING:
    from focus_eval.benchmarks.question import Benchmark, Question
    from focus_eval.selections.lmms_logs import LmmsLog
    from focus_eval.selections.log_import import LogImport, LogOptions


def import_logs(
    path: Path,
    out: Path,
    *,
    options: LogOptions,
    benchmark: str = "",
    annotations: Path | None = None,
    rates: Path | None = None,
) -> int:
    """Write the rows of all logs below `path` to the run folder `out`, print what was taken; return their number."""
    from focus_eval.benchmarks.registry import read_rates
    from focus_eval.selections.lmms_logs import find_logs
    from focus_eval.selections.log_import import LogImport, refuse_same_names
    from focus_eval.selections.log_questions import question_source
    from focus_eval.selections.published_rows import name_run

    if out.suffix == ".parquet":
        raise InvalidInput(f"{out}: a log becomes a run's folder, not one file; give --out a folder")
    logs = find_logs(path)
    if options.name and len(logs) > 1:
        raise InvalidInput(f"{path}: {len(logs)} logs cannot all be called {options.name!r}; import each by itself")
    rate_of = read_rates(rates) if rates is not None else None
    made = []
    for log in logs:
        described = _benchmark_of(log, benchmark)
        annotated = _annotated(described, annotations, log)
        first = next(log.records(), None)
        if first is None:
            raise InvalidInput(f"{log.samples}: no answers in this file; copy it again")
        source = question_source(
            log,
            first,
            benchmark=described,
            annotated=annotated,
            is_named=bool(benchmark),
            id_field=options.id_field,
            video_field=options.video_field,
        )
        made.append(LogImport(log, source, options, rates=rate_of))
    refuse_same_names(made)
    _refuse_no_frames(path, made, options)
    for item in made:
        item.write(out)
        typer.echo("\n".join(_described(item)))
    name_run(out)
    return len(made)


def _refuse_no_frames(path: Path, made: Sequence[LogImport], options: LogOptions) -> None:
    """Refuse a field of frames that no line has: most likely its name is mistyped."""
    from focus_eval.selections.log_questions import number_fields

    if not options.frames_field or options.assume_uniform or any(item.counts.most_frames for item in made):
        return
    fields = sorted({name for item in made for name in number_fields(next(item.log.records()))})
    raise InvalidInput(
        f"{path}: no line has the field {options.frames_field!r}; lists of numbers are in: "
        f"{', '.join(fields) or 'none'} (without --frames-field the frames are unknown)"
    )


def _benchmark_of(log: LmmsLog, name: str) -> Benchmark | None:
    """Return the benchmark that the caller names, or that of the task; None where no benchmark here has it."""
    from focus_eval.benchmarks.registry import benchmark_of_task, make_benchmark

    if name:
        return make_benchmark(name)
    try:
        return benchmark_of_task(log.task)
    except UnknownName:
        return None


def _annotated(benchmark: Benchmark | None, path: Path | None, log: LmmsLog) -> list[Question] | None:
    from focus_eval.benchmarks.registry import read_annotations

    if path is None:
        return None
    if benchmark is None:
        task = f"the task {log.task}" if log.task else "a table of answers"
        raise InvalidInput(f"{path}: {task} does not say of which benchmark these are; name it (--benchmark)")
    return read_annotations(benchmark, path)


def _described(made: LogImport) -> list[str]:
    """Return what was taken from a log, a line each."""
    log, counts = made.log, made.counts
    task = f"{log.task} ({log.split})" if log.split else log.task or log.samples.name
    said = {
        "questions": f"{counts.answers:,} about {len(counts.videos):,} videos; {made.source.taken}",
        "frames": _frames(made),
        "score": _score(made),
    }
    if counts.unparsed:
        said["unparsed"] = f"{counts.unparsed:,} answers name no option: the task guessed, or took them for wrong"
    width = shutil.get_terminal_size().columns
    lines = [f"{made.name}: {task}, {made.model}"]
    for name, text in said.items():
        lines += textwrap.wrap(text, width, initial_indent=f"  {name:<10} ", subsequent_indent=" " * 13)
    return [printable(line) for line in lines]


def _frames(made: LogImport) -> str:
    counts, options = made.counts, made.options
    n_with = counts.answers - counts.without_frames
    parts = [f"K = {made.k}"]
    if n_with:
        least, most = counts.fewest_frames, counts.most_frames
        span = f"{least} to {most}" if least < most else str(most)
        parts.append(f"{options.frames_field} ({options.unit}), {span} in {n_with:,} questions")
    if counts.without_frames:
        what = "taken as evenly spaced (assume_uniform)" if options.assume_uniform else "not known"
        where = f"{options.frames_field!r} is not there" if options.frames_field else "no --frames-field is named"
        parts.append(f"{where} for {counts.without_frames:,}: {what}")
    if counts.unsorted:
        parts.append(f"{counts.unsorted:,} not in order: sorted")
    if counts.past_end:
        parts.append(f"{counts.past_end:,} past the end of the video, the first {counts.first_past_end}")
    if made.rates is None and options.unit == "frames" and (n_with or options.assume_uniform):
        parts.append("times not known without --rates")
    return "; ".join(parts)


def _score(made: LogImport) -> str:
    from focus_eval.selections.log_import import explained_by, stated_accuracy

    counts = made.counts
    stated, is_equal = stated_accuracy(made)
    ours = f"{counts.metric}, mean {counts.accuracy:.5f}"
    if stated is None:
        return f"{ours}; the log states no figure of its own"
    if is_equal:
        return f"{ours}, equal to the log's {stated!r}"
    return f"{ours}, the log says {stated!r}: {explained_by(made, stated)}"
