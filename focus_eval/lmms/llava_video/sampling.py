"""The frames that the original code shows, and the times that it prints."""

from __future__ import annotations

import numpy as np

from focus_eval.errors import InvalidInput
from focus_eval.types import FloatArray, IntArray, VideoInfo


def original_frames(
    video: VideoInfo, *, max_frames: int, video_fps: float = 1, force_sample: bool = False
) -> tuple[IntArray, FloatArray]:
    """Return frames and times in seconds as lmms-eval's llava_vid takes them.

    Every `stride`-th frame, with time frame / stride; where these are more than `max_frames`, or `force_sample` is
    set, `max_frames` evenly spaced ones (truncated, so a short video repeats frames) with time frame / fps.

    Raises:
        InvalidInput: `max_frames` below 1, or a rate of which the stride rounds to 0.
    """
    if max_frames < 1:
        raise InvalidInput(f"max_frames must be at least 1, got {max_frames}")
    stride = _stride(video, video_fps)
    frames = np.arange(0, video.n_frames, stride, dtype=np.int64)
    if len(frames) <= max_frames and not force_sample:
        return frames, frames / stride
    frames = np.linspace(0, video.n_frames - 1, max_frames).astype(np.int64)
    return frames, frames / video.fps


def original_times(frames: IntArray, video: VideoInfo, *, video_fps: float = 1) -> FloatArray:
    """Return what the original's stride rule prints as the time of `frames`: frame / round(fps), in seconds.

    At 29.97 fps it is 0.1 % early, at 23.976 fps too; at 12.5 fps (stride 12) it is 4 % late.
    """
    return np.asarray(frames, dtype=np.int64) / _stride(video, video_fps)


def _stride(video: VideoInfo, video_fps: float) -> int:
    stride = round(video.fps / video_fps)
    if stride < 1:
        raise InvalidInput(
            f"the original's stride rule needs at least half of {video_fps} fps, the video has {video.fps}"
        )
    return stride
