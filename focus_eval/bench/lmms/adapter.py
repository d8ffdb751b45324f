"""Shows chosen frames to any lmms-eval wrapper, and records its answers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, TypeVar

from lmms_eval.api.instance import unwrap_generation_output
from loguru import logger
from tqdm import tqdm

from focus_eval.bench.answering.ahead import own_cores
from focus_eval.bench.answering.cell import Cell
from focus_eval.bench.answering.choosing import Chooser
from focus_eval.bench.answering.frames import FrameBatch, PathWithFrames
from focus_eval.bench.answering.questions import FramedQuestion, MessagePart, TaskDocuments, TaskQuestion, read_request
from focus_eval.bench.answering.run import WrittenAnswer, answer
from focus_eval.bench.answering.session import WrapperSession
from focus_eval.bench.answering.stream import CellQuestions
from focus_eval.bench.answering.tracing import GenerateInputs, GenerateTrace, GeneratingModel, TracedModel
from focus_eval.bench.benchmarks.subtitles import SubtitleLayoutOption, SubtitleModeOption, SubtitleOptions
from focus_eval.bench.lmms import patches
from focus_eval.bench.lmms.arguments import (
    AdapterOptions,
    SessionOptions,
    default_of,
    make_chooser,
    number_argument,
    split_arguments,
    store_of,
)
from focus_eval.bench.lmms.parsing import REASONING_TAGS
from focus_eval.bench.lmms.recording import (
    RecordFolder,
    RunCounts,
    check_error_share,
    check_readable,
    describe_model,
    over_all_ranks,
)
from focus_eval.bench.lmms.tasks import NO_ANSWER
from focus_eval.core.errors import InvalidInput
from focus_eval.keyframes.encoders.store import RelevanceStore
from focus_eval.keyframes.video.feed import DecodeProcesses, n_processes_for
from focus_eval.keyframes.video.scan import KeptScans, ScanMemory

if TYPE_CHECKING:
    from lmms_eval.api.instance import GenerationOutput, Instance
    from typing_extensions import Self

OptionsT = TypeVar("OptionsT", bound=SessionOptions)


@dataclass(frozen=True, kw_only=True)
class PluginRun:
    """Chooser, frames and options in use until the next `show`.

    Args:
        chooser: chooses the frames; None for the wrapper's own sampling.
        frames: requested keyframes.
        options: frame policy, video reader, answer parsing and the rest.
        subtitles: which subtitles the prompts get.
        record: the cells that rows go to.
        store: keeps scans of video files; None keeps none.
    """

    chooser: Chooser | None
    frames: int
    options: AdapterOptions
    subtitles: SubtitleOptions
    record: RecordFolder
    store: RelevanceStore | None


class FrameAdapter:
    """Mixin placed before a stock wrapper: shows it exactly the chosen frames and records the answers.

    An adapter is a class `class FocusX(FrameAdapter, X)` that states

    - `model_id`: the model's name, set in the class's own body. A class in
      `focus_eval/bench/lmms/models/` is found by it; a class of another package has an entry point of this name in
      the group `focus_eval.models`;
    - `checkpoint_types`: allowed values of `model_type` in the checkpoint's `config.json`; empty allows any;
    - `is_simple = False` if the wrapper takes lmms-eval's chat requests;
    - `stock_name`: lmms-eval's name of the wrapper, under which tasks may have prompts for it;
    - `frames_argument`: name of the wrapper's argument for the largest number of frames;
    - how the wrapper gets the pixels. Its `doc_to_visual` returns `visuals(frame_batch)`, by default a list with
      one `PathWithFrames`: a str that is the real path and carries `frame_batch`. Override the wrapper's loader: for
      a `PathWithFrames` return `path.frame_batch.take()` in the shape the wrapper expects, else call `super()`.
      Chat wrappers: `video_parts(frame_batch)` are the message parts of the video.
    - if they differ from the defaults: `packages` (whose versions can change an answer, beside transformers and
      lmms-eval), `takes_mixed_sizes` (the wrapper can show frames of different sizes as images), `largest_batch`,
      `questions_at_once` (an API), `prepares_ahead` (the wrapper may prepare the inputs of several batches in threads,
      as long as its model takes one at a time: see `GenerateTrace.take_model`), `interleaves` (its messages take
      pictures one by one, with text between them), `frames_reaching(inputs)`
      (frames per question among the inputs of the model's `generate`, or None), `own_options` (a dataclass of further
      arguments, passed to `prepare`), `prepare`, `defaults`, `check_loaded`.

    Per question: selection, decode, then the wrapper's own `generate_until` on a copy of the request, called on a
    shallow copy of the model (a view), so that one question's failure does not affect others. A frame batch that the
    wrapper never read, or a number of frames that differs from what reached the model, is an error, not an answer.
    """

    model_id: ClassVar[str]
    checkpoint_types: ClassVar[tuple[str, ...]] = ()
    stock_name: ClassVar[str] = ""
    packages: ClassVar[tuple[str, ...]] = ()
    # "simple" for the simple class of a model that also has a chat class; part of a cell's identity, since the two
    # send different messages.
    requests: ClassVar[str] = ""
    frames_argument: ClassVar[str]
    frames_merged: ClassVar[int] = 1
    takes_mixed_sizes: ClassVar[bool] = False
    largest_batch: ClassVar[int | None] = None
    prepares_ahead: ClassVar[bool] = False
    interleaves: ClassVar[bool] = False
    own_options: ClassVar[type | None] = None

    session: WrapperSession
    context: PluginRun
    counts: RunCounts  # of this rank, since the run began
    prepared: object
    _unwrapped: GeneratingModel | None = None

    # Provided by the wrapper.
    task_dict: TaskDocuments
    is_simple: ClassVar[bool]
    if TYPE_CHECKING:

        @property
        def batch_size(self) -> int: ...

    def __init__(self, **arguments: object) -> None:
        """Check all arguments before any weights load, then load encoders and the stock wrapper."""
        with patches.command_line_errors():
            patches.refuse_response_cache()
            # Check all arguments before the weights load, which takes minutes for a 72B model.
            options, wrapper_arguments, frames = self._checked_wrapper(arguments, AdapterOptions, None)
            self.subtitle_options(options.subtitles, options.subtitle_layout)
            chooser = make_chooser(options, frames=frames)
            self._load(wrapper_arguments, options)
            self._description = describe_model(
                self.model_id,
                stock_name=self.stock_name,
                packages=self.packages,
                arguments=wrapper_arguments,
                pretrained=str(wrapper_arguments.get("pretrained") or default_of(self.wrapper(), "pretrained") or ""),
                prepared=self.prepared,
                requests=self.requests,
            )
            patches.look_prompts_up_by_wrapper(self.model_id, self.stock_name)
            # This comes in time: lmms-eval distributes the documents after it has made the model.
            if self._rank_and_world[1] > 1:
                patches.keep_videos_on_one_rank()
            self.counts = RunCounts()
            self.adapter_options = options
            self.show(chooser, frames=frames)

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, object], *, frames: int) -> None:
        """Run the checks of `load_session` before any weights load.

        Raises:
            FocusEvalError: an argument is unknown or of the wrong kind, or a package, API key or checkpoint is missing.
        """
        # An instance without `__init__`, which would load the weights.
        cls.__new__(cls)._checked_wrapper(arguments, SessionOptions, frames)

    @classmethod
    def load_session(cls, arguments: Mapping[str, object], *, frames: int) -> WrapperSession:
        """Return a session with the wrapper loaded and no sampler, for a caller who has the frames.

        Args:
            arguments: arguments of the wrapper and of the adapter, and those of `SessionOptions`.
            frames: largest number of frames per question.

        Raises:
            FocusEvalError: as in `check_arguments`.
        """
        model = cls.__new__(cls)
        options, wrapper_arguments, _ = model._checked_wrapper(arguments, SessionOptions, frames)
        model._load(wrapper_arguments, options)
        return model.session

    def _load(self, wrapper_arguments: dict[str, object], options: SessionOptions) -> None:
        """Build the stock wrapper from its own arguments, and the session with it."""
        self.defaults(wrapper_arguments)
        with patches.one_process_on_cpu(wrapper_arguments.get("device")) as was_alone:
            super().__init__(**wrapper_arguments)
        if was_alone:
            patches.place_on_rank(self)
        self._wrapper_arguments = wrapper_arguments
        self._rank_and_world = patches.rank_and_world()
        self.check_loaded()
        self.session = WrapperSession(self, decode_gigabytes=options.decode_gigabytes)

    # Members that an adapter may override.

    @classmethod
    def check_installed(cls) -> None:
        """Raise `MissingDependency` if a package that the wrapper needs is not installed."""

    @classmethod
    def passed_on(cls) -> tuple[str, ...]:
        """Return the names of arguments that the wrapper accepts as `**kwargs` and passes on, such as an engine's.

        () by default; an adapter of such a wrapper overrides it.
        """
        return ()

    @classmethod
    def wrapper(cls) -> type:
        """Return the stock wrapper's class: the first behind the adapters that has a constructor of its own."""
        # Adapters may have bases of their own, without a constructor, before the wrapper.
        return next(kind for kind in cls.__mro__ if not issubclass(kind, FrameAdapter) and "__init__" in vars(kind))

    def prepare(self, adapter_arguments: object, wrapper_arguments: dict[str, object]) -> object:
        """Check the adapter's own arguments before any weight loads; the return value is stored as `self.prepared`.

        Args:
            adapter_arguments: an instance of `own_options`; None if the adapter declares none.
            wrapper_arguments: the wrapper's arguments by name.
        """
        return None

    def defaults(self, wrapper_arguments: dict[str, object]) -> None:
        """Set, in place, wrapper arguments whose stock defaults are wrong; here the device map follows the device."""
        if "device" in wrapper_arguments and "device_map" not in wrapper_arguments:
            wrapper_arguments["device_map"] = wrapper_arguments["device"]

    def check_loaded(self) -> None:
        """Raise an error if the loaded wrapper cannot be used; by default it can."""

    def ready(self, frame_batch: FrameBatch) -> FrameBatch:
        """Return the frames in the wrapper's own form, made while an earlier question is answered; by default as is."""
        return frame_batch

    def visuals(self, frame_batch: FrameBatch) -> Sequence[object]:
        """Return what `doc_to_visual` gives the wrapper for these frames: by default a path that carries them."""
        return [PathWithFrames(frame_batch)]

    def video_parts(self, frame_batch: FrameBatch) -> list[MessagePart]:
        """Return the chat-message parts for the video: one video part, or one image per frame if sizes differ."""
        if frame_batch.scales is None:
            return [{"type": "video", "url": PathWithFrames(frame_batch)}]
        return [{"type": "image", "url": image} for image in frame_batch.images()]

    def strip_reply(self, text: str) -> str:
        """Return the part of the model's text that the wrapper returns: by default all of it."""
        return text

    def frames_reaching(self, inputs: GenerateInputs) -> list[int] | None:
        """Return the number of frames per question, read from the inputs of `generate`; None if they do not show it."""
        return None

    @property
    def questions_at_once(self) -> int | None:
        """Number of questions asked in parallel, each alone (an API); None if the wrapper forms batches."""
        return None

    def trace_model(self, view: Self, batch: Sequence[FramedQuestion], trace: GenerateTrace) -> None:
        """Let the model of `view`, a shallow copy of this adapter for `batch`, record its calls in `trace`."""
        if self._unwrapped is None:
            self._unwrapped = self.model  # type: ignore[attr-defined]  # taking it out of accelerate costs milliseconds
        vars(view)["_model"] = TracedModel(self._unwrapped, trace, self.frames_reaching)

    # Public members for callers.

    @classmethod
    def frame_limit(cls, wrapper_arguments: Mapping[str, object]) -> int:
        """Return the wrapper's largest number of frames. Raises InvalidInput if its arguments do not state it."""
        limit = number_argument(cls.model_id, wrapper_arguments, cls.frames_argument)
        if limit is None:
            raise InvalidInput(f"{cls.model_id}: set frames= to the number of frames")
        return limit

    @classmethod
    def subtitle_options(cls, mode: SubtitleModeOption, layout: SubtitleLayoutOption) -> SubtitleOptions:
        """Return the run's subtitle options for this model. Raises InvalidInput for a layout that it cannot show."""
        if layout == "interleaved" and not cls.interleaves:
            raise InvalidInput(
                f"subtitle_layout=interleaved: {cls.model_id} takes a video, not pictures one by one; "
                "say subtitle_layout=block"
            )
        return SubtitleOptions(mode=mode, layout=layout, can_interleave=cls.interleaves)

    def show(self, chooser: Chooser | None, *, frames: int, options: AdapterOptions | None = None) -> None:
        """Use `chooser` for the questions that follow: one loaded model serves one selection after another.

        Args:
            chooser: chooses the frames; None for the wrapper's own sampling.
            frames: requested keyframes, at most those the model was loaded for.
            options: frame policy, answer parsing, error share and the rest; those of the constructor by default.
        """
        options = options or self.adapter_options
        if frames > (limit := self.frame_limit(self._wrapper_arguments)):
            raise InvalidInput(f"{frames} frames asked, {self.model_id} was loaded for at most {limit}")
        # Close the rows of the last selection, so that other processes may use its folder.
        if hasattr(self, "context"):
            self.context.record.close()
        self.session.max_bytes = options.decode_gigabytes * 1e9
        self.context = PluginRun(
            chooser=chooser,
            frames=frames,
            options=options,
            subtitles=self.subtitle_options(options.subtitles, options.subtitle_layout),
            record=RecordFolder(
                options, self._description, chooser=chooser, frames=frames, rank_and_world=self._rank_and_world
            ),
            store=store_of(options),
        )

    def generate_until(self, requests: Sequence[Instance]) -> list[GenerationOutput]:
        """Return the answers to `requests` in order; a question that fails gives `NO_ANSWER` and an error row."""
        with patches.command_line_errors():
            patches.refuse_response_cache()
            context, tags = self.context, patches.stated_reasoning_tags()
            questions = [
                read_request(
                    request,
                    self.task_dict,
                    is_simple=self.is_simple,
                    benchmark_name=context.options.benchmark,
                    subtitles=context.subtitles,
                )
                for request in requests
            ]
            outputs: dict[TaskQuestion, GenerationOutput] = {}
            work: dict[Cell, list[TaskQuestion]] = {}
            for question in questions:
                cell = context.record.cell_of(question.parts, stated_tags=tags, subtitles=str(question.subtitles or ""))
                # A question that an earlier start answered is not asked again; lmms-eval gets that answer.
                earlier = cell.earlier_answer(question.question)
                if earlier is None:
                    work.setdefault(cell, []).append(question)
                    continue
                # The row holds the whole reply; some wrappers return only a part of it.
                text = self.strip_reply(earlier.answer or "")
                outputs[question] = mark_as_cut(text) if earlier.is_cut else text
                if not question.is_padding:
                    self.counts.add(earlier)
                    self.counts.earlier += 1
            for written in self._answered(work):
                output = written.reply.output
                if written.row is not None:
                    self.counts.add(written.row)
                    output = mark_as_cut(output) if written.row.is_cut else output
                # lmms-eval needs a text for every request, even without an answer.
                outputs[written.task_question] = NO_ANSWER if written.reply.error is not None else output
            return [outputs[question] for question in questions]

    def _answered(self, work: Mapping[Cell, Sequence[TaskQuestion]]) -> Iterator[WrittenAnswer]:
        """Answer the questions of each cell, with a progress bar on the first rank."""
        context, all_questions = self.context, [question for questions in work.values() for question in questions]
        if context.chooser is not None:
            context.chooser.begin(all_questions, self.task_dict)
        paths = [question.path for question in all_questions if question.path is not None]
        cores = own_cores()
        kept: KeptScans | None = context.store
        if kept is None and not self.session.answers_one_by_one:
            # Batches span videos, so each video is opened again to read its frames; it need not be scanned again.
            kept = ScanMemory()
        processes = DecodeProcesses(n_processes_for(paths, cores))
        answers = answer(
            self.session,
            [
                CellQuestions(cell=cell, chooser=context.chooser, questions=questions)
                for cell, questions in work.items()
            ],
            open_video=partial(processes.open_video, backend=context.options.backend, kept=kept),
            cores=cores,
        )
        # tqdm ignores TQDM_DISABLE when `disable` is given.
        is_quiet = self._rank_and_world[0] != 0 or os.environ.get("TQDM_DISABLE", "") not in ("", "0")
        bar = tqdm(total=len(all_questions), desc="Answering", disable=is_quiet)
        with processes, closing(answers), bar as progress:
            for written in answers:
                yield written
                progress.update()

    def wrapper_generate(self, requests: Sequence[Instance]) -> list[GenerationOutput]:
        """Return the stock wrapper's answers to `requests`; called on a view whose documents hold the chosen frames."""
        return super().generate_until(requests)  # type: ignore[misc, no-any-return]

    def generate_until_multi_round(self, requests: Sequence[Instance]) -> list[str]:
        """Raise NotImplementedError: the frames of a second round are not defined."""
        raise NotImplementedError(f"{self.model_id}: questions of several rounds are not supported")

    def clean(self) -> None:
        """End a run: close its rows and log its counts. The model stays loaded; see `close`.

        Raises:
            RunError: more questions failed than `max_error_share` allows; on lmms-eval's command line also if no answer
                could be read.
        """
        with patches.command_line_errors():
            patches.refuse_response_cache()
            self.context.record.close()
            # Sum over ranks, so that either all ranks raise or none: if one ended alone, the others would wait for it.
            counts, self.counts = over_all_ranks(self.counts), RunCounts()
            if self._rank_and_world[0] == 0:
                logger.info(f"{self.model_id}: {counts.summary()}; rows in {self.context.options.record}")
            options = self.context.options
            check_error_share(counts, options.max_error_share)
            # The command line reports unreadable answers by its exit code; a caller from Python sees the results.
            if patches.is_command_line():
                check_readable(counts, allow_unparsed=options.allow_unparsed)

    def close(self) -> None:
        """Release the model, as lmms-eval's own `clean` does after every run, and close the rows."""
        if hasattr(self, "context"):
            self.context.record.close()
        self._unwrapped = None
        # lmms-eval calls `clean` after every run. Ours keeps the model for a next run; the wrapper's own releases it.
        super().clean()  # type: ignore[misc]

    # Checks before any weights load.

    def _checked_wrapper(
        self, arguments: Mapping[str, object], kind: type[OptionsT], frames: int | None
    ) -> tuple[OptionsT, dict[str, object], int]:
        """Check the arguments and set `prepared`; return options of `kind`, the wrapper's arguments, and K frames."""
        self.check_installed()
        base = self.wrapper()
        options, wrapper_arguments, adapter_arguments = split_arguments(
            self.model_id, arguments, base, kind=kind, own_options=self.own_options, passed_on=self.passed_on()
        )
        frames = self._agree_on_frames(frames or getattr(options, "frames", None), wrapper_arguments, base)
        batch_size = number_argument(self.model_id, wrapper_arguments, "batch_size") or 1
        if self.largest_batch is not None and batch_size > self.largest_batch:
            raise InvalidInput(f"{self.model_id} takes batch_size={self.largest_batch} at most, not {batch_size}")
        self.prepared = self.prepare(adapter_arguments, wrapper_arguments)
        return options, wrapper_arguments, frames

    def _agree_on_frames(self, frames: int | None, wrapper_arguments: dict[str, object], base: type) -> int:
        """Return K, the number of frames, and set the wrapper's frame limit to K if no limit is given.

        K is `frames`, else the given limit, else the wrapper's default. Raises InvalidInput if K exceeds a given limit.
        """
        limit = number_argument(self.model_id, wrapper_arguments, self.frames_argument)
        default = default_of(base, self.frames_argument)
        frames = frames or limit or (default if isinstance(default, int) else None)
        if frames is None:
            raise InvalidInput(f"{self.model_id}: set frames= to the number of frames")
        if limit is not None and frames > limit:
            raise InvalidInput(f"frames={frames} is more than {self.frames_argument}={limit}, the most the model takes")
        # The wrapper may cut a video to its own limit, so that must not be lower than K.
        wrapper_arguments.setdefault(self.frames_argument, frames)
        return frames


def mark_as_cut(output: object) -> object:
    """Return a wrapper's output that is cut while thinking, with an opening tag put before it unless it has one.

    The prompt may have held the opening tag. With the tag in the output, a task reads no answer in the thoughts.
    """
    text = str(unwrap_generation_output(output)[0])
    has_tag = not text.strip() or any(start in text for start, _ in REASONING_TAGS)
    return output if has_tag else REASONING_TAGS[0][0] + text
