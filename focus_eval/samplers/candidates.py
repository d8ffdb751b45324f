"""The frames that a sampler considers when it does not consider all."""

from __future__ import annotations

import numpy as np

from focus_eval.types import IntArray, VideoInfo


def one_fps(video: VideoInfo) -> IntArray:
    """Return the published pre-filter: frames `j * int(fps)` for `j` in `[0, int(n_frames / int(fps)))`, ascending.

    A rate below 1 counts as 1. A video shorter than `int(fps)` frames has no candidate.
    """
    stride = max(1, int(video.fps))
    return np.arange(int(video.n_frames / stride), dtype=np.int64) * stride


def every(video: VideoInfo, seconds: float | None) -> IntArray:
    """Return frames `round(j * seconds * fps)`, or `one_fps` where `seconds` is None, ascending."""
    return one_fps(video) if seconds is None else video.frames_every(seconds)


def why_no_candidates(candidates: IntArray) -> str | None:
    """Return why a sampler without candidates chooses nothing; None where it has some."""
    if candidates.size:
        return None
    return "the video is shorter than a second, so the grid of one frame a second is empty; use uniform for it"


def evenly(video: VideoInfo, n: int) -> IntArray:
    """Return `linspace(0, n_frames - 1, n)` truncated to integers, each frame once, shape `(min(n, n_frames),)`."""
    return np.unique(np.linspace(0, video.n_frames - 1, min(n, video.n_frames)).astype(np.int64))


def at_most_one_fps(video: VideoInfo, n: int) -> IntArray:
    """Return `n` frames evenly, or `one_fps` where that gives fewer."""
    candidates = one_fps(video)
    return candidates if candidates.size < n else evenly(video, n)
