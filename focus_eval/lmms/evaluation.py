"""What is the way of a question: from lmms-eval's request over its frames to an answer and a row?"""

from __future__ import annotations

import copy
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from focus_eval.errors import AnswerError, FocusEvalError, InvalidInput, RunError, is_device_failure
from focus_eval.lmms.arguments import SeamOptions
from focus_eval.lmms.batches import batches_like_the_wrapper
from focus_eval.lmms.frame_batch import Feed, feed_of
from focus_eval.lmms.generate_trace import Call
from focus_eval.lmms.recording import Recorder
from focus_eval.lmms.requests import Ask, Shown, ask_of, rewritten
from focus_eval.lmms.run_checks import NO_ANSWER, Tally
from focus_eval.lmms.sources import FrameSource, NeedsQuestions
from focus_eval.pipeline.frame_server import Rounds
from focus_eval.pipeline.selector import Selector
from focus_eval.pipeline.timing import charged_rows
from focus_eval.rows.records import AnswerRow, SelectionRow
from focus_eval.video import open_video

if TYPE_CHECKING:
    from focus_eval.lmms.seam import FrameSeam


# While one batch is answered so many are decoded: an hour-long video may take longer to read than to answer about.
_BATCHES_AHEAD = 2


@dataclass(frozen=True, kw_only=True)
class Showing:
    """What is being shown: whose frames, how many, read how, written where.

    Args:
        source: gives the selections; None for the wrapper's own sampling.
        frames: keyframes asked for.
        options: loader, video reader, protocol.
        recorder: takes the rows.
        answered: rows by question id that need no asking again.
    """

    source: FrameSource | None
    frames: int
    options: SeamOptions
    recorder: Recorder
    answered: Mapping[str, AnswerRow]


class Course:
    """Takes requests through selection, decoding and the wrapper; each question's failure is its own."""

    def __init__(self, model: FrameSeam, showing: Showing, *, tally: Tally, quiet: bool) -> None:
        self._model = model
        self._showing = showing
        self._tally = tally
        # tqdm heeds this variable only where nobody passes `disable`; the matrix runner has bars of its own.
        self._quiet = quiet or os.environ.get("TQDM_DISABLE", "") not in ("", "0")

    def run(self, requests: Sequence[Any]) -> list[Any]:
        """Return what the wrapper answered to each request, `NO_ANSWER` where it failed."""
        asks = [ask_of(request, self._model.task_dict, is_simple=self._model.is_simple) for request in requests]
        self._prepare_source(asks)
        self._select([ask for ask in asks if self._earlier(ask) is None])
        waiting = []
        for ask in asks:
            if self._earlier(ask) is not None:
                continue
            if ask.error is None:
                waiting.append(ask)
            else:
                self._keep(ask)
        self._answer_all(waiting)
        return [self._reply(ask) for ask in asks]

    # Which frames.

    def _prepare_source(self, asks: list[Ask]) -> None:
        source = self._showing.source
        seen: set[tuple[str, str]] = set()
        if not isinstance(source, NeedsQuestions):
            return
        for ask in asks:
            parts, benchmark = ask.parts, ask.benchmark
            if benchmark is None or (parts.task, parts.split) in seen:
                continue
            seen.add((parts.task, parts.split))
            documents = self._model.task_dict[parts.task][parts.split]
            source.prepare(benchmark.name, [benchmark.question(document) for document in documents])

    def _select(self, asks: list[Ask]) -> None:
        """Choose frames for every document once, the questions of one video together."""
        source = self._showing.source
        if source is None:
            return
        first_of: dict[tuple[str, str, int], Ask] = {}
        by_video: dict[Path | None, list[Ask]] = {}
        for ask in asks:
            if first_of.setdefault(ask.parts.key, ask) is ask:
                by_video.setdefault(ask.path, []).append(ask)
        with tqdm(total=len(first_of), desc="Choosing frames", disable=self._quiet) as progress:
            for path, group in by_video.items():
                self._select_together(source, path, group)
                for ask in group:
                    if not ask.is_padding and ask.row is not None:
                        self._showing.recorder.selection(ask.row)
                progress.update(len(group))
        for ask in asks:  # asked again: a repeat, or a copy that keeps ranks in step
            first = first_of[ask.parts.key]
            ask.row, ask.error = first.row, ask.error or first.error

    def _select_together(self, source: FrameSource, path: Path | None, group: list[Ask]) -> None:
        """Choose the frames of one video's questions; a sampler that pulls decodes and embeds each frame once."""
        if not isinstance(source, Selector) or path is None or len(group) == 1:
            for ask in group:
                self._select_one(ask, source.select)
            return
        started = time.perf_counter()
        try:
            reader = open_video(path, backend=self._showing.options.backend)
        except FocusEvalError:
            for ask in group:  # each fails on its own, with its own row
                self._select_one(ask, source.select)
            return
        with reader:
            rounds = Rounds(reader)
            select = partial(source.select, rounds=rounds)
            rounds.run([partial(self._select_one, ask, select) for ask in group])
        with_rows = [(ask, ask.row) for ask in group if ask.row is not None]
        charged = charged_rows([row for _, row in with_rows], time.perf_counter() - started)
        for (ask, _), row in zip(with_rows, charged, strict=True):
            ask.row = row

    def _select_one(self, ask: Ask, select: Callable[..., SelectionRow]) -> None:
        source = self._showing.source
        try:
            if ask.error is not None or ask.path is None:
                raise AnswerError(ask.error or "the document has no video")
            ask.row = select(ask.question, ask.path, bucket_of=ask.bucket_of)
            self._check_limit(ask)
        except RunError:
            raise
        except Exception as error:  # noqa: BLE001 (recorded: one question never ends a run)
            ask.fail(error)
            if ask.row is None and source is not None:
                ask.row = source.error_row(ask.question, error, bucket_of=ask.bucket_of)

    def _check_limit(self, ask: Ask) -> None:
        row, model, most = ask.row, self._model.model_id, self._showing.frames
        if row is None or not (row.keyframes or self._showing.options.loader == "aks"):
            raise InvalidInput("no frame chosen")
        if row.scales is not None and not self._model.takes_mixed_sizes:
            raise InvalidInput(f"sampler {row.sampler!r} chose frames of several sizes; {model} can show one size only")
        if row.scales is None and len(row.keyframes) > most:
            raise InvalidInput(f"{len(row.keyframes)} frames chosen, {model} is set to show at most {most}")

    # Asking the wrapper.

    def _answer_all(self, asks: list[Ask]) -> None:
        at_once = self._model.asks_at_once
        groups = batches_like_the_wrapper(self._model, asks) if at_once == 1 else [[ask] for ask in asks]
        with tqdm(total=len(asks), desc="Answering", disable=self._quiet) as progress:
            for batch in self._one_after_another(groups) if at_once == 1 else self._in_parallel(groups, at_once):
                for ask in batch:
                    self._keep(ask)
                progress.update(len(batch))

    def _one_after_another(self, groups: list[list[Ask]]) -> Iterator[list[Ask]]:
        """Answer each batch while the frames of the next ones are decoded."""
        with ThreadPoolExecutor(max_workers=_BATCHES_AHEAD) as pool:
            ahead = deque(pool.submit(self._decode, batch) for batch in groups[:_BATCHES_AHEAD])
            for at, batch in enumerate(groups):
                started = time.perf_counter()
                ahead.popleft().result()
                waited = time.perf_counter() - started
                ahead += [pool.submit(self._decode, after) for after in groups[at + _BATCHES_AHEAD :][:1]]
                for ask in batch:
                    ask.seconds["idle"] = waited / len(batch)
                self._answer([ask for ask in batch if ask.error is None])
                yield batch

    def _in_parallel(self, groups: list[list[Ask]], at_once: int) -> Iterator[list[Ask]]:
        room = BoundedSemaphore(2 * (os.cpu_count() or 1))  # decoded frames of all questions at once would be too much

        def answer(batch: list[Ask]) -> list[Ask]:
            with room:
                self._decode(batch)
            self._answer([ask for ask in batch if ask.error is None])
            return batch

        with ThreadPoolExecutor(max_workers=at_once) as pool:
            yield from pool.map(answer, groups)

    def _decode(self, batch: list[Ask]) -> None:
        options = self._showing.options
        feeds: dict[tuple[str, str, int], Feed] = {}
        for ask in batch:
            if ask.row is None or ask.path is None:
                continue
            started = time.perf_counter()
            try:
                if ask.parts.key not in feeds:
                    feed = feed_of(ask.row, ask.path, loader=options.loader, backend=options.backend)
                    self._model.ready(feed)
                    feeds[ask.parts.key] = feed
                ask.feed = feeds[ask.parts.key]
            except Exception as error:  # noqa: BLE001 (recorded: one question never ends a run)
                ask.fail(error)
            ask.seconds["decode"] = time.perf_counter() - started

    def _answer(self, batch: list[Ask]) -> None:
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
                for ask in batch:
                    self._answer([ask])
        for ask in batch:
            if ask.feed is not None:
                ask.fed_frames, ask.fallback = ask.feed.frames, ask.feed.fallback
            ask.feed = None

    def _generate(self, batch: list[Ask]) -> None:
        call = Call()
        started = time.perf_counter()
        try:
            view = self._view(batch, call)
            outputs = view.wrapper_generate([rewritten(ask.request, is_simple=self._model.is_simple) for ask in batch])
        finally:
            self._note(batch, call, time.perf_counter() - started)
        if call.error is not None:  # some wrappers catch what their model raises, and answer "" instead
            raise call.error
        if call.n_calls == 0:
            raise AnswerError("the wrapper gave an answer without asking its model")
        if len(outputs) != len(batch):
            raise AnswerError(f"the wrapper gave {len(outputs)} answers to {len(batch)} questions")
        for ask, output in zip(batch, outputs, strict=True):
            self._check_shown(ask)
            ask.output = output

    def _note(self, batch: list[Ask], call: Call, seconds: float) -> None:
        for at, ask in enumerate(batch):
            ask.n_reached = call.frames[at] if call.frames and at < len(call.frames) else None
            ask.tokens = call.tokens[at] if at < len(call.tokens) else {}
            ask.seconds["generate"] = call.generate_seconds / len(batch)
            ask.seconds["preprocess"] = (seconds - call.generate_seconds) / len(batch)

    def _check_shown(self, ask: Ask) -> None:
        if ask.feed is None:
            if ask.n_reached == 0:
                raise AnswerError(f"{ask.path}: the wrapper's own sampling showed no frame of it")
            return
        if not ask.feed.is_taken:
            raise AnswerError(f"{ask.path}: the wrapper never read the chosen frames (it may not take this file)")
        if ask.feed.scales is not None or ask.n_reached is None:
            return
        n_fed, merged = len(ask.feed.frames), self._model.frames_merged
        if ask.n_reached != -(-n_fed // merged) * merged:
            raise AnswerError(f"{ask.path}: {n_fed} frames fed, {ask.n_reached} reached the model")

    def _view(self, batch: list[Ask], call: Call) -> Any:
        """Return a shallow copy of the model that sees only this batch, and notes in `call` what its model does."""
        view: Any = copy.copy(self._model)
        view._rank = -1  # silences the wrapper's own progress bar, which would begin anew with every batch
        view.task_dict = {}
        for ask in batch:
            task, split, doc_id = ask.parts.key
            view.task_dict.setdefault(task, {}).setdefault(split, {})[doc_id] = self._shown(ask)
        self._model.watch(view, batch, call)
        return view

    def _shown(self, ask: Ask) -> Shown:
        if ask.feed is None:
            return Shown(visuals=[str(ask.path)], messages=ask.messages)
        if self._model.is_simple:
            return Shown(visuals=self._model.visuals(ask.feed))
        messages = []
        for message in ask.messages or []:
            parts: list[dict[str, Any]] = []
            for part in message["content"]:
                parts += self._model.video_parts(ask.feed) if part["type"] == "video" else [part]
            messages.append({**message, "content": parts})
        return Shown(messages=messages)

    # What came of it.

    def _earlier(self, ask: Ask) -> AnswerRow | None:
        row = self._showing.answered.get(ask.question.id)
        return row if row is not None and row.error is None else None

    def _keep(self, ask: Ask) -> None:
        if ask.is_padding:
            return
        row = self._showing.recorder.answer(ask, self._showing.frames)
        tally = self._tally
        tally.asked += 1
        tally.unparsed += row.is_unparsed
        tally.fallbacks += row.fallback is not None
        if row.error is not None:
            tally.errors += 1
            tally.first_error = tally.first_error or f"{row.question_id}: {row.error}"

    def _reply(self, ask: Ask) -> Any:
        earlier = self._earlier(ask)
        if earlier is not None:
            return earlier.answer
        return NO_ANSWER if ask.error is not None else ask.output
