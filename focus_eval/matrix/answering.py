"""Answers the questions of cells with a model, from the selected frames."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from focus_eval.core.errors import FocusEvalError, RunError
from focus_eval.lmms.arguments import AdapterOptions
from focus_eval.lmms.frames import SharedFrames, frames_to_decode
from focus_eval.lmms.recording import Recorder
from focus_eval.lmms.requests import PendingRequest, RequestParts
from focus_eval.lmms.sources import GivenRows
from focus_eval.matrix.cells import AnswerSpec
from focus_eval.matrix.config import ModelConfig
from focus_eval.matrix.folder import RunFolder
from focus_eval.matrix.machine import best_device
from focus_eval.matrix.questions import QuestionSet, TaskRequests
from focus_eval.rows.records import AnswerRow, CellNames, RowWriter, SelectionRow, error_line
from focus_eval.rows.store import FinishedQuestions

# Questions per job: small enough to spread over workers, large enough to make a batch.
QUESTIONS_PER_JOB = 64


@dataclass(frozen=True)
class AnswerJob:
    """Some questions of one cell that still lack a row."""

    cell: str
    question_ids: tuple[str, ...]

    @property
    def n_rows(self) -> int:
        """Rows this job will write."""
        return len(self.question_ids)

    def without(self, done: Collection[str]) -> AnswerJob:
        """Return what is left of this job where `done` are the questions of its cell that have a row."""
        return AnswerJob(self.cell, tuple(item for item in self.question_ids if item not in done))


def answer_jobs(cells: list[AnswerSpec], sets: dict[str, QuestionSet], folder: RunFolder) -> list[AnswerJob]:
    """Return the jobs that are left, model by model."""
    jobs = []
    for cell in cells:
        # What is done is read from the rows themselves: after a kill there is no other record to trust.
        done = folder.finished(cell).ids()
        missing = [question.id for question in sets[cell.benchmark.name].questions if question.id not in done]
        for start in range(0, len(missing), QUESTIONS_PER_JOB):
            jobs.append(AnswerJob(cell.name, tuple(missing[start : start + QUESTIONS_PER_JOB])))
    return jobs


class AnswerWorker:
    """Answers through lmms-eval's own tasks and wrappers; one model loaded at a time."""

    def __init__(self, cells: list[AnswerSpec], sets: dict[str, QuestionSet], folder: RunFolder, *, name: str) -> None:
        self._cells = {cell.name: cell for cell in cells}
        self._sets = sets
        self._folder = folder
        self._name = name
        # Kept, since a task builds the requests of all its documents at once.
        self._tasks: dict[tuple[str, str, str], TaskRequests] = {}
        self._loaded: tuple[str, Any] | None = None
        self._shown: tuple[str, CellRecorder] | None = None
        self._finished: dict[str, FinishedQuestions] = {}
        self._rows: dict[str, list[SelectionRow]] = {}
        self._shared: SharedFrames | None = None

    def run_all(self, jobs: Sequence[AnswerJob], *, on_row: Callable[[AnswerRow], None] | None = None) -> None:
        """Run `jobs`, grouped by model. A model that outruns the decoder is run video by video."""
        for config, mine in groupby(jobs, key=lambda job: self._cells[job.cell].model):
            if self._model(config).answers_by_video:
                self._run_by_video(list(mine), on_row=on_row)
            else:
                for job in mine:
                    self.run(job, on_row=on_row)

    def _run_by_video(self, jobs: Sequence[AnswerJob], *, on_row: Callable[[AnswerRow], None] | None) -> None:
        """Run the `jobs` of one model, all cells of a video together, so that its frames are decoded once."""
        jobs_of = self._jobs_by_video(jobs)
        frames_of = self._frames_by_video(jobs)
        with SharedFrames([(path, frames_of[path]) for path in jobs_of]) as self._shared:
            for number, of_video in enumerate(jobs_of.values()):
                self._shared.move_to(number)
                for job in of_video:
                    self.run(job, on_row=on_row)
        self._shared = None

    def _jobs_by_video(self, jobs: Iterable[AnswerJob]) -> dict[Path, list[AnswerJob]]:
        """Return a job for each video and cell, by video, in the order of the annotations."""
        asked: dict[Path, dict[str, list[str]]] = {}
        for cell, path_of in self._videos_asked(jobs):
            for question_id, path in path_of.items():
                asked.setdefault(path, {}).setdefault(cell, []).append(question_id)
        return {path: [AnswerJob(cell, tuple(ids)) for cell, ids in by_cell.items()] for path, by_cell in asked.items()}

    def _frames_by_video(self, jobs: Iterable[AnswerJob]) -> dict[Path, set[int]]:
        """Return all frames of each video that the questions of `jobs` will be shown; reads each cell's rows once."""
        frames: dict[Path, set[int]] = {}
        for name, path_of in self._videos_asked(jobs):
            for path in path_of.values():
                frames.setdefault(path, set())
            cell = self._cells[name]
            for row in self._selections(cell):
                if row.question_id in path_of and row.error is None:
                    frames[path_of[row.question_id]].update(frames_to_decode(row, cell.frame_policy)[0])
        return frames

    def _videos_asked(self, jobs: Iterable[AnswerJob]) -> Iterator[tuple[str, dict[str, Path]]]:
        """Yield each cell of `jobs`, which come cell by cell, with the video of every question asked there."""
        for name, of_cell in groupby(jobs, key=lambda job: job.cell):
            questions = self._sets[self._cells[name].benchmark.name]
            video_of = {question.id: question.video for question in questions.questions}
            asked = [question_id for job in of_cell for question_id in job.question_ids]
            yield name, {question_id: questions.video_path(video_of[question_id]) for question_id in asked}

    def run(self, job: AnswerJob, *, on_row: Callable[[AnswerRow], None] | None = None) -> None:
        """Write the missing rows of some questions of one cell; one that fails gets a row that says why."""
        cell = self._cells[job.cell]
        # Kept between the jobs of a cell, so that only rows added since are read.
        finished = self._finished.setdefault(cell.name, self._folder.finished(cell))
        waiting = job.without(finished.ids()).question_ids  # another run may have answered some of them since
        if not waiting:
            return
        model = self._model(cell.model)
        self._show(model, cell).on_row = on_row
        with self._requests(model, cell).served(model) as requests:
            # The same call that lmms-eval's evaluator makes, so that prompts and preprocessing are the stock ones.
            model.generate_until(requests.of(waiting))

    def close(self) -> None:
        """Close the files and release the model."""
        self._unshow()
        if self._loaded is not None:
            self._loaded[1].close()
            self._loaded = None

    def _model(self, config: ModelConfig) -> Any:
        if self._loaded is not None and self._loaded[0] == config.name:
            return self._loaded[1]
        # Before the next model loads: both together might not fit.
        self.close()
        # For the largest K of all its cells: loading a model again for each K would take longer than many answers.
        most = max(cell.selection.k for cell in self._cells.values() if cell.model.name == config.name)
        self._loaded = (config.name, load_model(config, frames=most))
        return self._loaded[1]

    def _show(self, model: Any, cell: AnswerSpec) -> CellRecorder:
        """Point the loaded model at the selections of `cell`, once per cell."""
        if self._shown is not None and self._shown[0] == cell.name:
            return self._shown[1]
        self._unshow()
        spec = cell.selection
        rows = self._selections(cell)
        selection_id = rows[0].selection_id if rows else ""
        options = AdapterOptions(
            sampler=spec.sampler.name,
            frames=spec.k,
            seed=spec.seed,
            frame_policy=cell.frame_policy,
            answer_parsing=cell.answer_parsing,
            subtitles=model.adapter_options.subtitles,
            decode_gigabytes=model.adapter_options.decode_gigabytes,
            # The matrix checks its own share over all cells, at the end.
            max_error_share=1.0,
        )
        recorder = CellRecorder(cell, self._folder.writer(cell, self._name), options=options, selection_id=selection_id)
        source = GivenRows(rows, k=spec.k, selection_id=selection_id)
        model.show(source, frames=spec.k, options=options, recorder=recorder, shared=self._shared)
        self._shown = (cell.name, recorder)
        return recorder

    def _selections(self, cell: AnswerSpec) -> list[SelectionRow]:
        """Return the selections of `cell`, read once where cells take turns."""
        if cell.name not in self._rows:
            if self._shared is None:
                # Else the rows of all cells so far would fill the memory of a large run.
                self._rows.clear()
            # The lists of pulls are the bulk of a row, and no model is shown them.
            with self._folder.unchanged(cell.selection):
                self._rows[cell.name] = [row.without_pulls() for row in self._folder.selections(cell.selection)]
        return self._rows[cell.name]

    def _unshow(self) -> None:
        if self._shown is not None:
            # A cell's rows are on the disk before the next cell begins.
            self._shown[1].close()
            self._shown = None

    def _requests(self, model: Any, cell: AnswerSpec) -> TaskRequests:
        # Simple and chat models get other requests for the same document, and some models prompts of their own.
        key = (cell.benchmark.name, "simple" if model.is_simple else "chat", cell.prompts)
        if key not in self._tasks:
            self._tasks[key] = TaskRequests(self._sets[key[0]], kind=key[1], prompts=key[2])
        return self._tasks[key]


class CellRecorder(Recorder):
    """Writes answers to one file of a run's folder as they come; the selections lie there already."""

    def __init__(self, cell: AnswerSpec, writer: RowWriter, *, options: AdapterOptions, selection_id: str) -> None:
        super().__init__(model=cell.model.name, options=options, selection_id=selection_id)
        self.where = writer.path.parent
        self.on_row: Callable[[AnswerRow], None] | None = None
        self._names = CellNames(cell_id=cell.id, cell=cell.name)
        self._file = writer

    def names(self, parts: RequestParts) -> CellNames:
        """Return the names of the cell; they are the same for all requests."""
        return self._names

    def cell_folder(self, parts: RequestParts) -> Path:
        """Return the cell's folder."""
        return self.where

    def write_answer(self, pending: PendingRequest, row: AnswerRow) -> None:
        self._file.write(row)
        # After the row is written, so that progress counts only rows that are there.
        if self.on_row is not None:
            self.on_row(row)

    def close(self) -> None:
        """Write through to the disk and close."""
        self._file.close()


def load_model(config: ModelConfig, *, frames: int) -> Any:
    """Return the lmms-eval model of `config`, its weights loaded, ready to be shown selections.

    Raises:
        RunError: a model that cannot be loaded, with the reason.
    """
    from lmms_eval.models import get_model

    try:
        arguments = load_arguments(config, frames=frames, device=best_device())
        return get_model(config.model)(**arguments)
    # What a wrapper raises for a bad argument or checkpoint; the run ends, as no question could be answered.
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
