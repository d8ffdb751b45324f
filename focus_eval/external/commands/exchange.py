"""`focus-eval recall`, `evidence` and `predict`: measures of others' selections and logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from focus_eval.bench.benchmarks.question import IN_VIEW_SECONDS, distances_text
from focus_eval.bench.commands.printing import print_tables
from focus_eval.core.errors import InvalidInput
from focus_eval.core.offers import offered
from focus_eval.core.options import parse_assignments
from focus_eval.keyframes.commands.console import (
    AllowMissing,
    AllowOutside,
    AlsoOption,
    BenchmarkOption,
    FormatsOption,
    MinSecondsOption,
    print_folded,
    refuse_idle_options,
)

if TYPE_CHECKING:
    from focus_eval.bench.benchmarks.registry import VideoRate
    from focus_eval.bench.report.recall import EvidenceCase, Scenes
    from focus_eval.bench.report.rendering import Table
    from focus_eval.bench.report.run import Run
    from focus_eval.core.types import Question
    from focus_eval.keyframes.rows.records import SelectionRow

# Frame rate assumed for the even and random baselines if the file's rate is unknown. All other figures use seconds.
NOMINAL_FPS = 30.0
# Limit of printed sentences: a file made from another version of the videos may have thousands of frames past the end.
MAX_LEFT_OUT_LINES = 5


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
    from focus_eval.bench.benchmarks.registry import frame_rates, read_annotations, read_rates, stated_rates
    from focus_eval.bench.report.recall import evidence_cases
    from focus_eval.external.selection_layouts import moment_table

    questions = read_annotations(benchmark, annotations)
    rate_of = read_rates(rates) if rates is not None else stated_rates(questions)
    fps = frame_rates(rate_of)
    rows_by_name, left_out = _load(
        selections, format, questions, rate_of, allow_missing=allow_missing, allow_outside=allow_outside
    )
    shared_ids = set.intersection(*({row.question_id for row in rows} for rows in rows_by_name.values()))
    compared = [question for question in questions if question.id in shared_ids]
    rows_by_name = {name: [row for row in rows if row.question_id in shared_ids] for name, rows in rows_by_name.items()}
    without_rate = [question.id for question in compared if question.id not in rate_of]
    fps |= dict.fromkeys(without_rate, NOMINAL_FPS)
    cases = evidence_cases(benchmark, compared, fps, has_evidence=scenes is not None)
    tables = [moment_table(cases, rows_by_name)] if any(case.evidence_seconds.size for case in cases) else []
    known_ids = {question.id for question in questions}
    scenes_by_id = None
    if scenes is not None:
        scenes_by_id, scene_notes = known_scenes(scenes, known_ids, allow_outside=allow_outside)
        left_out += scene_notes
    tables += _scene_tables(scenes_by_id, compared, cases, rows_by_name)
    print_tables(tables, out)
    for line in [*_rate_notes(without_rate, cases), *_left_out_notes(questions, compared)]:
        print_folded(line)
    print_left_out(left_out)


def _rate_notes(without_rate: Sequence[str], cases: Sequence[EvidenceCase]) -> list[str]:
    """Notes on even and random frames for videos of unknown rate or length."""
    if any(case.duration_seconds is None for case in cases):
        return [
            "Lengths of videos are not known: without --rates there are no uniform and random frames to compare with."
        ]
    count = f"{len(without_rate)} questions have no rate"
    return [f"{count}: their uniform and random frames are taken at {NOMINAL_FPS:g} a second."] if without_rate else []


def known_scenes(path: Path, known_ids: set[str], *, allow_outside: bool) -> tuple[dict[str, Scenes], list[str]]:
    """Return the scenes of known questions by id, and a note on scenes of unknown ids.

    Args:
        allow_outside: False refuses a file with scenes of unknown ids (InvalidInput). A file without any known question
            is always refused.
    """
    from focus_eval.bench.report.recall import read_scenes

    scenes_by_id = read_scenes(path)
    foreign = sorted(set(scenes_by_id) - known_ids)
    if foreign and (not allow_outside or len(foreign) == len(scenes_by_id)):
        raise InvalidInput(f"{path}: scenes of {foreign[0]!r}, which is not a question of this benchmark")
    note = (
        f"{path}: scenes of {len(foreign)} ids that are no questions here left out, e.g. {foreign[0]!r}"
        if foreign
        else ""
    )
    return {key: scenes for key, scenes in scenes_by_id.items() if key in known_ids}, [note] if note else []


def _scene_tables(
    scenes_by_id: Mapping[str, Scenes] | None,
    questions: Sequence[Question],
    cases: Sequence[EvidenceCase],
    rows_by_name: Mapping[str, Sequence[SelectionRow]],
) -> list[Table]:
    """A table of hits of the annotated intervals if there are any, and a table of scenes if scenes are given."""
    from focus_eval.external.selection_layouts import interval_table, scene_table

    intervals = {
        question.id: list(question.evidence_intervals) for question in questions if question.evidence_intervals
    }
    tables = [interval_table(cases, intervals, rows_by_name)] if intervals else []
    if scenes_by_id is None:
        return tables
    present = {question.id for question in questions}
    scenes = {key: own_scenes for key, own_scenes in scenes_by_id.items() if key in present}
    return [*tables, scene_table(cases, scenes, rows_by_name)]


def _left_out_notes(questions: Sequence[Question], compared: Sequence[Question]) -> list[str]:
    """A sentence about questions without a selection, and one about evidence that cannot be read."""
    unread = [question.evidence_unread for question in questions if question.evidence_unread]
    lines = [f"{len(unread)} questions have evidence that cannot be read, the first: {unread[0]}"] if unread else []
    lacking = sorted({question.id for question in questions} - {question.id for question in compared})
    if lacking:
        lines.append(f"{len(lacking)} questions lack a selection and do not count, the first: {lacking[0]}")
    return lines


def print_left_out(sentences: Sequence[str]) -> None:
    """Print the first few sentences about items left out of the files, and the number of further sentences."""
    first_sentences = sentences if len(sentences) <= MAX_LEFT_OUT_LINES + 1 else sentences[:MAX_LEFT_OUT_LINES]
    for sentence in first_sentences:
        print_folded(sentence)
    if n_more := len(sentences) - len(first_sentences):
        print_folded(f"and {n_more:,} more such lines, {len(sentences):,} in all")


def selection_files(texts: Sequence[str | Path], formats: Sequence[str]) -> list[tuple[str, Path, str]]:
    """Return name, file and format of each [NAME=]FILE; a file without a name gets its own."""
    if formats and len(formats) not in (1, len(texts)):
        raise InvalidInput(f"{len(formats)} formats for {len(texts)} selection files; give one, or one for each")
    kinds = formats if len(formats) == len(texts) else [*(formats or ["auto"])] * len(texts)
    named_files = []
    for text, kind in zip(texts, kinds, strict=True):
        name, equals, file = str(text).partition("=")
        if equals and not file:
            raise InvalidInput(f"{text}: no file after the name; write NAME=FILE")
        path = Path(file if equals else text)
        own_name = path.name if path.is_dir() else Path(path.name.removesuffix(".gz")).stem
        named_files.append((name if equals else own_name, path, kind))
    return named_files


def _load(
    paths: Sequence[str | Path],
    formats: Sequence[str],
    questions: Sequence[Question],
    rate_of: Mapping[str, VideoRate],
    *,
    allow_missing: bool,
    allow_outside: bool,
) -> tuple[dict[str, list[SelectionRow]], list[str]]:
    """Return the rows of each file by the name of its selection, and a sentence for each item that was left out.

    Raises InvalidInput if two selections have the same name.
    """
    from focus_eval.bench.benchmarks.registry import frame_rates
    from focus_eval.external.imports.loading import load_selections, selection_rows

    fps = frame_rates(rate_of)
    rows_by_name: dict[str, list[SelectionRow]] = {}
    left_out: list[str] = []
    for name, file, kind in selection_files(paths, formats):
        if name in rows_by_name:
            raise InvalidInput(f"two selections are called {name!r}; write NAME=FILE")
        loaded = load_selections(
            file, format=kind, questions=questions, fps=fps, allow_missing=allow_missing, allow_outside=allow_outside
        )
        left_out += loaded.left_out
        rows_by_name[name] = selection_rows(loaded, questions, rate_of, name=name)
    return rows_by_name, left_out


def evidence(
    context: typer.Context,
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Folders of runs; focus-eval import makes one of files.")
    ],
    is_within: Annotated[bool, typer.Option("--within", help="Also compare answers to the same question.")] = False,
    measure: Annotated[
        list[str], typer.Option(help="Measure for --within: recall@2, nearness, ...; repeatable. [default: all]")
    ] = [],  # noqa: B006
    policy: Annotated[
        str,
        typer.Option(help='Rule that picks a run for each question, "duration<65:uniform,else:aks", or a file of it.'),
    ] = "",
    distance: Annotated[
        float,
        typer.Option(
            help=f"Seconds within which evidence is in view: {distances_text(last=' or ')}; 0 is inside an interval."
        ),
    ] = IN_VIEW_SECONDS,
    min_seconds: MinSecondsOption = 180.0,
    out: AlsoOption = None,
) -> None:
    """Compare accuracy with and without the evidence in view.

    Prints accuracy by distance, video length and category, and compares selections question by question. With --policy
    prints instead the accuracy of a rule that picks one of the runs for each question.
    """
    from focus_eval.bench.report.run import load_runs

    if (measure and not is_within) or (policy and is_within):
        raise InvalidInput("--measure goes with --within, and neither with --policy")
    if policy:
        reason = "beside --policy, which counts all answers: leave one of them out"
        refuse_idle_options(context, reason, "distance", "min_seconds")
    print_tables(_answer_tables(load_runs(runs), policy, is_within, measure, distance, min_seconds), out)


def _answer_tables(
    run: Run, policy: str, is_within: bool, measures: Sequence[str], distance: float, min_seconds: float
) -> list[Table]:
    """The tables of `evidence`; `policy` is a rule, a file with a rule, or ""."""
    from focus_eval.bench.report.measures import unnamed_video_notes
    from focus_eval.external.evidence import evidence_tables
    from focus_eval.external.within import within_tables

    if policy:
        policy_table = _of_research("policy_table")
        tables = [policy_table(run, Path(policy).read_text() if Path(policy).is_file() else policy)]
    else:
        tables = evidence_tables(run, distance=distance, min_seconds=min_seconds)
        tables += within_tables(run, min_seconds=min_seconds, measures=measures) if is_within else []
    first, *others = tables
    return [replace(first, notes=(*first.notes, *unnamed_video_notes(run.answer_frame))), *others]


def _of_research(name: str) -> Any:
    """The entry point `name` of the research package, which only a clone of the repository installs."""
    return offered(name, offered_by="focus_eval_research", install="in a clone: pip install -e research")


def predict(
    selections: Annotated[list[str], typer.Argument(metavar="[NAME=]FILE", help="Selection files, or a run.")],
    logs: Annotated[list[Path], typer.Option(metavar="RUN", help="Run with the model's answers; repeatable.")],
    annotations: Annotated[Path, typer.Option(help="The benchmark's annotation file.")],
    rates: Annotated[Path, typer.Option(help="CSV with the columns id, duration_s and fps.")],
    format: FormatsOption = [],  # noqa: B006
    family: Annotated[
        list[str],
        typer.Option(metavar="NAME=PATTERN", help="Runs of one method; repeatable. Without it there is no interval."),
    ] = [],  # noqa: B006
    benchmark: BenchmarkOption = "longvideobench",
    allow_missing: AllowMissing = False,
    allow_outside: AllowOutside = False,
    min_seconds: MinSecondsOption = 0.0,
    out: AlsoOption = None,
) -> None:
    """Predict a model's accuracy from a selection.

    Uses the model's answers from other selections (focus-eval import lmms). Exits with code 1 if a selection lies
    outside their range.
    """
    from focus_eval.bench.benchmarks.registry import read_annotations, read_rates
    from focus_eval.bench.report.run import Run, load_runs

    predict_tables = _of_research("predict_tables")
    questions, rate_of = read_annotations(benchmark, annotations), read_rates(rates)
    loaded, left_out = _load(
        selections, format, questions, rate_of, allow_missing=allow_missing, allow_outside=allow_outside
    )
    selection_run = Run("selections", [row for rows in loaded.values() for row in rows], [])
    tables = predict_tables(
        load_runs(logs), selection_run, families=dict(parse_assignments(family)), min_seconds=min_seconds
    )
    print_tables(tables, out)
    print_left_out(left_out)
    if any(row.figures[-1] for row in tables[0].rows):
        raise typer.Exit(1)
