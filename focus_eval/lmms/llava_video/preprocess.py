"""How does a decoded frame become the tower's pixels?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[np.uint8]


def resize_frames(frames: Sequence[Pixels] | Pixels, *, size: int) -> Pixels:
    """Return frames `(n, size, size, 3)` from RGB uint8 frames of any sizes: PIL bicubic, aspect ratio not kept."""
    resized = np.empty((len(frames), size, size, 3), dtype=np.uint8)
    for place, frame in zip(resized, frames, strict=True):
        place[:] = resize_frame(frame, size=size)
    return resized


def resize_frame(frame: Pixels, *, size: int) -> Pixels:
    """Return one frame as `(size, size, 3)`.

    Pillow rounds to 8 bits between its two passes. Up to 12 it always did width first; since 13 a portrait image
    goes height first, which moves values by up to 9 levels. Two calls keep the order the original ran with.
    """
    image = Image.fromarray(frame)
    width_done = image.resize((size, image.height), Image.Resampling.BICUBIC)
    return np.asarray(width_done.resize((size, size), Image.Resampling.BICUBIC))
