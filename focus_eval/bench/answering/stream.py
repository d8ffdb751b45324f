"""The stream of batches for the model: each video is opened once, its frames are chosen, read and handed on."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from loguru import logger

from focus_eval.bench.answering.ahead import AnswerQueue, Batch
from focus_eval.bench.answering.cell import Cell
from focus_eval.bench.answering.choosing import Chooser, FrameChoice
from focus_eval.bench.answering.frames import DecodedFrames, frames_to_decode, make_frame_batch, read_frames
from focus_eval.bench.answering.questions import FramedQuestion, TaskQuestion
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


@dataclass(frozen=True, kw_only=True)
class _Video:
    """A video opened for its questions, or the error of opening it; neither if its frames are not needed."""

    reader: VideoReader | None = None
    error: Exception | None = None

    @property
    def frame_bytes(self) -> int:
        """Bytes of one decoded frame; 0 if there is none."""
        return 3 * self.reader.width * self.reader.height if self.reader is not None else 0

    def read(self, frames: Iterable[int]) -> DecodedFrames:
        """Decode frames; raise VideoError, also if the video could not be opened."""
        if self.reader is None:
            raise self.error or AnswerError("the document has no video")
        return read_frames(self.reader, frames)


_Key = tuple[int, tuple[str, str, int]]


@dataclass(frozen=True, kw_only=True, eq=False)
class _QueuedQuestion:
    """A question of a cell on its way through the stream; `framed` has its selection, and no pixels yet."""

    work: CellQuestions
    framed: FramedQuestion
    frames: tuple[int, ...] = ()

    @property
    def key(self) -> _Key:
        """Cell and document: two requests about one document are shown the same frames."""
        return id(self.work), self.framed.task_question.parts.key


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

    def batches(self, work: Sequence[CellQuestions]) -> Iterator[Batch]:
        """Yield a batch for each question, video by video; or the stock wrapper's batches of several questions."""
        by_video: dict[Path | None, list[_QueuedQuestion]] = {}
        for item in work:
            for task_question in item.questions:
                waiting = _QueuedQuestion(work=item, framed=FramedQuestion(task_question=task_question))
                by_video.setdefault(task_question.path, []).append(waiting)
        if self._session.answers_one_by_one:
            for path, waiting_questions in by_video.items():
                yield from self._batches_of_video(path, waiting_questions)
            return
        # A batch holds only questions that have frames, so choose the frames of all questions before forming batches.
        question_by_id: dict[int, _QueuedQuestion] = {}
        for path, waiting_questions in by_video.items():
            with ExitStack() as videos:
                video = self._opened(path, waiting_questions, videos)
                question_by_id |= {
                    id(question.framed.task_question): question
                    for question in self._with_choices(video, waiting_questions)
                }
        for item in work:
            yield from self._stock_batches([question_by_id[id(task_question)] for task_question in item.questions])

    def _batches_of_video(self, path: Path | None, waiting_questions: Sequence[_QueuedQuestion]) -> Iterator[Batch]:
        """Open a video, choose its questions' frames, read them in parts that fit into memory, and yield each."""
        with ExitStack() as videos:
            video = self._opened(path, waiting_questions, videos)
            questions = self._with_choices(video, waiting_questions)
            for part in _parts_of_video(questions, video.frame_bytes, self._session.max_bytes / 2):
                yield from self._read_together(video, part)

    def _opened(self, path: Path | None, waiting_questions: Sequence[_QueuedQuestion], videos: ExitStack) -> _Video:
        """Open the video until `videos` is closed, if its frames are needed."""
        if path is None or all(
            question.work.chooser is None or question.framed.task_question.error for question in waiting_questions
        ):
            return _Video()
        try:
            return _Video(reader=videos.enter_context(self._open_video(path)))
        except RunError:
            raise
        except FocusEvalError as error:
            return _Video(error=error)

    def _with_choices(self, video: _Video, waiting_questions: Sequence[_QueuedQuestion]) -> list[_QueuedQuestion]:
        """The questions about one video with their selections; new selections are written."""
        by_work: dict[int, list[_QueuedQuestion]] = {}
        for question in waiting_questions:
            by_work.setdefault(id(question.work), []).append(question)
        choices: dict[_Key, FrameChoice] = {}
        for questions in by_work.values():
            first_by_key = {question.key: question for question in reversed(questions)}
            if questions[0].work.chooser is not None:
                choices |= self._choices(video, questions[0].work, list(reversed(first_by_key.values())))
        return [self._chosen(question, choices.get(question.key)) for question in waiting_questions]

    def _choices(
        self, video: _Video, work: CellQuestions, questions: Sequence[_QueuedQuestion]
    ) -> dict[_Key, FrameChoice]:
        """Choose once per document of one cell; a row of an earlier start is used again."""
        cell, chooser = work.cell, work.chooser
        assert chooser is not None
        earlier: dict[_Key, FrameChoice] = {}
        new: dict[_Key, FrameChoice] = {}
        open_questions: list[_QueuedQuestion] = []
        for question in questions:
            task_question = question.framed.task_question
            row = cell.earlier_selection(task_question.question) if task_question.error is None else None
            if row is not None:
                earlier[question.key] = FrameChoice(row=row)
            elif task_question.error is not None:
                new[question.key] = chooser.failed(task_question, AnswerError(task_question.error))
            elif video.error is not None:
                new[question.key] = chooser.failed(task_question, video.error)
            else:
                open_questions.append(question)
        if open_questions and video.reader is not None:
            # An encoder and a model on one GPU take turns, since each may fill the GPU's memory.
            with self._session.device if chooser.needs_gpu else nullcontext():
                choices = chooser.choose(
                    video.reader,
                    [question.framed.task_question for question in open_questions],
                    progress=_StopsWithRun(self._queue),
                )
            new |= {question.key: choice for question, choice in zip(open_questions, choices, strict=True)}
        for question in questions:
            row = new[question.key].row if question.key in new else None
            # Write the choice at once: a killed run keeps what it paid for.
            if row is not None and not question.framed.task_question.is_padding:
                cell.write_selection(row)
        return earlier | new

    def _chosen(self, question: _QueuedQuestion, choice: FrameChoice | None) -> _QueuedQuestion:
        """The question with its choice, checked against what the model can be shown."""
        framed, settings = question.framed, question.work.cell.settings
        error = framed.task_question.error
        if choice is None:
            return replace(question, framed=replace(framed, error=error))
        frames: tuple[int, ...] = ()
        error = error or choice.error
        if error is None:
            # Check now: if the model refused later, decoding would have been in vain.
            try:
                self._check_limit(choice, settings.frames, is_replaced=settings.frame_policy == "aks")
                assert choice.row is not None
                frames, _ = frames_to_decode(choice.row, settings.frame_policy)
            except Exception as raised:  # noqa: BLE001 (recorded: one question never ends a run)
                error = error_line(raised)
        return replace(question, framed=replace(framed, row=choice.row, error=error), frames=frames)

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

    def _read_together(self, video: _Video, part: Sequence[_QueuedQuestion]) -> Iterator[Batch]:
        """Read the union of the frames of questions about one video, and yield a batch for each question."""
        lists = {question.key: question.frames for question in part if question.frames}
        union = np.unique(np.asarray([frame for frames in lists.values() for frame in frames], dtype=np.int64))
        n_own = {key: len(frames) * video.frame_bytes for key, frames in lists.items()}
        # Questions that share the union copy their frames out of it; a single question keeps the frames that are read.
        n_shared = union.size * video.frame_bytes if len(lists) > 1 else 0
        self._queue.reserve(n_shared + sum(n_own.values()))
        started = time.perf_counter()
        shared: DecodedFrames | None = None
        if len(lists) > 1:
            with suppress(FocusEvalError):  # on failure each question reads its own frames, and records its own error
                shared = video.read(union)
        seconds = (time.perf_counter() - started) / len(part)
        framed_by_key: dict[_Key, FramedQuestion] = {}
        for question in part:
            if question.frames and question.key not in framed_by_key:
                framed_by_key[question.key] = _with_frames(question, video if shared is None else shared, seconds)
        del shared
        self._queue.release(n_shared)
        for question in part:
            framed = replace(
                framed_by_key.get(question.key, question.framed), task_question=question.framed.task_question
            )
            yield Batch(cell=question.work.cell, questions=[framed], n_bytes=n_own.pop(question.key, 0))

    def _stock_batches(self, questions: Sequence[_QueuedQuestion]) -> Iterator[Batch]:
        """Yield the stock wrapper's batches of one cell; one whose frames need too much memory comes in parts."""
        for question in questions:
            if question.framed.error is not None:
                yield Batch(cell=question.work.cell, questions=[question.framed])
        waiting = {id(question.framed.task_question): question for question in questions if not question.framed.error}
        askable = [question.framed.task_question for question in waiting.values()]
        for task_questions in form_batches(self._session.model, askable):
            batch = [waiting[id(task_question)] for task_question in task_questions]
            with ExitStack() as videos:
                video_by_path: dict[Path | None, _Video] = {}
                for question in batch:
                    path = question.framed.task_question.path
                    if path not in video_by_path:
                        video_by_path[path] = self._opened(path, [question], videos)
                yield from self._read_batch(batch, video_by_path)

    def _read_batch(
        self, batch: Sequence[_QueuedQuestion], video_by_path: Mapping[Path | None, _Video]
    ) -> Iterator[Batch]:
        """Read the frames of one stock batch and yield it, whole or in parts that each take half of the memory."""
        sizes = [
            len(question.frames) * video_by_path[question.framed.task_question.path].frame_bytes for question in batch
        ]
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
            framed_by_key: dict[_Key, FramedQuestion] = {}
            framed_questions = []
            for question in (batch[number] for number in numbers):
                task_question = question.framed.task_question
                if question.frames and question.key not in framed_by_key:
                    framed_by_key[question.key] = _with_frames(question, video_by_path[task_question.path], 0.0)
                framed = framed_by_key.get(question.key, question.framed)
                framed_questions.append(replace(framed, task_question=task_question))
            yield Batch(cell=batch[0].work.cell, questions=framed_questions, n_bytes=n_bytes)


class _StopsWithRun:
    """Progress callback that shows nothing, and ends the choosing of frames when the run ends."""

    def __init__(self, queue: AnswerQueue) -> None:
        self._queue = queue

    def expect(self, n_pulls: int) -> None:
        """As in `Progress`; does nothing."""

    def advance(self, n_pulls: int) -> None:
        """Raise RunError if the run ends."""
        self._queue.check_going_on()


def _with_frames(question: _QueuedQuestion, source: _Video | DecodedFrames, seconds: float) -> FramedQuestion:
    """Return the question with its frames, or the error of reading them.

    Args:
        source: the video, or frames that were read for several questions.
        seconds: the question's share of the time of reading those frames.
    """
    framed, started = question.framed, time.perf_counter()
    try:
        assert framed.row is not None
        assert framed.task_question.path is not None
        frames = question.frames
        decoded = source.pick(frames) if isinstance(source, DecodedFrames) else source.read(frames)
        policy = question.work.cell.settings.frame_policy
        frame_batch = make_frame_batch(framed.row, framed.task_question.path, decoded, frame_policy=policy)
        framed = replace(framed, frame_batch=frame_batch)
    except RunError:
        raise
    except Exception as error:  # noqa: BLE001 (recorded: one question never ends a run)
        framed = replace(framed, error=error_line(error))
    return replace(framed, decode_seconds=seconds + time.perf_counter() - started)


def _parts_of_video(
    questions: Sequence[_QueuedQuestion], frame_bytes: int, max_bytes: float
) -> Iterator[list[_QueuedQuestion]]:
    """Yield the questions about one video in parts whose frames, read together and copied, take `max_bytes` at most.

    A question that needs more is a part by itself.
    """
    part: list[_QueuedQuestion] = []
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


def _parts_of_batch(batch: Collection[_QueuedQuestion], sizes: Sequence[int], max_bytes: float) -> list[list[int]]:
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
