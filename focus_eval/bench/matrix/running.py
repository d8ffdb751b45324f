"""Runs a matrix in two phases, selecting and answering, only for questions without a row."""

from __future__ import annotations

import fnmatch
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from focus_eval.bench.matrix.cells import AnswerSpec, SelectionSpec, cells, selection_specs
from focus_eval.bench.matrix.config import MatrixConfig
from focus_eval.bench.matrix.engines import AnswerPhase, Engine, JobT, LocalEngine, Phase, SelectPhase
from focus_eval.bench.matrix.exchanges import ChangedVideos, note_videos
from focus_eval.bench.matrix.folder import RunFolder, kind_of
from focus_eval.bench.matrix.plan import load_sets
from focus_eval.bench.matrix.questions import QuestionSet
from focus_eval.core.errors import RunError, unknown_name
from focus_eval.keyframes.video.crashes import crash_record

log = logging.getLogger(__name__)


class RunProgress:
    """Progress callbacks that do nothing; subclasses show them.

    Rows come in bursts, video by video, so estimate the time left from `work`, whose units have about equal cost (see
    `Phase.work`).
    """

    def start(self, phase: str, n_rows: int, work: float) -> None:
        """Called once per phase ("select", "answer") with the rows it still has to write and the work that takes."""

    def advance(self, phase: str, n_rows: int, n_errors: int, work: float) -> None:
        """Called as work is done, with the numbers of new rows and of errors among them, and the work done since."""


def complete_run(
    matrix: MatrixConfig,
    *,
    selected_with: Sequence[MatrixConfig] = (),
    out: str | Path | None = None,
    engine: Engine | None = None,
    store: str | Path | None = None,
    retry_errors: bool = False,
    drop: Sequence[str] = (),
    changed_videos: ChangedVideos = "refuse",
    progress: RunProgress | None = None,
) -> RunFolder:
    """Run the part of `matrix` that has no rows yet, and return the folder of the rows.

    Args:
        selected_with: matrices on the same benchmarks whose selections are made in the same pass over each video.
        out: the run's folder; `results/runs/<name>` by default.
        engine: place of the work; this process by default.
        store: file of embeddings and relevance; `store.sqlite` beside the run's folder by default, shared by runs.
        retry_errors: first delete rows that record an error.
        drop: parts whose files of rows are renamed first, "answers/NAME" or "selections/NAME"; NAME may hold `*`.
        changed_videos: see `ChangedVideos`.

    Raises:
        InvalidInput: a part to drop that the matrix does not have.
        RunError: another run holds the folder, a video was exchanged, a model or an encoder cannot be loaded; at the
            end, with all rows written: more questions failed than `max_error_share` allows, or no answer was readable.
    """
    run = RunFolder(path := Path(out) if out is not None else Path("results/runs") / matrix.name)
    engine = engine or LocalEngine(
        store=Path(store) if store else path.parent / "store.sqlite", resources=matrix.select_resources
    )
    progress = progress or RunProgress()
    sets = load_sets(matrix)
    specs = list({spec.name: spec for item in (matrix, *selected_with) for spec in selection_specs(item)}.values())
    all_cells = cells(matrix)
    dropped = _matching_parts([*specs, *all_cells], drop)
    # Everything above only reads: matrix and questions are checked before anything is written.
    with run.locked():
        run.set_damaged_files_aside([*specs, *all_cells])
        run.describe(matrix, engine=engine.name, device=engine.device, **_asked_questions(sets))
        # Link parts before the work starts, so that parts finished by other runs show too.
        run.show([*specs, *all_cells])
        run.drop(dropped)
        if retry_errors:
            run.drop_errors([*specs, *all_cells])
        note_videos(run, [*specs, *all_cells], sets, changed_videos)
        try:
            with crash_record(run.path, forget=retry_errors):
                # Make all selections first, so that encoder and model never need the device at the same time.
                _run_phase(SelectPhase(specs, sets, run), engine, progress)
                _run_phase(AnswerPhase(all_cells, sets, run), engine, progress)
        finally:
            run.note_end()
    # Count errors at the end, so that a run that fails has all its rows and can be inspected.
    for item in (matrix, *selected_with):
        _check_errors(run, item, sets)
    if not matrix.allow_unparsed:
        _check_answers(run, all_cells, sets)
    return run


def _ids_by_benchmark(sets: dict[str, QuestionSet]) -> dict[str, set[str]]:
    return {name: {question.id for question in questions.questions} for name, questions in sets.items()}


def _asked_questions(sets: dict[str, QuestionSet]) -> dict[str, Any]:
    """The arguments of `RunFolder.describe` on questions: numbers, and ids of partial benchmarks."""
    partial_sets = [item for item in sets.values() if len(item.questions) < len(item.all_ids)]
    return {
        "question_ids": {item.config.benchmark: [question.id for question in item.questions] for item in partial_sets},
        "n_questions": {name: len(item.questions) for name, item in sets.items()},
        "n_all_questions": {item.config.benchmark: len(item.all_ids) for item in partial_sets},
    }


def _run_phase(phase: Phase[JobT], engine: Engine, progress: RunProgress) -> None:
    """Run the jobs of a phase that are left, then turn the rows of its parts into Parquet."""
    jobs = phase.jobs()
    if jobs:
        n_rows = sum(job.n_rows for job in jobs)
        log.info("%s: %d rows to make, into %s", phase.name, n_rows, phase.run.path)
        progress.start(phase.name, n_rows, sum(phase.work(job) for job in jobs))
        engine.run(phase, jobs, partial(progress.advance, phase.name))
    # Compact even if nothing was left to do, since an earlier start may have been killed before compacting.
    for part in phase.parts:
        phase.run.compact(part, phase.sets[part.benchmark.name].all_ids)


def _matching_parts(
    parts: Sequence[SelectionSpec | AnswerSpec], patterns: Sequence[str]
) -> list[SelectionSpec | AnswerSpec]:
    """The parts whose "kind/name" matches a pattern with wildcards; raises UnknownName for one without match."""
    part_by_name = {f"{kind_of(part)}/{part.name}": part for part in parts}
    for pattern in patterns:
        if not fnmatch.filter(part_by_name, pattern):
            raise unknown_name("part", pattern, part_by_name)
    return [
        part for name, part in part_by_name.items() if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    ]


def _check_answers(run: RunFolder, all_cells: Sequence[AnswerSpec], sets: dict[str, QuestionSet]) -> None:
    """Raise RunError for a cell that has answers but none that could be parsed."""
    ids_by_benchmark = _ids_by_benchmark(sets)
    for cell in all_cells:
        unread: list[str | None] = []
        with run.part_lock(cell):
            for row in run.answers(cell):
                if row.error is None and row.question_id in ids_by_benchmark[cell.benchmark.name]:
                    if row.is_readable:
                        unread.clear()
                        break
                    unread.append(row.answer)
        if unread:
            raise RunError(
                f"answers/{cell.name}: none of {len(unread)} answers could be read, the first is {unread[0]!r:.80}: "
                "is it the model, its weights or the prompt? Fix it and run again with "
                f"--drop 'answers/{cell.name}', or go on with --set allow_unparsed=true"
            )


def _check_errors(run: RunFolder, matrix: MatrixConfig, sets: dict[str, QuestionSet]) -> None:
    """Raise RunError if errors exceed `max_error_share` of the answers (without models, selections), or all fail."""
    ids_by_benchmark = _ids_by_benchmark(sets)
    n_rows, errors = 0, list[str]()
    for part in cells(matrix) if matrix.models else selection_specs(matrix):
        with run.part_lock(part):
            error_by_question = {
                key: error for key, error in run.errors(part).items() if key in ids_by_benchmark[part.benchmark.name]
            }
        n_rows += len(error_by_question)
        errors += [error for error in error_by_question.values() if error is not None]
    # Take the share over all cells, since in a cell of few questions a single error would exceed it. Even with a share
    # of 1 not all rows may fail: a service that refuses every question has answered nothing.
    if errors and len(errors) > min(matrix.max_error_share * n_rows, n_rows - 1):
        raise RunError(
            f"{len(errors)} of {n_rows} rows record an error, max_error_share = {matrix.max_error_share:.0%}; "
            f"the first: {errors[0]} (fix it, then run again with --retry-errors)"
        )
