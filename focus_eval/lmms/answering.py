"""Takes lmms-eval's requests through selection, decoding and answering to rows."""

from __future__ import annotations

import copy
import itertools
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from tqdm import tqdm

from focus_eval.core.errors import AnswerError, RunError, is_device_failure
from focus_eval.lmms.checks import RunCounts
from focus_eval.lmms.decoding import GIGABYTE, FrameChooser, FrameDecoder, FrameMemory
from focus_eval.lmms.protocol import AdapterProtocol, GenerateTrace, RunContext
from focus_eval.lmms.requests import (
    PendingRequest,
    ViewDocument,
    batches_like_the_wrapper,
    pending_request,
    place_of,
    prefaced,
    rewritten,
)
from focus_eval.lmms.sent import prompt_record
from focus_eval.lmms.tasks import NO_ANSWER
from focus_eval.lmms.turns import Turn, Turns, n_lanes
from focus_eval.rows.records import AnswerRow


class BatchAnswerer:
    """Answers batches of requests whose frames are decoded; each question's failure is its own."""

    def __init__(self, model: AdapterProtocol, context: RunContext) -> None:
        self._model = model
        self._context = context

    def answer(self, batch: list[PendingRequest], turn: Turn | None = None) -> None:
        """Answer a batch. If the batch fails, ask its questions one by one, so that each fails alone.

        Questions that have failed before are left out.

        Args:
            turn: of a model that takes one batch at a time.

        Raises:
            RunError: a failure of the device or of the service, which no question is to blame for.
        """
        batch = [pending for pending in batch if pending.error is None]
        if not batch:
            return
        if any(pending.preface for pending in batch):  # known since the frames are: it changes the wrapper's order
            batch = sorted(batch, key=partial(place_of, self._model))
        try:
            self._generate(batch, turn)
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
                    self.answer([pending], turn)
        for pending in batch:
            if pending.frame_batch is not None:
                pending.fed_frames = pending.frame_batch.frames_of_video
                pending.fallback = pending.frame_batch.fallback
            # The pixels of a finished question are the largest thing in memory.
            pending.frame_batch = None

    def _generate(self, batch: list[PendingRequest], turn: Turn | None) -> None:
        recorder = self._context.recorder
        trace = GenerateTrace(wants_sent=recorder.wants_prompt(batch[0].parts), turn=turn)
        with self._own_processors(turn) as processors:
            started, waited = time.perf_counter(), turn.waited_seconds if turn else 0.0
            try:
                if not self._model.prepares_ahead:
                    trace.take_turn()
                view = self._view(batch, trace, processors)
                requests = [
                    rewritten(pending.request, is_simple=self._model.is_simple, preface=pending.preface)
                    for pending in batch
                ]
                outputs = view.wrapper_generate(requests)
            finally:
                waited = (turn.waited_seconds if turn else 0.0) - waited
                # Also after a failure: the row says what the attempt took.
                self._note(batch, trace, time.perf_counter() - started - waited)
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
        if trace.sent:
            asked = batch[0]
            recorder.write_prompt(asked.parts, prompt_record(view, asked.question.id, trace.sent, asked.tokens))

    def _own_processors(self, turn: Turn | None) -> AbstractContextManager[dict[str, Any]]:
        if turn is None or not self._model.prepares_ahead:
            return nullcontext({})
        return self._model.processors.of(self._model, turn)

    def _note(self, batch: list[PendingRequest], trace: GenerateTrace, seconds: float) -> None:
        for at, pending in enumerate(batch):
            pending.n_reached = trace.frames[at] if trace.frames and at < len(trace.frames) else None
            pending.tokens = trace.tokens[at] if at < len(trace.tokens) else {}
            pending.seconds["generate"] = trace.generate_seconds / len(batch)
            # What the wrapper does around `generate`: prompt, processor, decoding of tokens.
            pending.seconds["preprocess"] = (seconds - trace.generate_seconds) / len(batch)
            if trace.turn is not None:
                pending.seconds["idle"] = trace.turn.idle_seconds / len(batch)

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

    def _view(self, batch: list[PendingRequest], trace: GenerateTrace, processors: Mapping[str, Any]) -> Any:
        """Return a shallow copy of the model that sees only this batch, and notes in `trace` what its model does."""
        # Shallow: the weights are shared, while documents, model and progress bar are this batch's own. Wrappers look
        # their documents up in `self.task_dict`, so the frames come to them from there.
        view: Any = copy.copy(self._model)
        vars(view).update(processors)
        view._rank = -1  # silences the wrapper's own progress bar, which would start again with every batch
        view.task_dict = {}
        for pending in batch:
            task, split, doc_id = pending.parts.key
            view.task_dict.setdefault(task, {}).setdefault(split, {})[doc_id] = self._shown(pending)
        self._model.trace_model(view, batch, trace)
        return view

    def _shown(self, pending: PendingRequest) -> ViewDocument:
        if pending.frame_batch is None:
            return ViewDocument(visuals=[str(pending.path)], messages=pending.messages)
        if self._model.is_simple:
            return ViewDocument(visuals=self._model.visuals(pending.frame_batch))
        messages = []
        for message in prefaced(pending.messages or [], pending.preface):
            parts: list[dict[str, Any]] = []
            for part in message["content"]:
                parts += self._model.video_parts(pending.frame_batch) if part["type"] == "video" else [part]
            messages.append({**message, "content": parts})
        return ViewDocument(messages=messages)


@dataclass(frozen=True)
class Part:
    """Requests that go to the model together, and whose they are."""

    runner: RequestRunner
    batch: list[PendingRequest]


Answered = Generator[Part, None, None]


class RequestRunner:
    """Takes requests through selection, decoding and the wrapper; each question's failure is its own."""

    def __init__(
        self,
        model: AdapterProtocol,
        context: RunContext,
        *,
        counts: RunCounts,
        quiet: bool,
        memory: FrameMemory | None = None,
    ) -> None:
        self._model = model
        self._context = context
        self._counts = counts
        self._batches = BatchAnswerer(model, context)
        self.memory = memory or FrameMemory(context.options.decode_gigabytes * GIGABYTE)
        self._decoder = FrameDecoder(model, context, self.memory)
        # tqdm heeds this variable only where nobody passes `disable`; the matrix runner has bars of its own.
        self._quiet = quiet or os.environ.get("TQDM_DISABLE", "") not in ("", "0")

    def run(self, requests: Sequence[Any]) -> list[Any]:
        """Return what the wrapper answered to each request, `NO_ANSWER` where it failed."""
        (answers,) = run_together([self], [requests])
        return answers

    def choose(self, requests: Sequence[Any]) -> tuple[list[PendingRequest], list[PendingRequest]]:
        """Return all `requests`, and those that are to be answered, with their selections."""
        queue = [
            pending_request(
                request,
                self._model.task_dict,
                is_simple=self._model.is_simple,
                benchmark_name=self._context.options.benchmark,
            )
            for request in requests
        ]
        # Questions answered before an interruption are not asked again; their answers are handed back.
        new = [pending for pending in queue if self._earlier(pending) is None]
        FrameChooser(self._model, self._context, quiet=self._quiet).choose(new)
        waiting = []
        for pending in new:
            if pending.error is None:
                waiting.append(pending)
            else:
                self._keep(pending)
        return queue, waiting

    def parts(self, queue: list[PendingRequest]) -> Iterator[Part]:
        """Yield `queue` as it goes to the model."""
        if self._model.questions_at_once is not None:
            # A service takes many questions at once.
            yield from (Part(self, [pending]) for pending in queue)
            return
        for batch in batches_like_the_wrapper(self._model, queue):
            yield from (Part(self, part) for part in self._decoder.parts(batch))

    def answer(self, parts: Iterator[Part], n_questions: int) -> None:
        """Answer `parts`, which may be of several runners, and write their rows."""
        at_once = self._model.questions_at_once
        answered = self._one_after_another(parts) if at_once is None else self._in_parallel(parts, at_once)
        # Closed here, whatever ends the loop: else its threads would go on asking while an interrupt is on its way up.
        with closing(answered), tqdm(total=n_questions, desc="Answering", disable=self._quiet) as progress:
            for part in answered:
                # A row as soon as its batch is done: a killed run loses only what is under way.
                for pending in part.batch:
                    part.runner._keep(pending)
                progress.update(len(part.batch))

    def _one_after_another(self, parts: Iterator[Part]) -> Answered:
        """Answer batch after batch; the frames and inputs of the next ones are prepared meanwhile, in threads."""
        turns, lanes = Turns(), n_lanes(self._context.cores)
        numbered = enumerate(parts)

        def answer(at: int, part: Part) -> None:
            try:
                part.runner.take(at, part.batch, Turn(turns, at))
            except BaseException:
                # Before the next one gets the model, which may be what failed.
                turns.end()
                raise
            finally:
                turns.give_back(at)

        with ThreadPoolExecutor(max_workers=lanes, initializer=_same_device()) as pool:
            ahead: deque[tuple[Part, Future[None]]] = deque()
            try:
                while True:
                    # One more than there are threads, so that none waits for the rows to be written.
                    for at, part in islice(numbered, lanes + 1 - len(ahead)):
                        ahead.append((part, pool.submit(answer, at, part)))
                    if not ahead:
                        return
                    part, answering = ahead.popleft()
                    # A question's failure is kept in its request; what is raised here ends the run.
                    answering.result()
                    yield part
            finally:
                # Also where the caller stops early: threads that wait would keep the pool from ending.
                _cancel(answering for _, answering in ahead)
                turns.end()
                self.memory.open()

    def take(self, at: int, batch: list[PendingRequest], turn: Turn | None = None) -> None:
        """Decode and answer the batch numbered `at`."""
        self._decoder.decode(at, batch)
        try:
            self._batches.answer(batch, turn)
        finally:
            # Whatever came of it: other threads wait for this room.
            self.memory.correct(at, 0)

    def _in_parallel(self, parts: Iterator[Part], at_once: int) -> Answered:
        # Given out as the batches begin: `FrameMemory` lets them in by number, and waits for each that is missing.
        numbers = itertools.count()

        def answer(part: Part) -> Part:
            part.runner.take(next(numbers), part.batch)
            return part

        ended_by: RunError | None = None
        with ThreadPoolExecutor(max_workers=at_once) as pool:
            futures = [pool.submit(answer, part) for part in parts]
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
                self.memory.open()
        if ended_by is not None:
            raise ended_by

    def _earlier(self, pending: PendingRequest) -> AnswerRow | None:
        row = self._context.recorder.earlier(pending)
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

    def reply(self, pending: PendingRequest) -> Any:
        """Return what lmms-eval is told."""
        earlier = self._earlier(pending)
        if earlier is not None:
            return earlier.answer
        # lmms-eval wants a text for every request, also where there is no answer.
        return NO_ANSWER if pending.error is not None else pending.output


def run_together(runners: Sequence[RequestRunner], requests: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Return what the wrapper answered to the requests of each runner; all share one pipeline.

    Several runners, which have one `memory`, are answered video by video: the frames of a video are decoded once.
    """
    queues = [runner.choose(asked) for runner, asked in zip(runners, requests, strict=True)]
    n_questions = sum(len(waiting) for _, waiting in queues)
    parts = (part for runner, (_, waiting) in zip(runners, queues, strict=True) for part in runner.parts(waiting))
    if len(runners) > 1:
        by_video: dict[Path | None, list[Part]] = {}
        for part in parts:
            by_video.setdefault(part.batch[0].path, []).append(part)
        parts = (part for of_video in by_video.values() for part in of_video)
    runners[0].answer(parts, n_questions)
    return [[runner.reply(pending) for pending in queue] for runner, (queue, _) in zip(runners, queues, strict=True)]


def _same_device() -> Callable[[], None] | None:
    """Return what makes a new thread use this thread's GPU; None where no GPU is in use."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return partial(torch.cuda.set_device, torch.cuda.current_device())


def _cancel(futures: Iterable[Future[Any]]) -> None:
    for future in futures:
        future.cancel()
