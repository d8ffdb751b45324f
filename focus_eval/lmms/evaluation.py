"""Takes lmms-eval's requests through selection, decoding and answering to rows."""

from __future__ import annotations

import copy
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any

from tqdm import tqdm

from focus_eval.errors import AnswerError, FocusEvalError, InvalidInput, RunError, is_device_failure
from focus_eval.lmms.arguments import SeamOptions
from focus_eval.lmms.batches import batches_like_the_wrapper
from focus_eval.lmms.frame_batch import FrameBatch, decode_frame_batch
from focus_eval.lmms.generate_trace import GenerateTrace
from focus_eval.lmms.recording import Recorder
from focus_eval.lmms.requests import PendingRequest, Shown, pending_request, rewritten
from focus_eval.lmms.run_checks import RunCounts
from focus_eval.lmms.shown_model import ShownModel
from focus_eval.lmms.sources import FrameSource, NeedsQuestions
from focus_eval.lmms.tasks.parsing import NO_ANSWER
from focus_eval.pipeline.frame_server import SharedBatcher
from focus_eval.pipeline.selector import Selector
from focus_eval.pipeline.timing import charged_rows
from focus_eval.rows.records import AnswerRow, SelectionRow
from focus_eval.video import open_video

# While one batch is answered so many are decoded: an hour-long video may take longer to read than to answer about.
_BATCHES_AHEAD = 2


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """What is being shown: whose frames, how many, read how, written where.

    Args:
        source: gives the selections; None for the wrapper's own sampling.
        frames: keyframes asked for.
        options: frame policy, video reader, answer parsing.
        recorder: takes the rows.
        answered: rows by question id that need no asking again.
    """

    source: FrameSource | None
    frames: int
    options: SeamOptions
    recorder: Recorder
    answered: Mapping[str, AnswerRow]


class RequestRunner:
    """Takes requests through selection, decoding and the wrapper; each question's failure is its own."""

    def __init__(self, model: ShownModel, context: RunContext, *, counts: RunCounts, quiet: bool) -> None:
        self._model = model
        self._context = context
        self._counts = counts
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
        new = [pending for pending in queue if self._earlier(pending) is None]
        self._prepare_source(new)
        self._select(new)
        waiting = []
        for pending in new:
            if pending.error is None:
                waiting.append(pending)
            else:
                self._keep(pending)
        self._answer_all(waiting)
        return [self._reply(pending) for pending in queue]

    # Which frames.

    def _prepare_source(self, queue: list[PendingRequest]) -> None:
        source = self._context.source
        if not isinstance(source, NeedsQuestions):
            return
        groups: dict[tuple[str, str], list[PendingRequest]] = {}
        for pending in queue:
            if pending.benchmark is not None:
                groups.setdefault((pending.parts.task, pending.parts.split), []).append(pending)
        for (task, split), group in groups.items():
            question_of, name = group[0].benchmark.question, group[0].benchmark.name
            questions = [question_of(document) for document in self._model.task_dict[task][split]]
            source.prepare(name, questions, asked={pending.question.id for pending in group})

    def _select(self, queue: list[PendingRequest]) -> None:
        """Choose frames for every document once, the questions of one video together."""
        source = self._context.source
        if source is None:
            return
        first_of: dict[tuple[str, str, int], PendingRequest] = {}
        by_video: dict[Path | None, list[PendingRequest]] = {}
        for pending in queue:
            if first_of.setdefault(pending.parts.key, pending) is not pending:
                continue
            pending.row = None if pending.error is not None else self._context.recorder.earlier_selection(pending)
            if pending.row is None:
                by_video.setdefault(pending.path, []).append(pending)
        with tqdm(total=sum(map(len, by_video.values())), desc="Choosing frames", disable=self._quiet) as progress:
            for path, group in by_video.items():
                self._select_together(source, path, group)
                for pending in group:
                    if not pending.is_padding:
                        self._context.recorder.selection(pending)
                progress.update(len(group))
        for pending in queue:  # asked again: a repeat, or a copy that keeps ranks in step
            first = first_of[pending.parts.key]
            pending.row, pending.error = first.row, pending.error or first.error

    def _select_together(self, source: FrameSource, path: Path | None, group: list[PendingRequest]) -> None:
        """Choose the frames of one video's questions; a sampler that pulls decodes and embeds each frame once."""
        if not isinstance(source, Selector) or path is None or len(group) == 1:
            for pending in group:
                self._select_one(pending, source.select)
            return
        started = time.perf_counter()
        try:
            reader = open_video(path, backend=self._context.options.backend)
        except FocusEvalError:
            for pending in group:  # each fails on its own, with its own row
                self._select_one(pending, source.select)
            return
        with reader:
            batcher = SharedBatcher(reader)
            select = partial(source.select, batcher=batcher)
            batcher.run([partial(self._select_one, pending, select) for pending in group])
        with_rows = [(pending, pending.row) for pending in group if pending.row is not None]
        charged = charged_rows([row for _, row in with_rows], time.perf_counter() - started)
        for (pending, _), row in zip(with_rows, charged, strict=True):
            pending.row = row

    def _select_one(self, pending: PendingRequest, select: Callable[..., SelectionRow]) -> None:
        source = self._context.source
        try:
            if pending.error is not None or pending.path is None:
                raise AnswerError(pending.error or "the document has no video")
            pending.row = select(pending.question, pending.path, bucket_of=pending.bucket_of)
            self._check_limit(pending)
        except RunError:
            raise
        except Exception as error:  # noqa: BLE001 (recorded: one question never ends a run)
            pending.fail(error)
            if pending.row is None and source is not None:
                pending.row = source.error_row(pending.question, error, bucket_of=pending.bucket_of)

    def _check_limit(self, pending: PendingRequest) -> None:
        row, model, most = pending.row, self._model.model_id, self._context.frames
        if row is None or not (row.keyframes or row.role == "floor" or self._context.options.frame_policy == "aks"):
            raise InvalidInput("no frame chosen")
        if row.scales is not None and not self._model.takes_mixed_sizes:
            raise InvalidInput(f"sampler {row.sampler!r} chose frames of several sizes; {model} can show one size only")
        if row.scales is None and len(row.keyframes) > most:
            raise InvalidInput(f"{len(row.keyframes)} frames chosen, {model} is set to show at most {most}")

    # Asking the wrapper.

    def _answer_all(self, queue: list[PendingRequest]) -> None:
        at_once = self._model.questions_at_once
        if at_once is None:
            answered = self._one_after_another(batches_like_the_wrapper(self._model, queue))
        else:
            answered = self._in_parallel([[pending] for pending in queue], at_once)
        with tqdm(total=len(queue), desc="Answering", disable=self._quiet) as progress:
            for batch in answered:
                for pending in batch:
                    self._keep(pending)
                progress.update(len(batch))

    def _one_after_another(self, groups: list[list[PendingRequest]]) -> Iterator[list[PendingRequest]]:
        """Answer each batch while the frames of the next ones are decoded."""
        with ThreadPoolExecutor(max_workers=_BATCHES_AHEAD) as pool:
            ahead = deque(pool.submit(self._decode, batch) for batch in groups[:_BATCHES_AHEAD])
            for at, batch in enumerate(groups):
                started = time.perf_counter()
                ahead.popleft().result()
                waited = time.perf_counter() - started
                ahead += [pool.submit(self._decode, after) for after in groups[at + _BATCHES_AHEAD :][:1]]
                for pending in batch:
                    pending.seconds["idle"] = waited / len(batch)
                self._answer([pending for pending in batch if pending.error is None])
                yield batch

    def _in_parallel(self, groups: list[list[PendingRequest]], at_once: int) -> Iterator[list[PendingRequest]]:
        room = BoundedSemaphore(2 * (os.cpu_count() or 1))  # decoded frames of all questions at once would be too much

        def answer(batch: list[PendingRequest]) -> list[PendingRequest]:
            with room:
                self._decode(batch)
            self._answer([pending for pending in batch if pending.error is None])
            return batch

        ended_by: RunError | None = None
        with ThreadPoolExecutor(max_workers=at_once) as pool:
            futures = [pool.submit(answer, batch) for batch in groups]
            for future in futures:
                try:
                    yield future.result()
                except RunError as error:  # no further question is asked, but those under way are paid for and kept
                    ended_by = ended_by or error
                    for waiting in futures:
                        waiting.cancel()
                except CancelledError:
                    continue
        if ended_by is not None:
            raise ended_by

    def _decode(self, batch: list[PendingRequest]) -> None:
        options = self._context.options
        frame_batches: dict[tuple[str, str, int], FrameBatch] = {}
        for pending in batch:
            if pending.row is None or pending.path is None:
                continue
            started = time.perf_counter()
            try:
                if pending.parts.key not in frame_batches:
                    frame_batch = decode_frame_batch(
                        pending.row, pending.path, frame_policy=options.frame_policy, backend=options.backend
                    )
                    self._model.ready(frame_batch)
                    frame_batches[pending.parts.key] = frame_batch
                pending.frame_batch = frame_batches[pending.parts.key]
            except Exception as error:  # noqa: BLE001 (recorded: one question never ends a run)
                pending.fail(error)
            pending.seconds["decode"] = time.perf_counter() - started

    def _answer(self, batch: list[PendingRequest]) -> None:
        """Answer a batch; where it fails as a whole, ask one by one, so that each question fails alone."""
        if not batch:
            return
        try:
            self._generate(batch)
        except RunError:
            raise
        except Exception as error:
            if is_device_failure(error):
                line = str(error).strip().splitlines()[0]
                raise RunError(f"{self._model.model_id}: {line}; run again, finished answers are kept") from error
            if len(batch) == 1:
                batch[0].fail(error)
            else:
                for pending in batch:
                    self._answer([pending])
        for pending in batch:
            if pending.frame_batch is not None:
                pending.fed_frames = pending.frame_batch.frames_of_video
                pending.fallback = pending.frame_batch.fallback
            pending.frame_batch = None

    def _generate(self, batch: list[PendingRequest]) -> None:
        trace = GenerateTrace()
        started = time.perf_counter()
        try:
            view = self._view(batch, trace)
            outputs = view.wrapper_generate(
                [rewritten(pending.request, is_simple=self._model.is_simple) for pending in batch]
            )
        finally:
            self._note(batch, trace, time.perf_counter() - started)
        if trace.error is not None:  # some wrappers catch what their model raises, and answer "" instead
            raise trace.error
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
            pending.seconds["preprocess"] = (seconds - trace.generate_seconds) / len(batch)

    def _check_shown(self, pending: PendingRequest) -> None:
        if pending.frame_batch is None:
            if pending.n_reached == 0:
                raise AnswerError(f"{pending.path}: the wrapper's own sampling showed no frame of it")
            return
        if not pending.frame_batch.is_taken:
            raise AnswerError(f"{pending.path}: the wrapper did not read the chosen frames; does it support this file?")
        if pending.frame_batch.scales is not None or pending.n_reached is None:
            return
        n_fed, merged = len(pending.frame_batch.frames), self._model.frames_merged
        if pending.n_reached != -(-n_fed // merged) * merged:
            raise AnswerError(f"{pending.path}: {n_fed} frames were fed, but {pending.n_reached} reached the model")

    def _view(self, batch: list[PendingRequest], trace: GenerateTrace) -> Any:
        """Return a shallow copy of the model that sees only this batch, and notes in `trace` what its model does."""
        view: Any = copy.copy(self._model)
        view._rank = -1  # silences the wrapper's own progress bar, which would begin anew with every batch
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
        for message in pending.messages or []:
            parts: list[dict[str, Any]] = []
            for part in message["content"]:
                parts += self._model.video_parts(pending.frame_batch) if part["type"] == "video" else [part]
            messages.append({**message, "content": parts})
        return Shown(messages=messages)

    # What came of it.

    def _earlier(self, pending: PendingRequest) -> AnswerRow | None:
        row = self._context.answered.get(pending.question.id) or self._context.recorder.earlier(pending)
        return row if row is not None and row.error is None else None

    def _keep(self, pending: PendingRequest) -> None:
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
        return NO_ANSWER if pending.error is not None else pending.output
