"""Reads frames of a video as small JPEGs."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from focus_eval.video import open_video


def read_thumbnails(path: Path, frames: Sequence[int], *, height: int = 90) -> Iterator[tuple[int, bytes]]:
    """Yield `frames` and their JPEGs in one pass over the file; without frames it is not opened.

    Raises:
        VideoError: a file or a frame that cannot be read.
    """
    from PIL import Image

    if not frames:
        return
    with open_video(path) as reader:
        for frame, pixels in reader.stream(np.array(frames, dtype=np.int64)):
            image = Image.fromarray(pixels)
            image.thumbnail((height * 3, height))
            buffer = io.BytesIO()
            image.save(buffer, "JPEG", quality=72)
            yield frame, buffer.getvalue()
