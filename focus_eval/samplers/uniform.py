"""Frames at equal distances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from focus_eval.core.types import VideoInfo
from focus_eval.samplers.base import Choice, FrameSampler, SelectionRequest
from focus_eval.samplers.coverage import empty_grid_reason, even_frames, one_fps


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
    """One frame a second, or `uniform` if these are more than `k`: the published LLaVA-Video baseline.

    A video of fewer than `k` seconds gives fewer than `k` frames, one of less than a second none.
    """

    name: ClassVar[str] = "uniform_1fps"
    source: ClassVar[str] = "LLaVA-Video's loader, behind the published LongVideoBench uniform row"
    draws: ClassVar[bool] = False
    needs_encoder: ClassVar[bool] = False
    may_return_fewer: ClassVar[bool] = True

    def choose(self, request: SelectionRequest) -> Choice:
        """Return one frame a second, or `k` even frames if these are more."""
        candidates = one_fps(request.video)
        if candidates.size <= request.k:
            return Choice(keyframes=candidates, facts={"candidates": int(candidates.size)})
        facts = {"candidates": int(candidates.size), "fallback": "uniform"}
        return Choice(keyframes=even_frames(request.video, request.k), facts=facts)

    def infeasible_reason(self, video: VideoInfo, *, k: int) -> str | None:
        """Return a reason if the video is too short for a frame; else None."""
        return empty_grid_reason(one_fps(video))
