"""The frames that a model is shown for one question, and how a wrapper gets them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from focus_eval.rows.records import SelectionRow
from focus_eval.video import open_video
from focus_eval.video.reader import Pixels

if TYPE_CHECKING:
    from PIL import Image

    from focus_eval.types import FramePolicy


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
        encoded: what an adapter made of the pixels ahead of time (`FrameSeam.ready`).
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
    is_taken: bool = field(default=False, compare=False)

    @property
    def frames_of_video(self) -> tuple[int, ...]:
        """The frames of the video among those shown."""
        return () if self.is_black else self.frames

    def take(self) -> Pixels:
        """Return the pixels and note that they were read."""
        self.is_taken = True
        return self.pixels

    def images(self) -> list[Image.Image]:
        """Return the frames as RGB images, each shrunk by its scale (Lanczos), and note that they were read."""
        from PIL import Image

        images = [Image.fromarray(frame) for frame in self.take()]
        if self.scales is None:
            return images
        sizes = [
            (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
            for image, scale in zip(images, self.scales, strict=True)
        ]
        return [image.resize(size, Image.Resampling.LANCZOS) for image, size in zip(images, sizes, strict=True)]


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


def decode_frame_batch(row: SelectionRow, path: Path, *, frame_policy: FramePolicy, backend: str) -> FrameBatch:
    """Decode the frames that `frame_policy` feeds for the selection `row`.

    Raises:
        VideoError: a frame that cannot be decoded.
    """
    if row.role == "floor":
        return _black_frame(path, backend)
    frames, fallback = frames_to_feed(row, frame_policy)
    with open_video(path, backend=backend) as reader:
        wanted = np.asarray(frames, dtype=np.int64)
        pixels = reader.read(wanted)
        times = reader.frame_times(wanted)
        info = reader.info
    return FrameBatch(
        path=path,
        frames=frames,
        times_seconds=tuple(float(time) for time in times),
        fps=info.fps,
        n_frames=info.n_frames,
        pixels=pixels,
        scales=tuple(row.scales) if row.scales is not None and fallback is None else None,
        fallback=fallback,
    )


def _black_frame(path: Path, backend: str) -> FrameBatch:
    """Return one black frame of the video's size: no model takes a video of none."""
    with open_video(path, backend=backend) as reader:
        pixels = np.zeros_like(reader.read(np.zeros(1, dtype=np.int64)))
        info = reader.info
    return FrameBatch(
        path=path,
        frames=(0,),
        times_seconds=(0.0,),
        fps=info.fps,
        n_frames=info.n_frames,
        pixels=pixels,
        fallback="no frame chosen: one black frame shown",
        is_black=True,
    )


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
