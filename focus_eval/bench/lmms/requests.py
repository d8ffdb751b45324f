"""One question on its way through lmms-eval: its request, its decoded frames, and the request that shows them."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from focus_eval.bench.benchmarks.question import Benchmark, LengthEdges
from focus_eval.core.errors import InvalidInput, SelectionMismatch, UnknownName, VideoError
from focus_eval.core.types import FloatArray, IntArray, Pixels, Question, VideoInfo, local_path
from focus_eval.keyframes.rows.records import SelectionRow, error_line
from focus_eval.keyframes.video import open_video

if TYPE_CHECKING:
    from PIL import Image

    from focus_eval.core.types import FramePolicy
    from focus_eval.keyframes.video.scan import KeptScans


@dataclass(frozen=True, eq=False)
class DecodedFrames:
    """Decoded frames of one video, in the requested order.

    Args:
        info: length and rate of the video.
        frames: frame indices, `(n,)`.
        times_seconds: presentation times, `(n,)`.
        pixels: RGB uint8 `(n, height, width, 3)`.
    """

    info: VideoInfo
    frames: IntArray
    times_seconds: FloatArray
    pixels: Pixels

    def pick(self, frames: Sequence[int]) -> DecodedFrames:
        """Return a copy with only `frames`, in that order; `self.frames` must ascend and include them."""
        at = np.searchsorted(self.frames, frames)
        return DecodedFrames(self.info, self.frames[at], self.times_seconds[at], self.pixels[at])


def read_frames(
    path: Path, frames: Iterable[int], *, backend: str, scan_cache: KeptScans | None = None
) -> DecodedFrames:
    """Decode the frames of the given indices from the video at `path`.

    Raises:
        VideoError: a file or a frame that cannot be read.
    """
    indices = np.asarray(tuple(frames), dtype=np.int64)
    with open_video(path, backend=backend, kept=scan_cache) as reader:
        return DecodedFrames(reader.info, indices, reader.frame_times(indices), reader.read(indices))


# Many questions ask about one video; its header is read once.
@lru_cache(maxsize=4096)
def frame_bytes(path: Path) -> int:
    """Return the size of one decoded RGB frame in bytes, from the video's header; 0 if it cannot be opened."""
    from focus_eval.keyframes.video.crashes import noted
    from focus_eval.keyframes.video.decoder import Decoder

    try:
        # As the reader opens it: the stream that is read, and no file or address that a playlist names.
        with noted(path), closing(Decoder(path)) as decoder:
            size = decoder.stream.codec_context
            return 3 * int(size.width) * int(size.height)
    except (VideoError, OSError):
        return 0


@dataclass(frozen=True, kw_only=True)
class FrameClock:
    """The frames' times as most processors take them, which know one rate for a video: `tick / rate` seconds.

    Args:
        rate: ticks per second.
        ticks: of each frame.
        n_ticks: length of the video.
    """

    rate: float
    ticks: list[int]
    n_ticks: int


@dataclass(kw_only=True)
class FrameBatch:
    """The decoded frames of one question, as a wrapper receives them.

    Args:
        path: the video.
        frames: frame indices in the order they are shown.
        times_seconds: their presentation times.
        fps, n_frames: rate and length of the video.
        pixels: RGB uint8 `(n, height, width, 3)`.
        scales: shrink factor per frame, None for full size.
        fallback: reason why other frames than the chosen ones are shown; None if the chosen ones are.
        is_black: True for the single black frame shown when no frame is to be seen; its index and time are 0.
        encoded: an adapter's own form of the pixels, made ahead of time (`FrameAdapter.ready`); None without one.
        encoded_bytes: memory of `encoded`.
        patch_size: side of the model's patches in pixels, for a wrapper that resizes by another; None for its own.
        pixels_were_read: True once a wrapper has read the pixels; an answer given before is refused.
    """

    path: Path
    frames: tuple[int, ...]
    times_seconds: tuple[float, ...]
    fps: float
    n_frames: int
    pixels: Pixels
    scales: tuple[float, ...] | None = None
    fallback: str | None = None
    is_black: bool = False
    encoded: Any = None
    encoded_bytes: int = 0
    patch_size: int | None = None
    pixels_were_read: bool = field(default=False, compare=False)

    @property
    def frames_of_video(self) -> tuple[int, ...]:
        """Indices of the shown frames; empty if a black frame is shown."""
        return () if self.is_black else self.frames

    @property
    def held_bytes(self) -> int:
        """Memory of the pixels and of `encoded`, in bytes."""
        return self.pixels.nbytes + self.encoded_bytes

    def clock(self) -> FrameClock:
        """Return the clock by which processors compute the frames' times.

        It is the video's own where its mean rate puts each frame within half a frame of its time. Else, in a file of
        variable rate, it counts milliseconds.
        """
        times = np.asarray(self.times_seconds)
        if bool(np.all(np.abs(times - np.asarray(self.frames) / self.fps) <= 0.5 / self.fps)):
            return FrameClock(rate=self.fps, ticks=list(self.frames), n_ticks=self.n_frames)
        ticks = [round(milliseconds) for milliseconds in (1000 * times).tolist()]
        return FrameClock(rate=1000.0, ticks=ticks, n_ticks=max(round(1000 * self.n_frames / self.fps), ticks[-1] + 1))

    def take(self) -> Pixels:
        """Return the pixels and set `pixels_were_read`."""
        # The only way to the pixels, so that an answer given without them is found out.
        self.pixels_were_read = True
        return self.pixels

    def replace_pixels(self, encoded: Any, *, n_bytes: int) -> None:
        """Store `encoded`, an adapter's form of the pixels of `n_bytes` bytes, and drop the pixels to save memory."""
        self.encoded, self.encoded_bytes = encoded, n_bytes
        self.pixels = np.empty((0, *self.pixels.shape[1:]), dtype=np.uint8)

    def images(self) -> list[Image.Image]:
        """Return the frames as RGB images, each shrunk by its scale (Lanczos), and set `pixels_were_read`."""
        from PIL import Image

        images = [Image.fromarray(frame) for frame in self.take()]
        if self.scales is None:
            return images
        # PIL refuses an image without pixels.
        sizes = [
            (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
            for image, scale in zip(images, self.scales, strict=True)
        ]
        return [image.resize(size, Image.Resampling.LANCZOS) for image, size in zip(images, sizes, strict=True)]


# A str, because the wrappers check `isinstance(visual, str)`, look at its suffix and open it to learn its length: an
# object of our own would take another branch in each of them.
class PathWithFrames(str):
    """A video's path that also carries the frames to show, as `frame_batch`. It exists and opens like any path."""

    __slots__ = ("frame_batch",)

    frame_batch: FrameBatch

    def __new__(cls, frame_batch: FrameBatch) -> PathWithFrames:
        """Return the path of `frame_batch`'s video that carries it."""
        path = super().__new__(cls, str(frame_batch.path))
        path.frame_batch = frame_batch
        return path

    # A wrapper may copy what it is given; the frames are shared, never copied.
    def __copy__(self) -> PathWithFrames:
        """Return the path itself: a copy would lose the record that its frames were taken."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> PathWithFrames:
        """Return the path itself: a copy would lose the record that its frames were taken."""
        return self


def make_frame_batch(row: SelectionRow, path: Path, decoded: DecodedFrames, *, frame_policy: FramePolicy) -> FrameBatch:
    """Return the frames shown for the selection `row`; a floor row gets one black frame.

    Args:
        decoded: the decoded `frames_to_decode(row, frame_policy)`.
    """
    is_floor = row.role == "floor"
    frames, fallback = frames_to_decode(row, frame_policy)
    return FrameBatch(
        path=path,
        frames=frames,
        times_seconds=(0.0,) if is_floor else tuple(float(time) for time in decoded.times_seconds),
        fps=decoded.info.fps,
        n_frames=decoded.info.n_frames,
        # The floor answers from the question alone; a black frame keeps the prompt's form, for no model takes a video
        # of none.
        pixels=np.zeros_like(decoded.pixels) if is_floor else decoded.pixels,
        # Scales belong to the chosen frames; others are fed at full size.
        scales=tuple(row.scales) if row.scales is not None and fallback is None else None,
        fallback=fallback,
        is_black=is_floor,
    )


def frames_to_decode(row: SelectionRow, frame_policy: FramePolicy) -> tuple[tuple[int, ...], str | None]:
    """Return the frame indices to decode for `row`, and why they are not the chosen ones (None if they are).

    A floor row decodes frame 0, which gives the black frame its size.
    """
    if row.role == "floor":
        return (0,), "no frame chosen: one black frame shown"
    return frames_to_feed(row, frame_policy)


def frames_to_feed(row: SelectionRow, frame_policy: FramePolicy) -> tuple[tuple[int, ...], str | None]:
    """Return the frame indices fed for `row`, and why they are not the chosen ones (None if they are).

    "exact" feeds the keyframes and nothing else. "aks" follows the AKS evaluation code: a selection of fewer than k
    frames is replaced by `linspace(0, n_frames - 1, k)`, and its uniform baseline gets one frame per second, or that
    linspace if these are more than k.
    """
    keyframes = tuple(row.keyframes or ())
    if frame_policy == "exact":
        return keyframes, None
    if row.sampler in ("uniform", "uniform_1fps"):
        # As the AKS code has it: the baseline is 1 fps until that is more than k.
        video = _known_info(row)
        every_second = tuple(range(0, video.n_frames, max(1, round(video.fps))))
        if len(every_second) <= row.k:
            return every_second, f"aks frame policy: one frame per second, {len(every_second)} of {row.k}"
        uniform_frames = _linspace(row)
        return (
            uniform_frames,
            None if uniform_frames == keyframes else "aks frame policy: linspace in place of the baseline's own frames",
        )
    if len(keyframes) < row.k:
        return _linspace(row), f"aks frame policy: {len(keyframes)} of {row.k} chosen, uniform frames fed"
    return keyframes, None


def _linspace(row: SelectionRow) -> tuple[int, ...]:
    """Return K evenly spaced frames, from the first to the last, rounded down; a short video repeats some."""
    return tuple(np.linspace(0, _known_info(row).n_frames - 1, row.k, dtype=int).tolist())


def _known_info(row: SelectionRow) -> VideoInfo:
    """Return length and rate of the row's video; raise SelectionMismatch if they are unknown."""
    if row.info is None:
        raise SelectionMismatch(f"{row.video}: length and rate are not known, which frame_policy=aks needs")
    return row.info


Document = Mapping[str, Any]
# What tasks that no benchmark describes call the question, in the order in which they are looked for.
QUESTION_FIELDS = ("question", "Question", "query", "prompt")


@dataclass(frozen=True, kw_only=True)
class RequestParts:
    """The arguments of a request by name; simple and chat requests order them differently.

    `look` is the task's `doc_to_visual` (simple) or `doc_to_messages` (chat).
    """

    context: str
    generation: dict[str, Any]
    look: Callable[..., Any]
    doc_id: int
    task: str
    split: str

    @property
    def key(self) -> tuple[str, str, int]:
        """(task, split, doc_id), which identify the document."""
        return (self.task, self.split, self.doc_id)


@dataclass(kw_only=True, eq=False)
class PendingRequest:
    """One request on its way to its answer: the question, its frames, and the answer or the error.

    Args:
        request: lmms-eval's own request, never changed.
        is_simple: True for a simple request, False for a chat request.
        question: read from the document.
        path: the video file; None if the document has none.
        benchmark: benchmark of the task; None if no benchmark describes it.
        document: the task's document; empty if it could not be read.
        messages: chat messages of the document; None for a simple request.
        row: the selection; None before it is made, and for the wrapper's own sampling.
        frame_batch: decoded frames; None again once the question is answered.
        fed_frames: indices of the frames fed to the model.
        fallback: reason why other frames than the chosen ones were fed; None if the chosen ones were.
        output: the wrapper's answer.
        error: why there is no answer, in one line; None without an error.
        prompt_end: the last few tokens of the prompt as text, without blanks at its end; "" if unknown.
        is_cut: True if the answer ends while the model is still thinking.
        n_reached: number of frames that reached the model; None if its inputs do not tell.
        seconds: time by stage, such as "decode" and "generate".
        tokens: token counts, see `GenerateTrace.tokens`.
    """

    request: Any
    is_simple: bool
    question: Question
    path: Path | None
    benchmark: Benchmark | None = None
    document: Document = field(default_factory=dict)
    messages: list[dict[str, Any]] | None = None
    row: SelectionRow | None = None
    frame_batch: FrameBatch | None = None
    fed_frames: tuple[int, ...] = ()
    fallback: str | None = None
    output: Any = None
    error: str | None = None
    prompt_end: str = ""
    is_cut: bool = False
    n_reached: int | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)

    @property
    def parts(self) -> RequestParts:
        """The request's arguments by name."""
        return request_parts(self.request, is_simple=self.is_simple)

    @property
    def is_padding(self) -> bool:
        """True for a copy of a request that only gives all ranks equally many calls; it gets no row."""
        # lmms-eval's own mark on the copies that fill a rank up.
        return bool((self.request.metadata or {}).get("__padding_only__"))

    def fail(self, error: BaseException | str) -> None:
        """Record `error` as one line, and drop the output."""
        self.error = error if isinstance(error, str) else error_line(error)
        self.output = None

    def bucket_of(self, seconds: float) -> str:
        """Return the length bucket of a video of `seconds`, by the benchmark's edges, else the default edges."""
        return self.benchmark.bucket(seconds) if self.benchmark else LengthEdges().bucket(seconds)


def request_parts(request: Any, *, is_simple: bool) -> RequestParts:
    """Return the arguments of `request` by name."""
    if is_simple:
        context, generation, look, doc_id, task, split = request.args
    else:
        context, look, generation, doc_id, task, split = request.args
    return RequestParts(context=context, generation=generation, look=look, doc_id=doc_id, task=task, split=split)


def pending_request(
    request: Any,
    documents: Mapping[str, Any],
    *,
    is_simple: bool,
    benchmark: Benchmark | None = None,
    benchmark_name: str = "",
) -> PendingRequest:
    """Return `request` as a `PendingRequest`; an unusable document or video is recorded in it, never raised.

    Args:
        documents: documents by task, split and number.
        benchmark: whose questions the documents are; None for that of `benchmark_name`.
        benchmark_name: name or YAML file of the task's benchmark; "" finds it by the task's name.
    """
    parts = request_parts(request, is_simple=is_simple)
    benchmark = benchmark or _benchmark(parts.task, benchmark_name)
    # Stands in until the document is read: a document that cannot be read still gets a row.
    unknown = Question(
        benchmark=benchmark.name if benchmark else parts.task,
        id=f"document {parts.doc_id}",
        query=parts.context.strip() or "(no text)",
        options=(),
        video="(none)",
        answer=None,
    )
    pending = PendingRequest(request=request, is_simple=is_simple, question=unknown, path=None, benchmark=benchmark)
    try:
        document = pending.document = documents[parts.task][parts.split][parts.doc_id]
        if benchmark is not None:
            # Before the video is looked up: a row about a missing file then names the real question.
            pending.question = benchmark.question(document)
        pending.path, pending.messages = _load_media(parts, document, is_simple=is_simple)
        if benchmark is None:
            pending.question = _question_of_unknown_task(parts, document, pending.path)
    except Exception as error:  # noqa: BLE001 (recorded: one document never ends a run)
        pending.fail(error)
    return pending


def rewrite_request(request: Any, *, is_simple: bool) -> Any:
    """Return a copy of `request` that takes its visuals or messages from a `ViewDocument`.

    Several wrappers use the first request's function for a whole batch, so the visuals come from the document (the
    view of the model maps (task, split, doc_id) to its `ViewDocument`), never from a closure over one request. Some
    wrappers change the generation arguments in place, so these are copied.
    """
    parts = request_parts(request, is_simple=is_simple)
    new = copy.copy(request)
    generation = copy.deepcopy(parts.generation)
    if is_simple:
        new.arguments = (parts.context, generation, _visuals, parts.doc_id, parts.task, parts.split)
    else:
        new.arguments = (parts.context, _messages, generation, parts.doc_id, parts.task, parts.split)
    # A shallow copy shares these lists with lmms-eval's own request, to which the wrapper appends.
    new.resps, new.token_counts = [], []
    return new


@dataclass(frozen=True)
class ViewDocument:
    """A document for the view of a model: the visuals of one question, or its messages."""

    visuals: Any = None
    messages: Any = None


def _visuals(document: ViewDocument) -> Any:
    """Return the visuals of a view's document; takes the place of the task's `doc_to_visual`."""
    return document.visuals


def _messages(document: ViewDocument) -> Any:
    """Return a copy of the messages of a view's document; takes the place of the task's `doc_to_messages`."""
    return copy.deepcopy(document.messages)  # some wrappers put a system message into the list


def _load_media(
    parts: RequestParts, document: Document, *, is_simple: bool
) -> tuple[Path | None, list[dict[str, Any]] | None]:
    """Return the video path of `document`, and its chat messages (None for a simple request)."""
    try:
        media = parts.look(document)
    except SystemExit as error:  # lmms-eval's tasks end the process where a file is missing
        raise VideoError(str(error)) from error
    if is_simple:
        visuals = media if isinstance(media, list) else [media]
        return _single_video_path(visuals, parts), None
    videos = [part["url"] for message in media for part in message["content"] if part["type"] == "video"]
    return _single_video_path(videos, parts), media


def _single_video_path(visuals: list[Any], parts: RequestParts) -> Path | None:
    """Return the path of the one video among a document's visuals; raise InvalidInput for anything else."""
    videos = [visual for visual in visuals if isinstance(visual, str)]
    # k frames of one video is what a selection means; two videos, or an image, have none.
    if len(videos) != 1 or len(visuals) != 1:
        use = "use a task that gives it"
        if parts.task.endswith("_i"):  # LongVideoBench's pictures; its videos are beside them
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
    # Below `$HF_HOME`, where lmms-eval keeps videos, so that rows of two machines name one video.
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    video = str(path.relative_to(home)) if path is not None and path.is_relative_to(home) else str(path)
    return Question(benchmark=parts.task, id=str(parts.doc_id), query=query, options=(), video=video, answer=None)


@cache
def _benchmark(task: str, name: str = "") -> Benchmark | None:
    """Return the benchmark called `name`, or that of the task if it is ""; None for an unknown task. Cached."""
    from focus_eval.bench.benchmarks.registry import benchmark_of_task, make_benchmark

    if name:
        return make_benchmark(name)
    try:
        return benchmark_of_task(task)
    except UnknownName:
        return None


def form_batches(model: Any, queue: list[PendingRequest]) -> list[list[PendingRequest]]:
    """Return `queue` in the batches, and the order, of the stock wrapper.

    Equal batches have equal padding, which makes answers comparable with a stock run. One question at a time needs no
    order, and keeps that of the documents: neighbours often share a video. Only questions of one task and split go
    together: the wrappers look a whole batch up in the first question's task.
    """
    size = int(model.batch_size)
    if size == 1:
        return [[pending] for pending in queue]
    # The wrappers' own class: rules written again here could drift from theirs.
    from lmms_eval.utils import Collator

    by_task: dict[tuple[str, str], list[tuple[PendingRequest]]] = {}
    for pending in queue:
        by_task.setdefault((pending.parts.task, pending.parts.split), []).append((pending,))
    batches: list[list[PendingRequest]] = []
    for entries in by_task.values():
        collator = Collator(
            entries,
            lambda entry: sort_key(model, entry[0]),
            group_fn=lambda entry: entry[0].parts.generation,
            grouping=True,
        )
        batches += [[entry[0] for entry in batch] for batch in collator.get_batched(n=size, batch_fn=None)]
    return batches


def sort_key(model: Any, pending: PendingRequest) -> Any:
    """Return the stock wrapper's key for sorting `pending`: by text, the longest first in simple wrappers."""
    context = pending.parts.context
    if not model.is_simple:
        return context
    # The stock order is by length in the wrapper's own tokens; some wrappers have no `tok_encode`.
    encode = getattr(model, "tok_encode", None) or model.tokenizer.encode
    return (-len(encode(context)), context)
