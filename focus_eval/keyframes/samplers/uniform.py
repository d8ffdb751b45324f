"""Frames at equal distances: the grids that samplers take candidates from, and the samplers that show one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from focus_eval.core.types import IntArray, VideoInfo
from focus_eval.keyframes.samplers.base import Choice, FrameSampler, SelectionRequest


@dataclass(frozen=True, kw_only=True)
class Uniform(FrameSampler):
    """`linspace(0, n_frames - 1, k)` truncated to integers, as in lmms-eval's model wrappers."""

    name: ClassVar[str] = "uniform"
    source: ClassVar[str] = "lmms-eval's model wrappers"
    draws: ClassVar[bool] = False
    needs_encoder: ClassVar[bool] = False

    def choose(self, request: SelectionRequest) -> Choice:
        """Return `k` even frames, or all frames of a shorter video."""
        return Choice(keyframes=even_frames(request.video, request.k))


@dataclass(frozen=True, kw_only=True)
class UniformOneFps(FrameSampler):
    """One frame a second, or as `uniform` if that gives more than `k` frames: the published LLaVA-Video baseline.

    A video of fewer than `k` seconds gives fewer than `k` frames, one of less than a second none.
    """

    name: ClassVar[str] = "uniform_1fps"
    source: ClassVar[str] = "LLaVA-Video's loader, behind the published LongVideoBench uniform row"
    draws: ClassVar[bool] = False
    needs_encoder: ClassVar[bool] = False
    may_return_fewer: ClassVar[bool] = True

    def choose(self, request: SelectionRequest) -> Choice:
        """Return one frame a second, or `k` even frames if that gives more than `k`."""
        candidates = one_fps(request.video)
        if candidates.size <= request.k:
            return Choice(keyframes=candidates, facts={"candidates": int(candidates.size)})
        facts = {"candidates": int(candidates.size), "fallback": "uniform"}
        return Choice(keyframes=even_frames(request.video, request.k), facts=facts)

    def infeasible_reason(self, video: VideoInfo, *, k: int) -> str | None:
        """Return a reason if the video is too short for a frame; else None."""
        return empty_grid_reason(one_fps(video))


def one_fps(video: VideoInfo) -> IntArray:
    """Return the published pre-filter: frames `j * int(fps)` for `j` in `[0, int(n_frames / int(fps)))`, ascending.

    A rate below 1 counts as 1. A video shorter than `int(fps)` frames has no candidate.
    """
    stride = max(1, int(video.fps))
    return np.arange(int(video.n_frames / stride), dtype=np.int64) * stride


def candidate_grid(video: VideoInfo, seconds: float | None) -> IntArray:
    """Return frames `round(j * seconds * fps)`, or `one_fps` if `seconds` is None, ascending."""
    return one_fps(video) if seconds is None else video.frames_every(seconds)


def empty_grid_reason(candidates: IntArray) -> str | None:
    """Return why a sampler would choose nothing if `candidates` is empty; None if there are any."""
    if candidates.size:
        return None
    return "the video is shorter than a second, so the grid of one frame a second is empty; use uniform for it"


def even_frames(video: VideoInfo, n: int) -> IntArray:
    """Return `linspace(0, n_frames - 1, n)` truncated to integers, each frame once, shape `(min(n, n_frames),)`."""
    return np.unique(np.linspace(0, video.n_frames - 1, min(n, video.n_frames)).astype(np.int64))


def at_most_one_fps(video: VideoInfo, n: int) -> IntArray:
    """Return the frames of `one_fps` if they are fewer than `n`, else `n` evenly spaced frames; ascending."""
    candidates = one_fps(video)
    return candidates if candidates.size < n else even_frames(video, n)
