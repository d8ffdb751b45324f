"""Asks the wrapper one batch at a time, with the frames that were chosen, and checks that it showed them."""

from __future__ import annotations

import copy
import time
from functools import partial
from typing import Any

from focus_eval.errors import AnswerError, RunError, is_device_failure
from focus_eval.lmms.batches import place_of
from focus_eval.lmms.generate_trace import GenerateTrace
from focus_eval.lmms.requests import PendingRequest, Shown, prefaced, rewritten
from focus_eval.lmms.run_context import RunContext
from focus_eval.lmms.shown_model import ShownModel


class BatchAnswerer:
    """Answers batches of requests whose frames are decoded; each question's failure is its own."""

    def __init__(self, model: ShownModel, context: RunContext) -> None:
        self._model = model
        self._context = context

    def answer(self, batch: list[PendingRequest]) -> None:
        """Answer a batch; where it fails as a whole, ask one by one, so that each question fails alone.

        Questions that have failed before are left out.

        Raises:
            RunError: a failure of the device or of the service, which no question is to blame for.
        """
        batch = [pending for pending in batch if pending.error is None]
        if not batch:
            return
        if any(pending.preface for pending in batch):  # known since the frames are: it changes the wrapper's order
            batch = sorted(batch, key=partial(place_of, self._model))
        try:
            self._generate(batch)
        except RunError:
            raise
        except Exception as error:
            # The next question would fail likewise: ended here, the run leaves these questions to be asked again.
            if is_device_failure(error):
                line = str(error).strip().splitlines()[0]
                raise RunError(f"{self._model.model_id}: {line}; run again, finished answers are kept") from error
            if len(batch) == 1:
                batch[0].fail(error)
            else:
                for pending in batch:
                    # Slower, but only the question at fault is lost.
                    self.answer([pending])
        for pending in batch:
            if pending.frame_batch is not None:
                pending.fed_frames = pending.frame_batch.frames_of_video
                pending.fallback = pending.frame_batch.fallback
            # The pixels of a finished question are the largest thing in memory.
            pending.frame_batch = None

    def _generate(self, batch: list[PendingRequest]) -> None:
        trace = GenerateTrace()
        started = time.perf_counter()
        try:
            view = self._view(batch, trace)
            outputs = view.wrapper_generate(
                [
                    rewritten(pending.request, is_simple=self._model.is_simple, preface=pending.preface)
                    for pending in batch
                ]
            )
        finally:
            # Also after a failure: the row says what the attempt took.
            self._note(batch, trace, time.perf_counter() - started)
        if trace.error is not None:  # some wrappers catch what their model raises, and answer "" instead
            raise trace.error
        # A cache of the wrapper, or an early return: an answer that nobody generated is not recorded as one.
        if trace.n_calls == 0:
            raise AnswerError("the wrapper answered without calling its model")
        if len(outputs) != len(batch):
            raise AnswerError(f"the wrapper returned {len(outputs)} answers to {len(batch)} questions")
        for pending, output in zip(batch, outputs, strict=True):
            self._check_shown(pending)
            pending.output = output

    def _note(self, batch: list[PendingRequest], trace: GenerateTrace, seconds: float) -> None:
        for at, pending in enumerate(batch):
            pending.n_reached = trace.frames[at] if trace.frames and at < len(trace.frames) else None
            pending.tokens = trace.tokens[at] if at < len(trace.tokens) else {}
            pending.seconds["generate"] = trace.generate_seconds / len(batch)
            # What the wrapper does around `generate`: prompt, processor, decoding of tokens.
            pending.seconds["preprocess"] = (seconds - trace.generate_seconds) / len(batch)

    def _check_shown(self, pending: PendingRequest) -> None:
        if pending.frame_batch is None:
            # Of the wrapper's own sampling any number of frames is right, except none.
            if pending.n_reached == 0:
                raise AnswerError(f"{pending.path}: the wrapper's own sampling showed the model no frame")
            return
        if not pending.frame_batch.is_taken:
            raise AnswerError(f"{pending.path}: the wrapper did not read the chosen frames; does it support this file?")
        if pending.frame_batch.scales is not None or pending.n_reached is None:
            return
        # Qwen-VL merges frames in pairs and repeats the last of an odd number.
        n_fed, merged = len(pending.frame_batch.frames), self._model.frames_merged
        if pending.n_reached != -(-n_fed // merged) * merged:
            raise AnswerError(f"{pending.path}: {n_fed} frames were fed, but {pending.n_reached} reached the model")

    def _view(self, batch: list[PendingRequest], trace: GenerateTrace) -> Any:
        """Return a shallow copy of the model that sees only this batch, and notes in `trace` what its model does."""
        # Shallow: the weights are shared, while documents, model and progress bar are this batch's own. Wrappers look
        # their documents up in `self.task_dict`, so the frames come to them from there.
        view: Any = copy.copy(self._model)
        view._rank = -1  # silences the wrapper's own progress bar, which would start again with every batch
        view.task_dict = {}
        for pending in batch:
            task, split, doc_id = pending.parts.key
            view.task_dict.setdefault(task, {}).setdefault(split, {})[doc_id] = self._shown(pending)
        self._model.trace_model(view, batch, trace)
        return view

    def _shown(self, pending: PendingRequest) -> Shown:
        if pending.frame_batch is None:
            return Shown(visuals=[str(pending.path)], messages=pending.messages)
        if self._model.is_simple:
            return Shown(visuals=self._model.visuals(pending.frame_batch))
        messages = []
        for message in prefaced(pending.messages or [], pending.preface):
            parts: list[dict[str, Any]] = []
            for part in message["content"]:
                parts += self._model.video_parts(pending.frame_batch) if part["type"] == "video" else [part]
            messages.append({**message, "content": parts})
        return Shown(messages=messages)
