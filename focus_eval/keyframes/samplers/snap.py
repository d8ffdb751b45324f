"""Moves keyframes that fell just outside a scene into it: the option `snap_seconds` of every sampler.

Keyframes that are spread by expected recall may land just beside a short scene, on a frame of little relevance,
although a scored frame of the scene is close by.
"""

from __future__ import annotations

import numpy as np

from focus_eval.core.types import IntArray, VideoInfo
from focus_eval.keyframes.samplers.ledger import Ledger

# Shares of the largest relevance in the video. A keyframe with less than the first share may move, to a frame with at
# least the second share.
OUTSIDE_SHARE, INSIDE_SHARE = 0.25, 0.5


def snapped_frames(keyframes: IntArray, ledger: Ledger, video: VideoInfo, *, seconds: float) -> tuple[IntArray, int]:
    """Return `keyframes`, ascending, with those just outside a scene moved into it, and the number of moved ones.

    A keyframe moves to the best scored frame of the scene within `seconds`. The relevance of a keyframe that was not
    scored is interpolated between its scored neighbours. No two keyframes move to one frame.

    Args:
        keyframes: each frame once, `(n,)`.
        seconds: longest move in seconds, at the average frame rate.
    """
    scored, relevance = ledger.pulls_in_time()
    if not np.isfinite(relevance).any():
        return keyframes, 0
    best = np.nanmax(relevance)
    snapped_frames, n_moved = {*keyframes.tolist()}, 0
    for frame in np.sort(keyframes).tolist():
        if np.interp(frame, scored, relevance) >= OUTSIDE_SHARE * best:
            continue
        is_near = np.abs(scored - frame) <= seconds * video.fps
        is_inside = is_near & (relevance >= INSIDE_SHARE * best) & ~np.isin(scored, list(snapped_frames))
        if is_inside.any():
            snapped_frames -= {frame}
            snapped_frames |= {int(scored[is_inside][np.argmax(relevance[is_inside])])}
            n_moved += 1
    return np.array(sorted(snapped_frames), dtype=np.int64), n_moved
