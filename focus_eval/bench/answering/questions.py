"""Types that carry a question through a run, and the conversion of lmms-eval's requests.

`TaskQuestion` is the question of a request, `FramedQuestion` adds the frames to show, `ModelReply` is the reply.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypedDict

from focus_eval.bench.answering.frames import FrameBatch
from focus_eval.bench.benchmarks.question import Benchmark, LengthEdges
from focus_eval.bench.benchmarks.subtitles import (
    Prompt,
    SubtitleChoice,
    SubtitleOptions,
    make_prompt,
    subtitle_choice,
)
from focus_eval.core.errors import InvalidInput, UnknownName, VideoError
from focus_eval.core.types import Question, local_path
from focus_eval.keyframes.rows.records import SelectionRow, error_line
from focus_eval.keyframes.subtitles.prompts import other_frames_note

if TYPE_CHECKING:
    from lmms_eval.api.instance import GenerationOutput, Instance
    from lmms_eval.api.task import ConfigurableTask

Document = Mapping[str, object]
# A part of a chat message: {"type": "text", "text": ...}, or {"type": "video", "url": ...}.
MessagePart = dict[str, object]
# Task, split and number of a document.
DocumentKey = tuple[str, str, int]
# Fields that hold the question in tasks without a benchmark, the surest first.
QUESTION_FIELDS = ("question", "Question", "query", "prompt")


class Message(TypedDict):
    """A chat message of a task."""

    role: str
    content: list[MessagePart]


class SplitDocuments(Protocol):
    """The documents of one split of a task, in order; lmms-eval gives a `datasets.Dataset`."""

    def __getitem__(self, number: int, /) -> Document: ...
    def __iter__(self) -> Iterator[Document]: ...


# By task and split, as lmms-eval gives them to a wrapper.
TaskDocuments = dict[str, Mapping[str, SplitDocuments]]


@dataclass(frozen=True, kw_only=True)
class RequestParts:
    """The arguments of a request by name; simple and chat requests order them differently.

    `look` is the task's `doc_to_visual` (simple) or `doc_to_messages` (chat).
    """

    context: str
    generation: dict[str, object]
    look: Callable[[Document], object]
    doc_id: int
    task: str
    split: str

    @property
    def key(self) -> DocumentKey:
        """The document that the request is about."""
        return (self.task, self.split, self.doc_id)

    @property
    def task_object(self) -> ConfigurableTask | None:
        """The lmms-eval task that built the request; None for a request made by hand."""
        # A wrapper gets no task, only its bound method `look`. tests/bench/lmms/test_tasks.py fails if that changes.
        owner = getattr(self.look, "__self__", None)
        return owner if hasattr(owner, "process_results") else None

    @property
    def task_arguments(self) -> Mapping[str, object]:
        """The task's settings for prompts of this model (`lmms_eval_specific_kwargs`)."""
        return getattr(self.task_object, "lmms_eval_specific_kwargs", None) or {}

    @property
    def own_prompt(self) -> Callable[[Document, Mapping[str, object]], str] | None:
        """The task's function that makes a prompt with the subtitles of evenly spaced frames; None if it has none."""
        config = getattr(self.task_object, "config", None)
        return getattr(getattr(config, "doc_to_text", None), "with_subtitles", None)


@dataclass(frozen=True, kw_only=True, eq=False)
class TaskQuestion:
    """A question as a task of lmms-eval asks it.

    Args:
        request: lmms-eval's own request, never changed.
        parts: its arguments by name.
        question: read from the document.
        path: the video file; None if the document has none.
        benchmark: benchmark of the task; None if no benchmark describes it.
        document: the task's document; empty if it could not be read.
        messages: chat messages of the document; None for a simple request.
        subtitles: which subtitles its prompt gets; None for a task without any.
        error: why it cannot be asked, in one line; None if it can.
    """

    request: Instance
    parts: RequestParts
    question: Question
    path: Path | None = None
    benchmark: Benchmark | None = None
    document: Document = field(default_factory=dict)
    messages: list[Message] | None = None
    subtitles: SubtitleChoice | None = None
    error: str | None = None

    @property
    def is_padding(self) -> bool:
        """True for a copy of a request that only gives all ranks equally many calls; it gets no row."""
        # lmms-eval marks the copies that it adds to a rank with fewer requests.
        return bool((self.request.metadata or {}).get("__padding_only__"))

    def bucket_of(self, seconds: float) -> str:
        """Return the length bucket of a video of `seconds`, by the benchmark's edges, else the default edges."""
        return self.benchmark.bucket(seconds) if self.benchmark else LengthEdges().bucket(seconds)


@dataclass(frozen=True, kw_only=True, eq=False)
class FramedQuestion:
    """A question with the frames to show, or with the reason why there are none.

    Args:
        task_question: the question.
        row: its selection; None for the wrapper's own sampling, or if there is none.
        frame_batch: decoded frames; None for the wrapper's own sampling, or after an error.
        error: why it cannot be asked, in one line; None if it can.
        decode_seconds: its share of the time of reading frames.
    """

    task_question: TaskQuestion
    row: SelectionRow | None = None
    frame_batch: FrameBatch | None = None
    error: str | None = None
    decode_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ModelReply:
    """A model's reply to a question, or the error in its place.

    Args:
        output: the wrapper's answer; None without one.
        error: why there is no answer, in one line; None without an error.
        fed_frames: indices of the frames fed to the model.
        fallback: reason why other frames than the chosen ones were fed; None if the chosen ones were.
        prompt_end: the last few tokens of the prompt as text, without blanks at its end; "" if unknown.
        prompt_record: what the model was sent (`tracing.prompt_record`); None if it was not asked for.
        n_reached: number of frames that reached the model; None if its inputs do not tell.
        seconds: time by stage, such as "decode" and "generate".
        tokens: token counts, see `GenerateTrace.tokens`.
        prompt_note: as in an `AnswerRow`.
    """

    output: GenerationOutput = None
    error: str | None = None
    fed_frames: tuple[int, ...] = ()
    fallback: str | None = None
    prompt_end: str = ""
    prompt_record: Mapping[str, object] | None = None
    n_reached: int | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    tokens: Mapping[str, int] = field(default_factory=dict)
    prompt_note: str = ""


def request_parts(request: Instance, *, is_simple: bool) -> RequestParts:
    """Return the arguments of `request` by name."""
    if is_simple:
        context, generation, look, doc_id, task, split = request.args
    else:
        context, look, generation, doc_id, task, split = request.args
    return RequestParts(context=context, generation=generation, look=look, doc_id=doc_id, task=task, split=split)


def read_request(
    request: Instance,
    documents: Mapping[str, Mapping[str, SplitDocuments]],
    *,
    is_simple: bool,
    benchmark: Benchmark | None = None,
    benchmark_name: str = "",
    subtitles: SubtitleOptions = SubtitleOptions(),
) -> TaskQuestion:
    """Return the question of `request`; an unusable document or video is recorded in it, never raised.

    Args:
        documents: documents by task, split and number.
        benchmark: benchmark of the documents; None for the one that `benchmark_name` names.
        benchmark_name: name or YAML file of the task's benchmark; "" finds it by the task's name.
        subtitles: which subtitles the prompts get.
    """
    parts = request_parts(request, is_simple=is_simple)
    benchmark = benchmark or _benchmark(parts.task, benchmark_name)
    # A document that cannot be read still gets a row, with the question as far as the request tells it.
    task_question = TaskQuestion(
        request=request,
        parts=parts,
        question=Question(
            benchmark=benchmark.name if benchmark else parts.task,
            id=f"document {parts.doc_id}",
            query=parts.context.strip() or "(no text)",
            options=(),
            video="(none)",
            answer=None,
        ),
        benchmark=benchmark,
    )
    try:
        document = documents[parts.task][parts.split][parts.doc_id]
        task_question = replace(task_question, document=document)
        if benchmark is not None:
            # Read the question before the video, so that a row about a missing file names the question.
            task_question = replace(task_question, question=benchmark.question(document))
        choice = subtitle_choice(
            benchmark.facts.subtitles if benchmark is not None else None,
            subtitles,
            is_written_by_task=parts.own_prompt is not None,
            location=benchmark.name if benchmark is not None else f"task {parts.task}",
            pre_prompt=str(parts.task_arguments.get("pre_prompt") or ""),
        )
        task_question = replace(task_question, subtitles=choice)
        path, messages = _load_media(parts, document, is_simple=is_simple)
        if benchmark is None:
            task_question = replace(task_question, question=_question_of_unknown_task(parts, document, path))
        return replace(task_question, path=path, messages=messages)
    except Exception as error:  # noqa: BLE001 (recorded: one document never ends a run)
        return replace(task_question, error=error_line(error))


def prompt_of(task_question: TaskQuestion, frame_batch: FrameBatch | None) -> Prompt:
    """Return the prompt of a request, made after its frames are known.

    Args:
        frame_batch: the frames that the model is shown; None for the wrapper's own sampling, which leaves the task's
            own prompt as it is.

    Raises:
        InvalidInput: subtitles that cannot be read.
    """
    parts, choice = task_question.parts, task_question.subtitles
    if frame_batch is None:
        own_prompt = parts.own_prompt
        text = parts.context if own_prompt is None else own_prompt(task_question.document, parts.task_arguments)
        return Prompt(question_text=text)
    if choice is None or task_question.path is None:
        note = other_frames_note(
            parts.context, parts.task_arguments, n_shown=len(frame_batch.frames), is_even=frame_batch.is_black
        )
        return Prompt(question_text=parts.context, note=note)
    # A black frame shows nothing of the video, so no line of its subtitles is given either.
    times = () if frame_batch.is_black else tuple(round(time, 6) for time in frame_batch.times_seconds)
    return make_prompt(
        parts.context, task_question.question, choice, video_path=task_question.path, times=times, fps=frame_batch.fps
    )


def rewrite_request(framed: FramedQuestion, prompt: Prompt, *, is_simple: bool) -> Instance:
    """Return a copy of the request with `prompt` that takes its visuals or messages from a `ViewDocument`.

    Several wrappers use the first request's function for a whole batch, so the visuals come from the document (the
    view of the model maps (task, split, doc_id) to its `ViewDocument`), never from a closure over one request. Some
    wrappers change the generation arguments in place, so these are copied.
    """
    parts, new = framed.task_question.parts, copy.copy(framed.task_question.request)
    generation = copy.deepcopy(parts.generation)
    if is_simple:
        new.arguments = (prompt.text, generation, _visuals, parts.doc_id, parts.task, parts.split)
    else:
        new.arguments = (prompt.text, _messages, generation, parts.doc_id, parts.task, parts.split)
    # A shallow copy shares these lists with lmms-eval's own request, to which the wrapper appends.
    new.resps, new.token_counts = [], []
    return new


def messages_with(messages: list[Message], prompt: Prompt, pictures: list[MessagePart], *, text: str) -> list[Message]:
    """Return chat messages with `pictures` in place of the video and `prompt` in place of the task's `text`.

    In an interleaved prompt, pictures stand at their places among the lines, and any left over stand before.
    """
    parts_of_text: list[MessagePart] = [{"type": "text", "text": prompt.text}]
    if prompt.sequence:
        waiting = list(pictures)
        sequence: list[MessagePart] = [
            waiting.pop(0) if line is None else {"type": "text", "text": line} for line in prompt.sequence
        ]
        start: list[MessagePart] = [{"type": "text", "text": prompt.start}] if prompt.start else []
        parts_of_text = [*waiting, *start, *sequence, {"type": "text", "text": prompt.question_text}]
    shown_messages: list[Message] = []
    for message in messages:
        parts: list[MessagePart] = []
        for part in message["content"]:
            if part["type"] == "video":
                parts += [] if prompt.sequence else pictures
            else:
                parts += parts_of_text if part.get("text") == text else [part]
        shown_messages.append({**message, "content": parts})
    return shown_messages


@dataclass(frozen=True)
class ViewDocument:
    """A document for the view of a model: the visuals of one question, or its messages."""

    visuals: Sequence[object] = ()
    messages: list[Message] | None = None


def _visuals(document: ViewDocument) -> Sequence[object]:
    """The visuals of a view's document; takes the place of the task's `doc_to_visual`."""
    return document.visuals


def _messages(document: ViewDocument) -> list[Message] | None:
    """A copy of the messages of a view's document; takes the place of the task's `doc_to_messages`."""
    return copy.deepcopy(document.messages)  # some wrappers put a system message into the list


def _load_media(
    parts: RequestParts, document: Document, *, is_simple: bool
) -> tuple[Path | None, list[Message] | None]:
    """The video path of `document`, and its chat messages (None for a simple request)."""
    try:
        media = parts.look(document)
    except SystemExit as error:  # lmms-eval's tasks end the process where a file is missing
        raise VideoError(str(error)) from error
    if is_simple:
        return _single_video_path(media if isinstance(media, list) else [media], parts), None
    messages: list[Message] = media if isinstance(media, list) else []
    videos = [part["url"] for message in messages for part in message["content"] if part["type"] == "video"]
    return _single_video_path(videos, parts), messages


def _single_video_path(visuals: list[object], parts: RequestParts) -> Path | None:
    """The path of the one video among a document's visuals; raises InvalidInput for anything else."""
    videos = [visual for visual in visuals if isinstance(visual, str)]
    # A selection is k frames of one video, so a document with two videos or an image cannot have one.
    if len(videos) != 1 or len(visuals) != 1:
        use = "use a task that gives it"
        if parts.task.endswith("_i"):  # LongVideoBench with pictures; another task has its videos
            use = f"use {parts.task.removesuffix('_i')}_v, which gives it"
        raise InvalidInput(
            f"{parts.task}, document {parts.doc_id}: expected one video, found {len(videos)} videos and "
            f"{len(visuals) - len(videos)} pictures; frames are chosen from one video: {use}"
        )
    return local_path(videos[0])


def _question_of_unknown_task(parts: RequestParts, document: Document, path: Path | None) -> Question:
    """Return the question of a task that no benchmark describes.

    The query is the first text among the document's `QUESTION_FIELDS`; without one, the whole prompt, instructions
    included.
    """
    fields = (document.get(name) for name in QUESTION_FIELDS)
    query = next((text for text in fields if isinstance(text, str) and text.strip()), parts.context)
    # Name the video relative to `$HF_HOME`, where lmms-eval keeps videos: rows of two machines then name it alike.
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    video = str(path.relative_to(home)) if path is not None and path.is_relative_to(home) else str(path)
    return Question(benchmark=parts.task, id=str(parts.doc_id), query=query, options=(), video=video, answer=None)


@cache
def _benchmark(task: str, name: str = "") -> Benchmark | None:
    """The benchmark called `name`, or that of the task if it is ""; None for an unknown task. Cached."""
    from focus_eval.bench.benchmarks.registry import benchmark_of_task, make_benchmark

    if name:
        return make_benchmark(name)
    try:
        return benchmark_of_task(task)
    except UnknownName:
        return None
