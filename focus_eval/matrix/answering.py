"""Answers the questions of cells with a model, from the selected frames."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from focus_eval.core.errors import FocusEvalError, RunError
from focus_eval.encoders.store import RelevanceStore
from focus_eval.lmms.arguments import AdapterOptions
from focus_eval.lmms.decoding import GIGABYTE
from focus_eval.lmms.frames import SharedFrames, frames_to_decode
from focus_eval.lmms.protocol import RunContext
from focus_eval.lmms.recording import Recorder
from focus_eval.lmms.requests import PendingRequest, RequestParts
from focus_eval.lmms.sources import GivenRows
from focus_eval.lmms.turns import own_cores, parts_ahead
from focus_eval.matrix.cells import AnswerSpec
from focus_eval.matrix.config import ModelConfig
from focus_eval.matrix.folder import RunFolder
from focus_eval.matrix.machine import best_device
from focus_eval.matrix.questions import QuestionSet, TaskRequests
from focus_eval.rows.records import AnswerRow, CellNames, RowWriter, SelectionRow, error_line
from focus_eval.rows.store import FinishedQuestions

# Questions per job: small enough to spread over workers, large enough to make a batch.
QUESTIONS_PER_JOB = 64
# Rows that go through one pipeline, which is empty at its beginning and at its end.
ROWS_AT_ONCE = 512
# Selections that are in memory for cells answered together, at about 3 kB each.
MOST_ROWS_TOGETHER = 200_000


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
    """Answers through lmms-eval's own tasks and wrappers; one model loaded at a time.

    Args:
        store: keeps what opening learned of videos.
        cores: that decode and prepare; None: those of this process.
    """

    def __init__(
        self,
        cells: list[AnswerSpec],
        sets: dict[str, QuestionSet],
        folder: RunFolder,
        *,
        name: str,
        store: Path | None = None,
        cores: int | None = None,
    ) -> None:
        self._cells = {cell.name: cell for cell in cells}
        self._sets = sets
        self._folder = folder
        self._name = name
        self._store = RelevanceStore(store) if store is not None else None
        self._cores = cores or own_cores()
        # Kept, since a task builds the requests of all its documents at once.
        self._tasks: dict[tuple[str, str, str], TaskRequests] = {}
        self._loaded: tuple[str, Any] | None = None
        self._recorders: dict[str, CellRecorder] = {}
        self._finished: dict[str, FinishedQuestions] = {}
        self._rows: dict[str, dict[str, SelectionRow]] = {}
        self._paths: dict[str, dict[str, Path]] = {}

    def run_all(self, jobs: Sequence[AnswerJob], *, on_row: Callable[[AnswerRow], None] | None = None) -> None:
        """Run `jobs`, grouped by model; cells that can share the frames of a video are answered together."""
        for config, of_model in groupby(jobs, key=lambda job: self._cells[job.cell].model):
            model = self._model(config)
            for mine in self._together(model, list(of_model)):
                path_of = self._videos(self._cells[mine[0].cell])
                for some in _by_video(mine, path_of) if shares_frames(model) else ([job] for job in mine):
                    self._answer(some, on_row=on_row)
                self._close_cells()

    def run(self, job: AnswerJob, *, on_row: Callable[[AnswerRow], None] | None = None) -> None:
        """Write the missing rows of some questions of one cell; one that fails gets a row that says why."""
        if job.cell not in self._recorders:
            self._close_cells()
        self._answer([job], on_row=on_row)

    def _together(self, model: Any, jobs: list[AnswerJob]) -> Iterator[list[AnswerJob]]:
        """Yield the jobs of cells that are answered together: of one task and its prompts, and not too many rows."""
        found: list[AnswerJob] = []
        n_rows = 0
        last: Any = None
        for cell, of_cell in groupby(jobs, key=lambda job: self._cells[job.cell]):
            mine, key = list(of_cell), self._task_key(model, cell)
            n_new = sum(job.n_rows for job in mine)
            if found and (key != last or not shares_frames(model) or n_rows + n_new > MOST_ROWS_TOGETHER):
                yield found
                found, n_rows = [], 0
            found, n_rows, last = [*found, *mine], n_rows + n_new, key
        yield found

    def _videos(self, cell: AnswerSpec) -> dict[str, Path]:
        """Return the video of each question of the cell's benchmark."""
        name = cell.benchmark.name
        if name not in self._paths:
            questions = self._sets[name]
            self._paths[name] = {item.id: questions.video_path(item.video) for item in questions.questions}
        return self._paths[name]

    def _answer(self, jobs: list[AnswerJob], *, on_row: Callable[[AnswerRow], None] | None) -> None:
        """Answer questions of one task in one pipeline."""
        left = []
        for job in jobs:
            cell = self._cells[job.cell]
            # Kept between the jobs of a cell, so that only rows added since are read.
            finished = self._finished.setdefault(cell.name, self._folder.finished(cell))
            waiting = job.without(finished.ids())  # another run may have answered some of them since
            if waiting.question_ids:
                left.append((cell, waiting.question_ids))
        if not left:
            return
        model = self._model(left[0][0].model)
        shared = self._shared_frames(left, model) if shares_frames(model) else None
        contexts = [self._context(model, cell, question_ids, shared, on_row) for cell, question_ids in left]
        with shared or nullcontext(), self._requests(model, left[0][0]).served(model) as requests:
            # The wrapper's own call, on requests that the task built, so that prompts and preprocessing are the stock
            # ones.
            model.answer_together(contexts, [requests.of(question_ids) for _, question_ids in left])

    def _shared_frames(self, left: Sequence[tuple[AnswerSpec, tuple[str, ...]]], model: Any) -> SharedFrames:
        """Return the frames that these questions will be shown, to be decoded video by video."""
        asked: dict[Path, list[tuple[int, ...]]] = {}
        for cell, question_ids in left:
            path_of, rows = self._videos(cell), self._selections(cell)
            for question_id in question_ids:
                row = rows.get(question_id)
                frames = frames_to_decode(row, cell.frame_policy)[0] if row is not None and row.error is None else ()
                asked.setdefault(path_of[question_id], []).append(frames)
        return SharedFrames(
            asked,
            kept=self._store,
            most_bytes=int(model.adapter_options.decode_gigabytes * GIGABYTE / 2),
            n_ahead=parts_ahead(self._cores),
        )

    def close(self) -> None:
        """Close the files and release the model."""
        self._close_cells()
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

    def _context(
        self,
        model: Any,
        cell: AnswerSpec,
        question_ids: Sequence[str],
        shared: SharedFrames | None,
        on_row: Callable[[AnswerRow], None] | None,
    ) -> RunContext:
        """Return where the frames of `cell` come from and where its rows go."""
        spec, rows = cell.selection, self._selections(cell)
        selection_id = next(iter(rows.values())).selection_id if rows else ""
        model.check_frames(spec.k)
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
        if cell.name not in self._recorders:
            writer = self._folder.writer(cell, self._name)
            self._recorders[cell.name] = CellRecorder(cell, writer, options=options, selection_id=selection_id)
        recorder = self._recorders[cell.name]
        recorder.on_row = on_row
        return RunContext(
            source=GivenRows(
                [rows[question_id] for question_id in question_ids if question_id in rows],
                k=spec.k,
                selection_id=selection_id,
            ),
            frames=spec.k,
            options=options,
            recorder=recorder,
            shared=shared,
            kept=self._store,
            cores=self._cores,
        )

    def _selections(self, cell: AnswerSpec) -> dict[str, SelectionRow]:
        """Return the selections of `cell` by question, read once for all its jobs."""
        if cell.name not in self._rows:
            # The lists of pulls are the bulk of a row, and no model is shown them.
            with self._folder.unchanged(cell.selection):
                found = [row.without_pulls() for row in self._folder.selections(cell.selection)]
            self._rows[cell.name] = {row.question_id: row for row in found}
        return self._rows[cell.name]

    def _close_cells(self) -> None:
        """Write the rows of the cells so far through to the disk, and forget their selections."""
        for recorder in self._recorders.values():
            recorder.close()
        self._recorders.clear()
        self._rows.clear()

    def _task_key(self, model: Any, cell: AnswerSpec) -> tuple[str, str, str]:
        # Simple and chat models get other requests for the same document, and some models prompts of their own.
        return (cell.benchmark.name, "simple" if model.is_simple else "chat", cell.prompts)

    def _requests(self, model: Any, cell: AnswerSpec) -> TaskRequests:
        key = self._task_key(model, cell)
        if key not in self._tasks:
            self._tasks[key] = TaskRequests(self._sets[key[0]], kind=key[1], prompts=key[2])
        return self._tasks[key]


def shares_frames(model: Any) -> bool:
    """Return whether questions may be answered in the order of their videos.

    Batches of several questions are those that the stock wrapper forms of one cell, and a service is not held up by
    decoding.
    """
    return model.questions_at_once is None and int(model.batch_size) == 1


def _by_video(jobs: Iterable[AnswerJob], path_of: Mapping[str, Path]) -> Iterator[list[AnswerJob]]:
    """Yield the questions of `jobs` video by video, in the order of the annotations, about `ROWS_AT_ONCE` at a time."""
    asked: dict[Path, dict[str, list[str]]] = {}
    for job in jobs:
        for question_id in job.question_ids:
            asked.setdefault(path_of[question_id], {}).setdefault(job.cell, []).append(question_id)
    some: dict[str, list[str]] = {}
    for number, of_video in enumerate(asked.values(), start=1):
        for cell, question_ids in of_video.items():
            some.setdefault(cell, []).extend(question_ids)
        if number == len(asked) or sum(map(len, some.values())) >= ROWS_AT_ONCE:
            yield [AnswerJob(cell, tuple(question_ids)) for cell, question_ids in some.items()]
            some = {}


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
