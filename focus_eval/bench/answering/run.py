"""Answers the questions of cells with one model, preparing the next ones meanwhile, and writes a row for each.

with DecodeProcesses(n) as processes:
    work = [CellQuestions(cell=cell, chooser=chooser, questions=questions)]
    for written in answer(session, work, open_video=processes.open_video, cores=n):
        print(written.row.answer)
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

from focus_eval.bench.answering.ahead import AnsweredBatch, AnswerQueue, Place, QuestionBatch, answer_ahead
from focus_eval.bench.answering.questions import ModelReply, TaskQuestion
from focus_eval.bench.answering.session import WrapperSession
from focus_eval.bench.answering.stream import CellQuestions, FrameStream, OpenVideo
from focus_eval.keyframes.rows.records import AnswerRow


@dataclass(frozen=True, kw_only=True)
class WrittenAnswer:
    """An answered or failed question, its reply, and its row (None for a copy that only keeps ranks in step)."""

    task_question: TaskQuestion
    reply: ModelReply
    row: AnswerRow | None


def answer(
    session: WrapperSession,
    work: Sequence[CellQuestions],
    *,
    open_video: OpenVideo,
    cores: int,
) -> Generator[WrittenAnswer, None, None]:
    """Yield each question of `work` once its row is written; a question that fails does not affect the others.

    Args:
        open_video: opens a video for exact reading.
        cores: number of CPU cores for preparing frames.

    Raises:
        RunError: a failure of the device, of the service or of the disk. The rows of answered questions are written.
    """

    def read(queue: AnswerQueue) -> Iterator[QuestionBatch]:
        return FrameStream(session, open_video, queue).batches(work)

    answered_batches = answer_ahead(
        read,
        partial(_ask, session),
        at_once=session.model.questions_at_once,
        cores=cores,
        max_bytes=session.max_bytes,
    )
    # Close the generator in any case: its threads would otherwise go on asking while an interrupt is being raised.
    with closing(answered_batches):
        for cell, answered in answered_batches:
            # Write each row as soon as its batch is done, so that a killed run loses only unfinished batches.
            for framed, reply in answered:
                is_written = not framed.task_question.is_padding
                row = cell.write_answer(framed, reply) if is_written else None
                yield WrittenAnswer(task_question=framed.task_question, reply=reply, row=row)


def _ask(session: WrapperSession, batch: QuestionBatch, place: Place) -> AnsweredBatch:
    """Ask a batch; return its questions, without their pixels, each with the reply."""
    questions = [session.make_ready(framed) for framed in batch.questions]
    # The adapter may have made the frames smaller, which leaves memory for other batches.
    held_bytes = sum(framed.frame_batch.held_bytes for framed in questions if framed.frame_batch is not None)
    place.shrink(min(batch.n_bytes, held_bytes))
    replies = session.ask(questions, place, wants_prompt=batch.cell.wants_prompt)
    # Drop the pixels of finished questions: nothing else takes as much memory.
    return [(replace(framed, frame_batch=None), reply) for framed, reply in zip(questions, replies, strict=True)]
