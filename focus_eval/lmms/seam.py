"""How do the chosen frames get into any lmms-eval wrapper, and what came of them into rows?"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

from loguru import logger
from tqdm import tqdm

from focus_eval.errors import AnswerError, InvalidInput
from focus_eval.lmms.arguments import NATIVE, SeamOptions, default_of, split_arguments
from focus_eval.lmms.asking import Ask, Shown, ask_of, rewritten
from focus_eval.lmms.batches import batches_like_the_wrapper
from focus_eval.lmms.ending import (
    NO_ANSWER,
    Tally,
    check_error_share,
    command_line_errors,
    over_all_ranks,
    refuse_response_cache,
)
from focus_eval.lmms.feeds import FedVideo, Feed, feed_of
from focus_eval.lmms.processes import one_process_on_cpu, rank_and_world
from focus_eval.lmms.recording import Recorder
from focus_eval.lmms.sources import FrameSource, NeedsQuestions, check_source, make_source
from focus_eval.lmms.watching import Call, WatchedModel
from focus_eval.records import AnswerRow


class FrameSeam:
    """Mixed in before a stock wrapper, shows it exactly the chosen frames and writes down what came of them.

    An adapter is a class `class FocusX(FrameSeam, X)` that says

    - `model_id`: the name in `focus_eval.lmms.manifests.MODELS` (one line there makes lmms-eval know it);
    - `frames_argument`: the wrapper's argument for the most frames it takes;
    - how the wrapper gets the pixels. What its `doc_to_visual` returns is `visuals(feed)`, by default a list with
      one `FedVideo`: a str that is the real path and carries `feed`. Override the wrapper's own loader, and where
      it is given a `FedVideo` return `path.feed.take()` in the shape the wrapper wants; else call `super()`.
      Chat wrappers: `video_parts(feed)` are the message parts that stand for the video.
    - where they differ: `takes_mixed_sizes` (the wrapper can show frames of different sizes as images),
      `largest_batch`, `asks_at_once` (an API), `frames_reaching(inputs)` (frames per question among the inputs of
      the model's `generate`, or None), `own_arguments` (further names, handed to `prepare`), `prepare`, `defaults`.

    Per question: selection, decode, then the wrapper's own `generate_until` on a copy of the request, called on a
    shallow copy of the model (a view), so that one question's failure is its own. A feed that the wrapper never
    read, or a number of frames that differs from what reached the model, is an error, not an answer.
    """

    model_id: ClassVar[str]
    frames_argument: ClassVar[str]
    frames_merged: ClassVar[int] = 1
    takes_mixed_sizes: ClassVar[bool] = False
    largest_batch: ClassVar[int | None] = None
    own_arguments: ClassVar[tuple[str, ...]] = ()

    # Provided by the wrapper.
    task_dict: dict[str, Any]
    is_simple: bool

    def __init__(self, **arguments: Any) -> None:
        with command_line_errors():
            refuse_response_cache()
            self.check_installed()
            base = self.wrapper()
            options, wrapper_arguments, own = split_arguments(
                self.model_id, arguments, base, extra=self.own_arguments
            )
            check_source(options)
            frames = self._agree_on_frames(options, wrapper_arguments, base)
            self._check_batch(wrapper_arguments)
            prepared = self.prepare(own, wrapper_arguments)
            source = make_source(options, frames=frames)
            self.defaults(wrapper_arguments)
            with one_process_on_cpu(wrapper_arguments.get("device")) as processes:
                super().__init__(**wrapper_arguments)
            processes.place(self)
            self.prepared = prepared
            self.seam_options = options
            self._wrapper_arguments = wrapper_arguments
            self._rank_and_world = rank_and_world()
            self._tally = Tally()
            self.show(source, frames=frames)

    # What an adapter may override.

    @classmethod
    def check_installed(cls) -> None:
        """Raise `MissingDependency` where the wrapper needs a package that is not here."""

    @classmethod
    def wrapper(cls) -> type:
        """Return the stock wrapper's class."""
        return next(kind for kind in cls.__mro__ if not issubclass(kind, FrameSeam) and "__init__" in vars(kind))

    def prepare(self, own: Mapping[str, Any], wrapper_arguments: dict[str, Any]) -> Any:
        """Check the adapter's own arguments before any weight loads; what is returned is kept as `prepared`."""
        return None

    def defaults(self, wrapper_arguments: dict[str, Any]) -> None:
        """Set arguments of the wrapper that its own defaults leave wrong."""
        if "device" in wrapper_arguments and "device_map" not in wrapper_arguments:
            wrapper_arguments["device_map"] = wrapper_arguments["device"]

    def visuals(self, feed: Feed) -> Any:
        """Return what `doc_to_visual` gives the wrapper for `feed`."""
        return [FedVideo(feed)]

    def video_parts(self, feed: Feed) -> list[dict[str, Any]]:
        """Return the parts of a chat message that stand for the video of `feed`."""
        return [{"type": "video", "url": FedVideo(feed)}]

    def frames_reaching(self, inputs: Mapping[str, Any]) -> list[int] | None:
        """Return the frames per question among the inputs of the model's `generate`; None where they do not tell."""
        return None

    @property
    def asks_at_once(self) -> int:
        """Questions asked in parallel, each on its own view: 1 but for an API."""
        return 1

    def watch(self, view: Any, batch: list[Ask], call: Call) -> None:
        """Make `view` note in `call` what its model does."""
        view._model = WatchedModel(self.model, call, self.frames_reaching)  # type: ignore[attr-defined]

    # What a caller may use.

    def show(
        self,
        source: FrameSource | None,
        *,
        frames: int,
        options: SeamOptions | None = None,
        recorder: Recorder | None = None,
        answered: Mapping[str, AnswerRow] | None = None,
    ) -> None:
        """Show the frames of `source` from now on: one loaded model serves one selection after another.

        Args:
            source: gives the selections (see `sources.GivenRows` for rows made before); None for the wrapper's own
                sampling.
            frames: keyframes asked for.
            options: loader, protocol, error share and the rest; those of the constructor by default.
            recorder: where rows go and under which cell; by default a folder below `record`.
            answered: rows by question id that need no asking again: their answers are handed back as they are.
        """
        self.seam_options = options or self.seam_options
        self._source, self._frames = source, frames
        self._answered = dict(answered or {})
        self._recorder = recorder or Recorder.for_command_line(
            self.seam_options,
            model=self.model_id,
            wrapper_arguments=self._wrapper_arguments,
            prepared=self.prepared,
            selection_id=source.selection_id if source else NATIVE,
            frames=frames,
            rank_and_world=self._rank_and_world,
        )

    @property
    def tally(self) -> Tally:
        """Counts of this rank since the run began."""
        return self._tally

    def generate_until(self, requests: Sequence[Any]) -> list[Any]:
        """Answer `requests` in their order; a question that fails gives `NO_ANSWER` and an error row."""
        with command_line_errors():
            refuse_response_cache()
            asks = [ask_of(request, self.task_dict, is_simple=self.is_simple) for request in requests]
            self._prepare_source(asks)
            self._select(asks)
            open_asks = [ask for ask in asks if self._earlier(ask) is None]
            for ask in open_asks:
                if ask.error is not None:
                    self._keep(ask)
            self._answer_all([ask for ask in open_asks if ask.error is None])
            return [self._reply(ask) for ask in asks]

    def generate_until_multi_round(self, requests: Sequence[Any]) -> list[Any]:
        """Not served: what a second round would be shown is not settled."""
        raise NotImplementedError(f"{self.model_id}: questions of several rounds are not served")

    def clean(self) -> None:
        """End a run: say how it went and fail it where too much failed. The model stays loaded; see `close`."""
        with command_line_errors():
            refuse_response_cache()
            self._recorder.flush()
            tally, self._tally = over_all_ranks(self._tally), Tally()
            if self._rank_and_world[0] == 0:
                logger.info(f"{self.model_id}: {tally.summary()}; rows in {self._recorder.where}")
            check_error_share(tally, self.seam_options.max_error_share)

    def close(self) -> None:
        """Release the model, as lmms-eval's own `clean` does after every run, and close the rows."""
        self._recorder.close()
        super().clean()  # type: ignore[misc]

    # The way of a question.

    def _prepare_source(self, asks: list[Ask]) -> None:
        if not isinstance(self._source, NeedsQuestions):
            return
        for ask in asks:
            if ask.benchmark is None:
                continue
            parts, benchmark = ask.parts, ask.benchmark
            documents = self.task_dict[parts.task][parts.split]
            self._source.prepare(benchmark.name, lambda: [benchmark.question(one) for one in documents])  # noqa: B023

    def _select(self, asks: list[Ask]) -> None:
        if self._source is None:
            return
        done: dict[tuple[str, str, int], Ask] = {}
        for ask in tqdm(asks, desc="Choosing frames", disable=self._rank_and_world[0] != 0):
            first = done.setdefault(ask.parts.key, ask)
            if first is ask:
                self._select_one(ask, self._source)
            else:  # asked again: a repeat, or a copy that keeps ranks in step
                ask.row, ask.error = first.row, ask.error or first.error

    def _select_one(self, ask: Ask, source: FrameSource) -> None:
        try:
            if ask.error is not None:
                raise AnswerError(ask.error)
            assert ask.path is not None
            ask.row = source.select(ask.question, ask.path, bucket_of=ask.bucket_of)
            self._check_limit(ask)
        except Exception as error:  # noqa: BLE001 (recorded: one question never ends a run)
            ask.fail(error)
            ask.row = ask.row or source.error_row(ask.question, error, bucket_of=ask.bucket_of)
        if not ask.is_padding:
            self._recorder.selection(ask.row)

    def _check_limit(self, ask: Ask) -> None:
        row = ask.row
        assert row is not None
        if row.scales is not None:
            if not self.takes_mixed_sizes:
                raise InvalidInput(
                    f"sampler {row.sampler!r} chose frames of different sizes; {self.model_id} can show one size only"
                )
        elif len(row.keyframes) > self._frames:
            raise InvalidInput(
                f"{len(row.keyframes)} frames chosen, {self.model_id} is set to show at most {self._frames}"
            )
        if not row.keyframes:
            raise InvalidInput("no frame chosen")

    def _answer_all(self, asks: list[Ask]) -> None:
        groups = batches_like_the_wrapper(self, asks) if self.asks_at_once == 1 else [[ask] for ask in asks]
        quiet = self._rank_and_world[0] != 0
        with tqdm(total=len(asks), desc="Answering", disable=quiet) as progress:
            for batch in self._in_parallel(groups) if self.asks_at_once > 1 else self._one_after_another(groups):
                for ask in batch:
                    self._keep(ask)
                progress.update(len(batch))

    def _one_after_another(self, groups: list[list[Ask]]) -> Iterator[list[Ask]]:
        """Answer each batch while the frames of the next one are decoded."""
        with ThreadPoolExecutor(max_workers=1) as pool:
            ahead = [pool.submit(self._decode, batch) for batch in groups[:1]]
            for at, batch in enumerate(groups):
                ahead.pop().result()
                ahead = [pool.submit(self._decode, after) for after in groups[at + 1 : at + 2]]
                self._answer([ask for ask in batch if ask.error is None])
                yield batch

    def _in_parallel(self, groups: list[list[Ask]]) -> Iterator[list[Ask]]:
        def answer(batch: list[Ask]) -> list[Ask]:
            self._decode(batch)
            self._answer([ask for ask in batch if ask.error is None])
            return batch

        with ThreadPoolExecutor(max_workers=self.asks_at_once) as pool:
            yield from pool.map(answer, groups)

    def _decode(self, batch: list[Ask]) -> None:
        options = self.seam_options
        feeds: dict[tuple[str, str, int], Feed] = {}
        for ask in batch:
            if ask.row is None or ask.path is None:
                continue
            key = ask.parts.key
            started = time.perf_counter()
            try:
                if key not in feeds:
                    feeds[key] = feed_of(ask.row, ask.path, loader=options.loader, backend=options.backend)
                ask.feed = feeds[key]
            except Exception as error:  # noqa: BLE001 (recorded: one question never ends a run)
                ask.fail(error)
            ask.seconds["decode"] = time.perf_counter() - started

    def _answer(self, batch: list[Ask]) -> None:
        """Answer a batch; where it fails as a whole, ask one by one, so that each question fails alone."""
        if not batch:
            return
        try:
            self._generate(batch)
        except Exception as error:  # noqa: BLE001 (recorded: one question never ends a run)
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
        view = self._view(batch, call)
        started = time.perf_counter()
        outputs = view._wrapper_generate([rewritten(ask.request, is_simple=self.is_simple) for ask in batch])
        seconds = time.perf_counter() - started
        if call.error is not None:
            raise call.error
        if call.n_calls == 0:
            raise AnswerError("the wrapper gave an answer without asking its model")
        if len(outputs) != len(batch):
            raise AnswerError(f"the wrapper gave {len(outputs)} answers to {len(batch)} questions")
        for at, (ask, output) in enumerate(zip(batch, outputs, strict=True)):
            self._check_shown(ask, call.frames[at] if call.frames and at < len(call.frames) else None)
            ask.output = output
            ask.tokens = call.tokens[at] if at < len(call.tokens) else {}
            ask.seconds["generate"] = call.generate_seconds / len(batch)
            ask.seconds["preprocess"] = (seconds - call.generate_seconds) / len(batch)

    def _check_shown(self, ask: Ask, n_reached: int | None) -> None:
        ask.n_reached = n_reached
        if ask.feed is None:
            if n_reached == 0:
                raise AnswerError(f"{ask.path}: the wrapper's own sampling showed no frame of it")
            return
        if not ask.feed.is_taken:
            raise AnswerError(f"{ask.path}: the wrapper never read the chosen frames (it may not take this file)")
        n_fed, merged = len(ask.feed.frames), self.frames_merged
        if ask.feed.scales is None and n_reached is not None and n_reached != -(-n_fed // merged) * merged:
            raise AnswerError(f"{ask.path}: {n_fed} frames fed, {n_reached} reached the model")

    def _view(self, batch: list[Ask], call: Call) -> Any:
        view = copy.copy(self)
        view._rank = -1  # type: ignore[attr-defined]  # silences the wrapper's own progress bar, a new one per batch
        view.task_dict = _documents(batch, [self._shown(ask) for ask in batch])
        self.watch(view, batch, call)
        return view

    def _shown(self, ask: Ask) -> Shown:
        if ask.feed is None:
            return Shown(visuals=[str(ask.path)], messages=ask.messages)
        if self.is_simple:
            return Shown(visuals=self.visuals(ask.feed))
        messages = []
        for message in ask.messages or []:
            parts = []
            for part in message["content"]:
                parts += self.video_parts(ask.feed) if part["type"] == "video" else [part]
            messages.append({**message, "content": parts})
        return Shown(messages=messages)

    def _wrapper_generate(self, requests: list[Any]) -> list[Any]:
        return super().generate_until(requests)  # type: ignore[misc]

    def _earlier(self, ask: Ask) -> AnswerRow | None:
        row = self._answered.get(ask.question.id)
        return row if row is not None and row.error is None else None

    def _keep(self, ask: Ask) -> None:
        if not ask.is_padding:
            row = self._recorder.answer(ask, self._frames)
            self._tally.asked += 1
            self._tally.unparsed += row.is_unparsed
            self._tally.fallbacks += row.fallback is not None
            if row.error is not None:
                self._tally.errors += 1
                self._tally.first_error = self._tally.first_error or f"{row.question_id}: {row.error}"

    def _reply(self, ask: Ask) -> Any:
        earlier = self._earlier(ask)
        if earlier is not None:
            return earlier.answer
        if ask.error is not None and ask.output is None:
            return NO_ANSWER
        return ask.output

    # Before any weight loads.

    def _agree_on_frames(self, options: SeamOptions, wrapper_arguments: dict[str, Any], base: type) -> int:
        limit = wrapper_arguments.get(self.frames_argument)
        frames = options.frames or limit or default_of(base, self.frames_argument)
        if frames is None:
            raise InvalidInput(f"{self.model_id}: say how many frames: frames=")
        if limit is not None and frames > int(limit):
            raise InvalidInput(f"frames={frames} is more than {self.frames_argument}={limit}, the most the model takes")
        wrapper_arguments.setdefault(self.frames_argument, int(frames))
        return int(frames)

    def _check_batch(self, wrapper_arguments: Mapping[str, Any]) -> None:
        given = wrapper_arguments.get("batch_size", 1)
        if self.largest_batch is not None and int(given) > self.largest_batch:
            raise InvalidInput(f"{self.model_id} answers {self.largest_batch} question at a time, not batch_size={given}")


def _documents(batch: list[Ask], shown: list[Shown]) -> dict[str, dict[str, dict[int, Shown]]]:
    """Return what stands in for lmms-eval's data sets in a view: (task, split, document) to what is shown."""
    documents: dict[str, dict[str, dict[int, Shown]]] = {}
    for ask, one in zip(batch, shown, strict=True):
        task, split, doc_id = ask.parts.key
        documents.setdefault(task, {}).setdefault(split, {})[doc_id] = one
    return documents
