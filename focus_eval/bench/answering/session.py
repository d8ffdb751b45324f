"""A session with a loaded model: batches of questions with their frames in, replies out.

    session = WrapperSession(model, decode_gigabytes=4.0)
    replies = session.ask(framed_questions)

The model is a wrapper of lmms-eval behind `lmms.adapter.FrameAdapter`. A session has no sampler: its caller gives the
frames with each question.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from traceback import clear_frames

from loguru import logger

from focus_eval.bench.answering.ahead import Place
from focus_eval.bench.answering.processors import OwnProcessors
from focus_eval.bench.answering.questions import (
    FramedQuestion,
    MessagePart,
    ModelReply,
    ViewDocument,
    messages_with,
    prompt_of,
    rewrite_request,
)
from focus_eval.bench.answering.tracing import GenerateTrace, end_of_prompt, prompt_record
from focus_eval.bench.answering.wrapper import Wrapper
from focus_eval.bench.benchmarks.subtitles import Prompt
from focus_eval.core.errors import AnswerError, RunError, is_device_failure
from focus_eval.keyframes.rows.records import error_line
from focus_eval.keyframes.subtitles.prompts import OTHER_FRAMES


class WrapperSession:
    """One loaded wrapper that answers batches, each in one call; a question that fails does not affect the others.

    Args:
        model: the wrapper.
        decode_gigabytes: memory for the frames of all batches in work.

    Attributes:
        device: lock on the model's device, held while the model or an encoder on the same GPU computes.
    """

    def __init__(self, model: Wrapper, *, decode_gigabytes: float) -> None:
        self.model = model
        self.max_bytes = decode_gigabytes * 1e9
        self.device = threading.Lock()
        self._processors = OwnProcessors()
        self._has_warned = False

    @property
    def answers_one_by_one(self) -> bool:
        """True if each call has one question, so that questions may be asked video by video."""
        return self.model.questions_at_once is not None or int(self.model.batch_size) == 1

    def close(self) -> None:
        """Release the model."""
        self.model.close()

    def make_ready(self, framed: FramedQuestion) -> FramedQuestion:
        """Return the question with its frames in the wrapper's own form, which may take less memory."""
        if framed.frame_batch is None:
            return framed
        try:
            return replace(framed, frame_batch=self.model.ready(framed.frame_batch))
        except Exception as error:  # noqa: BLE001 (recorded: one question never ends a run)
            return replace(framed, frame_batch=None, error=error_line(error))

    def ask(
        self, batch: Sequence[FramedQuestion], place: Place | None = None, *, wants_prompt: bool = False
    ) -> list[ModelReply]:
        """Return the reply to each question. If the batch fails, its questions are asked one by one.

        Args:
            batch: questions of one task.
            place: the batch's place in the queue; None asks at once.
            wants_prompt: True to add a record of what the model was sent to the first reply.

        Raises:
            RunError: the device or the service failed.
        """
        askable = [framed for framed in batch if framed.error is None]
        replies = iter(self._ask_together(askable, place, wants_prompt=wants_prompt) if askable else ())
        return [
            next(replies) if framed.error is None else ModelReply(error=framed.error, seconds=_decoding(framed))
            for framed in batch
        ]

    def _ask_together(
        self, batch: Sequence[FramedQuestion], place: Place | None, *, wants_prompt: bool
    ) -> list[ModelReply]:
        model = self.model
        # A service takes many questions at once, in any order, so no batch waits for its place.
        place = place if model.questions_at_once is None else None
        trace = GenerateTrace(wants_prompt_record=wants_prompt, place=place)
        try:
            return self._generate(batch, trace)
        except RunError:
            raise
        except Exception as error:
            # Other questions would fail too. End the run without rows for them, so that the next start asks them.
            if is_device_failure(error):
                line = str(error).strip().splitlines()[0]
                raise RunError(f"{model.model_id}: {line}; run again, finished answers are kept") from error
            # The traceback keeps the failed call's tensors on the device; the single questions may need that memory.
            clear_frames(error.__traceback__)
            if len(batch) == 1:
                # A failed attempt still costs time and money; its row records them.
                return [replace(_costs(batch, trace)[0], error=error_line(error))]
        # Ask one by one, which is slower, so that only the question at fault is lost.
        return [self._ask_together([framed], place, wants_prompt=wants_prompt)[0] for framed in batch]

    def _generate(self, batch: Sequence[FramedQuestion], trace: GenerateTrace) -> list[ModelReply]:
        """Return the wrapper's replies to a batch, whose calls are recorded in `trace`.

        Raises the model's error, also one that the wrapper caught, and AnswerError if the model was not called or did
        not get the frames.
        """
        model, place = self.model, trace.place
        read_by = [bool(framed.frame_batch is None) for framed in batch]
        shown_questions = [
            # Record for each question whether the wrapper reads its frames.
            replace(framed, frame_batch=replace(frame_batch, on_read=partial(read_by.__setitem__, at, True)))
            if (frame_batch := framed.frame_batch) is not None
            else framed
            for at, framed in enumerate(batch)
        ]
        # Each thread has copies of the processors, unless no batch is prepared ahead.
        own_processors: AbstractContextManager[dict[str, object]] = nullcontext({})
        if place is not None and model.prepares_ahead:
            own_processors = self._processors.of(model, place)
        with own_processors as processors:
            started, waited = time.perf_counter(), place.waited_seconds if place else 0.0
            try:
                if not model.prepares_ahead:
                    trace.take_model()
                prompts = [prompt_of(framed.task_question, framed.frame_batch) for framed in shown_questions]
                view = self._view(shown_questions, prompts, trace, processors)
                outputs = view.wrapper_generate(
                    [
                        rewrite_request(framed, prompt, is_simple=model.is_simple)
                        for framed, prompt in zip(shown_questions, prompts, strict=True)
                    ]
                )
            finally:
                waited = (place.waited_seconds if place else 0.0) - waited
                trace.wrapper_seconds = time.perf_counter() - started - waited
        if trace.error is not None:  # some wrappers catch what their model raises, and answer "" instead
            raise trace.error
        # Refuse answers from a cache or from an early return, since the model never saw the frames.
        if trace.n_calls == 0:
            raise AnswerError("the wrapper answered without calling its model")
        if len(outputs) != len(batch):
            raise AnswerError(f"the wrapper returned {len(outputs)} answers to {len(batch)} questions")
        costs = _costs(batch, trace)
        for framed, reply, was_read in zip(batch, costs, read_by, strict=True):
            self._check_frames_reached(framed, reply.n_reached, was_read=was_read)
        note = next((prompt.note for prompt in prompts if prompt.note.startswith(OTHER_FRAMES)), "")
        if note and not self._has_warned:
            self._has_warned = True
            logger.warning(f"{note}; such rows are marked, subtitles=shown gives lines of the shown frames")
        prompt_end = end_of_prompt(view, trace)
        replies = [
            replace(reply, output=output, prompt_end=prompt_end, prompt_note=prompt.note)
            for reply, output, prompt in zip(costs, outputs, prompts, strict=True)
        ]
        if trace.sent:
            record = prompt_record(view, batch[0].task_question.question.id, trace.sent, replies[0].tokens)
            replies[0] = replace(replies[0], prompt_record=record)
        return replies

    def _check_frames_reached(self, framed: FramedQuestion, n_reached: int | None, *, was_read: bool) -> None:
        """Raise AnswerError if the model did not get the chosen frames, all of them and no others."""
        frame_batch, path = framed.frame_batch, framed.task_question.path
        if frame_batch is None:
            # The wrapper's own sampling may show any number of frames above 0.
            if n_reached == 0:
                raise AnswerError(f"{path}: the wrapper's own sampling showed the model no frame")
            return
        if not was_read:
            raise AnswerError(f"{path}: the wrapper did not read the chosen frames; does it support this file?")
        if frame_batch.scales is not None or n_reached is None:
            return
        # Qwen-VL merges frames in pairs; an odd number is filled up with the last one.
        n_fed, merged = len(frame_batch.frames), self.model.frames_merged
        if n_reached != -(-n_fed // merged) * merged:
            raise AnswerError(f"{path}: {n_fed} frames were fed, but {n_reached} reached the model")

    def _view(
        self,
        batch: Sequence[FramedQuestion],
        prompts: Sequence[Prompt],
        trace: GenerateTrace,
        processors: Mapping[str, object],
    ) -> Wrapper:
        """Return a shallow copy of the wrapper that knows only this batch's documents and records calls in `trace`.

        Args:
            processors: this thread's copies of processors, by attribute name; they replace the wrapper's.
        """
        # A shallow copy shares the weights but has its own documents, model and progress bar. Wrappers look documents
        # up in `self.task_dict`, where they find the frames.
        view, documents = copy.copy(self.model), dict[str, dict[str, dict[int, ViewDocument]]]()
        for framed, prompt in zip(batch, prompts, strict=True):
            task, split, doc_id = framed.task_question.parts.key
            documents.setdefault(task, {}).setdefault(split, {})[doc_id] = self._view_document(framed, prompt)
        # Set a rank other than 0, with which the wrapper shows no progress bar: it would start again with every batch.
        vars(view).update({**processors, "task_dict": documents, "_rank": -1})
        self.model.trace_model(view, batch, trace)
        return view

    def _view_document(self, framed: FramedQuestion, prompt: Prompt) -> ViewDocument:
        """The document that gives the wrapper this question's frames; the video itself if none were chosen."""
        task_question, frame_batch = framed.task_question, framed.frame_batch
        if self.model.is_simple:
            if frame_batch is None:
                return ViewDocument(visuals=[str(task_question.path)])
            # For an interleaved prompt, simple wrappers take a list of images, whose places are marks in the text.
            return ViewDocument(visuals=frame_batch.images() if prompt.sequence else self.model.visuals(frame_batch))
        text = task_question.parts.context
        if frame_batch is None and prompt.text == text:
            return ViewDocument(messages=task_question.messages)
        video: list[MessagePart] = [{"type": "video", "url": str(task_question.path)}]
        pictures = video if frame_batch is None else self.model.video_parts(frame_batch)
        return ViewDocument(messages=messages_with(task_question.messages or [], prompt, pictures, text=text))


def _decoding(framed: FramedQuestion) -> dict[str, float]:
    return {"decode": framed.decode_seconds} if framed.decode_seconds else {}


def _costs(batch: Sequence[FramedQuestion], trace: GenerateTrace) -> list[ModelReply]:
    """The frames and tokens of each question and its equal share of the batch's seconds, as replies without output."""
    replies = []
    for at, framed in enumerate(batch):
        stages = _decoding(framed)
        stages["generate"] = trace.generate_seconds / len(batch)
        # The wrapper's work around `generate`: prompt, processor, decoding of tokens.
        stages["preprocess"] = (trace.wrapper_seconds - trace.generate_seconds) / len(batch)
        if trace.place is not None:
            stages["idle"] = trace.place.idle_seconds / len(batch)
        frame_batch = framed.frame_batch
        replies.append(
            ModelReply(
                fed_frames=frame_batch.frames_of_video if frame_batch else (),
                fallback=frame_batch.fallback if frame_batch else None,
                n_reached=trace.frames[at] if trace.frames and at < len(trace.frames) else None,
                tokens=trace.tokens[at] if at < len(trace.tokens) else {},
                seconds=stages,
            )
        )
    return replies
