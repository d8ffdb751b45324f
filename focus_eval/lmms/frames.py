"""The frames that a model is shown for one question, and how a wrapper gets them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from focus_eval.core.errors import FocusEvalError
from focus_eval.core.types import FloatArray, IntArray, VideoInfo
from focus_eval.rows.records import SelectionRow
from focus_eval.video import open_video
from focus_eval.video.reader import Pixels, VideoReader

if TYPE_CHECKING:
    from PIL import Image

    from focus_eval.core.types import FramePolicy


MOST_BYTES = 1 << 30


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


def read_frames(path: Path, frames: Iterable[int], *, backend: str) -> DecodedFrames:
    """Return `frames` of the file at `path`.

    Raises:
        VideoError: a file or a frame that cannot be read.
    """
    with open_video(path, backend=backend) as reader:
        return _read(reader, np.asarray(tuple(frames), dtype=np.int64))


def _read(reader: VideoReader, frames: IntArray) -> DecodedFrames:
    return DecodedFrames(info=reader.info, times_seconds=reader.frame_times(frames), pixels=reader.read(frames))


class SharedFrames:
    """The frames of the current video, and those of the next one while the current is answered; a context manager.

    Args:
        videos: each file, in the order of the answers, and every frame that will be shown of it.
        backend: video reader.
        most_bytes: of decoded frames; a video that takes more than half is left to be decoded question by question.
    """

    def __init__(
        self, videos: Sequence[tuple[Path, Iterable[int]]], *, backend: str = "pyav", most_bytes: int = MOST_BYTES
    ) -> None:
        self._videos = [(path.resolve(), np.unique(np.asarray(tuple(frames), np.int64))) for path, frames in videos]
        self._backend = backend
        # Two videos are held at a time.
        self._bytes_a_video = most_bytes // 2
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="shared-frames")
        self._current: tuple[Path, IntArray, Future[DecodedFrames | None]] | None = None
        self._next: Future[DecodedFrames | None] | None = None

    def move_to(self, number: int) -> None:
        """Keep the frames of video `number` and start decoding those of the next.

        Videos are moved to in their order, each once.
        """
        path, frames = self._videos[number]
        decoding = self._next or self._pool.submit(self._decode, number)
        self._current = (path, frames, decoding)
        self._next = self._pool.submit(self._decode, number + 1) if number + 1 < len(self._videos) else None

    def read(self, path: Path, frames: Sequence[int]) -> DecodedFrames | None:
        """Return `frames` of `path`; None if they are not in memory, so that the question decodes them itself."""
        if self._current is None or path.resolve() != self._current[0]:
            return None
        held, decoded = self._current[1], self._current[2].result()
        wanted = np.asarray(frames, dtype=np.int64)
        if decoded is None or not np.isin(wanted, held).all():
            return None
        at = np.searchsorted(held, wanted)
        return DecodedFrames(decoded.info, decoded.times_seconds[at], decoded.pixels[at])

    def _decode(self, number: int) -> DecodedFrames | None:
        path, frames = self._videos[number]
        try:
            with open_video(path, backend=self._backend) as reader:
                n_bytes = 3 * reader.width * reader.height * frames.size
                return _read(reader, frames) if n_bytes <= self._bytes_a_video else None
        except FocusEvalError:
            return None  # each question decodes its own frames, and those that cannot be decoded fail alone

    def __enter__(self) -> SharedFrames:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


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
        """Return the path of `frame_batch` as a string that carries it."""
        made = super().__new__(cls, str(frame_batch.path))
        made.frame_batch = frame_batch
        return made

    # A wrapper may copy what it is given; the frames are shared, never copied.
    def __copy__(self) -> PathWithFrames:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> PathWithFrames:
        return self


def decode_frame_batch(
    row: SelectionRow, path: Path, *, frame_policy: FramePolicy, backend: str, shared: SharedFrames | None = None
) -> FrameBatch:
    """Decode the frames that `frame_policy` feeds for the selection `row`.

    Args:
        shared: frames of the video that are decoded already, where some are.

    Raises:
        VideoError: a frame that cannot be decoded.
    """
    is_floor = row.role == "floor"
    frames, fallback = frames_to_decode(row, frame_policy)
    decoded = shared.read(path, frames) if shared else None
    if decoded is None:
        decoded = read_frames(path, frames, backend=backend)
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
