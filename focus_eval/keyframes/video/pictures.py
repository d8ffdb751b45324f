"""Reads a folder of pictures, or an array of them, as a video."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from focus_eval.core.errors import DamagedFrame, VideoError
from focus_eval.core.types import Pixels, VideoInfo
from focus_eval.keyframes.video.reader import VideoReader

if TYPE_CHECKING:
    from PIL import Image


SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff")
# EXIF's tag for how the camera was held, and Pillow's number of the turn or flip that each of its values requires.
_ORIENTATION = 0x0112
_TURNS = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}


class PictureReader(VideoReader):
    """Frames that are pictures already; see `VideoReader` for the contract.

    Args:
        source: a folder, whose pictures are sorted by name (frame 9 before frame 10), or RGB uint8
            `(n, height, width, 3)`.
        fps: pictures per second.

    Raises:
        VideoError: no pictures, an array of another type or shape, or a picture of another size than the first.
    """

    def __init__(self, source: Path | Pixels, *, fps: float) -> None:
        """List the pictures and read the first; raise VideoError if that fails."""
        self.path = source if isinstance(source, Path) else Path("array")
        self._array = None if isinstance(source, Path) else _checked_array(source)
        self._files = pictures_in(source) if isinstance(source, Path) else []
        n_frames = len(self._files) if self._array is None else len(self._array)
        self.info = VideoInfo(n_frames, fps)
        self.height, self.width = self._picture(0).shape[:2]

    def stream(self, frames: ArrayLike) -> Iterator[tuple[int, Pixels]]:
        """Yield `(frame, pixels (height, width, 3) RGB)` once per distinct frame, ascending."""
        for frame in np.unique(self._checked(frames)).tolist():
            pixels = self._picture(frame)
            if pixels.shape != (self.height, self.width, 3):
                height, width = pixels.shape[:2]
                raise VideoError(
                    f"{self._files[frame]}: {width}x{height}, the first picture has {self.width}x{self.height}"
                )
            yield frame, pixels

    def _picture(self, frame: int) -> Pixels:
        """Picture number `frame` as upright RGB; raises VideoError if it cannot be read."""
        if self._array is not None:
            picture: Pixels = self._array[frame]
            return picture
        from PIL import Image

        try:
            with Image.open(self._files[frame]) as image:
                return _rgb(_turned(image))
        except (OSError, SyntaxError, TypeError, ValueError, Image.DecompressionBombError) as error:
            raise DamagedFrame(
                f"{self._files[frame]}: not a readable picture ({error}); remove or replace it"
            ) from error


def _turned(image: Image.Image) -> Image.Image:
    """A Pillow image turned upright by its EXIF orientation; unchanged if it has none or is unreadable."""
    from PIL import Image

    image.load()  # this turns a TIFF and removes its orientation
    orientation = None
    with suppress(OSError, SyntaxError, TypeError, ValueError, struct.error):
        orientation = image.getexif().get(_ORIENTATION)
    return image.transpose(Image.Transpose(_TURNS[orientation])) if orientation in _TURNS else image


def _rgb(image: Image.Image) -> Pixels:
    """A Pillow image as RGB uint8 `(height, width, 3)`; 16-bit grey keeps its upper 8 bits."""
    if image.mode.startswith("I;16"):
        # Pillow's own conversion would clip 16-bit values at 255.
        grey = (np.asarray(image) >> 8).astype(np.uint8)
        return np.repeat(grey[:, :, None], 3, axis=2)
    pixels: Pixels = np.asarray(image.convert("RGB"))
    return pixels


def pictures_in(folder: Path) -> list[Path]:
    """Return the pictures of `folder` sorted by name, with numbers compared by value.

    Raises:
        VideoError: no pictures in the folder.
    """
    files = [path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and not path.name.startswith(".")]
    if not files:
        raise VideoError(
            f"{folder}: no pictures here ({', '.join(SUFFIXES)}); name a video file or a folder of pictures"
        )
    # Natural order: split names into text and digits in turn, so that numbers are compared with numbers.
    names = {path: re.split(r"([0-9]+)", path.name) for path in files}
    return sorted(files, key=lambda path: [int(part) if part.isdigit() else part for part in names[path]])


def _checked_array(pictures: Pixels) -> Pixels:
    """The array; raises VideoError unless it is RGB uint8 `(n, height, width, 3)`, not empty."""
    if pictures.dtype != np.uint8 or pictures.ndim != 4 or pictures.shape[3] != 3 or 0 in pictures.shape:
        raise VideoError(
            f"array: a video as an array is RGB uint8 (n, height, width, 3), got {pictures.dtype} {pictures.shape}"
        )
    return pictures
