"""Takes lmms-eval's requests through selection, decoding and answering to rows."""

from __future__ import annotations

import itertools
import os
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any

from tqdm import tqdm

from focus_eval.errors import RunError
from focus_eval.lmms.batch_answers import BatchAnswerer
from focus_eval.lmms.batches import batches_like_the_wrapper
from focus_eval.lmms.decoding import FrameDecoder
from focus_eval.lmms.frame_choice import FrameChooser
from focus_eval.lmms.requests import PendingRequest, pending_request
from focus_eval.lmms.run_checks import RunCounts
from focus_eval.lmms.run_context import RunContext
from focus_eval.lmms.shown_model import ShownModel
from focus_eval.lmms.tasks.parsing import NO_ANSWER
from focus_eval.rows.records import AnswerRow

Answered = Generator[list[PendingRequest], None, None]


class RequestRunner:
    """Takes requests through selection, decoding and the wrapper; each question's failure is its own."""

    def __init__(self, model: ShownModel, context: RunContext, *, counts: RunCounts, quiet: bool) -> None:
        self._model = model
        self._context = context
        self._counts = counts
        self._batches = BatchAnswerer(model, context)
        # tqdm heeds this variable only where nobody passes `disable`; the matrix runner has bars of its own.
        self._quiet = quiet or os.environ.get("TQDM_DISABLE", "") not in ("", "0")

    def run(self, requests: Sequence[Any]) -> list[Any]:
        """Return what the wrapper answered to each request, `NO_ANSWER` where it failed."""
        queue = [
            pending_request(
                request,
                self._model.task_dict,
                is_simple=self._model.is_simple,
                benchmark_name=self._context.options.benchmark,
            )
            for request in requests
        ]
        # Questions answered before an interruption are not asked again; their answers are handed back below.
        new = [pending for pending in queue if self._earlier(pending) is None]
        FrameChooser(self._model, self._context, quiet=self._quiet).choose(new)
        waiting = []
        for pending in new:
            if pending.error is None:
                waiting.append(pending)
            else:
                self._keep(pending)
        self._answer_all(waiting)
        return [self._reply(pending) for pending in queue]

    def _answer_all(self, queue: list[PendingRequest]) -> None:
        at_once = self._model.questions_at_once
        # A local model takes one batch at a time; a service takes many questions at once.
        if at_once is None:
            answered = self._one_after_another(batches_like_the_wrapper(self._model, queue))
        else:
            answered = self._in_parallel([[pending] for pending in queue], at_once)
        # Closed here, whatever ends the loop: else its threads would go on asking while an interrupt is on its way up.
        with closing(answered), tqdm(total=len(queue), desc="Answering", disable=self._quiet) as progress:
            for batch in answered:
                # A row as soon as its batch is done: a killed run loses only what is under way.
                for pending in batch:
                    self._keep(pending)
                progress.update(len(batch))

    def _one_after_another(self, groups: list[list[PendingRequest]]) -> Answered:
        """Answer each batch while the frames of the next ones are decoded."""
        for batch in self._decoder().in_order(groups):
            self._batches.answer(batch)
            yield batch

    def _decoder(self) -> FrameDecoder:
        return FrameDecoder(self._model, self._context.options, shared=self._context.shared)

    def _in_parallel(self, groups: list[list[PendingRequest]], at_once: int) -> Answered:
        decoder = self._decoder()
        # Given out as the batches begin: `FrameMemory` lets them in by number, and waits for each that is missing.
        numbers = itertools.count()

        def answer(batch: list[PendingRequest]) -> list[PendingRequest]:
            at = next(numbers)
            decoder.decode(at, batch)
            try:
                self._batches.answer(batch)
            finally:
                # Whatever came of it: other threads wait for this room.
                decoder.memory.correct(at, 0)
            return batch

        ended_by: RunError | None = None
        with ThreadPoolExecutor(max_workers=at_once) as pool:
            futures = [pool.submit(answer, batch) for batch in groups]
            try:
                for future in futures:
                    try:
                        yield future.result()
                    except RunError as error:  # no further question is asked; those under way are paid for and kept
                        ended_by = ended_by or error
                        _cancel(futures)
                    except CancelledError:
                        continue
            finally:
                # Also after an interrupt: questions whose answers nobody takes would be asked, and paid for.
                _cancel(futures)
                decoder.memory.open()
        if ended_by is not None:
            raise ended_by

    def _earlier(self, pending: PendingRequest) -> AnswerRow | None:
        row = self._context.answered.get(pending.question.id) or self._context.recorder.earlier(pending)
        # A row with an error is not an answer: the question is asked again.
        return row if row is not None and row.error is None else None

    def _keep(self, pending: PendingRequest) -> None:
        # lmms-eval repeats a rank's last request so that all ranks make as many calls; it counts once.
        if pending.is_padding:
            return
        row = self._context.recorder.answer(pending, self._context.frames)
        counts = self._counts
        counts.asked += 1
        counts.unparsed += row.is_unparsed
        counts.fallbacks += row.fallback is not None
        if row.error is not None:
            counts.errors += 1
            counts.first_error = counts.first_error or f"{row.question_id}: {row.error}"

    def _reply(self, pending: PendingRequest) -> Any:
        earlier = self._earlier(pending)
        if earlier is not None:
            return earlier.answer
        # lmms-eval wants a text for every request, also where there is no answer.
        return NO_ANSWER if pending.error is not None else pending.output


def _cancel(futures: Iterable[Future[Any]]) -> None:
    """Keep those from starting that have not."""
    for future in futures:
        future.cancel()
