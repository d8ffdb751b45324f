"""Resizes pictures with antialiasing: computes filter weights, and repeats torch's 8-bit arithmetic without torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from focus_eval.core.types import FloatArray, IntArray, Pixels

BILINEAR, BICUBIC = 2, 3  # as Pillow numbers them


def filter_weights(size_in: int, size_out: int, resample: int) -> tuple[IntArray, FloatArray]:
    """Return the first input index `(size_out,)` and the weights `(size_out, taps)` of each output pixel.

    The weights are those of Pillow and torch. An output pixel covers `size_in / size_out` input pixels. If the image
    shrinks, the filter is stretched by that factor (antialiasing). It is cut at the borders and scaled to sum to 1.
    """
    kernel, reach = FILTERS[resample]
    scale = size_in / size_out
    stretch = max(scale, 1.0)
    support = reach * stretch
    centres = (np.arange(size_out) + 0.5) * scale
    first = np.maximum((centres - support + 0.5).astype(np.int64), 0)
    stop = np.minimum((centres + support + 0.5).astype(np.int64), size_in)
    taps = np.arange((stop - first).max())
    values = kernel((taps[None, :] + first[:, None] - centres[:, None] + 0.5) * (1.0 / stretch))
    values[taps[None, :] >= (stop - first)[:, None]] = 0.0
    total = np.zeros(size_out)
    for column in values.T:  # add in sequence, as Pillow and torch do, for the same rounding
        total += column
    return first, values * (1.0 / total)[:, None]


def fixed_point(weights: FloatArray, n_bits: int) -> FloatArray:
    """Return `weights` times `2**n_bits`, rounded to whole numbers, halves away from zero."""
    return np.trunc(weights * (1 << n_bits) + np.where(weights < 0, -0.5, 0.5))


def _bilinear(x: FloatArray) -> FloatArray:
    """The triangle filter at distance `x`, in pixels; 0 from 1 on."""
    return np.maximum(1.0 - np.abs(x), 0.0)


def _bicubic(x: FloatArray) -> FloatArray:
    """Return Keys' cubic filter with a = -0.5 at distance `x`, in pixels; 0 from 2 on.

    Keys 1981, IEEE Transactions on Acoustics, Speech and Signal Processing.
    """
    a, x = -0.5, np.abs(x)
    inner = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    outer = (((x - 5.0) * x + 8.0) * x - 4.0) * a
    return np.where(x < 1.0, inner, np.where(x < 2.0, outer, 0.0))


FILTERS: dict[int, tuple[Callable[[FloatArray], FloatArray], float]] = {
    BILINEAR: (_bilinear, 1.0),
    BICUBIC: (_bicubic, 2.0),
}


# torch resizes 8-bit pictures in fixed point, with 16-bit integer weights. The first pass runs along the width, its
# result is rounded and clipped to 8 bits, and the second pass runs along the height. Floating point adds integers
# exactly, in any order, as long as the sums are small enough. Matrix products therefore give the same bits as torch.

_COLUMNS_AT_ONCE = 16  # few, because wide blocks of the filter matrix are mostly zeros
_ROWS_AT_ONCE = 256  # enough for few Python calls, and blocks still fit the processor's cache
# Limit on the multiplications of one matrix product: OpenBLAS would run larger products on several threads, which costs
# more than it saves here.
_PRODUCTS_AT_ONCE = 1 << 18
_MIDDLE = 128  # subtracted from the 8-bit values, so that sums stay small


def resize_squares(squares: Pixels, size: int) -> Pixels:
    """Return uint8 `(n, size, size, 3)` of uint8 `(n, side, side, 3)`, bicubic with antialiasing.

    Bit-equal to torch's `interpolate(mode="bicubic", antialias=True)` of the same pixels.
    """
    if squares.shape[1] == size:
        return np.ascontiguousarray(squares)
    row_filter = _axis_filter(squares.shape[1], size)
    resized = np.empty((len(squares), size, size, 3), np.uint8)
    for square, out in zip(squares, resized, strict=True):
        for channel in range(3):
            out[..., channel] = row_filter(row_filter(square[..., channel]).T).T
    return resized


@dataclass(frozen=True)
class _AxisFilter:
    """A resizing filter along the rows of a plane of pixels.

    Args:
        blocks: parts of the filter matrix: input columns, output columns, and the weights `(inputs, outputs)`.
        offset: number to add to each output column before scaling, `(size_out,)`.
        scale: power of two that converts fixed-point sums to pixel values.
        dtype: floating type in which every sum is exact.
    """

    blocks: Sequence[tuple[slice, slice, NDArray[np.generic]]]
    offset: NDArray[np.generic]
    scale: float
    dtype: type[np.floating[Any]]

    def __call__(self, plane: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return pixels `(m, size_out)` resized from `plane`, `(m, size_in)`."""
        filtered = np.empty((len(plane), len(self.offset)), np.uint8)
        n_rows = min(_ROWS_AT_ONCE, max(1, _PRODUCTS_AT_ONCE // max(weights.size for _, _, weights in self.blocks)))
        sums = np.empty((n_rows, len(self.offset)), self.dtype)
        for at in range(0, len(plane), n_rows):
            # One operation: a second large array would be taken from the system anew at each call.
            values = np.subtract(plane[at : at + n_rows], _MIDDLE, dtype=self.dtype)
            sums = sums[: len(values)]
            for inputs, outputs, weights in self.blocks:
                np.matmul(values[:, inputs], weights, out=sums[:, outputs])
            sums += self.offset
            sums *= self.dtype(self.scale)
            np.floor(sums, out=sums)
            sums += self.dtype(_MIDDLE)
            filtered[at : at + n_rows] = np.clip(sums, 0, 255, out=sums)
        return filtered


@lru_cache(maxsize=64)
def _axis_filter(size_in: int, size_out: int) -> _AxisFilter:
    """The bicubic filter that resizes rows of `size_in` pixels to `size_out`; cached."""
    first, weights = filter_weights(size_in, size_out, BICUBIC)
    largest_weight = float(weights.max())
    # Use as many fraction bits, at most 22, as keep the largest weight within int16.
    n_bits = next((bits for bits in range(22) if int(0.5 + largest_weight * (1 << (bits + 1))) >= 1 << 15), 22)
    fixed = fixed_point(weights, n_bits)
    matrix = np.zeros((size_in, size_out))
    for column, (start, values) in enumerate(zip(first, fixed, strict=True)):
        part = matrix[start : start + len(values), column]
        part[:] = values[: len(part)]  # weights past the border are 0: drop them
    # The offset rounds to the nearest integer, and corrects for `_MIDDLE` in columns whose weights do not sum to
    # exactly 1.
    offset = (1 << (n_bits - 1)) + _MIDDLE * (matrix.sum(axis=0) - (1 << n_bits))
    largest = _MIDDLE * np.abs(matrix).sum(axis=0).max() + np.abs(offset).max()
    dtype = np.float32 if largest < 1 << 24 else np.float64
    blocks = []
    for at in range(0, size_out, _COLUMNS_AT_ONCE):
        outputs = slice(at, at + _COLUMNS_AT_ONCE)
        used = np.flatnonzero(matrix[:, outputs].any(axis=1))
        inputs = slice(int(used[0]), int(used[-1]) + 1)
        blocks.append((inputs, outputs, matrix[inputs, outputs].astype(dtype)))
    return _AxisFilter(blocks, offset.astype(dtype), 2.0**-n_bits, dtype)
