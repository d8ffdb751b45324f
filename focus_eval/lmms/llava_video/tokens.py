"""Turns the projected patches of frames into the tokens of one video, and counts them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from focus_eval.errors import InvalidInput
from focus_eval.lmms.llava_video.setup import Newline, Pooling

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Layout:
    """From patches to tokens.

    Args:
        side: patches per side of a frame, 27 in the published models.
        pooling, newline: see `Setup`.
    """

    side: int
    pooling: Pooling
    newline: Newline

    @property
    def pooled_side(self) -> int:
        """Tokens per side of a frame: half, rounded up for "bilinear", down for "average" (27: 14 or 13)."""
        return math.ceil(self.side / 2) if self.pooling == "bilinear" else self.side // 2

    def count(self, frames: int) -> int:
        """Return how many tokens `frames` frames take."""
        side = self.pooled_side
        if self.newline == "grid":
            return frames * side * (side + 1)
        return frames * side * side + {"frame": frames, "one_token": 1, "no_token": 0}[self.newline]

    def check_fit(self, frames: int, *, other_tokens: int, context_tokens: int) -> None:
        """Refuse more frames than the context holds beside `other_tokens` (prompt and answer).

        Raises:
            InvalidInput: with the number of frames that fit.
        """
        needed = self.count(frames) + other_tokens
        if needed <= context_tokens:
            return
        room = context_tokens - other_tokens - self.count(0)
        fit = max(0, room // (self.count(1) - self.count(0)))
        raise InvalidInput(
            f"{frames} frames and {other_tokens} tokens of prompt and answer need {needed} tokens, the context holds"
            f" {context_tokens}; {fit} frames fit"
        )

    def pool(self, patches: torch.Tensor) -> torch.Tensor:
        """Pool patches `(frames, side * side, width)` to `(frames, pooled_side, pooled_side, width)`.

        "bilinear" samples at half-pixel centres without antialiasing; "average" takes the mean of each 2x2 block and
        drops an odd last row and column.
        """
        from torch.nn import functional

        frames, _, width = patches.shape
        grid = patches.transpose(1, 2).reshape(frames, width, self.side, self.side).contiguous()
        if self.pooling == "bilinear":
            size = (self.pooled_side, self.pooled_side)
            grid = functional.interpolate(grid, size=size, mode="bilinear", align_corners=False)
        else:
            grid = functional.avg_pool2d(grid, kernel_size=2)
        return grid.permute(0, 2, 3, 1)

    def tokens(self, pooled: torch.Tensor, newline_vector: torch.Tensor) -> torch.Tensor:
        """Return the tokens `(count, width)` of one video: frames in order, rows from the top, newlines in place.

        Args:
            pooled: `(frames, pooled_side, pooled_side, width)`.
            newline_vector: `(width,)`.
        """
        import torch

        frames, rows, _, width = pooled.shape
        vector = newline_vector.to(pooled.device, pooled.dtype)
        if self.newline == "grid":
            return torch.cat([pooled, vector.expand(frames, rows, 1, width)], dim=2).reshape(-1, width)
        if self.newline == "frame":
            by_frame = pooled.reshape(frames, -1, width)
            return torch.cat([by_frame, vector.expand(frames, 1, width)], dim=1).reshape(-1, width)
        flat = pooled.reshape(-1, width)
        return torch.cat([flat, vector.expand(1, width)]) if self.newline == "one_token" else flat
