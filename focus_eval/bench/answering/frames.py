"""The frames of a question that a model is shown: which they are, how they are read, and how they reach a wrapper."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from focus_eval.core.errors import SelectionMismatch
from focus_eval.core.types import Pixels, VideoInfo
from focus_eval.keyframes.rows.records import SelectionRow

if TYPE_CHECKING:
    from PIL import Image

    from focus_eval.core.types import FramePolicy
    from focus_eval.keyframes.video.reader import VideoReader


@dataclass(frozen=True, kw_only=True)
class FrameClock:
    """The frames' times as `tick / rate` seconds, since most processors know only one rate for a video.

    Args:
        rate: ticks per second.
        ticks: tick of each frame.
        n_ticks: length of the video in ticks.
    """

    rate: float
    ticks: list[int]
    n_ticks: int


def _note_nothing() -> None:
    pass


@dataclass(frozen=True, kw_only=True, eq=False)
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
        is_black: True if a single black frame stands in for the video's frames; its index and time are 0.
        encoded: data URLs of the frames, made ahead of time for a service (`FrameAdapter.ready`); None without them.
        encoded_bytes: memory of `encoded`.
        patch_size: side of the model's patches in pixels, for a wrapper that would resize by another side; None for the
            wrapper's own.
        on_read: called when a wrapper reads the pixels; an answer that it gives without reading them is refused.
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
    encoded: list[str] | None = None
    encoded_bytes: int = 0
    patch_size: int | None = None
    on_read: Callable[[], None] = _note_nothing

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

        It ticks at the video's mean rate if that puts each frame within half a frame of its time. Otherwise, for a file
        of variable rate, it ticks in milliseconds.
        """
        times = np.asarray(self.times_seconds)
        if bool(np.all(np.abs(times - np.asarray(self.frames) / self.fps) <= 0.5 / self.fps)):
            return FrameClock(rate=self.fps, ticks=list(self.frames), n_ticks=self.n_frames)
        ticks = [round(milliseconds) for milliseconds in (1000 * times).tolist()]
        return FrameClock(rate=1000.0, ticks=ticks, n_ticks=max(round(1000 * self.n_frames / self.fps), ticks[-1] + 1))

    def take(self) -> Pixels:
        """Return the pixels and note that they were read."""
        # Wrappers get the pixels only from here, so that an answer given without reading them is noticed.
        self.on_read()
        return self.pixels

    def take_encoded(self) -> list[str] | None:
        """Return the frames' data URLs and note that they were read."""
        self.on_read()
        return self.encoded

    def with_encoded(self, encoded: list[str], *, n_bytes: int) -> FrameBatch:
        """Return these frames as data URLs of `n_bytes` bytes in all, without the pixels."""
        no_pixels = np.empty((0, *self.pixels.shape[1:]), dtype=np.uint8)
        return replace(self, encoded=encoded, encoded_bytes=n_bytes, pixels=no_pixels)

    def pick(self, frames: Sequence[int]) -> FrameBatch:
        """Return a copy with only `frames`, in that order; `self.frames` must ascend and include them."""
        places = np.searchsorted(self.frames, frames)
        times = tuple(self.times_seconds[place] for place in places)
        return replace(self, frames=tuple(frames), times_seconds=times, pixels=self.pixels[places])

    def images(self) -> list[Image.Image]:
        """Return the frames as RGB images, each shrunk by its scale (Lanczos), and note that they were read."""
        from PIL import Image

        images = [Image.fromarray(frame) for frame in self.take()]
        if self.scales is None:
            return images
        # At least one pixel a side: PIL refuses an empty image.
        sizes = [
            (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
            for image, scale in zip(images, self.scales, strict=True)
        ]
        return [image.resize(size, Image.Resampling.LANCZOS) for image, size in zip(images, sizes, strict=True)]


# A str subclass: wrappers test `isinstance(visual, str)`, read the suffix and open the file for its length. Any other
# type would take a different branch.
class PathWithFrames(str):
    """A video's path that also carries the frames to show, as `frame_batch`. It exists and opens like any path."""

    __slots__ = ("frame_batch",)

    frame_batch: FrameBatch

    def __new__(cls, frame_batch: FrameBatch) -> PathWithFrames:
        """Return the path of `frame_batch`'s video that carries it."""
        path = super().__new__(cls, str(frame_batch.path))
        path.frame_batch = frame_batch
        return path

    # Wrappers copy their inputs; the copies share the frames.
    def __copy__(self) -> PathWithFrames:
        """Return the path itself: a copy would lose the record that its frames were taken."""
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> PathWithFrames:
        """Return the path itself: a copy would lose the record that its frames were taken."""
        return self


def read_frames(reader: VideoReader, frames: Iterable[int]) -> FrameBatch:
    """Decode the frames of the given indices from an open video.

    Raises:
        VideoError: a frame that cannot be read.
    """
    indices = tuple(frames)
    numbers = np.asarray(indices, dtype=np.int64)
    return FrameBatch(
        path=reader.path,
        frames=indices,
        times_seconds=tuple(reader.frame_times(numbers).tolist()),
        fps=reader.info.fps,
        n_frames=reader.info.n_frames,
        pixels=reader.read(numbers),
    )


def frames_to_feed(row: SelectionRow, frame_policy: FramePolicy) -> tuple[tuple[int, ...], str | None]:
    """Return the frame indices fed for `row`, and why they are not the chosen ones (None if they are).

    "exact" feeds the keyframes and nothing else. "aks" follows the AKS evaluation code: a selection of fewer than k
    frames is replaced by `linspace(0, n_frames - 1, k)`, and its uniform baseline gets one frame per second, or that
    linspace if one frame per second would be more than k frames. A floor row gets frame 0, which `show_selection`
    blackens.
    """
    keyframes = tuple(row.keyframes or ())
    if row.role == "floor":
        return (0,), "no frame chosen: one black frame shown"
    if frame_policy == "exact":
        return keyframes, None
    if row.sampler in ("uniform", "uniform_1fps"):
        # As in the AKS code, the baseline is one frame per second, unless that gives more than k frames.
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


def show_selection(row: SelectionRow, frame_batch: FrameBatch, fallback: str | None) -> FrameBatch:
    """Return the frames of `frames_to_feed`, read, as the model is shown them; a floor row shows one black frame.

    Args:
        fallback: as `frames_to_feed` gives it.
    """
    if row.role == "floor":
        # A floor row shows what a model answers from the question alone. No model takes a video without frames, so show
        # it a black frame, which keeps the form of the prompt.
        black = np.zeros_like(frame_batch.pixels)
        frame_batch = replace(frame_batch, pixels=black, times_seconds=(0.0,), is_black=True)
    # Scales belong to the chosen frames; frames fed in their place have full size.
    scales = tuple(row.scales) if row.scales is not None and fallback is None else None
    return replace(frame_batch, scales=scales, fallback=fallback)


def _linspace(row: SelectionRow) -> tuple[int, ...]:
    """K evenly spaced frames, from the first to the last, rounded down; a short video repeats some."""
    return tuple(np.linspace(0, _known_info(row).n_frames - 1, row.k, dtype=int).tolist())


def _known_info(row: SelectionRow) -> VideoInfo:
    """Length and rate of the row's video; raises SelectionMismatch if they are unknown."""
    if row.info is None:
        raise SelectionMismatch(f"{row.video}: length and rate are not known, which frame_policy=aks needs")
    return row.info
