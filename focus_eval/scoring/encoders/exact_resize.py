"""Resizes 8-bit images as Pillow does, with integers, on any device.

Pillow's convolution on 8-bit images is fixed-point: weights rounded to multiples of 2^-22, one pass along the
width, rounded and clipped to 8 bits, one pass along the height. Both passes are integer sums, so the same
numbers come out on every device, whatever the order of the additions: bit-equal to Pillow.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from focus_eval.errors import InvalidInput
from focus_eval.types import IntArray

_FRACTION_BITS = 22


def resize_exactly(images: torch.Tensor, height: int, width: int, *, resample: int) -> torch.Tensor:
    """Return uint8 images `(n, c, height, width)` from uint8 `(n, c, h, w)`, on their device, as Pillow would.

    Args:
        resample: Pillow's code: 2 bilinear, 3 bicubic.

    Raises:
        InvalidInput: another filter.
    """
    for axis, size in ((3, width), (2, height)):  # width first, as every Pillow before 13 does
        if images.shape[axis] != size:
            images = _resize_axis(images, axis, size, resample)
    return images


def pillow_weights(size_in: int, size_out: int, resample: int) -> tuple[IntArray, NDArray[np.int32]]:
    """Return first input index `(size_out,)` and fixed-point weights `(size_out, taps)` of Pillow's filter.

    An output pixel covers `size_in / size_out` input pixels; the filter is stretched by that factor when it
    shrinks the image (antialiasing), cut at the borders and scaled to sum to 1.

    Raises:
        InvalidInput: a filter other than bilinear and bicubic.
    """
    if resample not in _FILTERS:
        raise InvalidInput(
            f"resize=device supports bilinear (2) and bicubic (3), not filter {resample}; use resize=pil"
        )
    kernel, reach = _FILTERS[resample]
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
    for column in values.T:  # one after another, as Pillow adds them
        total += column
    values = values * (1.0 / total)[:, None]
    fixed = np.trunc(values * (1 << _FRACTION_BITS) + np.where(values < 0, -0.5, 0.5))
    return first, fixed.astype(np.int32)


def _resize_axis(images: torch.Tensor, axis: int, size: int, resample: int) -> torch.Tensor:
    starts, weights = _weights_on(images.device, images.shape[axis], size, resample)
    shape = [1, 1, 1, 1]
    shape[axis] = size
    total: torch.Tensor | None = None
    for tap in range(weights.shape[1]):
        at = (starts + tap).clamp(max=images.shape[axis] - 1)  # past the border the weight is 0
        part = images.index_select(axis, at).to(torch.int32) * weights[:, tap].reshape(shape)
        total = part if total is None else total.add_(part)
    assert total is not None
    rounded = total.add_(1 << (_FRACTION_BITS - 1)) >> _FRACTION_BITS
    return rounded.clamp_(0, 255).to(torch.uint8)


@lru_cache(maxsize=256)
def _weights_on(device: torch.device, size_in: int, size_out: int, resample: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `pillow_weights` on the device, uploaded once: an upload waits for all that is queued there."""
    first, fixed = pillow_weights(size_in, size_out, resample)
    return torch.from_numpy(first).to(device), torch.from_numpy(fixed).to(device)


def _bilinear(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.maximum(1.0 - np.abs(x), 0.0)


def _bicubic(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Keys' cubic with a = -0.5 (IEEE Transactions on Acoustics, Speech and Signal Processing, 1981)."""
    a, x = -0.5, np.abs(x)
    near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    far = (((x - 5.0) * x + 8.0) * x - 4.0) * a
    return np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))


_FILTERS: dict[int, tuple[Callable[[NDArray[np.float64]], NDArray[np.float64]], float]] = {
    2: (_bilinear, 1.0),
    3: (_bicubic, 2.0),
}
