"""Adds frames to a selection that has too few, each in the middle of the widest gap."""

from __future__ import annotations

import numpy as np

from focus_eval.core.types import IntArray


def halve_widest_gaps(frames: IntArray, n: int, n_frames: int) -> IntArray:
    """Return `n` frames, ascending: `frames`, and new ones that are added one by one in the middle of the widest gap.

    A gap is a run of frames of `[0, n_frames)` that are not selected. Of equally wide gaps the earliest is halved.

    Args:
        frames: distinct, at most `n`; `n` is at most `n_frames`.
    """
    grid = np.sort(frames)
    while grid.size < n:
        edges = np.concatenate([[-1], grid, [n_frames]])
        widest = int(np.argmax(np.diff(edges)))
        middle = (edges[widest] + edges[widest + 1]) // 2
        grid = np.insert(grid, widest, middle)
    return grid
