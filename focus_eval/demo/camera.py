"""Pans and zooms a camera over a photograph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from focus_eval.demo.photographs import Box
from focus_eval.errors import InvalidInput
from focus_eval.video.reader import Pixels

if TYPE_CHECKING:
    from PIL import Image

# The camera moves on every third frame, as much hand-drawn render does: a third of the work.
FRAMES_PER_MOVE = 3


@dataclass(frozen=True)
class Shot:
    """One uncut take of one photograph.

    Args:
        photograph: its name.
        n_frames: length, at least 1.
        first, last: what is in view at both ends, in parts of the picture's width and height; equal: a still shot.
        mirrored: left and right exchanged.
        gain: brightness, 1 as taken.
    """

    photograph: str
    n_frames: int
    first: Box
    last: Box
    mirrored: bool = False
    gain: float = 1.0

    def __post_init__(self) -> None:
        if self.n_frames < 1:
            raise InvalidInput(f"a shot needs at least 1 frame, got {self.n_frames}")
        for left, top, right, bottom in (self.first, self.last):
            if not (0 <= left < right <= 1 and 0 <= top < bottom <= 1):
                raise InvalidInput(f"a view must lie inside its picture, got {(left, top, right, bottom)}")

    def view(self, frame: int) -> Box:
        """Return what is in view at `frame` of the shot: it starts and stops gently."""
        moves = max(1, (self.n_frames - 1) // FRAMES_PER_MOVE)
        along = min(1.0, (frame // FRAMES_PER_MOVE) / moves)
        ease = along * along * (3 - 2 * along)
        left, top, right, bottom = (a + (b - a) * ease for a, b in zip(self.first, self.last, strict=True))
        return left, top, right, bottom


def render(shot: Shot, picture: Image.Image, *, width: int, height: int) -> Iterator[tuple[Pixels, int]]:
    """Yield RGB pixels `(height, width, 3)` and for how many frames they stay, `shot.n_frames` together."""
    from PIL import Image, ImageEnhance, ImageOps

    if shot.mirrored:
        picture = ImageOps.mirror(picture)
    if shot.gain != 1.0:
        picture = ImageEnhance.Brightness(picture).enhance(shot.gain)
    step = shot.n_frames if shot.first == shot.last else FRAMES_PER_MOVE
    for frame in range(0, shot.n_frames, step):
        left, top, right, bottom = shot.view(frame)
        box = (left * picture.width, top * picture.height, right * picture.width, bottom * picture.height)
        pixels = np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR, box=box))
        yield pixels, min(step, shot.n_frames - frame)
