"""How do the projected patches of the frames become the tokens of one video?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from focus_eval.errors import InvalidInput
from focus_eval.lmms.llava_video.setup import Newline, Pooling

if TYPE_CHECKING:
    import torch


def pooled_side(side: int, pooling: Pooling) -> int:
    """Return tokens per side after pooling: half, rounded up for "bilinear", down for "average" (27: 14 or 13)."""
    return math.ceil(side / 2) if pooling == "bilinear" else side // 2


def pool(patches: torch.Tensor, *, pooling: Pooling) -> torch.Tensor:
    """Pool patches `(frames, side * side, width)` to `(frames, pooled, pooled, width)`.

    "bilinear" samples at half-pixel centres without antialiasing; "average" takes the mean of each 2x2 block and
    drops an odd last row and column.
    """
    from torch.nn import functional

    frames, count, width = patches.shape
    side = math.isqrt(count)
    grid = patches.view(frames, side, side, width).permute(0, 3, 1, 2)
    if pooling == "bilinear":
        size = pooled_side(side, pooling)
        grid = functional.interpolate(grid.contiguous(), size=(size, size), mode="bilinear", align_corners=False)
    else:
        grid = functional.avg_pool2d(grid.contiguous(), kernel_size=2)
    return grid.permute(0, 2, 3, 1)


def lay_out(pooled: torch.Tensor, newline_vector: torch.Tensor, *, newline: Newline) -> torch.Tensor:
    """Return the tokens `(n, width)` of one video: frames in order, rows from the top, newlines where `newline` says.

    Args:
        pooled: `(frames, side, side, width)`.
        newline_vector: `(width,)`.
    """
    import torch

    frames, rows, _, width = pooled.shape
    vector = newline_vector.to(pooled.device, pooled.dtype)
    if newline == "grid":
        return torch.cat([pooled, vector.expand(frames, rows, 1, width)], dim=2).reshape(-1, width)
    if newline == "frame":
        return torch.cat([pooled.reshape(frames, -1, width), vector.expand(frames, 1, width)], dim=1).reshape(-1, width)
    flat = pooled.reshape(-1, width)
    return torch.cat([flat, vector.expand(1, width)]) if newline == "one_token" else flat


def count_tokens(frames: int, *, side: int, pooling: Pooling, newline: Newline) -> int:
    """Return how many tokens `frames` frames of `side` x `side` patches take."""
    per_row = pooled_side(side, pooling)
    if newline == "grid":
        return frames * per_row * (per_row + 1)
    per_frame = per_row * per_row
    return frames * per_frame + {"frame": frames, "one_token": 1, "no_token": 0}[newline]


def check_fit(
    frames: int, *, other_tokens: int, context_tokens: int, side: int, pooling: Pooling, newline: Newline
) -> None:
    """Refuse more frames than the context holds beside `other_tokens` (prompt and answer).

    Raises:
        InvalidInput: with the number of frames that fit.
    """
    needed = count_tokens(frames, side=side, pooling=pooling, newline=newline) + other_tokens
    if needed <= context_tokens:
        return
    per_frame = count_tokens(2, side=side, pooling=pooling, newline=newline) - count_tokens(
        1, side=side, pooling=pooling, newline=newline
    )
    fixed = count_tokens(0, side=side, pooling=pooling, newline=newline) + other_tokens
    fit = max(0, (context_tokens - fixed) // per_frame)
    raise InvalidInput(
        f"{frames} frames and {other_tokens} tokens of prompt and answer need {needed} tokens, the context holds"
        f" {context_tokens}; {fit} frames fit"
    )
