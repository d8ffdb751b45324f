"""The stream of batches for the model: each video is opened once, its frames are chosen, read and handed on.

Batches of several questions span videos. Then the frames of all questions are chosen first, and a video is opened again
for each batch that shows it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from loguru import logger

from focus_eval.bench.answering.ahead import AnswerQueue, QuestionBatch
from focus_eval.bench.answering.cell import Cell
from focus_eval.bench.answering.choosing import Chooser, FrameChoice
from focus_eval.bench.answering.frames import FrameBatch, frames_to_feed, read_frames, show_selection
from focus_eval.bench.answering.questions import DocumentKey, FramedQuestion, TaskQuestion
from focus_eval.bench.answering.session import WrapperSession
from focus_eval.bench.answering.wrapper import form_batches
from focus_eval.core.errors import AnswerError, FocusEvalError, InvalidInput, RunError
from focus_eval.keyframes.rows.records import error_line

if TYPE_CHECKING:
    from focus_eval.keyframes.video.reader import VideoReader

OpenVideo = Callable[[Path], "VideoReader"]


@dataclass(frozen=True, kw_only=True, eq=False)
class CellQuestions:
    """Questions of one cell that have no answer yet.

    Args:
        chooser: chooses their frames; None leaves that to the wrapper.
    """

    cell: Cell
    chooser: Chooser | None
    questions: Sequence[TaskQuestion]

    def by_video(self) -> dict[Path | None, CellQuestions]:
        """Return these questions by the path of their video."""
        questions_by_video: dict[Path | None, list[TaskQuestion]] = {}
        for task_question in self.questions:
            questions_by_video.setdefault(task_question.path, []).append(task_question)
        return {path: replace(self, questions=questions) for path, questions in questions_by_video.items()}


@dataclass(frozen=True, kw_only=True)
class _Video:
    """A video opened for its questions, or the error of opening it; neither if its frames are not needed."""

    reader: VideoReader | None = None
    error: Exception | None = None

    @property
    def frame_bytes(self) -> int:
        """Bytes of one decoded frame; 0 if there is none."""
        return 3 * self.reader.width * self.reader.height if self.reader is not None else 0

    def read(self, frames: Iterable[int]) -> FrameBatch:
        """Decode frames; raise VideoError, also if the video could not be opened."""
        if self.reader is None:
            raise self.error or AnswerError("the document has no video")
        return read_frames(self.reader, frames)


@dataclass(frozen=True, kw_only=True, eq=False)
class _ChosenFrames:
    """A question of a cell whose frames are chosen but not read.

    Args:
        framed: the question with its selection, without pixels.
        frames: indices of the frames to read; () if it cannot be asked or the wrapper samples its frames.
        fallback: as in `FrameBatch`.
    """

    cell: Cell
    framed: FramedQuestion
    frames: tuple[int, ...] = ()
    fallback: str | None = None


class FrameStream:
    """Reads the questions of several cells with their frames, batch by batch.

    Args:
        session: the session with the model that answers the questions.
        open_video: opens a video for exact reading.
        queue: where the batches go; bounds the memory of their frames.
    """

    def __init__(self, session: WrapperSession, open_video: OpenVideo, queue: AnswerQueue) -> None:
        self._session = session
        self._open_video = open_video
        self._queue = queue
        self._has_logged_parts = False

    def batches(self, work: Sequence[CellQuestions]) -> Iterator[QuestionBatch]:
        """Yield a batch for each question, video by video; or the stock wrapper's batches of several questions."""
        work_by_video: dict[Path | None, list[CellQuestions]] = {}
        for item in work:
            for path, item_of_video in item.by_video().items():
                work_by_video.setdefault(path, []).append(item_of_video)
        if self._session.answers_one_by_one:
            for path, work_of_video in work_by_video.items():
                yield from self._batches_of_video(path, work_of_video)
            return
        # A batch holds only questions that have frames, so choose the frames of all questions before forming batches.
        frames_by_question: dict[TaskQuestion, _ChosenFrames] = {}
        for path, work_of_video in work_by_video.items():
            with ExitStack() as videos:
                video = self._opened_for(path, work_of_video, videos)
                for item in work_of_video:
                    frames_by_question |= {
                        question.framed.task_question: question for question in self._choose(video, item)
                    }
        for item in work:
            yield from self._stock_batches(item.cell, [frames_by_question[question] for question in item.questions])

    def _batches_of_video(self, path: Path | None, work: Sequence[CellQuestions]) -> Iterator[QuestionBatch]:
        """Open a video, choose its questions' frames, read them in parts that fit into memory, and yield each."""
        with ExitStack() as videos:
            video = self._opened_for(path, work, videos)
            questions = [question for item in work for question in self._choose(video, item)]
            for part in _parts_of_video(questions, video.frame_bytes, self._session.max_bytes / 2):
                yield from self._read_together(video, part)

    def _opened_for(self, path: Path | None, work: Sequence[CellQuestions], videos: ExitStack) -> _Video:
        """Open the video of `work`, if its frames are needed, until `videos` is closed."""
        is_needed = any(
            item.chooser is not None and any(question.error is None for question in item.questions) for item in work
        )
        return self._opened(path, videos) if is_needed else _Video()

    def _opened(self, path: Path | None, videos: ExitStack) -> _Video:
        if path is None:
            return _Video()
        try:
            return _Video(reader=videos.enter_context(self._open_video(path)))
        except RunError:
            raise
        except FocusEvalError as error:
            return _Video(error=error)

    def _choose(self, video: _Video, work: CellQuestions) -> list[_ChosenFrames]:
        """Choose the frames of one cell's questions about one video; new selections are written."""
        choices = {} if work.chooser is None else self._choices(video, work, work.chooser)
        return [
            self._checked_choice(work.cell, question, choices.get(question.parts.key)) for question in work.questions
        ]

    def _choices(self, video: _Video, work: CellQuestions, chooser: Chooser) -> dict[DocumentKey, FrameChoice]:
        """Choose once per document, since two requests about one are shown the same frames; use earlier rows again."""
        cell = work.cell
        question_by_key: dict[DocumentKey, TaskQuestion] = {}
        for question in work.questions:
            question_by_key.setdefault(question.parts.key, question)
        choices: dict[DocumentKey, FrameChoice] = {}
        earlier_keys: set[DocumentKey] = set()
        open_questions: dict[DocumentKey, TaskQuestion] = {}
        for key, question in question_by_key.items():
            error = video.error if question.error is None else AnswerError(question.error)
            if question.error is None and (row := cell.earlier_selection(question.question)) is not None:
                choices[key] = FrameChoice(row=row)
                earlier_keys.add(key)
            elif error is not None:
                choices[key] = chooser.failed(question, error)
            else:
                open_questions[key] = question
        if open_questions:
            assert video.reader is not None
            # An encoder and a model on one GPU take turns, since each may fill the GPU's memory.
            with self._session.device if chooser.needs_gpu else nullcontext():
                new_choices = chooser.choose(
                    video.reader,
                    list(open_questions.values()),
                    # Choosing may take minutes; it stops when the run ends.
                    on_pulls=lambda _: self._queue.check_going_on(),
                )
            choices |= dict(zip(open_questions, new_choices, strict=True))
        for key, question in question_by_key.items():
            row = choices[key].row
            # Write the choice at once: a killed run keeps what it paid for.
            if row is not None and key not in earlier_keys and not question.is_padding:
                cell.write_selection(row)
        return choices

    def _checked_choice(self, cell: Cell, task_question: TaskQuestion, choice: FrameChoice | None) -> _ChosenFrames:
        """The question with its choice, checked against what the model can be shown; no choice leaves it unframed."""
        error = task_question.error
        if choice is None:
            return _ChosenFrames(cell=cell, framed=FramedQuestion(task_question=task_question, error=error))
        frames, fallback = tuple[int, ...](), None
        error = error or choice.error
        if error is None:
            # Check now: if the model refused later, decoding would have been in vain.
            try:
                settings = cell.settings
                self._check_limit(choice, settings.frames, is_replaced=settings.frame_policy == "aks")
                assert choice.row is not None
                frames, fallback = frames_to_feed(choice.row, settings.frame_policy)
            except Exception as raised:  # noqa: BLE001 (recorded: one question never ends a run)
                error = error_line(raised)
        framed = FramedQuestion(task_question=task_question, row=choice.row, error=error)
        return _ChosenFrames(cell=cell, framed=framed, frames=frames, fallback=fallback)

    def _check_limit(self, choice: FrameChoice, frames: int, *, is_replaced: bool) -> None:
        """Raise InvalidInput if the row has no frames, more than the model shows, or sizes that it cannot show.

        Args:
            frames: limit of frames that are shown.
            is_replaced: True if the frame policy shows other frames in place of a selection with too few.
        """
        row, model = choice.row, self._session.model
        if row is None or not (row.keyframes or row.role == "floor" or is_replaced):
            reason = choice.infeasible_reason
            raise InvalidInput(f"no frame chosen: {reason}" if reason else "no frame chosen")
        if row.scales is not None and not model.takes_mixed_sizes:
            raise InvalidInput(
                f"sampler {row.sampler!r} chose frames of several sizes; {model.model_id} can show one size only"
            )
        n_keyframes = len(row.keyframes or ())
        if row.scales is None and n_keyframes > frames:
            raise InvalidInput(f"{n_keyframes} frames chosen, {model.model_id} is set to show at most {frames}")

    def _read_together(self, video: _Video, part: Sequence[_ChosenFrames]) -> Iterator[QuestionBatch]:
        """Read the union of the frames of questions about one video, and yield a batch for each question."""
        own_bytes = [len(question.frames) * video.frame_bytes for question in part]
        union = sorted({frame for question in part for frame in question.frames})
        # Questions that share the union copy their frames out of it; a single question keeps the frames that are read.
        is_shared = sum(1 for question in part if question.frames) > 1
        shared_bytes = len(union) * video.frame_bytes if is_shared else 0
        self._queue.reserve(shared_bytes + sum(own_bytes))
        started = time.perf_counter()
        shared: FrameBatch | None = None
        if is_shared:
            with suppress(FocusEvalError):  # on failure each question reads its own frames, and records its own error
                shared = video.read(union)
        seconds = (time.perf_counter() - started) / len(part)
        framed_questions = [_with_frames(question, video, shared=shared, seconds=seconds) for question in part]
        del shared
        self._queue.release(shared_bytes)
        for question, framed, n_bytes in zip(part, framed_questions, own_bytes, strict=True):
            yield QuestionBatch(cell=question.cell, questions=[framed], n_bytes=n_bytes)

    def _stock_batches(self, cell: Cell, questions: Sequence[_ChosenFrames]) -> Iterator[QuestionBatch]:
        """Yield the stock wrapper's batches of one cell; one whose frames need too much memory comes in parts."""
        for question in questions:
            if question.framed.error is not None:
                yield QuestionBatch(cell=cell, questions=[question.framed])
        askable = {question.framed.task_question: question for question in questions if question.framed.error is None}
        for task_questions in form_batches(self._session.model, list(askable)):
            batch = [askable[task_question] for task_question in task_questions]
            with ExitStack() as videos:
                video_by_path: dict[Path | None, _Video] = {}
                for question in batch:
                    path = question.framed.task_question.path
                    if path not in video_by_path:
                        video_by_path[path] = self._opened(path, videos) if question.frames else _Video()
                yield from self._read_batch(cell, batch, video_by_path)

    def _read_batch(
        self, cell: Cell, batch: Sequence[_ChosenFrames], video_by_path: Mapping[Path | None, _Video]
    ) -> Iterator[QuestionBatch]:
        """Read the frames of one stock batch and yield it, whole or in parts that each take half of the memory."""
        videos = [video_by_path[question.framed.task_question.path] for question in batch]
        sizes = [len(question.frames) * video.frame_bytes for question, video in zip(batch, videos, strict=True)]
        parts = _parts_of_batch(batch, sizes, self._session.max_bytes)
        if len(parts) > 1 and not self._has_logged_parts:
            self._has_logged_parts = True
            logger.info(
                f"a batch of {len(batch)} questions is answered in {len(parts)} parts, and others like it: "
                f"their frames take more than decode_gigabytes={self._session.max_bytes / 1e9:g}"
            )
        for numbers in parts:
            n_bytes = sum(sizes[number] for number in numbers)
            self._queue.reserve(n_bytes)
            framed_questions = [_with_frames(batch[number], videos[number]) for number in numbers]
            yield QuestionBatch(cell=cell, questions=framed_questions, n_bytes=n_bytes)


def _with_frames(
    question: _ChosenFrames, video: _Video, *, shared: FrameBatch | None = None, seconds: float = 0.0
) -> FramedQuestion:
    """Return the question with its frames read, or with the error of reading them; as it is if it has none to read.

    Args:
        shared: frames that were read for several questions, in place of reading from `video`.
        seconds: the question's share of the time of reading those frames.
    """
    framed, started = question.framed, time.perf_counter()
    if not question.frames:
        return framed
    try:
        assert framed.row is not None
        frame_batch = video.read(question.frames) if shared is None else shared.pick(question.frames)
        framed = replace(framed, frame_batch=show_selection(framed.row, frame_batch, question.fallback))
    except RunError:
        raise
    except Exception as error:  # noqa: BLE001 (recorded: one question never ends a run)
        framed = replace(framed, error=error_line(error))
    return replace(framed, decode_seconds=seconds + time.perf_counter() - started)


def _parts_of_video(
    questions: Sequence[_ChosenFrames], frame_bytes: int, max_bytes: float
) -> Iterator[list[_ChosenFrames]]:
    """Yield the questions about one video in parts whose frames, read together and copied, take `max_bytes` at most.

    A question that needs more is a part by itself.
    """
    part: list[_ChosenFrames] = []
    union: set[int] = set()
    n_copied = 0
    for question in questions:
        grown, n_frames = union | set(question.frames), len(question.frames)
        if part and (len(grown) + n_copied + n_frames) * frame_bytes > max_bytes:
            yield part
            part, grown, n_copied = [], set(question.frames), 0
        part.append(question)
        union, n_copied = grown, n_copied + n_frames
    yield part


def _parts_of_batch(batch: Collection[_ChosenFrames], sizes: Sequence[int], max_bytes: float) -> list[list[int]]:
    """Return a batch's question numbers as one part if they fit into `max_bytes`, else in parts of half of it.

    Half, so that a part can be read while the part before is answered. A question that needs more is a part by itself.
    """
    if sum(sizes) <= max_bytes:
        return [list(range(len(batch)))]
    parts: list[list[int]] = [[]]
    n_bytes = 0
    for number, size in enumerate(sizes):
        # Without the first condition an oversized question would leave an empty part.
        if parts[-1] and n_bytes + size > max_bytes / 2:
            parts.append([])
            n_bytes = 0
        parts[-1].append(number)
        n_bytes += size
    return parts
