"""Answers the questions of cells with a model, from the selected frames."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

from focus_eval.bench.answering.ahead import own_cores
from focus_eval.bench.answering.cell import Cell
from focus_eval.bench.answering.choosing import GivenRows
from focus_eval.bench.answering.questions import read_request
from focus_eval.bench.answering.run import answer
from focus_eval.bench.answering.session import WrapperSession
from focus_eval.bench.answering.stream import CellQuestions
from focus_eval.bench.lmms.patches import import_evaluate_late
from focus_eval.bench.lmms.recording import ReplyReader, reasoning_tags_of
from focus_eval.bench.matrix.cells import AnswerSpec
from focus_eval.bench.matrix.config import ModelConfig
from focus_eval.bench.matrix.folder import RunFolder
from focus_eval.bench.matrix.machine import best_device
from focus_eval.bench.matrix.questions import QuestionSet, TaskRequests, video_paths
from focus_eval.bench.rows.store import FinishedQuestions
from focus_eval.core.errors import FocusEvalError, InvalidInput, RunError
from focus_eval.keyframes.encoders.store import RelevanceStore
from focus_eval.keyframes.rows.records import AnswerRow, SelectionRow, error_line
from focus_eval.keyframes.video.feed import DecodeProcesses, n_processes_for

# Limit of questions per job: few enough to spread jobs over workers, enough to make a batch.
QUESTIONS_PER_JOB = 64
# Rows that go through one pipeline, which is empty at its beginning and at its end.
ROWS_PER_PIPELINE = 512
# Limit of selection rows in memory for cells that are answered together, at about 3 kB each.
MAX_ROWS_TOGETHER = 200_000


@dataclass(frozen=True)
class AnswerJob:
    """Some questions of one cell, named `cell`, that have no row yet."""

    cell: str
    question_ids: tuple[str, ...]

    @property
    def n_rows(self) -> int:
        """Number of rows that this job will write."""
        return len(self.question_ids)

    def without(self, finished_ids: Collection[str]) -> AnswerJob:
        """Return this job without the questions in `finished_ids`."""
        return AnswerJob(self.cell, tuple(item for item in self.question_ids if item not in finished_ids))


def answer_jobs(cells: list[AnswerSpec], sets: dict[str, QuestionSet], folder: RunFolder) -> list[AnswerJob]:
    """Return jobs of at most `QUESTIONS_PER_JOB` questions without a row, in the order of `cells`.

    Args:
        sets: questions by benchmark name.
    """
    jobs = []
    for cell in cells:
        # Read finished questions from the rows: after a kill no other record can be trusted.
        finished_ids = folder.finished(cell).ids()
        missing_ids = [
            question.id for question in sets[cell.benchmark.name].questions if question.id not in finished_ids
        ]
        for start in range(0, len(missing_ids), QUESTIONS_PER_JOB):
            jobs.append(AnswerJob(cell.name, tuple(missing_ids[start : start + QUESTIONS_PER_JOB])))
    return jobs


class AnswerWorker:
    """Answers questions through lmms-eval's own tasks and wrappers, with one model loaded at a time.

    Args:
        sets: questions by benchmark name.
        name: part of the names of the files of rows that this worker writes.
        store: file that keeps scans of video files (see `video.scan`); None keeps none.
        cores: number of cores that decode and prepare frames; None for all of this process.
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
        self._processes = DecodeProcesses(n_processes_for(video_paths(sets.values()), self._cores))
        # Keep tasks, since a task builds the requests of all its documents at once.
        self._tasks: dict[tuple[str, str, str], TaskRequests] = {}
        self._loaded: tuple[str, WrapperSession] | None = None
        self._open_cells: dict[str, Cell] = {}
        self._finished: dict[str, FinishedQuestions] = {}
        self._rows: dict[str, dict[str, SelectionRow]] = {}
        self._paths: dict[str, dict[str, Path]] = {}

    def run_all(
        self,
        jobs: Sequence[AnswerJob],
        *,
        on_row: Callable[[AnswerRow], None] | None = None,
        on_work: Callable[[AnswerJob, float], None] | None = None,
    ) -> None:
        """Run `jobs` model by model, and call `on_row` with each row written, `on_work` with its share of its job.

        Cells that can share the frames of a video are answered together.
        """
        for config, of_model in groupby(jobs, key=lambda job: self._cells[job.cell].model):
            session = self._session(config)
            for job_group in self._group_jobs(session, list(of_model)):
                path_of = self._videos(self._cells[job_group[0].cell])
                for jobs_of_videos in (
                    _jobs_by_video(job_group, path_of) if shares_frames(session) else ([job] for job in job_group)
                ):
                    self._answer(jobs_of_videos, on_row=on_row, on_work=on_work)
                self._close_cells()

    def run(
        self,
        job: AnswerJob,
        *,
        on_row: Callable[[AnswerRow], None] | None = None,
        on_work: Callable[[float], None] | None = None,
    ) -> None:
        """Write the missing rows of one job; a question that fails gets a row with the error."""
        if job.cell not in self._open_cells:
            self._close_cells()
        self._answer([job], on_row=on_row, on_work=(lambda _, share: on_work(share)) if on_work else None)

    def _group_jobs(self, session: WrapperSession, jobs: list[AnswerJob]) -> Iterator[list[AnswerJob]]:
        """Yield groups of jobs to answer together: one task, one set of prompts, limited rows."""
        job_group: list[AnswerJob] = []
        n_rows = 0
        last_key: object = None
        for cell, of_cell in groupby(jobs, key=lambda job: self._cells[job.cell]):
            cell_jobs, key = list(of_cell), self._task_key(session, cell)
            n_cell_rows = sum(job.n_rows for job in cell_jobs)
            if job_group and (
                key != last_key or not shares_frames(session) or n_rows + n_cell_rows > MAX_ROWS_TOGETHER
            ):
                yield job_group
                job_group, n_rows = [], 0
            job_group, n_rows, last_key = [*job_group, *cell_jobs], n_rows + n_cell_rows, key
        yield job_group

    def _videos(self, cell: AnswerSpec) -> dict[str, Path]:
        name = cell.benchmark.name
        if name not in self._paths:
            questions = self._sets[name]
            self._paths[name] = {item.id: questions.video_path(item.video) for item in questions.questions}
        return self._paths[name]

    def _answer(
        self,
        jobs: list[AnswerJob],
        *,
        on_row: Callable[[AnswerRow], None] | None,
        on_work: Callable[[AnswerJob, float], None] | None,
    ) -> None:
        """Answer the open questions of `jobs`, all of one model and one task, in one pipeline."""
        open_questions: list[tuple[AnswerSpec, AnswerJob]] = []
        job_by_cell: dict[str, AnswerJob] = {}
        for job in jobs:
            cell = self._cells[job.cell]
            # Keep finished questions between the jobs of a cell, so that each job reads only rows added since the last
            # one.
            finished = self._finished.setdefault(cell.name, self._folder.finished(cell))
            open_job = job.without(finished.ids())  # another run may have answered some of them since
            if open_job.question_ids:
                open_questions.append((cell, open_job))
                job_by_cell[cell.name] = job
        if not open_questions:
            return
        first_cell = open_questions[0][0]
        session = self._session(first_cell.model)
        key = self._task_key(session, first_cell)
        if key not in self._tasks:  # loaded once for all cells that share it
            self._tasks[key] = TaskRequests(self._sets[key[0]], kind=key[1], prompts=key[2])
        # Call the stock wrapper with requests that the task built, so that prompts and preprocessing are those of
        # lmms-eval.
        with self._tasks[key].served(session.model) as requests:
            work = [self._work(session, cell, requests.of(job.question_ids)) for cell, job in open_questions]
            open_video = partial(self._processes.open_video, backend=first_cell.selection.backend, kept=self._store)
            for written in answer(session, work, open_video=open_video, cores=self._cores):
                if written.row is None:
                    continue
                job = job_by_cell[written.row.cell]
                if on_row is not None:
                    on_row(written.row)
                if on_work is not None:
                    on_work(job, 1 / job.n_rows)

    def close(self) -> None:
        """Close the files, end the processes that decode, and release the model."""
        self._processes.close()
        self._release_model()

    def _release_model(self) -> None:
        self._close_cells()
        if self._loaded is not None:
            self._loaded[1].close()
            self._loaded = None

    def _session(self, config: ModelConfig) -> WrapperSession:
        """A session with the model of `config`; first closes the session of another model."""
        if self._loaded is not None and self._loaded[0] == config.name:
            return self._loaded[1]
        # Release the earlier model before the next one loads, since both together might not fit into memory.
        self._release_model()
        # Load for the largest K of all cells: loading per K would take longer than many answers.
        max_frames = max(cell.selection.k for cell in self._cells.values() if cell.model.name == config.name)
        self._loaded = (config.name, load_session(config, frames=max_frames))
        return self._loaded[1]

    def _work(self, session: WrapperSession, spec: AnswerSpec, requests: Sequence[object]) -> CellQuestions:
        """The questions of a cell, whose frames its selection has chosen; its file of rows is opened once."""
        chooser = GivenRows(self._selections(spec))
        subtitles = session.model.subtitle_options(spec.model.subtitles, spec.model.subtitle_layout)
        questions = [
            read_request(
                request,
                session.model.task_dict,
                is_simple=session.model.is_simple,
                # Take the benchmark that the matrix declares: the task's name may be of no benchmark or of another one.
                benchmark=self._sets[spec.benchmark.name].benchmark,
                subtitles=subtitles,
            )
            for request in requests
        ]
        if spec.name not in self._open_cells:
            tags = reasoning_tags_of(questions[0].parts, spec.model.reasoning_tags)
            read = ReplyReader(answer_parsing=spec.answer_parsing, seed=spec.selection.seed, reasoning_tags=tags)
            self._open_cells[spec.name] = self._folder.open_cell(
                spec, self._name, read=read, selection_id=chooser.selection_id
            )
        return CellQuestions(cell=self._open_cells[spec.name], chooser=chooser, questions=questions)

    def _selections(self, cell: AnswerSpec) -> dict[str, SelectionRow]:
        """The selection rows of `cell` by question id; read once for all its jobs."""
        if cell.name not in self._rows:
            # Drop the lists of pulls: they are most of a row, and answering does not need them.
            with self._folder.part_lock(cell.selection):
                selections = [row.without_pulls() for row in self._folder.selections(cell.selection)]
            self._rows[cell.name] = {row.question_id: row for row in selections}
        return self._rows[cell.name]

    def _close_cells(self) -> None:
        """Close the files of rows of all open cells, and drop their selections from memory."""
        for cell in self._open_cells.values():
            cell.close()
        self._open_cells.clear()
        self._rows.clear()

    def _task_key(self, session: WrapperSession, cell: AnswerSpec) -> tuple[str, str, str]:
        """(benchmark name, "simple" or "chat", name of the prompts)."""
        # Simple models and chat models get different requests for the same document, and some models have their own
        # prompts.
        return (cell.benchmark.name, "simple" if session.model.is_simple else "chat", cell.prompts)


def shares_frames(session: WrapperSession) -> bool:
    """Return True if the model may answer its questions video by video, so that cells share decoded frames.

    False for batches of several questions, which the stock wrapper forms within one cell, and for models that answer
    several questions at once, such as a service, which does not wait for decoding.
    """
    return session.answers_one_by_one and session.model.questions_at_once is None


def _jobs_by_video(jobs: Iterable[AnswerJob], path_of: Mapping[str, Path]) -> Iterator[list[AnswerJob]]:
    """Yield `jobs` regrouped so that a video's questions are together, about `ROWS_PER_PIPELINE` questions at a time.

    Args:
        path_of: video path by question id.
    """
    ids_by_cell_and_video: dict[Path, dict[str, list[str]]] = {}
    for job in jobs:
        for question_id in job.question_ids:
            ids_by_cell_and_video.setdefault(path_of[question_id], {}).setdefault(job.cell, []).append(question_id)
    ids_by_cell: dict[str, list[str]] = {}
    for number, of_video in enumerate(ids_by_cell_and_video.values(), start=1):
        for cell, question_ids in of_video.items():
            ids_by_cell.setdefault(cell, []).extend(question_ids)
        if number == len(ids_by_cell_and_video) or sum(map(len, ids_by_cell.values())) >= ROWS_PER_PIPELINE:
            yield [AnswerJob(cell, tuple(question_ids)) for cell, question_ids in ids_by_cell.items()]
            ids_by_cell = {}


def load_session(config: ModelConfig, *, frames: int) -> WrapperSession:
    """Return a session with the lmms-eval model of `config`, its weights loaded.

    Args:
        frames: largest number of frames per question.

    Raises:
        RunError: the model cannot be loaded; states the reason.
    """
    import_evaluate_late()
    from lmms_eval.models import get_model

    try:
        model = get_model(config.model)
        if not hasattr(model, "load_session"):
            raise InvalidInput("no adapter shows it chosen frames; `focus-eval list models` has those that are known")
        session: WrapperSession = model.load_session(load_arguments(config, device=best_device()), frames=frames)
        return session
    # Wrappers raise these errors for a bad argument or checkpoint. End the run, since no question could be answered.
    except (FocusEvalError, ValueError, OSError, ImportError, TypeError) as error:
        raise RunError(f"model {config.name!r} ({config.model}) cannot be loaded: {error_line(error)}") from error


def load_arguments(config: ModelConfig, *, device: str) -> dict[str, object]:
    """Return the arguments of the model's wrapper; `device` is added if the config names no device.

    A wrapper's own default is "cuda" even without a GPU. A `device_map` in the config counts as naming a device.
    """
    placement = {"device", "device_map"} & set(config.args)
    arguments: dict[str, object] = {**config.args, "batch_size": config.batch_size}
    return arguments if placement or not config.needs_gpu else {"device": device, **arguments}
