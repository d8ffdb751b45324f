"""Answers the questions of cells with a model, from the selected frames."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from focus_eval.errors import FocusEvalError, RunError
from focus_eval.matrix.cells import Cell
from focus_eval.matrix.config import ModelConfig
from focus_eval.matrix.devices import best_device
from focus_eval.matrix.folder import RunFolder
from focus_eval.matrix.questions import QuestionSet
from focus_eval.matrix.task_requests import TaskRequests
from focus_eval.rows.records import AnswerRow, error_line

if TYPE_CHECKING:
    from focus_eval.matrix.answer_rows import CellRecorder

# Questions per job: small enough to spread over workers, large enough to make a batch.
QUESTIONS_PER_JOB = 64


@dataclass(frozen=True)
class AnswerJob:
    """Some questions of one cell that still lack a row."""

    cell: str
    question_ids: tuple[str, ...]

    @property
    def keys(self) -> list[tuple[str, str]]:
        """(cell, question id) of every row this job will write."""
        return [(self.cell, question_id) for question_id in self.question_ids]


def answer_jobs(cells: list[Cell], sets: dict[str, QuestionSet], folder: RunFolder) -> list[AnswerJob]:
    """Return the jobs that are left, model by model."""
    jobs = []
    for cell in cells:
        done = folder.finished(cell)
        missing = [question.id for question in sets[cell.selection.benchmark.name].questions if question.id not in done]
        for start in range(0, len(missing), QUESTIONS_PER_JOB):
            jobs.append(AnswerJob(cell.name, tuple(missing[start : start + QUESTIONS_PER_JOB])))
    return jobs


class AnswerWorker:
    """Answers through lmms-eval's own tasks and wrappers; one model loaded at a time."""

    def __init__(
        self, cells: list[Cell], sets: dict[str, QuestionSet], folder: RunFolder, *, name: str, store: Path | None
    ) -> None:
        self._cells = {cell.name: cell for cell in cells}
        self._sets = sets
        self._folder = folder
        self._name = name
        self._tasks: dict[tuple[str, str], TaskRequests] = {}
        self._loaded: tuple[str, Any] | None = None
        self._shown: tuple[str, CellRecorder] | None = None

    def run(self, job: AnswerJob, *, on_row: Callable[[AnswerRow], None] | None = None) -> None:
        """Write the missing rows of some questions of one cell; one that fails gets a row that says why."""
        cell = self._cells[job.cell]
        done = self._folder.finished(cell)  # another run may have answered some of them since
        waiting = tuple(question_id for question_id in job.question_ids if question_id not in done)
        if not waiting:
            return
        model = self._model(cell.model)
        self._show(model, cell).on_row = on_row
        model.generate_until(self._requests(model, cell).of(waiting))

    def close(self) -> None:
        """Close the files and release the model."""
        self._unshow()
        if self._loaded is not None:
            self._loaded[1].close()
            self._loaded = None

    def _model(self, config: ModelConfig) -> Any:
        if self._loaded is not None and self._loaded[0] == config.name:
            return self._loaded[1]
        self.close()
        most = max(cell.selection.k for cell in self._cells.values() if cell.model.name == config.name)
        self._loaded = (config.name, load_model(config, frames=most))
        return self._loaded[1]

    def _show(self, model: Any, cell: Cell) -> CellRecorder:
        """Point the loaded model at the selections of `cell`, once per cell."""
        if self._shown is not None and self._shown[0] == cell.name:
            return self._shown[1]
        self._unshow()
        from focus_eval.lmms.arguments import SeamOptions
        from focus_eval.lmms.sources import GivenRows
        from focus_eval.matrix.answer_rows import CellRecorder

        spec = cell.selection
        rows = list(self._folder.selections(spec).values())
        selection_id = rows[0].selection_id if rows else ""
        options = SeamOptions(
            sampler=spec.sampler.name,
            frames=spec.k,
            seed=spec.seed,
            frame_policy=cell.frame_policy,
            answer_parsing=cell.answer_parsing,
            max_error_share=1.0,
        )
        recorder = CellRecorder(cell, self._folder.writer(cell, self._name), options=options, selection_id=selection_id)
        source = GivenRows(rows, k=spec.k, selection_id=selection_id)
        model.show(source, frames=spec.k, options=options, recorder=recorder)
        self._shown = (cell.name, recorder)
        return recorder

    def _unshow(self) -> None:
        if self._shown is not None:
            self._shown[1].close()
            self._shown = None

    def _requests(self, model: Any, cell: Cell) -> TaskRequests:
        key = (cell.selection.benchmark.name, "simple" if model.is_simple else "chat")
        if key not in self._tasks:
            self._tasks[key] = TaskRequests(self._sets[key[0]], kind=key[1])
        requests = self._tasks[key]
        requests.serve(model)
        return requests


def load_model(config: ModelConfig, *, frames: int) -> Any:
    """Return the lmms-eval model of `config`, its weights loaded, ready to be shown selections.

    Raises:
        RunError: a model that cannot be loaded, with the reason.
    """
    from lmms_eval.models import get_model

    try:
        arguments = load_arguments(config, frames=frames, device=best_device())
        return get_model(config.model)(**arguments)
    except (FocusEvalError, ValueError, OSError, ImportError, TypeError) as error:
        raise RunError(f"model {config.name!r} ({config.model}) cannot be loaded: {error_line(error)}") from error


def load_arguments(config: ModelConfig, *, frames: int, device: str) -> dict[str, Any]:
    """Return everything the model is loaded with; a config that names no device gets the worker's first.

    A wrapper's own default is "cuda" also where there is no GPU. With a `device_map` the config places the model.
    """
    placed = {"device", "device_map"} & set(config.args)
    # Until `show` is called the model stands on a sampler that needs no encoder.
    own = {**config.args, "sampler": "uniform", "frames": frames, "batch_size": config.batch_size}
    return own if placed or not config.needs_gpu else {"device": device, **own}
