"""`focus-eval import`: selections, logs and relevance of others become rows."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from focus_eval.core.errors import InvalidInput, printable
from focus_eval.core.options import make, named_options, parse_assignments
from focus_eval.core.resources import whole_text
from focus_eval.external.commands.exchange import known_scenes, print_left_out
from focus_eval.keyframes.commands.console import (
    AllowMissing,
    AllowOutside,
    AnnotationsFile,
    FormatOption,
    print_folded,
    refuse_idle_options,
)

if TYPE_CHECKING:
    from focus_eval.bench.benchmarks.registry import VideoRate
    from focus_eval.bench.rows.entries import FileEntry
    from focus_eval.core.types import Question
    from focus_eval.external.imports.log_import import LogImport, LogOptions
    from focus_eval.external.imports.relevance import PublishedRelevance
    from focus_eval.keyframes.samplers.base import FrameSampler

_IDLE_ON_LOGS = ("frames", "scenes", "allow_missing", "allow_outside")
# Format -> parameters of `import_` that it does not read; all other formats are of selections.
_IDLE_BY_FORMAT = {
    "lmms": _IDLE_ON_LOGS,
    "vlmevalkit": _IDLE_ON_LOGS,
    "relevance": ("scenes", "unit", "allow_missing", "allow_outside", "model", "frames_field"),
}
KIND_MEANINGS = {"probability": "taken as they are", "cosine": "relevance is (1 + cosine) / 2"}


def import_(
    context: typer.Context,
    format: Annotated[
        str,
        typer.Argument(help="Format, or auto, lmms or vlmevalkit (logs), relevance; see focus-eval list formats."),
    ],
    file: Annotated[Path, typer.Argument(help="Selection file, a run's folder, a folder of logs, or scores.json.")],
    out: Annotated[Path, typer.Option(help="Parquet file, or run folder, to write; with --to a file of that format.")],
    frames: Annotated[Path | None, typer.Argument(help="relevance: frames.json, the frames of the scores.")] = None,
    to: Annotated[
        str | None, typer.Option(help="aks or focus: write their list of frames, in the order of --annotations.")
    ] = None,
    annotations: AnnotationsFile = None,
    benchmark: Annotated[
        str, typer.Option(help="Name of the benchmark. [default: longvideobench; of a log, its task's]")
    ] = "",
    rates: Annotated[
        Path | None, typer.Option(help="CSV with the columns id, duration_s and fps; finds indices past the end.")
    ] = None,
    scenes: Annotated[
        Path | None, typer.Option(help="Of selections: scenes by question as the evidence, as in recall.")
    ] = None,
    unit: Annotated[str | None, typer.Option(help="frames or seconds. [default: the format's own]")] = None,
    option: FormatOption = [],  # noqa: B006
    allow_missing: AllowMissing = False,
    allow_outside: AllowOutside = False,
    model: Annotated[str, typer.Option(help="Name of the model that gave the answers.")] = "",
    name: Annotated[str, typer.Option(help="Name of the selection in the rows. [default: the file's]")] = "",
    frames_field: Annotated[str, typer.Option(help="lmms: field with the frames that were fed; never guessed.")] = "",
) -> None:
    """Convert selections, relevance or logs of others.

    Writes Parquet (frames only), or a run folder for `focus-eval report` (with the answers). The frames are checked
    against the benchmark's questions first. A log needs no benchmark.
    """
    if out.is_file() and to is None and out.suffix != ".parquet":
        raise InvalidInput(f"{out}: is a file; give --out a run's folder, or a .parquet file for frames alone")
    kind, options = named_options(format, parse_assignments(option))
    _refuse_idle(context, kind, out, to, annotations)
    if kind in ("lmms", "vlmevalkit") and to is None:
        log_options = {"frames_field": frames_field, "unit": unit or "frames", "model": model, "name": name}
        _import_logs(file, out, {**log_options, **options}, benchmark=benchmark, annotations=annotations, rates=rates)
        return
    benchmark = benchmark or "longvideobench"
    if kind == "relevance" and to is None:
        _import_relevance(
            file, frames, out, options, benchmark=benchmark, annotations=annotations, rates=rates, name=name
        )
        return
    if to is not None and annotations is None:
        raise InvalidInput(f"the format {to} lists selections in the order of the annotations; give --annotations")
    questions, scene_notes = _annotated_questions(benchmark, annotations, scenes, allow_outside=allow_outside)
    reading_options = {"format": kind, "unit": unit, "allow_missing": allow_missing, "options": options}
    reading_options["allow_outside"] = allow_outside
    outputs: dict[str, Any] = {"rates": rates, "name": name, "model": model, "to": to}
    _import_selections(file, out, reading_options, questions=questions, scene_notes=scene_notes, **outputs)


def _refuse_idle(context: typer.Context, kind: str, out: Path, to: str | None, annotations: Path | None) -> None:
    """Refuse options that have no effect on what is read or written."""
    if to is None and kind in _IDLE_BY_FORMAT:
        refuse_idle_options(context, f"on the format {kind}: leave it out", *_IDLE_BY_FORMAT[kind])
        return
    refuse_idle_options(context, "but in: focus-eval import relevance", "frames")
    refuse_idle_options(context, "but in: focus-eval import lmms", "frames_field")
    if annotations is None:
        names = ("benchmark", "allow_missing", "allow_outside")
        refuse_idle_options(context, "without --annotations: give both, or neither", *names)
    if to is not None or out.suffix == ".parquet":
        refuse_idle_options(context, "on a file of frames alone: give --out a run's folder", "name", "model")


def _annotated_questions(
    benchmark: str, annotations: Path | None, scenes: Path | None, *, allow_outside: bool
) -> tuple[Sequence[Question] | None, list[str]]:
    """Return the annotation's questions, with the scenes of a file as their evidence, and notes on unused scenes.

    Without an annotation the questions are None.
    """
    from focus_eval.bench.benchmarks.registry import read_annotations
    from focus_eval.bench.report.recall import with_scenes

    if annotations is None:
        if scenes is not None:
            raise InvalidInput("--scenes goes with --annotations, whose questions they are of")
        return None, []
    questions = read_annotations(benchmark, annotations)
    if scenes is None:
        return questions, []
    known_ids = {question.id for question in questions}
    scenes_by_id, notes = known_scenes(scenes, known_ids, allow_outside=allow_outside)
    return with_scenes(questions, scenes_by_id), notes


def _import_selections(
    file: Path,
    out: Path,
    reading_options: Mapping[str, Any],
    *,
    questions: Sequence[Question] | None,
    scene_notes: Sequence[str],
    rates: Path | None,
    name: str,
    model: str,
    to: str | None,
) -> None:
    """Write a file's selections as Parquet, or with its answers as a run folder, and print what was read."""
    from focus_eval.bench.benchmarks.registry import frame_rates, read_rates
    from focus_eval.bench.rows.store import write_run
    from focus_eval.external.imports.loading import (
        load_selections,
        rows_of_selections,
        selections_hash,
        write_selections,
    )
    from focus_eval.external.imports.rows import write_parquet

    rate_of = read_rates(rates) if rates is not None else None
    fps = frame_rates(rate_of) if rate_of is not None else None
    entries = load_selections(file, questions=questions, fps=fps, **reading_options)
    filled = [n for entry in entries.values() if (n := entry.selection.facts.get("filled"))]
    fill_notes = [f"{len(filled):,} selections filled with {sum(filled):,} even frames"] if filled else []
    for line in [*fill_notes, *scene_notes]:
        print_folded(line)
    print_left_out(entries.left_out)
    if to is not None:
        typer.echo("\n".join(map(str, write_selections(entries, out, format=to, questions=questions or ()))))
        return
    if all(entry.selection.sampler == "aks" for entry in entries.values()):
        print_folded(_aks_line(entries, rate_of))
    if out.suffix == ".parquet":
        write_parquet(entries, out)
        max_frames = max(len(entry.shown) for entry in entries.values())
        typer.echo(f"{out}: {len(entries)} selections of at most {max_frames} frames, id {selections_hash(entries)}")
        return
    if questions is None:
        raise InvalidInput(f"{out}: a run's folder needs --annotations; a .parquet file does not")
    name, model = whole_text(name or file.stem), whole_text(model)
    rows = rows_of_selections(entries, questions, rate_of or {}, name=name, model=model)
    typer.echo("\n".join(printable(str(path)) for path in write_run(out, *rows)))


def _aks_line(entries: Mapping[str, FileEntry], rate_of: Mapping[str, VideoRate] | None) -> str:
    """A sentence on the settings with which a file of AKS selections was made."""
    from focus_eval.external.imports.aks_settings import infer_settings

    if rate_of is None or any(entry.selection.keyframes is None for entry in entries.values()):
        return "How AKS split the videos is not known without frame numbers and --rates."
    frames = (
        (entry.selection.keyframes or (), rate_of[key].n_frames, float(rate_of[key].fps))
        for key, entry in entries.items()
    )
    return f"AKS: {infer_settings(frames) or 'too few frames a question to infer how the videos were split'}"


def _import_logs(file: Path, out: Path, values: Mapping[str, Any], **sources: Any) -> None:
    """Write the logs as a run folder, read with the options `values`, and print how many there were."""
    from focus_eval.external.imports.log_import import LogOptions

    n_logs = import_logs(file, out, options=make("import lmms", LogOptions, values), **sources)
    typer.echo(f"{out}: {n_logs} {'log' if n_logs == 1 else 'logs'}, a run for report, compare and evidence")


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
    from focus_eval.bench.benchmarks.registry import read_rates
    from focus_eval.bench.rows.store import write_parts
    from focus_eval.external.imports.log_import import read_log_imports

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
    """The summary of a log's import, in lines."""
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
    if counts.repeated:
        parts_by_title["repeats"] = (
            f"up to {counts.most_responses} responses to {counts.repeated:,} questions: the first is read"
            + (", the score is the log's" if counts.metric else "")
        )
    width = shutil.get_terminal_size().columns
    lines = [f"{log.name}: {task}, {log.model}"]
    for name, text in parts_by_title.items():
        lines += textwrap.wrap(
            text, width, initial_indent=f"  {name:<10} ", subsequent_indent=" " * 13, break_on_hyphens=False
        )
    return [printable(line) for line in lines]


def _frames(log: LogImport) -> str:
    """K, and what the log states about the fed frames, as text."""
    counts, options = log.counts, log.options
    n_with = counts.answers - counts.without_frames
    parts = [f"K = {log.k}"]
    if n_with:
        fewest, largest = counts.fewest_frames, counts.most_frames
        span = f"{fewest} to {largest}" if fewest < largest else str(largest)
        parts.append(f"{options.frames_field} ({options.unit}), {span} in {n_with:,} questions")
    if counts.most_frames > log.k:
        parts.append("more than K, which was stated by -o k")
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
    """The metric and its mean as text, and whether the log's own figure equals it."""
    from focus_eval.external.imports.log_import import SCORED_HERE, explain_difference, stated_accuracy

    counts = log.counts
    stated_figure, is_equal = stated_accuracy(log)
    mean_text = f"{counts.metric or f'the log has none, scored here {SCORED_HERE}'}, mean {counts.accuracy:.5f}"
    by_filter = {name: value for name, value in log.log.scores.items() if name.partition(",")[0] == counts.metric}
    if stated_figure is None and by_filter:
        figures_text = ", ".join(f"{name.partition(',')[2]} {value!r}" for name, value in by_filter.items())
        return f"{mean_text}; the log has a figure for each filter: {figures_text}"
    if stated_figure is None:
        return f"{mean_text}; the log states no figure of its own"
    if is_equal:
        return f"{mean_text}, equal to the log's {stated_figure!r}"
    return f"{mean_text}, the log says {stated_figure!r}: {explain_difference(log, stated_figure)}"


def _import_relevance(
    scores: Path,
    frames: Path | None,
    out: Path,
    options: Mapping[str, object],
    *,
    benchmark: str,
    annotations: Path | None,
    rates: Path | None,
    name: str,
) -> None:
    """Write the relevance in `scores` to the run folder `out`, and print what was read and left out."""
    from focus_eval.bench.benchmarks.registry import read_annotations, read_rates, stated_rates
    from focus_eval.bench.rows.store import write_run
    from focus_eval.external.imports.relevance import RelevanceOptions, read_relevance
    from focus_eval.keyframes.samplers.registry import make_sampler

    import_options = make("import relevance", RelevanceOptions, options)
    if frames is None or annotations is None:
        raise InvalidInput("import relevance SCORES FRAMES needs both files and --annotations")
    if (out / "selections").exists():
        raise InvalidInput(f"{out}: holds a run already; name another folder with --out")
    questions = read_annotations(benchmark, annotations)
    rate_of = read_rates(rates) if rates is not None else stated_rates(questions)
    encoder = name or scores.resolve().parent.name
    relevance = read_relevance(scores, frames, questions, rate_of, encoder=encoder, kind=import_options.kind)
    [written] = write_run(out, relevance.rows, name=encoder)
    print_left_out(relevance.left_out)
    n_replayed = sum(bool(row.evidence_seconds) for row in relevance.rows)
    print_folded(
        f"{written}: {relevance.n_scores:,} scores of {len(relevance.rows)} of {len(questions)} questions, "
        f"{n_replayed} with evidence; {len(relevance.left_out)} left out"
    )
    span = f"{relevance.low:.3g} to {relevance.high:.3g}"
    scores_text = "probabilities" if relevance.kind == "probability" else "cosines"
    print_folded(f"read as {scores_text} ({span}): {KIND_MEANINGS[relevance.kind]}")
    if import_options.published is not None:
        aks = make_sampler("aks", t1=import_options.t1, max_depth=import_options.max_depth)
        for line in published_check(relevance, questions, import_options.published, aks=aks):
            print_folded(line)


def published_check(
    relevance: PublishedRelevance, questions: Sequence[Question], published: Path, *, aks: FrameSampler
) -> list[str]:
    """Return how often `aks` chooses the published frames from these scores, and how the file was made."""
    import numpy as np

    from focus_eval.core.types import frozen_floats, frozen_ints
    from focus_eval.external.imports.aks_settings import infer_settings
    from focus_eval.external.imports.loading import load_selections
    from focus_eval.keyframes.samplers.bandit import nearest_pulled
    from focus_eval.keyframes.samplers.base import derived_rng

    entries = load_selections(published, format="aks", questions=questions, allow_missing=True)
    frames_by_id = {key: entry.selection.keyframes or [] for key, entry in entries.items()}
    k = max(map(len, frames_by_id.values()))
    rng, differing_ids = derived_rng(0), []
    rows = [row for row in relevance.rows if row.question_id in frames_by_id and len(row.pulled_frames) > k]
    for row in rows:
        assert row.info is not None  # scores were read with a known rate
        pulled_frames, values = (
            frozen_ints(row.pulled_frames),
            frozen_floats(np.array(row.pulled_relevance, dtype=float)),
        )
        choice = aks.select(
            row.info,
            k=k,
            pull=lambda frames, pulled_frames=pulled_frames, values=values: nearest_pulled(
                frames, pulled_frames, values
            ),  # type: ignore[misc]
            rng=rng,
        )
        if list(choice.keyframes) != sorted(frames_by_id[row.question_id]):
            differing_ids.append(row.question_id)
    first = f"; the first of the others: {differing_ids[0]}" if differing_ids else ""
    n_same = len(rows) - len(differing_ids)
    frames = [(frames_by_id[row.question_id], row.info.n_frames, row.info.fps) for row in rows if row.info]
    options = aks.options
    return [
        f"{published}: aks at K = {k}, t1={options['t1']:g}, max_depth={options['max_depth']} chooses the same frames "
        f"for {n_same} of {len(rows)} questions with more than {k} candidates{first}",
        f"{published.name}: {infer_settings(frames) or 'nothing to infer its settings from'}",
    ]
