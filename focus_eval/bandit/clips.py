"""Cuts a video into clips."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from focus_eval.errors import InvalidInput
from focus_eval.types import FloatArray, IntArray, frozen_ints


@dataclass(frozen=True)
class Clips:
    """Clips `[starts[a], stops[a])`, ascending, none empty, none overlapping; both arrays of shape `(n_arms,)`."""

    starts: IntArray
    stops: IntArray

    def __post_init__(self) -> None:
        starts, stops = frozen_ints(self.starts), frozen_ints(self.stops)
        if starts.shape != stops.shape or starts.size == 0:
            raise InvalidInput(f"clips need as many starts as stops, at least 1; got {starts.size} and {stops.size}")
        if starts[0] < 0 or (stops <= starts).any() or (starts[1:] < stops[:-1]).any():
            raise InvalidInput("clips must ascend from frame 0, none empty, none overlapping")
        object.__setattr__(self, "starts", starts)
        object.__setattr__(self, "stops", stops)

    def __len__(self) -> int:
        return int(self.starts.size)

    @property
    def sizes(self) -> IntArray:
        """Frames per clip, shape `(n_arms,)`, each at least 1."""
        return self.stops - self.starts

    def arm_of(self, frames: IntArray) -> IntArray:
        """Return the clip that holds each frame, shape `(n,)`; -1 where none does."""
        arm = np.searchsorted(self.starts, frames, side="right") - 1
        is_inside = (arm >= 0) & (frames < self.stops[np.maximum(arm, 0)])
        return np.where(is_inside, arm, -1)

    def frames_of(self, arms: IntArray) -> tuple[IntArray, IntArray]:
        """Return all frames of `arms`, one arm after the other, and for each the position of its arm in `arms`."""
        sizes = self.sizes[arms]
        position = np.repeat(np.arange(arms.size), sizes)
        offset = np.arange(position.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return self.starts[arms][position] + offset, position


def equal_clips(n_frames: int, n_clips: int) -> Clips:
    """Return `n_clips` clips that partition `[0, n_frames)`, their sizes differing by one frame at most.

    Raises:
        InvalidInput: fewer frames than clips, or no clip.
    """
    if not 1 <= n_clips <= n_frames:
        raise InvalidInput(f"{n_frames} frames cannot be cut into {n_clips} clips")
    edges = np.arange(n_clips + 1) * n_frames // n_clips
    return Clips(edges[:-1], edges[1:])


def nearest_pulled(frames: IntArray, pulled: IntArray, rewards: FloatArray) -> FloatArray:
    """Return for each frame the reward of the nearest pulled frame, the earlier one of two equally near.

    Args:
        frames: shape `(n,)`, any order.
        pulled, rewards: shape `(n_pulls,)`, at least one; any order.
    """
    order = np.argsort(pulled, kind="stable")
    pulled, rewards = pulled[order], rewards[order]
    right = np.clip(np.searchsorted(pulled, frames), 0, pulled.size - 1)
    left = np.maximum(right - 1, 0)
    is_left = np.abs(frames - pulled[left]) <= np.abs(pulled[right] - frames)
    return rewards[np.where(is_left, left, right)]
