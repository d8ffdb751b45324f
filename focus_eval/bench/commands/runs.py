"""`focus-eval plan`, `run`, `status` and `pack`, and the options that name and narrow matrices."""

from __future__ import annotations

import json
import os
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from focus_eval.bench.commands.documents import plan_document, status_document
from focus_eval.bench.commands.printing import print_table
from focus_eval.core.errors import FocusEvalError, InvalidInput
from focus_eval.core.options import parse_assignments
from focus_eval.core.resources import resource_path
from focus_eval.keyframes.commands.console import (
    PERCENT,
    clock_text,
    count_progress,
    counted,
    print_folded,
    progress_bar,
    refuse_idle_options,
    say_how_to_continue,
    table_console,
)

if TYPE_CHECKING:
    from rich.progress import TaskID

    from focus_eval.bench.matrix.config import MatrixConfig
    from focus_eval.bench.matrix.hours import Machine
    from focus_eval.bench.matrix.plan import Plan, SelectionPlan
    from focus_eval.bench.matrix.preflight import Preflight
    from focus_eval.bench.matrix.questions import QuestionSet
    from focus_eval.bench.matrix.running import RunProgress
    from focus_eval.bench.report.power import Discordance
    from focus_eval.bench.report.rendering import Table


def plan(
    matrix: MatrixArgument,
    only: OnlyOption = [],  # noqa: B006
    set_: SetOption = [],  # noqa: B006
    limit: LimitOption = None,
    available_only: AvailableOption = False,
    out: FolderOption = None,
    machine: Annotated[
        str | None,
        typer.Option(help="Estimate hours on this machine: a YAML file, or a shipped name (eight_h100, h200)."),
    ] = None,
    discordance: Annotated[
        float | None,
        typer.Option(help="Share of questions that only one of two samplers has right. [default: as on public logs]"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a matrix runs, costs and lacks here.

    Also shows the smallest difference that its questions can detect. Exits with code 1 if something is missing.

    Arguments of models are not checked here but before a run: that takes lmms-eval, which loads for 20 seconds.
    """
    from focus_eval.bench.matrix.hours import load_machine
    from focus_eval.bench.matrix.plan import make_plan
    from focus_eval.bench.matrix.preflight import check_all

    node = load_machine(machine) if machine else None
    folders = assign_folders(load_all(matrix, only, set_, limit, available_only=available_only), out)
    preflight = check_all(folders, loads_wrappers=False)
    plans, documented = [], []
    for config, _ in folders:
        sets = _questions_or_lengths(config, preflight, quiet=as_json)
        if len(sets) < len(config.benchmarks):
            continue  # missing parts are listed below
        preflight = _with_stated_problems(preflight, config, sets)
        with count_progress("counting pulls", "selections") as progress:
            plans.append(make_plan(config, sets=sets, progress=progress))
        differences = _least_differences(plans[-1], discordance)
        documented.append((plans[-1], differences))
        if not as_json:
            _print_plan(plans[-1])
            _print_power(plans[-1], differences)
    if as_json:
        typer.echo(json.dumps(plan_document(documented, preflight, node), indent=1, ensure_ascii=False))
        raise typer.Exit(1 if preflight.missing else 0)
    if len(plans) > 1:
        from focus_eval.bench.matrix.plan import pooled

        for kind, (n_requested, n_distinct) in pooled(plans).items():
            print_folded(f"all {len(plans)} matrices: {n_requested:,} {kind}, {n_distinct:,} of them distinct")
    if node is not None and plans:
        for folder in (folder for _, folder in folders if (folder / "run.json").is_file()):
            node = print_rates(folder, node) or node
        _print_hours(plans, node)
        _print_answers(plans, node)
    if print_missing(preflight):
        raise typer.Exit(1)


def print_rates(folder: Path, machine: Machine | None = None) -> Machine | None:
    """Print a line for each rate of a run's rows beside the stated one; return `machine` with those of its device.

    A matrix of another version gives one line that says so, and replaces no rate.
    """
    from focus_eval.bench.matrix.hours import measured_rates

    try:
        rates = measured_rates(folder, machine)
    except InvalidInput as error:
        print_folded(f"rates not compared: {error}")
        return machine
    for line in rates.lines(machine):
        print_folded(line)
    return machine and rates.applied_to(machine, folder)


def _questions_or_lengths(matrix: MatrixConfig, preflight: Preflight, *, quiet: bool) -> dict[str, QuestionSet]:
    """Return questions by benchmark: the questions if they are on this machine, else the shipped lengths of videos.

    Prints a line for shipped lengths, unless `quiet`.
    """
    from focus_eval.bench.matrix.questions import stated_sets, stated_source

    keys = {benchmark.name: f"{matrix.name}/{benchmark.name}" for benchmark in matrix.benchmarks}
    present_sets = {name: preflight.sets[key] for name, key in keys.items() if key in preflight.sets}
    stated = {} if len(present_sets) == len(keys) else stated_sets(matrix)
    for name in () if quiet else stated.keys() - present_sets.keys():
        print_folded(f"{name}: not here, planned from shipped lengths ({stated_source(name)})")
    by_name = {**stated, **present_sets}
    return {name: by_name[name] for name in keys if name in by_name}


def _with_stated_problems(preflight: Preflight, matrix: MatrixConfig, sets: Mapping[str, QuestionSet]) -> Preflight:
    """`preflight`, with added problems of selections that may end without frames on videos of stated length."""
    from focus_eval.bench.matrix.preflight import infeasible_problems, split_notes

    stated = {f"{matrix.name}/{name}": questions for name, questions in sets.items()}
    unseen = {key: stated[key] for key in stated.keys() - preflight.sets.keys()}
    missing, notes = split_notes(infeasible_problems(matrix, unseen))
    return replace(preflight, missing=(*preflight.missing, *missing), notes=(*preflight.notes, *notes))


def _print_plan(plan: Plan) -> None:
    """Print a plan: questions, selections with cost, unknown lengths, warnings and shared work."""
    for name, (n_requested, n_questions) in plan.questions.items():
        part = "" if n_requested == n_questions else f" of {n_questions}"
        print_folded(f"{name}: {n_requested}{part} questions")
    print_table(_selection_table(plan))
    # Unknown lengths are the same for every selection of a benchmark, so print those of one selection.
    for name, selection in {item.spec.benchmark.name: item for item in plan.selections if item.unknown}.items():
        print_folded(
            f"{name}: {selection.unknown} questions have a video of unknown length and are not counted; the first: "
            f"{selection.reason}"
        )
    for line in _warning_lines(plan):
        print_folded(line)
    _print_sharing(plan)


def _least_differences(plan: Plan, share: float | None) -> dict[str, list[tuple[Discordance, float | None]]]:
    """Return the smallest difference of two samplers that a benchmark's questions can show, by assumed discordance.

    None means that no difference can be shown. Benchmarks with one video have no entry.

    Args:
        share: share of the questions that only one of the samplers has right; None takes that of the benchmark's public
        logs.
    """
    from focus_eval.bench.matrix.questions import public_facts
    from focus_eval.bench.report.power import Discordance, expected_discordances, least_difference

    measured = {name: Discordance(**facts) for name, facts in public_facts("discordance").items()}
    return {
        name: [
            (discordance, least_difference(counts, discordance))
            for discordance in expected_discordances(measured.get(name), share=share)
        ]
        for name, counts in plan.questions_per_video.items()
        if len(counts) > 1
    }


def _print_power(plan: Plan, differences_by_name: Mapping[str, Sequence[tuple[Discordance, float | None]]]) -> None:
    """Print the smallest differences between two samplers that the questions can show."""
    from focus_eval.bench.report.power import more_videos_text

    for name, counts in plan.questions_per_video.items():
        if name not in differences_by_name:
            print_folded(f"{name}: questions about one video allow no test between samplers")
            continue
        expected, differences = zip(*differences_by_name[name], strict=True)
        # Print equal ends of a range once.
        figures = list(dict.fromkeys("no" if item is None else f"{100 * item:.1f}" for item in differences))
        correlations = dict.fromkeys(f"{item.video_correlation:g}" for item in expected)
        assumption = (
            f"Answers of two samplers differ on {100 * expected[0].share:.0f} % of the questions, correlated by "
            f"{' to '.join(correlations)} within a video ({expected[0].source})"
        )
        questions_text = f"{name}: {sum(counts):,} questions on {len(counts):,} videos"
        if differences[0] is None:
            print_folded(f"{questions_text}: a difference cannot be shown with this many videos. {assumption}")
            continue
        size = f"{' to '.join(figures)} points" if differences[-1] is not None else f"{figures[0]} points or none"
        more_videos = f"; {more_videos_text(differences[-1], len(counts))}" if differences[-1] is not None else ""
        power_text = f"can show a difference of {size} in a single comparison with 80 % power"
        print_folded(f"{questions_text} {power_text}{more_videos}. {assumption}")


def _warning_lines(plan: Plan) -> list[str]:
    """One line per predicted problem of a sampler; equal lines of several encoders and seeds appear once."""
    lines = [
        f"warning: {selection.spec.sampler.name}, K {selection.spec.k}: {warning.questions} of "
        f"{selection.questions} questions (first: {warning.first}) {warning.text}"
        for selection in plan.selections
        for warning in selection.warnings
    ]
    return list(dict.fromkeys(lines))


def _selection_table(plan: Plan) -> Table:
    """The table of a plan's selections with pulls, frames to embed and forward equivalents."""
    from focus_eval.bench.report.rendering import Table, TableRow

    rows = []
    for selection in plan.selections:
        spec, encoder = selection.spec, selection.spec.encoder.name if selection.spec.encoder else ""
        keys = (spec.benchmark.name, encoder, str(spec.k), str(spec.seed), spec.label)
        share = f"{selection.share_scored:.2%}" if selection.frames else "-"
        forwards = [selection.forward_equivalents(shared=shared, unit=plan.forward_gmacs) for shared in (False, True)]
        counts = (selection.embedded_alone, selection.embedded_shared)
        figures = [f"{selection.pulls:,}", share, *(f"{count:,}" for count in counts)]
        figures += ["-" if isnan(count) else f"{count:,.0f}" for count in forwards]
        rows.append(TableRow(keys, tuple(figures)))
    columns = (
        "pulls",
        "frames scored",
        "encoded, each question alone",
        "encoded, shared by a video",
        "forward equivalents, alone",
        "forward equivalents, shared",
    )
    return Table(
        name="plan",
        title=f"Selections of {plan.matrix.name}",
        key_titles=("benchmark", "encoder", "K", "seed", "sampler"),
        columns=columns,
        rows=tuple(rows),
        notes=("At least the encoded and scanned frames are decoded, and those on the way to them.",),
    )


def _print_sharing(plan: Plan) -> None:
    """Print how much work selections share: cells, scans, usage of models, and frames of each encoder."""
    from focus_eval.bench.matrix.cells import all_encoders
    from focus_eval.keyframes.encoders.weights import local_gmacs

    models = counted(len(plan.matrix.models), "model")
    cells_text = f"for {counted(len(plan.cells), 'cell')} of {models}; each model is loaded once"
    print_folded(f"{counted(len(plan.selections), 'selection')} {cells_text if plan.cells else 'and no model'}")
    frames_by_encoder = plan.seen_by_encoder
    for (scan, main), cost in plan.scan_pairs.items():
        cost_text = "not known; give relative_cost" if cost is None else f"{cost:.3g} of a forward"
        print_folded(f"{scan} scans for {main}: a frame costs {cost_text}")
    for line in dict.fromkeys(_model_usage_line(selection) for selection in plan.selections if selection.model_usage):
        print_folded(line)
    for encoder in all_encoders(plan.matrix):
        (pulls, scans), shared = (
            frames_by_encoder.get(encoder.name, (0, 0)),
            plan.forwards_by_encoder.get(encoder.name, 0),
        )
        sharing = "all share one store" if plan.matrix.share_frames else "each question pays for its own"
        scanned = f"{scans:,} frames scanned, " if scans else ""
        print_folded(f"{encoder.name}: {pulls:,} pulls, {scanned}{shared:,} frames to embed: {sharing}")
        if not local_gmacs(encoder.encoder, encoder.options):
            print_folded(f"{encoder.name}: its cost is not known here: matching frames with text is not counted")


def _model_usage_line(selection: SelectionPlan) -> str:
    """A line with the calls and tokens of a sampler's model, and their price if known."""
    from focus_eval.keyframes.llms.registry import llm_of

    usage, spec = selection.model_usage, selection.spec
    sent, back = usage["tokens_sent"], usage["tokens_back"]
    model = llm_of(spec.sampler)
    dollars = None if model is None else model.price(sent, back)
    price = "prices not given" if dollars is None else f"about {dollars:.2f} dollars at most"
    return (
        f"{spec.label}, K {spec.k}: {usage['calls']:,} calls with {usage['images']:,} pictures, about "
        f"{sent:,} tokens, at most {back:,} back: {price}"
    )


def _print_hours(plans: list[Plan], machine: Machine) -> None:
    """Print the time of each matrix and of all together on `machine`, as configured and in faster precisions."""
    from focus_eval.bench.matrix.hours import faster_precisions, selection_costs, time_text, total_cost
    from focus_eval.bench.report.rendering import Table, TableRow

    if not any(selection.spec.encoder for plan in plans for selection in plan.selections):
        return
    groups = {plan.matrix.name: [plan] for plan in plans if any(selection_costs(plan, machine))}
    if not groups:
        encoder_names = ", ".join(machine.frames_per_second) or "none"
        print_folded(f"{machine.name}: no hours, for it has rates of other encoders or precisions ({encoder_names})")
        return
    if len(plans) > 1:
        groups["all, each selection once"] = plans
    rows = []
    for name, members in groups.items():
        for precision in (None, *sorted({faster for plan in members for faster in faster_precisions(plan, machine)})):
            costs = (item for plan in members for item in selection_costs(plan, machine, precision=precision))
            total = total_cost(costs)
            times = (total.encode_hours, total.decode_hours, total.hours, total.gpu_hours)
            values = (f"{total.frames:,}", *(time_text(hours) for hours in times))
            rows.append(TableRow((name, precision or "as configured"), values))
    table = Table(
        name="hours",
        title=f"time to choose frames on {machine.name}: {machine.cores} cores, {machine.gpus} GPUs",
        key_titles=("matrix", "precision"),
        columns=("frames", "encoding, one GPU", "decoding, one core", "at least", "GPUs held"),
        rows=tuple(rows),
        notes=(
            f"Rates {machine.rates_are}: {machine.source or 'of unknown source'}. At least: the slower of both stages, "
            "on all GPUs and cores, or that of whole workers where they were measured. Frames that selections share "
            "count for each. A precision is set where it is faster.",
        ),
    )
    print_table(table)


def _print_answers(plans: list[Plan], machine: Machine) -> None:
    """Print hours and dollars of answering by matrix and model, and the node's total beside the paper's hours."""
    from focus_eval.bench.matrix.hours import answer_lines, answering_hours, choosing_hours, time_text
    from focus_eval.bench.report.rendering import Table, TableRow

    rows = []
    for plan in plans:
        lines = answer_lines(plan, machine)
        for line in lines:
            hours = time_text(line.hours)
            dollars = "-" if line.dollars is None else f"{line.dollars:,.0f}"
            rows.append(
                TableRow((plan.matrix.name, line.model), (f"{line.answers:,}", f"{line.tokens:,}", hours, dollars))
            )
        selecting, answering = choosing_hours(plan, machine), answering_hours(plan, machine)
        timed = {line.model for line in lines if line.hours is not None}
        untimed = [model.name for model in plan.matrix.models if model.name not in timed] if timed else []
        in_all = None if selecting is None or answering is None else selecting + answering
        total, choosing, replying = (
            time_text(hours) if hours is None else f"at least {time_text(hours)}"
            for hours in (in_all, selecting, answering)
        )
        print_folded(
            f"{plan.matrix.name} on {machine.name}: time in all {total}, of choosing frames "
            f"{choosing}, of answering {replying}"
            + (f" without {', '.join(untimed)}" if untimed else "")
            + ". The paper's FOCUS chose frames for LongVideoBench in 5.5 GPU hours"
        )
    if rows:
        note = (
            f"Arithmetic: products over {machine.share_reached:.0%} (assumed) of the GPUs' stated rate, and "
            "weights read once an output token. Loading, decoding and waiting are not in it. Dollars: input "
            "tokens. Sources of sizes, prices and GPU figures stand in configs/public and configs/machines; no maker's "
            "own price list or data sheet could be opened."
        )
        title = f"Answering on {machine.name}"
        columns = ("answers", "tokens read", "at least", "dollars")
        keys = ("matrix", "model")
        table = Table(name="answering", title=title, key_titles=keys, columns=columns, rows=tuple(rows), notes=(note,))
        print_table(table)


def _matrix_names() -> list[str]:
    from focus_eval.bench.matrix.config import shipped_matrices

    return list(shipped_matrices())


MatrixArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="MATRIX",
        autocompletion=_matrix_names,
        help="Matrix files, or names of shipped ones (focus-eval list configs).",
    ),
]
OnlyOption = Annotated[
    list[str],
    typer.Option(
        "--only", metavar="LIST=NAMES", help="Run only these, e.g. sampler=focus,aks or question=ID; repeatable."
    ),
]
SetOption = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="Replace a key of the matrix, e.g. k=16; repeatable.")
]
LimitOption = Annotated[int | None, typer.Option(help="Ask only the first questions of each benchmark.")]
AvailableOption = Annotated[
    bool, typer.Option("--available-only", help="Ask only questions whose video is here; figures are then partial.")
]
FolderOption = Annotated[
    Path | None,
    typer.Option("--out", help="Folder of the run (of all runs, with several matrices). [default: results/runs/NAME]"),
]


DropOption = Annotated[
    list[str],
    typer.Option(metavar="PART", help="Drop a part's rows and make them again, e.g. 'answers/*qwen*'; repeatable."),
]
ChangedVideosOption = Annotated[
    str, typer.Option(help="If a video's file was exchanged since its rows were made: refuse, retry or keep them.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]


def run(
    context: typer.Context,
    matrix: MatrixArgument,
    only: OnlyOption = [],  # noqa: B006
    set_: SetOption = [],  # noqa: B006
    limit: LimitOption = None,
    available_only: AvailableOption = False,
    out: FolderOption = None,
    engine: Annotated[str, typer.Option(help="Where to run: local or ray.")] = "local",
    address: Annotated[str | None, typer.Option(help="Address of the Ray cluster, or auto.")] = None,
    store: Annotated[
        Path | None, typer.Option(help="File that keeps embeddings. [default: store.sqlite beside the run]")
    ] = None,
    retry_errors: Annotated[bool, typer.Option(help="Retry the questions that failed.")] = False,
    drop: DropOption = [],  # noqa: B006
    changed_videos: ChangedVideosOption = "refuse",
    preflight: Annotated[
        bool, typer.Option(help="Check for missing files before starting (exit code 1 if any).")
    ] = True,
) -> None:
    """Run matrices; continue runs that were stopped.

    Checks first that nothing is missing. Questions that already have a row are skipped, so the same command continues
    a stopped run.
    """
    from focus_eval.bench.matrix.exchanges import checked_policy
    from focus_eval.bench.matrix.machine import check_engine
    from focus_eval.bench.matrix.preflight import check_all

    policy = checked_policy(changed_videos)
    check_engine(engine, address)  # before lmms-eval loads
    if engine != "ray":
        refuse_idle_options(context, "without --engine ray: give both, or neither", "address")
    matrices = assign_folders(load_all(matrix, only, set_, limit, available_only=available_only), out)
    if preflight and print_missing(check_all(matrices, engine=engine, store=store)):
        print_folded(
            "to start all the same: --no-preflight; missing videos become errors in the rows, and the run ends where "
            "questions, a model or an encoder are missing"
        )
        raise typer.Exit(1)
    # Import late, since this loads lmms-eval if the matrix has models.
    from focus_eval.bench.matrix.engines import make_engine
    from focus_eval.bench.matrix.running import complete_run

    for loaded, folder in matrices:
        engine_instance = make_engine(
            engine, store=store or folder.parent / "store.sqlite", matrix=loaded, address=address
        )
        with run_progress() as progress:
            complete_run(
                loaded,
                out=folder,
                engine=engine_instance,
                retry_errors=retry_errors,
                drop=drop,
                changed_videos=policy,
                progress=progress,
            )
        _print_results(folder)


def _print_results(folder: Path) -> None:
    """Print the first table of a run, and the command that prints all tables."""
    from focus_eval.bench.report.layouts import results_table
    from focus_eval.bench.report.run import load_run

    try:
        print_table(results_table(load_run(folder), "overview"))
    except FocusEvalError as error:  # the run succeeded: print that only the report failed
        print_folded(f"no table of these rows: {error}")
    print_folded(f"rows in {folder}; all tables, plots and the page: focus-eval report {folder}")


def status(
    folder: Annotated[Path, typer.Argument(help="Folder of a run.")],
    as_json: JsonOption = False,
) -> None:
    """Show a run's progress (safe while it is running).

    Counts rows and checks no digests; `report` and a run's next start do.
    """
    from rich.table import Table

    from focus_eval.bench.matrix.plan import run_status

    parts = run_status(folder)
    if as_json:
        typer.echo(json.dumps(status_document(folder, parts), indent=1, ensure_ascii=False))
        return
    titles, lines = ("part", "rows", "of", "errors", "left"), []
    for part in parts:
        seconds = part.seconds_left
        time_left = "done" if part.is_done else "-" if seconds is None else clock_text(seconds)
        n_questions = "-" if part.questions is None else str(part.questions)
        lines.append((f"{part.kind}/{part.name}", str(part.rows), n_questions, str(part.errors), time_left))
    console, table = table_console(), Table(title=str(folder), title_justify="left")
    for name in titles:
        table.add_column(name, justify="left" if name == "part" else "right", overflow="fold")
    widths = [max(map(len, texts)) for texts in zip(titles, *lines, strict=True)]
    name_width = max(20, console.width - sum(widths[1:]) - 3 * len(widths) - 1)
    for name, *texts in lines:
        table.add_row("\n".join(textwrap.wrap(name, name_width)), *texts)  # a long name folds at its hyphens
    console.print(table)
    for kind in dict.fromkeys(part.kind for part in parts):
        of_kind = [part for part in parts if part.kind == kind]
        rows, errors = (sum(getattr(part, name) for part in of_kind) for name in ("rows", "errors"))
        known = [part.questions for part in of_kind if part.questions is not None]
        of_questions = f" of {sum(known):,}" if len(known) == len(of_kind) else ""
        typer.echo(f"{kind}: {rows:,}{of_questions} rows, {errors:,} errors")


@contextmanager
def run_progress() -> Iterator[RunProgress]:
    """Show a bar per phase, with the time left and the errors so far."""
    from focus_eval.bench.matrix.running import RunProgress

    os.environ.setdefault("TQDM_DISABLE", "1")  # lmms-eval and its tasks draw bars of their own
    with say_how_to_continue("finished questions"), progress_bar(PERCENT) as bar:
        tasks: dict[str, TaskID] = {}
        n_rows_of, n_done, errors = dict[str, int](), Counter[str](), Counter[str]()

        class Bars(RunProgress):
            def start(self, phase: str, n_rows: int, work: float) -> None:
                """Add the bar of a phase."""
                n_rows_of[phase], n_done[phase], errors[phase] = n_rows, 0, 0
                tasks[phase] = bar.add_task(self.label(phase), total=work)

            def advance(self, phase: str, n_rows: int, n_errors: int, work: float) -> None:
                """Move the bar of a phase, with the rows and errors so far."""
                n_done[phase] += n_rows
                errors[phase] += n_errors
                bar.update(tasks[phase], advance=work, description=self.label(phase))

            def label(self, phase: str) -> str:
                """Return e.g. "select, 120 of 500 rows (2 errors)"."""
                failed = f" ({errors[phase]} errors)" if errors[phase] else ""
                return f"{phase}, {n_done[phase]:,} of {n_rows_of[phase]:,} rows{failed}"

        yield Bars()


def load_all(
    paths: list[Path], only: list[str], set_: list[str], limit: int | None, *, available_only: bool = False
) -> list[MatrixConfig]:
    """Return the matrices of a command, narrowed and changed by its options.

    Raises:
        InvalidInput: two matrices have the same name, so their runs would share a folder.
    """
    loaded = [_load(path, only, set_, limit, available_only) for path in paths]
    repeated_names = {config.name for config in loaded if sum(config.name == config_2.name for config_2 in loaded) > 1}
    if repeated_names:
        raise InvalidInput(f"two matrices are called {min(repeated_names)!r}: their runs would have one folder")
    return loaded


def assign_folders(matrices: list[MatrixConfig], out: Path | None) -> list[tuple[MatrixConfig, Path]]:
    """Return each matrix with its run's folder; with several, `out` is the folder of all runs."""
    if out is not None and len(matrices) == 1:
        return [(matrices[0], out)]
    return [(matrix, (out or Path("results/runs")) / matrix.name) for matrix in matrices]


def _load(path: Path, only: list[str], set_: list[str], limit: int | None, available_only: bool) -> MatrixConfig:
    """The matrix at `path`, changed by --set and --limit and narrowed by --only, after checking its lists."""
    from focus_eval.bench.matrix.cells import check_lists, narrow
    from focus_eval.bench.matrix.config import load_matrix, read_yaml_value

    overrides = {key: read_yaml_value(value) for key, value in parse_assignments(set_).items()}
    if "k" in overrides and not isinstance(overrides["k"], list):
        overrides["k"] = [overrides["k"]]
    overrides |= {"limit": limit} if limit is not None else {}
    overrides |= {"available_only": True} if available_only else {}
    names_by_list = {key: value.split(",") for key, value in parse_assignments(only).items()}
    matrix = narrow(load_matrix(path, overrides=overrides), names_by_list)
    try:
        check_lists(matrix)
        # Every published table has a layout (a test checks that), so do not import the layouts for it: that takes
        # seconds.
        if matrix.anchors and not (resource_path("paper") / f"{matrix.anchors}.csv").is_file():
            from focus_eval.bench.report.layouts import layout_named

            layout_named(matrix.anchors)
    except InvalidInput as error:
        changed = " (changed by --set)" if overrides.keys() & {"samplers", "encoders", "queries", "name"} else ""
        raise InvalidInput(f"{path}{changed}: {error}") from error
    return matrix


def print_missing(preflight: Preflight) -> bool:
    """Print everything missing with its fix, in lines to copy; return True if anything is missing."""
    for note in preflight.notes:
        print_folded(f"note: {note}")
    if not preflight.missing:
        typer.echo("nothing is missing")
        return False
    typer.echo(f"missing: {len(preflight.missing)}")
    for lack in preflight.missing:
        print_folded(f"- {lack.problem}")
        print_folded(f"    {lack.fix}", 6)
    return True


def pack(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run; with --undo a packed run.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Zip file to write; with --undo a new folder. [default: the run's name, here]"),
    ] = None,
    pictures: Annotated[bool, typer.Option(help="Pack figures and linked thumbnails too.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Unpack, and check against the checksums.")] = False,
) -> None:
    """Pack a run into one file, or unpack it with --undo.

    A run's folder holds links into a pool that several runs share; a plain copy of it has no rows. The packed file
    holds rows, costs, descriptions, prompts, the report and checksums. report, compare and audit read it directly.

    --undo refuses files whose paths leave the folder, links, and files that grow out of proportion.
    """
    from focus_eval.bench.rows.packed import pack_run, unpack_run

    if undo:
        refuse_idle_options(context, "beside --undo, which unpacks all: leave it out", "pictures")
        typer.echo(str(unpack_run(path, out)))
        return
    out = out or Path(f"{path.resolve().name}.zip")
    names = pack_run(path, out, pictures=pictures)
    typer.echo(f"{out}: {len(names)} files, {out.stat().st_size / 1e6:.1f} MB")
