"""`focus-eval import`, `export`, `recall` and `evidence`: selections and answers of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from focus_eval.benchmarks.evidence import IN_VIEW_SECONDS, distances_text
from focus_eval.commands.console import (
    AlsoOption,
    AnnotationsFile,
    BenchmarkOption,
    FormatsOption,
    MinSecondsOption,
    print_folded,
    print_tables,
)
from focus_eval.core.errors import InvalidInput, printable
from focus_eval.core.options import make, named_options, parse_assignments
from focus_eval.core.resources import whole_text

if TYPE_CHECKING:
    from focus_eval.benchmarks.question import Question
    from focus_eval.report.recall import EvidenceCase
    from focus_eval.report.run import Run
    from focus_eval.report.table import Table
    from focus_eval.selections import ImportedSelection


AllowOutside = Annotated[bool, typer.Option(help="Leave out and count frames past the end, and rows of no question.")]
AllowMissing = Annotated[bool, typer.Option(help="Leave out questions without frames.")]
FormatOption = Annotated[
    list[str],
    typer.Option("--option", "-o", metavar="NAME=VALUE", help="Option of the format, e.g. sampler=focus; repeatable."),
]


def import_(
    format: Annotated[
        str, typer.Argument(help="Format of the file, or auto, lmms (logs) or relevance; see focus-eval plugins.")
    ],
    file: Annotated[Path, typer.Argument(help="Selection file, a run's folder, a folder of logs, or scores.json.")],
    out: Annotated[Path, typer.Option(help="Parquet file, or run folder, to write.")],
    frames: Annotated[Path | None, typer.Argument(help="relevance: frames.json, the frames of the scores.")] = None,
    annotations: AnnotationsFile = None,
    benchmark: Annotated[
        str, typer.Option(help="Name of the benchmark. [default: longvideobench; of a log, its task's]")
    ] = "",
    rates: Annotated[
        Path | None, typer.Option(help="CSV with the columns id, duration_s and fps; finds indices past the end.")
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
    kind, options = named_options(format, parse_assignments(option))
    if kind == "lmms":
        said = {"frames_field": frames_field, "unit": unit or "frames", "model": model, "name": name}
        _import_logs(file, out, {**said, **options}, benchmark=benchmark, annotations=annotations, rates=rates)
        return
    benchmark = benchmark or "longvideobench"
    if kind == "relevance":
        from focus_eval.commands.relevance import import_relevance

        import_relevance(
            file, frames, out, options, benchmark=benchmark, annotations=annotations, rates=rates, name=name
        )
        return
    questions, left_out = read_questions(benchmark, annotations), list[str]() if allow_outside else None
    how = {"format": kind, "unit": unit, "allow_missing": allow_missing, "options": options, "left_out": left_out}
    _import_selections(file, out, how, questions=questions, rates=rates, name=name, model=model)


def _import_selections(
    file: Path,
    out: Path,
    how: Mapping[str, Any],
    *,
    questions: Sequence[Question] | None,
    rates: Path | None,
    name: str,
    model: str,
) -> None:
    from focus_eval.benchmarks.registry import read_rates
    from focus_eval.selections import load_selections, selections_hash, write_parquet
    from focus_eval.selections.published_rows import published_rows, write_run

    rate_of = read_rates(rates) if rates is not None else None
    fps = {key: float(rate.fps) for key, rate in rate_of.items()} if rate_of is not None else None
    selections = load_selections(file, questions=questions, fps=fps, **how)
    for line in how["left_out"] or ():
        print_folded(line)
    if out.suffix == ".parquet":
        write_parquet(selections, out)
        most = max(selection.n_keyframes for selection in selections.values())
        typer.echo(f"{out}: {len(selections)} selections of at most {most} frames, id {selections_hash(selections)}")
        return
    if questions is None or rate_of is None:
        raise InvalidInput(f"{out}: a run's folder needs --annotations and --rates; a .parquet file does not")
    name, model = whole_text(name or file.stem), whole_text(model)
    made = published_rows(selections, questions, rate_of, name=name, model=model)
    typer.echo("\n".join(printable(str(path)) for path in write_run(out, made)))


def _import_logs(file: Path, out: Path, said: Mapping[str, Any], **given: Any) -> None:
    from focus_eval.commands.logs import import_logs
    from focus_eval.selections.log_import import LogOptions

    n_logs = import_logs(file, out, options=make("import lmms", LogOptions, said), **given)
    typer.echo(f"{out}: {n_logs} {'log' if n_logs == 1 else 'logs'}, a run for report, compare and evidence")


def read_questions(benchmark: str, annotations: Path | None) -> Sequence[Question] | None:
    """Return the questions of an annotation file, None where none was given."""
    from focus_eval.benchmarks.registry import read_annotations

    return read_annotations(benchmark, annotations) if annotations is not None else None


def export(
    format: Annotated[str, typer.Argument(help="Format: aks or focus.")],
    source: Annotated[Path, typer.Argument(help="Folder of a run, or a selection file of any known format.")],
    out: Annotated[Path, typer.Option(help="File to write, e.g. selected_frames.json.")],
    annotations: Annotated[
        Path | None, typer.Option(help="The benchmark's annotation file; gives the order of rows.")
    ] = None,
    benchmark: BenchmarkOption = "longvideobench",
    option: FormatOption = [],  # noqa: B006
) -> None:
    """Write selections in the format of AKS or FOCUS.

    Both list frames in the order of the annotation's rows.
    """
    from focus_eval.selections import load_selections, write_selections

    questions = read_questions(benchmark, annotations)
    if questions is None:
        raise InvalidInput("these formats list selections in the order of the annotations; give --annotations")
    selections = load_selections(source, questions=questions, options=parse_assignments(option))
    for path in write_selections(selections, out, format=format, questions=questions):
        typer.echo(str(path))


def recall(
    annotations: Annotated[Path, typer.Option(help="The benchmark's annotation file.")],
    selections: Annotated[list[Path], typer.Option(metavar="[NAME=]FILE", help="Selection file; repeatable.")],
    rates: Annotated[
        Path | None,
        typer.Option(help="CSV with the columns id, duration_s and fps, if the annotation does not state them."),
    ] = None,
    format: FormatsOption = [],  # noqa: B006
    benchmark: BenchmarkOption = "longvideobench",
    scenes: Annotated[
        Path | None,
        typer.Option(help="Scenes by question: KFS-Bench's CSV, or JSON id: [[start, stop], ..] in seconds."),
    ] = None,
    allow_outside: AllowOutside = False,
    allow_missing: Annotated[
        bool, typer.Option(help="Compare on the questions that every selection has, and count the others.")
    ] = False,
    out: AlsoOption = None,
) -> None:
    """Compute evidence recall of selection files.

    Uniform and random frames at the same K are shown for comparison. Needs no model and no video.
    """
    from focus_eval.benchmarks.registry import read_annotations, read_rates, stated_rates
    from focus_eval.report.recall import evidence_cases, recall_rows

    questions = read_annotations(benchmark, annotations)
    rate_of = read_rates(rates) if rates is not None else stated_rates(questions)
    missing = next((question.id for question in questions if question.id not in rate_of), None)
    if missing is not None:
        raise InvalidInput(f"{rates or annotations}: no rate for question {missing!r}; add it to the CSV of --rates")
    fps = {key: float(rate.fps) for key, rate in rate_of.items()}
    left_out: list[str] | None = [] if allow_outside else None
    loaded = _load(selections, format, questions, fps, allow_missing=allow_missing, left_out=left_out)
    asked = [question for question in questions if all(question.id in chosen for chosen in loaded.values())]
    cases = evidence_cases(benchmark, asked, fps)
    tables = [recall_rows(cases, loaded, fps)] if any(case.evidence_seconds.size for case in cases) else []
    known = {question.id for question in questions}
    tables += _scene_tables(scenes, asked, cases, loaded, fps, known=known, left_out=left_out)
    print_tables(tables, out)
    for line in [*_left_out(questions, asked), *(left_out or ())]:
        print_folded(line)


def _scene_tables(
    path: Path | None,
    questions: Sequence[Question],
    cases: Sequence[EvidenceCase],
    loaded: Mapping[str, Mapping[str, ImportedSelection]],
    fps: Mapping[str, float],
    *,
    known: set[str],
    left_out: list[str] | None,
) -> list[Table]:
    """Return the tables of annotated intervals, and of the scenes in a file."""
    from focus_eval.report.scenes import interval_table, read_scenes, scene_table

    intervals = {asked.id: list(asked.evidence_intervals) for asked in questions if asked.evidence_intervals}
    tables = [interval_table(cases, intervals, loaded, fps)] if intervals else []
    if path is None:
        return tables
    found = read_scenes(path)
    foreign = sorted(set(found) - known)
    if foreign and (left_out is None or len(foreign) == len(found)):
        raise InvalidInput(f"{path}: scenes of {foreign[0]!r}, which is not a question of this benchmark")
    if foreign and left_out is not None:
        left_out.append(
            f"{path}: scenes of {len(foreign)} ids that are no questions here left out, e.g. {foreign[0]!r}"
        )
    asked = {question.id for question in questions}
    scenes = {key: scenes for key, scenes in found.items() if key in asked}
    return [*tables, scene_table(cases, scenes, loaded, fps)]


def _left_out(questions: Sequence[Question], asked: Sequence[Question]) -> list[str]:
    """Return a sentence about questions without a selection, and one about evidence that cannot be read."""
    unread = [question.evidence_unread for question in questions if question.evidence_unread]
    lines = [f"{len(unread)} questions have evidence that cannot be read, the first: {unread[0]}"] if unread else []
    lacking = sorted({question.id for question in questions} - {question.id for question in asked})
    if lacking:
        lines.append(f"{len(lacking)} questions lack a selection and do not count, the first: {lacking[0]}")
    return lines


def for_each(given: Sequence[str], n_files: int, *, what: str, default: str) -> list[str]:
    """Return what is given of each selection file: one for all, or one for each; `default` where nothing is."""
    if given and len(given) not in (1, n_files):
        raise InvalidInput(f"{len(given)} {what} for {n_files} selection files; give one, or one for each")
    return list(given) if len(given) == n_files else [*(given or [default])] * n_files


def selection_files(texts: Sequence[str | Path], formats: Sequence[str]) -> list[tuple[str, Path, str]]:
    """Return name, file and format of each [NAME=]FILE; a file without a name is called after itself."""
    made = []
    for text, kind in zip(texts, for_each(formats, len(texts), what="formats", default="auto"), strict=True):
        name, equals, file = str(text).partition("=")
        path = Path(file if equals else text)
        own = path.name if path.is_dir() else Path(path.name.removesuffix(".gz")).stem
        made.append((name if equals else own, path, kind))
    return made


def _load(
    paths: Sequence[Path],
    formats: Sequence[str],
    questions: Sequence[Question],
    fps: Mapping[str, float],
    *,
    allow_missing: bool,
    left_out: list[str] | None,
) -> dict[str, dict[str, ImportedSelection]]:
    from focus_eval.selections import load_selections

    loaded: dict[str, dict[str, ImportedSelection]] = {}
    for name, file, kind in selection_files(paths, formats):
        if name in loaded:
            raise InvalidInput(f"two selections are called {name!r}; write NAME=FILE")
        loaded[name] = load_selections(
            file, format=kind, questions=questions, fps=fps, allow_missing=allow_missing, left_out=left_out
        )
    return loaded


def evidence(
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="[RUN]...", help="Folders of runs, instead of --selections.")
    ] = None,
    annotations: AnnotationsFile = None,
    rates: Annotated[Path | None, typer.Option(help="CSV with the columns id, duration_s and fps.")] = None,
    selections: Annotated[
        list[str], typer.Option(metavar="[NAME=]FILE", help="Selections published with answers; repeatable.")
    ] = [],  # noqa: B006
    format: FormatsOption = [],  # noqa: B006
    option: FormatOption = [],  # noqa: B006
    model: Annotated[
        list[str], typer.Option(help="Name of the model that gave the answers, or one for each file; repeatable.")
    ] = [],  # noqa: B006
    benchmark: BenchmarkOption = "longvideobench",
    within: Annotated[bool, typer.Option("--within", help="Also compare each question with itself.")] = False,
    measure: Annotated[
        list[str], typer.Option(help="Measure for --within: recall@2, nearness, ...; repeatable. [default: all]")
    ] = [],  # noqa: B006
    distance: Annotated[
        float, typer.Option(help=f"Seconds within which evidence is in view: {distances_text(last=' or ')}.")
    ] = IN_VIEW_SECONDS,
    min_seconds: MinSecondsOption = 180.0,
    estimate: Annotated[
        list[str], typer.Option(metavar="[NAME=]FILE", help="Estimate the accuracy of these selections; repeatable.")
    ] = [],  # noqa: B006
    allow_missing: AllowMissing = False,
    allow_outside: AllowOutside = False,
    out: AlsoOption = None,
) -> None:
    """Compare accuracy with and without the evidence in view.

    Prints tables by distance, video length and category, and by question; each model has its own lines.
    """
    from focus_eval.report.estimate import estimate_table
    from focus_eval.report.evidence import evidence_tables
    from focus_eval.report.run import load_runs
    from focus_eval.report.within import within_tables

    if (not runs) == (not selections):
        raise InvalidInput("give the folder of a run, or --selections with --annotations and --rates")
    if measure and not within:
        raise InvalidInput("--measure goes with --within")
    if runs and estimate:
        raise InvalidInput("--estimate goes with --selections, --annotations and --rates")
    left_out: list[str] | None = [] if allow_outside else None
    how = {"options": parse_assignments(option), "allow_missing": allow_missing, "left_out": left_out}
    given: dict[str, Any] = {"benchmark": benchmark, "model": model, "annotations": annotations, "rates": rates}
    answered, others = (load_runs(runs), None) if runs else _from_files(selections, format, how, estimate, **given)
    tables = evidence_tables(answered, distance=distance, min_seconds=min_seconds)
    if within:
        tables += within_tables(answered, min_seconds=min_seconds, measures=measure)
    if others is not None:
        tables.append(estimate_table(answered, others, min_seconds=min_seconds))
    print_tables(tables, out)
    for line in left_out or ():
        print_folded(line)


def _from_files(
    selections: Sequence[str],
    formats: Sequence[str],
    how: Mapping[str, Any],
    estimate: Sequence[str],
    *,
    benchmark: str,
    model: Sequence[str],
    annotations: Path | None,
    rates: Path | None,
) -> tuple[Run, Run | None]:
    """Return the rows of published files as a run, and those to estimate as another."""
    from focus_eval.benchmarks.registry import read_annotations, read_rates
    from focus_eval.report.run import Run
    from focus_eval.selections import load_selections
    from focus_eval.selections.published_rows import published_rows

    if annotations is None or rates is None:
        raise InvalidInput("--selections need --annotations and --rates")
    models = for_each(model, len(selections), what="models", default="model")
    files = selection_files(selections, formats)
    questions, rate_of = read_annotations(benchmark, annotations), read_rates(rates)
    fps = {key: float(rate.fps) for key, rate in rate_of.items()}
    made, plain = [], {**how, "options": {}}
    asked = [(*file, who, how) for file, who in zip(files, models, strict=True)]
    for name, file, kind, who, given in [*asked, *((*file, "-", plain) for file in selection_files(estimate, []))]:
        loaded = load_selections(file, format=kind, questions=questions, fps=fps, **given)
        made.append(published_rows(loaded, questions, rate_of, name=name, model=who))
    answered, others = made[: len(selections)], made[len(selections) :]
    without = next((item.name for item in answered if not item.answers), None)
    if without is not None:
        raise InvalidInput(f"{without}: the file has no answers; focus-eval recall measures frames alone")
    run = Run(
        "published answers",
        list({row.key: row for item in answered for row in item.selections}.values()),  # two models may share one
        [row for item in answered for row in item.answers],
    )
    return run, Run("to estimate", [row for other in others for row in other.selections], []) if others else None
