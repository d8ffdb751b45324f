"""Turns decoded pixels to stand as the file says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from focus_eval.errors import VideoError
from focus_eval.video.reader import Pixels

_ONE = 1 << 16  # the display matrix holds 16.16 fixed-point numbers
_TOLERANCE = 0.01


@dataclass(frozen=True)
class Orientation:
    """A quarter turn or a flip: rows and columns are swapped first, then each axis may be reversed."""

    swaps_axes: bool = False
    reverses_rows: bool = False
    reverses_columns: bool = False

    @classmethod
    def of_matrix(cls, matrix: bytes) -> Orientation | None:
        """Return the orientation of a display matrix (ISO 14496-12, 8.3.2), None for any other than quarter turns.

        The matrix takes the point (x, y) of the stored picture to `(a x + c y, b x + d y)`, y pointing down.
        """
        a, b, _, c, d = np.frombuffer(matrix, dtype=np.int32)[:5] / _ONE
        if max(abs(value - round(value)) for value in (a, b, c, d)) > _TOLERANCE:
            return None
        a, b, c, d = round(a), round(b), round(c), round(d)
        if abs(a) == abs(d) == 1 and b == c == 0:
            return cls(False, reverses_rows=d < 0, reverses_columns=a < 0)
        if abs(b) == abs(c) == 1 and a == d == 0:
            return cls(True, reverses_rows=b < 0, reverses_columns=c < 0)
        return None

    @classmethod
    def of_frame(cls, path: Path, frame: Any) -> Orientation:
        """Return the orientation that a decoded frame of `path` asks for.

        Raises:
            VideoError: the file asks for a turn that is not a multiple of 90 degrees.
        """
        matrix = frame.side_data.get("DISPLAYMATRIX")
        if matrix is None:
            return cls()
        orientation = cls.of_matrix(bytes(matrix))
        if orientation is None:
            raise VideoError(f"{path}: turned by an angle that is not a multiple of 90 degrees; re-encode it upright")
        return orientation

    def size(self, width: int, height: int) -> tuple[int, int]:
        """Return (width, height) as shown of a picture stored as `width` x `height`."""
        return (height, width) if self.swaps_axes else (width, height)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return `pixels` `(height, width, 3)` as shown; contiguous."""
        if self.swaps_axes:
            pixels = pixels.transpose(1, 0, 2)
        pixels = pixels[:: -1 if self.reverses_rows else 1, :: -1 if self.reverses_columns else 1]
        return np.ascontiguousarray(pixels)
