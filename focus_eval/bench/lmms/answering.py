"""Answers lmms-eval's requests: chooses and decodes frames, asks the model, and writes the rows."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from traceback import clear_frames
from typing import Any

from lmms_eval.api.instance import unwrap_generation_output
from loguru import logger
from tqdm import tqdm

from focus_eval.bench.benchmarks.question import Benchmark
from focus_eval.bench.lmms.arguments import AdapterOptions, FrameSource, ReplayedSelections
from focus_eval.bench.lmms.lookahead import Batch, LookAhead, Turn, batches_that_fit, own_cores
from focus_eval.bench.lmms.parsing import REASONING_TAGS
from focus_eval.bench.lmms.recording import Recorder, RunCounts
from focus_eval.bench.lmms.requests import (
    FrameBatch,
    PendingRequest,
    ViewDocument,
    form_batches,
    frames_to_decode,
    make_frame_batch,
    pending_request,
    read_frames,
    rewrite_request,
)
from focus_eval.bench.lmms.tasks import NO_ANSWER
from focus_eval.bench.lmms.tracing import GenerateTrace, end_of_prompt, prompt_record
from focus_eval.core.errors import (
    AnswerError,
    FocusEvalError,
    InvalidInput,
    RunError,
    SelectionMismatch,
    is_device_failure,
)
from focus_eval.keyframes.pipeline.selector import Outcome, QuestionRequest, Selector, choose_on_video
from focus_eval.keyframes.pipeline.timing import charged_rows
from focus_eval.keyframes.rows.records import SelectionRow
from focus_eval.keyframes.samplers.base import FrameSampler
from focus_eval.keyframes.video import open_video
from focus_eval.keyframes.video.scan import KeptScans

GIGABYTE = 1e9


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """Settings of one run: the source of selections, frames per question, options, and the recorder of its rows.

    Args:
        source: gives the selections, or has their rows by question id; None for the wrapper's own sampling.
        frames: requested keyframes.
        options: frame policy, video reader, answer parsing.
        recorder: writes the rows.
        benchmark: whose questions the documents are; None for the one that `options` or the task's name says.
        scan_cache: facts of opened video files, kept for other processes; None keeps nothing.
        cores: number of CPU cores for decoding and preparing.
    """

    source: FrameSource | Mapping[str, SelectionRow] | None
    frames: int
    options: AdapterOptions
    recorder: Recorder
    benchmark: Benchmark | None = None
    scan_cache: KeptScans | None = None
    cores: int = field(default_factory=own_cores)


class FrameChooser:
    """Chooses the frames of every request; a question that fails does not affect the others."""

    def __init__(self, model: Any, context: RunContext, *, quiet: bool) -> None:
        self._model = model
        self._context = context
        self._quiet = quiet

    def choose(self, queue: list[PendingRequest]) -> None:
        """Choose frames once per document of `queue`; set `row`, or `error`, of each request."""
        self._prepare_source(queue)
        self._select(queue)

    def _prepare_source(self, queue: list[PendingRequest]) -> None:
        """Let replayed selections read all questions of a benchmark before the first is chosen."""
        source = self._context.source
        if not isinstance(source, ReplayedSelections):
            return
        groups: dict[tuple[str, str], tuple[Benchmark, set[str]]] = {}
        for pending in queue:
            # A task without a benchmark has no known order of questions to hold a file against.
            if pending.benchmark is not None:
                task_and_split = pending.parts.task, pending.parts.split
                groups.setdefault(task_and_split, (pending.benchmark, set()))[1].add(pending.question.id)
        for (task, split), (benchmark, question_ids) in groups.items():
            # All of the split, also under --limit: some published files go by position.
            questions = [benchmark.question(document) for document in self._model.task_dict[task][split]]
            source.prepare(benchmark.name, questions, question_ids=question_ids)

    def _select(self, queue: list[PendingRequest]) -> None:
        """Choose frames once per document, video by video; requests of one document share the row.

        A row of an earlier start is used again.
        """
        source = self._context.source
        if source is None:
            return
        if isinstance(source, Mapping):
            for pending in queue:
                self._take_row(pending, source)
            return
        # One selection per document: two requests about it (a repeat) must be shown the same frames.
        first_of: dict[tuple[str, str, int], PendingRequest] = {}
        by_video: dict[Path | None, list[PendingRequest]] = {}
        for pending in queue:
            if first_of.setdefault(pending.parts.key, pending) is not pending:
                continue
            pending.row = None if pending.error is not None else self._context.recorder.earlier_selection(pending)
            if pending.row is None:
                by_video.setdefault(pending.path, []).append(pending)
        self._warn_of_empty_selections(source, by_video)
        with tqdm(total=sum(map(len, by_video.values())), desc="Choosing frames", disable=self._quiet) as progress:
            for path, group in by_video.items():
                self._select_together(source, path, group)
                for pending in group:
                    # Video by video: a killed run keeps the choices that are paid for.
                    if not pending.is_padding:
                        self._context.recorder.selection(pending)
                progress.update(len(group))
        for pending in queue:  # asked again: a repeat, or a copy that keeps ranks in step
            first = first_of[pending.parts.key]
            pending.row, pending.error = first.row, pending.error or first.error

    def _take_row(self, pending: PendingRequest, row_by_question: Mapping[str, SelectionRow]) -> None:
        """Set the request's row to the given one; a request without a row that it can be shown records an error."""
        if pending.error is not None:
            return
        question = pending.question
        try:
            if pending.path is None:
                raise AnswerError("the document has no video")
            pending.row = row_by_question.get(question.id)
            if pending.row is None:
                n_rows = len(row_by_question)
                raise SelectionMismatch(f"{question.benchmark} {question.id}: no selection among {n_rows} rows")
            if pending.row.error is not None:
                raise SelectionMismatch(f"no selection: {pending.row.error}")
            self._check_limit(pending)
        except Exception as error:  # noqa: BLE001 (recorded: one question never ends a run)
            pending.fail(error)

    def _warn_of_empty_selections(
        self, source: FrameSource, pending_by_video: Mapping[Path | None, Sequence[PendingRequest]]
    ) -> None:
        """Log how many questions may become errors because the sampler may choose no frame of their video."""
        if not isinstance(source, Selector) or not has_infeasible_videos(source.sampler):
            return
        n_questions, reason = 0, ""
        for path, group in pending_by_video.items():
            with suppress(FocusEvalError):
                if path is None:
                    continue
                with open_video(path, backend=self._context.options.backend, kept=self._context.scan_cache) as reader:
                    reason_of_video = source.sampler.infeasible_reason(reader.info, k=source.k)
                if reason_of_video is not None:
                    n_questions, reason = n_questions + len(group), reason or f"{path.name}: {reason_of_video}"
        if n_questions:
            n_all = sum(map(len, pending_by_video.values()))
            logger.warning(f"{n_questions} of {n_all} questions may end without frames, and so as errors; {reason}")

    def _select_together(self, source: FrameSource, path: Path | None, group: list[PendingRequest]) -> None:
        """Choose the frames of all questions about one video; they share decoded and embedded frames.

        The wall-clock time is divided among their rows.
        """
        choosable = [pending for pending in group if pending.error is None and pending.path is not None]
        started, reader = time.perf_counter(), None
        # Only a sampler that pulls gains from being served together; a replayed selection has nothing to embed.
        if isinstance(source, Selector) and path is not None and len(choosable) > 1:
            with suppress(FocusEvalError):  # each opens it again and fails on its own, with its own row
                reader = open_video(path, backend=self._context.options.backend, kept=self._context.scan_cache)
        if isinstance(source, Selector) and path is not None and reader is not None:
            requests = [
                QuestionRequest(selector=source, question=pending.question, path=path, bucket_of=pending.bucket_of)
                for pending in choosable
            ]
            with reader:
                outcomes = choose_on_video(reader, requests)
        else:
            outcomes = [_attempt(source, pending) for pending in choosable]
        for pending, outcome in zip(choosable, outcomes, strict=True):
            _set_row(pending, source, outcome)
        if reader is not None:
            # What the threads measure overlaps; charged is the wall clock of all together.
            rows = [pending.row for pending in choosable if pending.row is not None]
            for pending, row in zip(choosable, charged_rows(rows, time.perf_counter() - started), strict=True):
                pending.row = row
        for pending in group:
            if pending not in choosable:
                unread = AnswerError(pending.error or "the document has no video")
                _set_row(pending, source, Outcome(error=unread))
            elif pending.error is None:
                # Now, not when the model refuses: decoding and batching would be in vain.
                try:
                    self._check_limit(pending)
                except Exception as error:  # noqa: BLE001 (recorded: one question never ends a run)
                    pending.fail(error)

    def _check_limit(self, pending: PendingRequest) -> None:
        """Raise InvalidInput if the row has no frames, more than the model shows, or sizes that it cannot show."""
        row, model, max_frames = pending.row, self._model.model_id, self._context.frames
        if row is None or not (row.keyframes or row.role == "floor" or self._context.options.frame_policy == "aks"):
            raise InvalidInput(f"no frame chosen{self._infeasible_reason(row)}")
        if row.scales is not None and not self._model.takes_mixed_sizes:
            raise InvalidInput(f"sampler {row.sampler!r} chose frames of several sizes; {model} can show one size only")
        n_keyframes = len(row.keyframes or ())
        if row.scales is None and n_keyframes > max_frames:
            raise InvalidInput(f"{n_keyframes} frames chosen, {model} is set to show at most {max_frames}")

    def _infeasible_reason(self, row: SelectionRow | None) -> str:
        """Return ": " and why the sampler may choose no frame of the row's video; "" if there is no reason."""
        source = self._context.source
        if row is None or row.info is None or not isinstance(source, Selector):
            return ""
        reason = source.sampler.infeasible_reason(row.info, k=source.k)
        return f": {reason}" if reason else ""


def _attempt(source: FrameSource, pending: PendingRequest) -> Outcome:
    """Return the outcome of one request on its own; only a RunError is raised."""
    assert pending.path is not None
    if isinstance(source, Selector):
        return source.attempt(pending.question, pending.path, bucket_of=pending.bucket_of)
    try:
        return Outcome(row=source.select(pending.question, pending.path, bucket_of=pending.bucket_of))
    except RunError:
        raise
    except Exception as error:  # noqa: BLE001 (recorded: one question never ends a run)
        return Outcome(error=error)


def _set_row(pending: PendingRequest, source: FrameSource, outcome: Outcome) -> None:
    """Set the row of a request, or its error and the row that records it."""
    pending.row = outcome.row
    if outcome.error is not None:
        pending.fail(outcome.error)
        cost = {"cost": outcome.cost} if outcome.cost is not None else {}  # of a Selector alone
        pending.row = source.error_row(pending.question, outcome.error, bucket_of=pending.bucket_of, **cost)


def has_infeasible_videos(sampler: FrameSampler) -> bool:
    """Return True if the sampler may choose no frame of some videos, that is, if it overrides `infeasible_reason`."""
    return type(sampler).infeasible_reason is not FrameSampler.infeasible_reason


def answer_batch(model: Any, context: RunContext, requests: list[PendingRequest], turn: Turn | None = None) -> None:
    """Answer a batch. If the batch fails, ask its questions one by one, so that each fails alone.

    Questions that have failed before are left out.

    Args:
        model: the adapter.
        requests: with decoded frames; their `output` or `error` is set.
        turn: the batch's place in the order of batches; None for a service.

    Raises:
        RunError: the device or the service failed.
    """
    requests = [pending for pending in requests if pending.error is None]
    if not requests:
        return
    try:
        _generate(model, context, requests, turn)
    except RunError:
        raise
    except Exception as error:
        # The next question would fail likewise: ended here, the run leaves these questions to be asked again.
        if is_device_failure(error):
            line = str(error).strip().splitlines()[0]
            raise RunError(f"{model.model_id}: {line}; run again, finished answers are kept") from error
        # The traceback holds what the failed call put on the device; the questions alone may need that memory.
        clear_frames(error.__traceback__)
        if len(requests) == 1:
            requests[0].fail(error)
        else:
            for pending in requests:
                # Slower, but only the question at fault is lost.
                answer_batch(model, context, [pending], turn)
    for pending in requests:
        if pending.frame_batch is not None:
            pending.fed_frames = pending.frame_batch.frames_of_video
            pending.fallback = pending.frame_batch.fallback
        # The pixels of a finished question are the largest thing in memory.
        pending.frame_batch = None


def _generate(model: Any, context: RunContext, requests: list[PendingRequest], turn: Turn | None) -> None:
    """Have the wrapper answer one batch; set output and costs of each request.

    Raises the model's error, also one that the wrapper caught, and AnswerError if the model was not called or did
    not get the frames.
    """
    cell = context.recorder.cell_of(requests[0].parts)
    trace = GenerateTrace(wants_prompt_record=cell.wants_prompt, turn=turn)
    # This thread's copies of the processors; none if no batch is prepared ahead.
    own_processors: AbstractContextManager[dict[str, Any]] = nullcontext({})
    if turn is not None and model.prepares_ahead:
        own_processors = model.processors.of(model, turn)
    with own_processors as processors:
        started, waited = time.perf_counter(), turn.waited_seconds if turn else 0.0
        try:
            if not model.prepares_ahead:
                trace.take_turn()
            view = _view(model, requests, trace, processors)
            outputs = view.wrapper_generate(
                [rewrite_request(pending.request, is_simple=model.is_simple) for pending in requests]
            )
        finally:
            waited = (turn.waited_seconds if turn else 0.0) - waited
            # Also after a failure: the row says what the attempt took.
            _record_costs(requests, trace, time.perf_counter() - started - waited)
    if trace.error is not None:  # some wrappers catch what their model raises, and answer "" instead
        raise trace.error
    # A cache of the wrapper, or an early return: an answer that nobody generated is not recorded as one.
    if trace.n_calls == 0:
        raise AnswerError("the wrapper answered without calling its model")
    if len(outputs) != len(requests):
        raise AnswerError(f"the wrapper returned {len(outputs)} answers to {len(requests)} questions")
    prompt_end = end_of_prompt(view, trace)
    for pending, output in zip(requests, outputs, strict=True):
        _check_frames_reached(model, pending)
        pending.output, pending.prompt_end = output, prompt_end
    if trace.sent:
        first = requests[0]
        cell.write_prompt(prompt_record(view, first.question.id, trace.sent, first.tokens))


def _record_costs(requests: list[PendingRequest], trace: GenerateTrace, seconds: float) -> None:
    """Set frames, tokens and an equal part of the batch's seconds in each request."""
    for at, pending in enumerate(requests):
        pending.n_reached = trace.frames[at] if trace.frames and at < len(trace.frames) else None
        pending.tokens = trace.tokens[at] if at < len(trace.tokens) else {}
        pending.seconds["generate"] = trace.generate_seconds / len(requests)
        # What the wrapper does around `generate`: prompt, processor, decoding of tokens.
        pending.seconds["preprocess"] = (seconds - trace.generate_seconds) / len(requests)
        if trace.turn is not None:
            pending.seconds["idle"] = trace.turn.idle_seconds / len(requests)


def _check_frames_reached(model: Any, pending: PendingRequest) -> None:
    """Raise AnswerError if the model did not get the chosen frames, all of them and no others."""
    if pending.frame_batch is None:
        # Of the wrapper's own sampling any number of frames is right, except none.
        if pending.n_reached == 0:
            raise AnswerError(f"{pending.path}: the wrapper's own sampling showed the model no frame")
        return
    if not pending.frame_batch.pixels_were_read:
        raise AnswerError(f"{pending.path}: the wrapper did not read the chosen frames; does it support this file?")
    if pending.frame_batch.scales is not None or pending.n_reached is None:
        return
    # Qwen-VL merges frames in pairs and repeats the last of an odd number.
    n_fed, merged = len(pending.frame_batch.frames), model.frames_merged
    if pending.n_reached != -(-n_fed // merged) * merged:
        raise AnswerError(f"{pending.path}: {n_fed} frames were fed, but {pending.n_reached} reached the model")


def _view(model: Any, requests: list[PendingRequest], trace: GenerateTrace, processors: Mapping[str, Any]) -> Any:
    """Return a shallow copy of the adapter that knows only this batch's documents and records calls in `trace`.

    Args:
        processors: this thread's copies of processors, by attribute name; they replace the adapter's.
    """
    # Shallow: the weights are shared, while documents, model and progress bar are this batch's own. Wrappers look
    # their documents up in `self.task_dict`, so the frames come to them from there.
    view: Any = copy.copy(model)
    vars(view).update(processors)
    view._rank = -1  # silences the wrapper's own progress bar, which would start again with every batch
    view.task_dict = {}
    for pending in requests:
        task, split, doc_id = pending.parts.key
        view.task_dict.setdefault(task, {}).setdefault(split, {})[doc_id] = _view_document(model, pending)
    model.trace_model(view, requests, trace)
    return view


def _view_document(model: Any, pending: PendingRequest) -> ViewDocument:
    """Return the document that gives the wrapper this question's frames; the video itself if none were chosen."""
    if pending.frame_batch is None:
        return ViewDocument(visuals=[str(pending.path)], messages=pending.messages)
    if model.is_simple:
        return ViewDocument(visuals=model.visuals(pending.frame_batch))
    messages = []
    for message in pending.messages or []:
        parts: list[dict[str, Any]] = []
        for part in message["content"]:
            parts += model.video_parts(pending.frame_batch) if part["type"] == "video" else [part]
        messages.append({**message, "content": parts})
    return ViewDocument(messages=messages)


class RequestRunner:
    """Answers the requests of runs with one model, in one pipeline: choose, decode, prepare, answer, write.

    A question that fails does not affect the others. Several runs are answered video by video, so that the frames of a
    video are decoded once.

    Args:
        model: the adapter.
        contexts: settings of each run; memory and cores are those of the first.
        counts: counts to which each written row is added.
        quiet: hides progress bars.
    """

    def __init__(self, model: Any, contexts: Sequence[RunContext], *, counts: RunCounts, quiet: bool) -> None:
        self._model = model
        self._contexts = contexts
        self._counts = counts
        self._max_bytes = contexts[0].options.decode_gigabytes * GIGABYTE
        self._has_logged_pieces = False
        # tqdm heeds this variable only where nobody passes `disable`; the matrix runner has bars of its own.
        self._quiet = quiet or os.environ.get("TQDM_DISABLE", "") not in ("", "0")

    def run(self, requests: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Return the wrapper's answer to each request of each context, `NO_ANSWER` for one that failed."""
        queues = [self.choose(*run) for run in zip(self._contexts, requests, strict=True)]
        n_questions = sum(len(waiting) for _, waiting in queues)
        batches = (
            batch
            for context, (_, waiting) in zip(self._contexts, queues, strict=True)
            for batch in self.batches(context, waiting)
        )
        if len(self._contexts) > 1:  # samplers of one video share its decoded frames
            by_video: dict[Path | None, list[Batch]] = {}
            for batch in batches:
                by_video.setdefault(batch.requests[0].path, []).append(batch)
            batches = (batch for of_video in by_video.values() for batch in of_video)
        self.answer(batches, n_questions)
        return [
            [self.reply(context, pending) for pending in queue]
            for context, (queue, _) in zip(self._contexts, queues, strict=True)
        ]

    def choose(self, context: RunContext, requests: Sequence[Any]) -> tuple[list[PendingRequest], list[PendingRequest]]:
        """Choose frames for the requests of a run without an earlier answer.

        Returns:
            All requests, and those still to be answered. A request whose selection failed gets its row here.
        """
        queue = [
            pending_request(
                request,
                self._model.task_dict,
                is_simple=self._model.is_simple,
                benchmark=context.benchmark,
                benchmark_name=context.options.benchmark,
            )
            for request in requests
        ]
        # Questions answered before an interruption are not asked again; their answers are handed back, and count.
        new = []
        for pending in queue:
            earlier = context.recorder.earlier(pending)
            if earlier is None:
                new.append(pending)
            elif not pending.is_padding:
                self._counts.add(earlier)
                self._counts.earlier += 1
        FrameChooser(self._model, context, quiet=self._quiet).choose(new)
        waiting = []
        for pending in new:
            if pending.error is None:
                waiting.append(pending)
            else:
                self.write_row(context, pending)
        return queue, waiting

    def batches(self, context: RunContext, queue: list[PendingRequest]) -> Iterator[Batch]:
        """Yield the requests of a run in batches; the model answers one batch in one call."""
        if self._model.questions_at_once is not None:
            # A service takes many questions at once.
            yield from (Batch(context, [pending]) for pending in queue)
            return
        for requests in form_batches(self._model, queue):
            pieces = list(batches_that_fit(requests, self._max_bytes, context.options.frame_policy))
            if len(pieces) > 1 and not self._has_logged_pieces:
                self._has_logged_pieces = True
                logger.info(
                    f"a batch of {len(requests)} questions is answered in {len(pieces)} parts, and others like it: "
                    f"their frames take more than decode_gigabytes={context.options.decode_gigabytes:g}"
                )
            yield from (Batch(context, piece) for piece in pieces)

    def answer(self, batches: Iterator[Batch], n_questions: int) -> None:
        """Answer `batches`, which may belong to several runs, and write their rows.

        Args:
            n_questions: number of questions in `batches`, for the progress bar.
        """
        look_ahead = LookAhead(
            self.prepare,
            lambda batch, turn: answer_batch(self._model, batch.context, batch.requests, turn),
            at_once=self._model.questions_at_once,
            cores=self._contexts[0].cores,
            max_bytes=self._max_bytes,
        )
        # Closed here, whatever ends the loop: else its threads would go on asking while an interrupt is on its way up.
        with (
            closing(look_ahead.run(batches)) as answered_batches,
            tqdm(total=n_questions, desc="Answering", disable=self._quiet) as progress,
        ):
            for batch in answered_batches:
                # A row as soon as its batch is done: a killed run loses only what is under way.
                for pending in batch.requests:
                    self.write_row(batch.context, pending)
                progress.update(len(batch.requests))

    def prepare(self, batch: Batch) -> None:
        """Set the decoded frames of each question of `batch`; a question that fails records its error."""
        frame_batches: dict[tuple[str, str, int], FrameBatch] = {}
        for pending in batch.requests:
            started = time.perf_counter()
            try:
                self._prepare_one(pending, batch, frame_batches)
            except Exception as error:  # noqa: BLE001 (recorded: one question never ends a run)
                pending.fail(error)
            pending.seconds["decode"] = time.perf_counter() - started + batch.group.seconds_per_question
        batch.n_bytes = sum(frame_batch.held_bytes for frame_batch in frame_batches.values())
        batch.group.release(batch)

    def _prepare_one(
        self, pending: PendingRequest, batch: Batch, frame_batches: dict[tuple[str, str, int], FrameBatch]
    ) -> None:
        """Set the frames of one request, from its group or decoded alone; nothing without a selection.

        `frame_batches` keeps them by document, for further requests of it.
        """
        row, path, options = pending.row, pending.path, batch.context.options
        if row is None or path is None:
            return
        key = pending.parts.key
        # A document asked twice in one batch is shown the same frames.
        if key not in frame_batches:
            frames, _ = frames_to_decode(row, options.frame_policy)
            decoded = batch.group.take(path, frames)
            if decoded is None:
                decoded = read_frames(path, frames, backend=options.backend, scan_cache=batch.context.scan_cache)
            frame_batch = make_frame_batch(row, path, decoded, frame_policy=options.frame_policy)
            self._model.ready(frame_batch)
            frame_batches[key] = frame_batch
        pending.frame_batch = frame_batches[key]

    def write_row(self, context: RunContext, pending: PendingRequest) -> None:
        """Write the row of an answered or failed question, and count it."""
        # lmms-eval repeats a rank's last request so that all ranks make as many calls; it counts once.
        if pending.is_padding:
            return
        row = context.recorder.answer(pending, context.frames)
        pending.is_cut = row.is_cut
        self._counts.add(row)

    def reply(self, context: RunContext, pending: PendingRequest) -> Any:
        """Return the reply to lmms-eval: an earlier start's answer, the wrapper's output, or `NO_ANSWER` on error."""
        earlier = context.recorder.earlier(pending)
        if earlier is not None:
            # A row holds what the model wrote, of which some wrappers return a part.
            text = self._model.strip_reply(earlier.answer)
            return mark_as_cut(text) if earlier.is_cut else text
        # lmms-eval wants a text for every request, also where there is no answer.
        if pending.error is not None:
            return NO_ANSWER
        return mark_as_cut(pending.output) if pending.is_cut else pending.output


def mark_as_cut(output: Any) -> Any:
    """Return a wrapper's output that is cut while thinking, behind an opening tag where the prompt held that tag.

    A task that gets it then reads no answer in the thoughts.
    """
    text = str(unwrap_generation_output(output)[0])
    has_tag = not text.strip() or any(start in text for start, _ in REASONING_TAGS)
    return output if has_tag else REASONING_TAGS[0][0] + text
