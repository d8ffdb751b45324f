"""Runs a matrix: first selections, then answers, no question twice."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from focus_eval.errors import RunError
from focus_eval.matrix.answering import AnswerJob, answer_jobs
from focus_eval.matrix.cells import Cell, SelectionSpec, cells, selection_specs
from focus_eval.matrix.config import MatrixConfig
from focus_eval.matrix.energy import measured_energy
from focus_eval.matrix.engine import Engine
from focus_eval.matrix.folder import RunFolder
from focus_eval.matrix.local_engine import LocalEngine
from focus_eval.matrix.planning import load_sets
from focus_eval.matrix.questions import QuestionSet
from focus_eval.matrix.selecting import SelectJob, select_jobs
from focus_eval.rows.records import SelectionRow
from focus_eval.rows.storage import load_rows

if TYPE_CHECKING:
    import pandas as pd


class RunProgress(Protocol):
    """Is told how a run goes on."""

    def start(self, phase: str, n_rows: int) -> None:
        """Called once per phase ("select", "answer") with the rows it still has to write."""
        ...

    def advance(self, phase: str, n_rows: int, n_errors: int) -> None:
        """Called as rows are written."""
        ...


class NoProgress:
    """Shows nothing."""

    def start(self, phase: str, n_rows: int) -> None:
        """Ignore it."""

    def advance(self, phase: str, n_rows: int, n_errors: int) -> None:
        """Ignore it."""


def run_matrix(
    matrix: MatrixConfig,
    *,
    out: str | Path | None = None,
    engine: Engine | None = None,
    store: str | Path | None = None,
    retry_errors: bool = False,
    progress: RunProgress | None = None,
) -> pd.DataFrame:
    """Run what of `matrix` has no rows yet, and return all its rows: answers, or selections where no model answers.

    Args:
        out: the run's folder; `results/runs/<name>` by default.
        engine: where the work is done; this process by default.
        store: file of embeddings and relevance; `store.sqlite` beside the run's folder by default, shared by runs.
        retry_errors: forget rows that record an error first.

    Raises:
        RunError: another run holds the folder, a model or an encoder cannot be loaded, or more questions failed
            than `max_error_share` allows (at the end, with all rows written).
    """
    path = Path(out) if out is not None else Path("results/runs") / matrix.name
    run = RunFolder(path)
    where = engine or LocalEngine(store=Path(store) if store else path.parent / "store.sqlite")
    progress = progress or NoProgress()
    sets = load_sets(matrix)
    specs, all_cells = selection_specs(matrix), cells(matrix)
    with run.locked():
        run.describe(matrix, engine=where.name, device=where.device, asked=_asked_of(sets))
        run.show([*specs, *all_cells])
        if retry_errors:
            run.drop_errors([*specs, *all_cells])
        joules: dict[str, float] = {}
        try:
            with measured_energy(joules, "select"):
                _select(run, specs, sets, where, progress)
            with measured_energy(joules, "answer"):
                _answer(run, all_cells, sets, where, progress)
        finally:
            run.note_end(joules if where.name == "local" else {})  # a cluster's GPUs are not this machine's
    frame = rows_frame(run, matrix, sets=sets)
    _check_errors(frame, matrix)
    return frame


def rows_frame(run: RunFolder, matrix: MatrixConfig, *, sets: dict[str, QuestionSet] | None = None) -> pd.DataFrame:
    """Return the rows of a run so far: one per cell and question, or per selection and question without models.

    What was pulled is counted, not listed (`pulls`); `RunFolder.selections` has the lists. Questions that `matrix`
    does not ask are left out: another run may have asked more.
    """
    sets = sets or load_sets(matrix)
    asked = {name: {question.id for question in questions.questions} for name, questions in sets.items()}
    chosen = {spec.name: _selection_columns(run, spec, asked[spec.benchmark.name]) for spec in selection_specs(matrix)}
    if not matrix.models:
        return frame_of([row for part in chosen.values() for row in part.values()])
    rows = []
    for cell in cells(matrix):
        for row in run.answers(cell).values():
            if row.question_id not in asked[cell.selection.benchmark.name]:
                continue
            of_selection = chosen[cell.selection.name].get(row.question_id, {})
            seen = {key: of_selection.get(key) for key in ("pulls", "n_frames", "forwards")}
            rows.append({**_who(cell.selection), **seen, **vars(row), "part": cell.name})
    return frame_of(rows)


def _asked_of(sets: dict[str, QuestionSet]) -> dict[str, list[str]]:
    """Return the questions that are asked, by benchmark, where they are not all there are."""
    some = {name: questions for name, questions in sets.items() if len(questions.questions) < len(questions.all_ids)}
    return {item.config.benchmark: [question.id for question in item.questions] for item in some.values()}


def _selection_columns(run: RunFolder, spec: SelectionSpec, asked: set[str]) -> dict[str, dict[str, Any]]:
    long = ("pulled_frames", "pulled_relevance", "clips")
    columns = {}
    for row in load_rows(run.part(spec), SelectionRow):
        if row.question_id not in asked:
            continue
        short = {key: value for key, value in vars(row).items() if key not in long}
        columns[row.question_id] = {**_who(spec), **short, "pulls": len(row.pulled_frames), "part": spec.name}
    return columns


def _who(spec: SelectionSpec) -> dict[str, Any]:
    encoder = spec.encoder.name if spec.encoder else ""
    return {"sampler": spec.sampler.name, "label": spec.label, "k": spec.k, "seed": spec.seed, "encoder": encoder}


def frame_of(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return rows as a data frame."""
    import pandas as pd

    frame: pd.DataFrame = pd.DataFrame(rows)
    return frame


def _select(
    run: RunFolder, specs: list[SelectionSpec], sets: dict[str, QuestionSet], engine: Engine, progress: RunProgress
) -> None:
    jobs: list[SelectJob] = select_jobs(specs, sets, run)
    if jobs:
        progress.start("select", sum(job.n_rows for job in jobs))
        engine.select(jobs, specs, sets, run, lambda rows, errors: progress.advance("select", rows, errors))
    for spec in specs:
        run.compact(spec, sets[spec.benchmark.name].all_ids)


def _answer(
    run: RunFolder, all_cells: list[Cell], sets: dict[str, QuestionSet], engine: Engine, progress: RunProgress
) -> None:
    jobs: list[AnswerJob] = answer_jobs(all_cells, sets, run)
    if jobs:
        progress.start("answer", sum(len(job.question_ids) for job in jobs))
        engine.answer(jobs, all_cells, sets, run, lambda rows, errors: progress.advance("answer", rows, errors))
    for cell in all_cells:
        run.compact(cell, sets[cell.selection.benchmark.name].all_ids)


def _check_errors(frame: pd.DataFrame, matrix: MatrixConfig) -> None:
    if frame.empty:
        return
    failed = frame[frame["error"].notna()]
    if len(failed) > matrix.max_error_share * len(frame):
        raise RunError(
            f"{len(failed)} of {len(frame)} rows record an error, more than max_error_share = "
            f"{matrix.max_error_share:.0%}; the first: {failed.iloc[0]['error']} (fix it, then run again with "
            "--retry-errors)"
        )
