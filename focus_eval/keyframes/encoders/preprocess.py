"""Turns decoded frames into an encoder's pixel values: resize, crop, normalise."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from focus_eval.core.errors import EncoderError, InvalidInput
from focus_eval.core.processes import n_cores
from focus_eval.core.types import IntArray, Pixels
from focus_eval.keyframes.encoders.resampling import BICUBIC, FILTERS, filter_weights, fixed_point

# Pillow resizes 8-bit images in fixed point. Weights are rounded to multiples of 2^-22. The first pass runs along the
# width, its result is rounded and clipped to 8 bits, and the second pass runs along the height. Both passes are sums of
# integers, which do not depend on the order of additions, so every device gives the bits that Pillow gives.

_FRACTION_BITS = 22


def resize_exactly(images: torch.Tensor, height: int, width: int, *, resample: int) -> torch.Tensor:
    """Resize uint8 images `(n, c, h, w)` to `(n, c, height, width)` on their device, bit-equal to Pillow.

    Images that have this size already are returned unchanged, without a check of `resample`.

    Args:
        resample: Pillow's code of the filter: 2 for bilinear, 3 for bicubic.

    Raises:
        InvalidInput: a filter other than bilinear and bicubic.
    """
    for axis, size in ((3, width), (2, height)):  # width first, as in every Pillow before 13
        if images.shape[axis] != size:
            images = _resize_axis(images, axis, size, resample)
    return images


def pillow_weights(size_in: int, size_out: int, resample: int) -> tuple[IntArray, NDArray[np.int32]]:
    """Return the first input index `(size_out,)` and the weights `(size_out, taps)` of each output pixel.

    The weights are Pillow's, in fixed point.

    Raises:
        InvalidInput: a filter other than bilinear and bicubic.
    """
    if resample not in FILTERS:
        raise InvalidInput(
            f"resize=device supports bilinear (2) and bicubic (3), not filter {resample}; use resize=pil"
        )
    first, weights = filter_weights(size_in, size_out, resample)
    return first, fixed_point(weights, _FRACTION_BITS).astype(np.int32)


def _resize_axis(images: torch.Tensor, axis: int, size: int, resample: int) -> torch.Tensor:
    """Uint8 images resized to `size` pixels along one axis, with Pillow's fixed-point sums."""
    starts, weights = _weights_on(images.device, images.shape[axis], size, resample)
    shape = [1, 1, 1, 1]
    shape[axis] = size
    total: torch.Tensor | None = None
    for tap in range(weights.shape[1]):
        at = (starts + tap).clamp(max=images.shape[axis] - 1)  # an index past the border is harmless: its weight is 0
        part = images.index_select(axis, at).to(torch.int32) * weights[:, tap].reshape(shape)
        total = part if total is None else total.add_(part)
    assert total is not None
    rounded = total.add_(1 << (_FRACTION_BITS - 1)) >> _FRACTION_BITS
    return rounded.clamp_(0, 255).to(torch.uint8)


@lru_cache(maxsize=256)
def _weights_on(device: torch.device, size_in: int, size_out: int, resample: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`pillow_weights` as tensors on `device`; cached, because each upload would wait for the device's queued work."""
    first, fixed = pillow_weights(size_in, size_out, resample)
    return torch.from_numpy(first).to(device), torch.from_numpy(fixed).to(device)


Resize = Literal["auto", "pil", "device"]
Triple = tuple[float, float, float]

CLIP_MEAN: Triple = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD: Triple = (0.26862954, 0.26130258, 0.27577711)


@dataclass(frozen=True, kw_only=True)
class ImageRules:
    """Size and colour of an encoder's input.

    Args:
        height, width: of the input in pixels.
        shortest_edge: resize the shorter side to this many pixels, keeping the aspect ratio, then crop the centre;
            None: resize straight to `(height, width)`.
        resample: Pillow's code of the filter.
        mean, std: per channel, of values in [0, 1].
    """

    # False if the input size depends on the frame size: frames of different sizes then cannot share a batch.
    has_one_size: ClassVar[bool] = True

    height: int
    width: int
    shortest_edge: int | None = None
    resample: int = BICUBIC
    mean: Triple = CLIP_MEAN
    std: Triple = CLIP_STD

    def __post_init__(self) -> None:
        """Raise InvalidInput if a size or `std` is not above 0, or if the input is larger than the resized frame."""
        if min(self.height, self.width) < 1 or min(self.std) <= 0:
            raise InvalidInput(f"an encoder's input needs a size and a spread above 0, got {self}")
        if self.shortest_edge is not None and self.shortest_edge < max(self.height, self.width):
            raise InvalidInput(f"a centre of {self.height}x{self.width} cannot be cut from edge {self.shortest_edge}")

    def of_size(self, height: int, width: int) -> ImageRules:
        """Return the rules for frames of that size: `self`, unless the input keeps the frame's aspect ratio."""
        return self

    def resized_size(self, height: int, width: int) -> tuple[int, int]:
        """Return (height, width) after resizing a frame of that size, before the centre is cut."""
        if self.shortest_edge is None:
            return self.height, self.width
        if height <= width:
            return self.shortest_edge, int(self.shortest_edge * width / height)
        return int(self.shortest_edge * height / width), self.shortest_edge

    def centre(self, height: int, width: int) -> tuple[slice, slice]:
        """Return the rows and columns of the centre of a resized frame of that size."""
        top_edge, left_edge = (height - self.height) // 2, (width - self.width) // 2
        return slice(top_edge, top_edge + self.height), slice(left_edge, left_edge + self.width)


def read_image_rules(folder: Path) -> ImageRules:
    """Return the rules of `preprocessor_config.json` in a checkpoint's folder, old or new spelling.

    Raises:
        EncoderError: no such file, or a required step is switched off.
    """
    config = read_preprocessor(folder)
    size = config["size"] if isinstance(config["size"], Mapping) else {"shortest_edge": config["size"]}
    edge = size.get("shortest_edge")
    crop: Any = config.get("crop_size", edge) if edge is not None else size
    height, width = (crop["height"], crop["width"]) if isinstance(crop, Mapping) else (int(crop), int(crop))
    return ImageRules(
        height=height,
        width=width,
        shortest_edge=edge,
        resample=config.get("resample", BICUBIC),
        mean=triple(config["image_mean"]),
        std=triple(config["image_std"]),
    )


def read_preprocessor(folder: Path) -> dict[str, Any]:
    """Return the content of `preprocessor_config.json` in a checkpoint's folder. Raises as `read_image_rules`."""
    path = folder / "preprocessor_config.json"
    try:
        config: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise EncoderError(f"{path}: no readable image settings ({error}); fetch the checkpoint again") from error
    off = [step for step in ("do_resize", "do_rescale", "do_normalize") if not config.get(step, True)]
    if off:
        raise EncoderError(f"{path}: {', '.join(off)} is false, which this scorer does not know")
    return config


def resize_frames(frames: Pixels, rules: ImageRules) -> Pixels:
    """Resize frames `(n, h, w, 3)` to RGB uint8 `(n, rules.height, rules.width, 3)` by Pillow, on several threads.

    Frames that already have the resized size are only cropped.
    """
    height, width = rules.resized_size(*frames.shape[1:3])
    rows, columns = rules.centre(height, width)
    if frames.shape[1:3] == (height, width):
        return frames[:, rows, columns]

    def resized(frame: Pixels) -> Pixels:
        """Return one frame, resized and cut to its centre."""
        image, resample = Image.fromarray(np.ascontiguousarray(frame)), Image.Resampling(rules.resample)
        # Resize the width first, then the height, in two calls: in a single call Pillow 13 begins with the height for
        # portrait images, which rounds differently.
        across = image.resize((width, frame.shape[0]), resample=resample)
        return np.asarray(across.resize((width, height), resample=resample))[rows, columns]

    out = np.empty((len(frames), rules.height, rules.width, 3), dtype=np.uint8)
    for at, image in enumerate(_pool().map(resized, frames) if len(frames) > 1 else map(resized, frames)):
        out[at] = image
    return out


def resize_on_device(frames: torch.Tensor, rules: ImageRules) -> torch.Tensor:
    """Return uint8 `(n, 3, rules.height, rules.width)` of uint8 frames `(n, h, w, 3)`, bit-equal to `resize_frames`."""
    images = frames.permute(0, 3, 1, 2)
    height, width = rules.resized_size(*frames.shape[1:3])
    rows, columns = rules.centre(height, width)
    return resize_exactly(images, height, width, resample=rules.resample)[:, :, rows, columns]


def normalise(images: torch.Tensor, rules: ImageRules) -> torch.Tensor:
    """Return fp32 `(u8 / 255 - mean) / std` of uint8 `(n, 3, h, w)`, on its device.

    The divisors are tensors, because a GPU computes a division by a plain number as a product with its reciprocal,
    which changes the last bit.
    """
    mean, std, scale = _constants(rules, images.device)
    return images.to(torch.float32).div_(scale).sub_(mean).div_(std).contiguous()


@cache
def _constants(rules: ImageRules, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Mean and std `(3, 1, 1)` and 255 on `device`; cached, because each upload would wait for its queued work."""
    mean, std = (torch.tensor(values, device=device).view(3, 1, 1) for values in (rules.mean, rules.std))
    return mean, std, torch.tensor(255.0, device=device)


def release_constants() -> None:
    """Drop the tensors cached on devices; encoders that are still in use upload theirs again."""
    _constants.cache_clear()
    _weights_on.cache_clear()


@cache
def _pool() -> ThreadPoolExecutor:
    """The shared threads that resize with Pillow; they run in parallel, because Pillow releases Python's lock."""
    return ThreadPoolExecutor(min(16, n_cores()), thread_name_prefix="resize")


def triple(values: Iterable[float]) -> Triple:
    """Return the values of three channels as a tuple of floats; another number of values raises ValueError."""
    red, green, blue = (float(value) for value in values)
    return red, green, blue
