"""Decoded frames of one question, and the path object that carries them into a wrapper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from focus_eval.core.errors import SelectionMismatch, VideoError
from focus_eval.core.types import FloatArray, IntArray, Pixels, VideoInfo
from focus_eval.rows.records import SelectionRow
from focus_eval.video import open_video

if TYPE_CHECKING:
    from PIL import Image

    from focus_eval.core.types import FramePolicy
    from focus_eval.video.scan import KeptScans


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
    from focus_eval.video.decoder import Decoder

    try:
        # As the reader opens it: the stream that is read, and no file or address that a playlist names.
        decoder = Decoder(path)
    except (VideoError, OSError):
        return 0
    try:
        size = decoder.stream.codec_context
        return 3 * int(size.width) * int(size.height)
    finally:
        decoder.close()


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
        is_taken: True once a wrapper has read the pixels.
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
        """Indices of the shown frames; empty if a black frame is shown."""
        return () if self.is_black else self.frames

    @property
    def held_bytes(self) -> int:
        """Memory of the pixels and of `encoded`, in bytes."""
        return self.pixels.nbytes + self.encoded_bytes

    def take(self) -> Pixels:
        """Return the pixels and set `is_taken`."""
        # The only way to the pixels, so that an answer given without them is found out.
        self.is_taken = True
        return self.pixels

    def replace_pixels(self, encoded: Any, *, n_bytes: int) -> None:
        """Store `encoded`, an adapter's form of the pixels of `n_bytes` bytes, and drop the pixels to save memory."""
        self.encoded, self.encoded_bytes = encoded, n_bytes
        self.pixels = np.empty((0, *self.pixels.shape[1:]), dtype=np.uint8)

    def images(self) -> list[Image.Image]:
        """Return the frames as RGB images, each shrunk by its scale (Lanczos), and set `is_taken`."""
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
