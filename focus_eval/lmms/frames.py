"""The frames that a model is shown for one question, and how a wrapper gets them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from focus_eval.core.errors import FocusEvalError, VideoError
from focus_eval.core.types import FloatArray, IntArray, VideoInfo
from focus_eval.rows.records import SelectionRow
from focus_eval.video import open_video
from focus_eval.video.reader import Pixels

if TYPE_CHECKING:
    from PIL import Image

    from focus_eval.core.types import FramePolicy
    from focus_eval.video.scan_cache import KeptScans


MOST_BYTES = 2 << 30


@dataclass(frozen=True, eq=False)
class DecodedFrames:
    """Frames of one video, in the order in which they were asked for.

    Args:
        times_seconds: presentation times, `(n,)`.
        pixels: RGB uint8 `(n, height, width, 3)`.
    """

    info: VideoInfo
    times_seconds: FloatArray
    pixels: Pixels


def read_frames(path: Path, frames: Iterable[int], *, backend: str, kept: KeptScans | None = None) -> DecodedFrames:
    """Return `frames` of the file at `path`.

    Raises:
        VideoError: a file or a frame that cannot be read.
    """
    asked = np.asarray(tuple(frames), dtype=np.int64)
    with open_video(path, backend=backend, kept=kept) as reader:
        return DecodedFrames(info=reader.info, times_seconds=reader.frame_times(asked), pixels=reader.read(asked))


@dataclass(eq=False)
class _Part:
    """Questions about one video whose frames are decoded together."""

    path: Path
    frames: IntArray
    n_questions: int = 1
    is_started: bool = False


class SharedFrames:
    """Frames of videos, decoded once for all questions that are shown them, ahead of the answers; a context manager.

    The questions of a video go together as far as their frames fit into memory. The oldest frames are let go when
    those of later questions need the room; a question that comes too late decodes its own.

    Args:
        asked: each file, in the order of the answers, with the frames of each of its questions.
        kept: what opening learned of files.
        most_bytes: of all frames held.
        n_ahead: parts decoded ahead, side by side.
    """

    def __init__(
        self,
        asked: Mapping[Path, Sequence[Sequence[int]]],
        *,
        backend: str = "pyav",
        kept: KeptScans | None = None,
        most_bytes: int = MOST_BYTES,
        n_ahead: int = 1,
    ) -> None:
        self._asked = {path.resolve(): questions for path, questions in asked.items()}
        self._number = {path: at for at, path in enumerate(self._asked)}
        self._parts_of: dict[Path, list[_Part]] = {}
        self._backend, self._kept, self._n_ahead = backend, kept, n_ahead
        # Those ahead, the one that is read, and the one before, which slower threads may still want.
        self._n_held = n_ahead + 2
        self._bytes_a_part = most_bytes // self._n_held
        self._held: dict[_Part, Future[DecodedFrames | None]] = {}
        self._lock = Lock()
        self._pool = ThreadPoolExecutor(max_workers=n_ahead, thread_name_prefix="shared-frames")

    def read(self, path: Path, frames: Sequence[int]) -> DecodedFrames | None:
        """Return `frames` of `path`; None if they are not in memory, so that the question decodes them itself."""
        wanted = np.asarray(frames, dtype=np.int64)
        with self._lock:
            part = self._part_with(path.resolve(), wanted)
            if part is None:
                return None
            for each in itertools.islice(self._from(part), 1 + self._n_ahead):
                self._start(each)
            decoding = self._held[part]
        decoded = decoding.result()
        if decoded is None:
            return None
        at = np.searchsorted(part.frames, wanted)
        return DecodedFrames(decoded.info, decoded.times_seconds[at], decoded.pixels[at])

    def _part_with(self, path: Path, wanted: IntArray) -> _Part | None:
        """Return the first part that has all these frames and is held, or can still be."""
        parts = self._parts(path) if path in self._asked else []
        fitting = (part for part in parts if np.isin(wanted, part.frames).all())
        return next((part for part in fitting if part in self._held or not part.is_started), None)

    def _from(self, part: _Part) -> Iterator[_Part]:
        """Yield `part` and those after it."""
        videos = itertools.islice(self._asked, self._number[part.path], None)
        parts = (each for path in videos for each in self._parts(path))
        return itertools.dropwhile(lambda each: each is not part, parts)

    def _parts(self, path: Path) -> list[_Part]:
        if path not in self._parts_of:
            most = self._bytes_a_part // max(1, frame_bytes(path))
            parts: list[_Part] = []
            for frames in self._asked[path]:
                alone = np.unique(np.asarray(frames, dtype=np.int64))
                together = np.union1d(parts[-1].frames, alone) if parts else alone
                if parts and together.size <= most:
                    parts[-1].frames = together
                    parts[-1].n_questions += 1
                else:
                    parts.append(_Part(path, alone))
            # What nobody shares is better decoded by the thread that needs it.
            self._parts_of[path] = [part for part in parts if part.n_questions > 1]
        return self._parts_of[path]

    def _start(self, part: _Part) -> None:
        if part.is_started:
            return
        part.is_started = True
        self._held[part] = self._pool.submit(self._decode, part)
        while len(self._held) > self._n_held:
            del self._held[next(iter(self._held))]

    def _decode(self, part: _Part) -> DecodedFrames | None:
        try:
            return read_frames(part.path, part.frames.tolist(), backend=self._backend, kept=self._kept)
        except FocusEvalError:
            return None  # each question decodes its own frames, and those that cannot be decoded fail alone

    def __enter__(self) -> SharedFrames:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


# Many questions ask about one video; its header is read once.
@lru_cache(maxsize=4096)
def frame_bytes(path: Path) -> int:
    """Return the bytes of an RGB frame of a video, from the file's header; 0 where it cannot be opened."""
    from focus_eval.video.decoder import Decoder

    try:
        # As the reader opens it: the stream that is read, and no file or address that a playlist names.
        decoder = Decoder(path, n_threads=1)
    except (VideoError, OSError):
        return 0
    try:
        size = decoder.stream.codec_context
        return 3 * int(size.width) * int(size.height)
    finally:
        decoder.close()


@dataclass(kw_only=True)
class FrameBatch:
    """The decoded frames of one question, on their way through a wrapper.

    Args:
        path: the video.
        frames: frame indices in the order they are shown.
        times_seconds: their presentation times.
        fps, n_frames: rate and length of the video.
        pixels: RGB uint8 `(n, height, width, 3)`.
        scales: shrink factor per frame, None for full size.
        fallback: why these are not the chosen frames; None where they are.
        is_black: True for the one black frame that stands for none; its index and time are 0.
        encoded: what an adapter made of the pixels ahead of time (`FrameAdapter.ready`).
        encoded_bytes: what `encoded` takes in memory.
        patch_size: side of the model's patches in pixels, where a wrapper resizes frames without knowing it.
        is_taken: set when a wrapper reads the pixels; one that never does answered without them.
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
    is_taken: bool = field(default=False, compare=False)

    @property
    def frames_of_video(self) -> tuple[int, ...]:
        """The frames of the video among those shown."""
        return () if self.is_black else self.frames

    @property
    def held_bytes(self) -> int:
        """Bytes in memory of the pixels and of what an adapter made of them."""
        return self.pixels.nbytes + self.encoded_bytes

    def take(self) -> Pixels:
        """Return the pixels and note that they were read."""
        # The only way to the pixels, so that an answer given without them is found out.
        self.is_taken = True
        return self.pixels

    def replace_pixels(self, encoded: Any, *, n_bytes: int) -> None:
        """Keep what an adapter made of the pixels, and let go of these: many questions are under way at once."""
        self.encoded, self.encoded_bytes = encoded, n_bytes
        self.pixels = np.empty((0, *self.pixels.shape[1:]), dtype=np.uint8)

    def images(self) -> list[Image.Image]:
        """Return the frames as RGB images, each shrunk by its scale (Lanczos), and note that they were read."""
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
        made = super().__new__(cls, str(frame_batch.path))
        made.frame_batch = frame_batch
        return made

    # A wrapper may copy what it is given; the frames are shared, never copied.
    def __copy__(self) -> PathWithFrames:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> PathWithFrames:
        return self


def decode_frame_batch(
    row: SelectionRow,
    path: Path,
    *,
    frame_policy: FramePolicy,
    backend: str,
    shared: SharedFrames | None = None,
    kept: KeptScans | None = None,
) -> FrameBatch:
    """Decode the frames that `frame_policy` feeds for the selection `row`.

    Args:
        shared: frames of the video that are decoded already, where some are.
        kept: what opening learned of files.

    Raises:
        VideoError: a frame that cannot be decoded.
    """
    is_floor = row.role == "floor"
    frames, fallback = frames_to_decode(row, frame_policy)
    decoded = shared.read(path, frames) if shared else None
    if decoded is None:
        decoded = read_frames(path, frames, backend=backend, kept=kept)
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
    """Return the frames decoded for `row`, and why they are not the chosen ones (None where they are).

    For the floor it is the first, whose size the black frame has: a damaged file then fails as it does elsewhere.
    """
    if row.role == "floor":
        return (0,), "no frame chosen: one black frame shown"
    return frames_to_feed(row, frame_policy)


def frames_to_feed(row: SelectionRow, frame_policy: FramePolicy) -> tuple[tuple[int, ...], str | None]:
    """Return the frames fed for `row`, and why they are not the chosen ones (None where they are).

    "exact" feeds the keyframes and nothing else. "aks" does what the AKS evaluation code does: a selection of
    fewer than k frames is dropped for `linspace(0, n_frames - 1, k)`, and its uniform baseline gets one frame per
    second, or that linspace where these are more than k.
    """
    chosen = tuple(row.keyframes)
    if frame_policy == "exact":
        return chosen, None
    if row.sampler in ("uniform", "uniform_1fps"):
        # As the AKS code has it: the baseline is 1 fps until that is more than k.
        every_second = tuple(range(0, row.n_frames, max(1, round(row.fps))))
        if len(every_second) <= row.k:
            return every_second, f"aks frame policy: one frame per second, {len(every_second)} of {row.k}"
        spread = _linspace(row)
        return spread, None if spread == chosen else "aks frame policy: linspace in place of the baseline's own frames"
    if len(chosen) < row.k:
        return _linspace(row), f"aks frame policy: {len(chosen)} of {row.k} chosen, uniform frames fed"
    return chosen, None


def _linspace(row: SelectionRow) -> tuple[int, ...]:
    return tuple(np.linspace(0, row.n_frames - 1, row.k, dtype=int).tolist())
