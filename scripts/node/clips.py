"""Clips of the sizes that node measurements use."""

from __future__ import annotations

from pathlib import Path

from tests.support.keyframes.synthetic import write_long_clip

SIZES = {"360p": (640, 360), "720p": (1280, 720), "1080p": (1920, 1080)}
FPS = 30
# Between the sync frames of the clips, which stand for those of a benchmark.
GROUP_SECONDS = 5


def make_clips(folder: Path, size: str, seconds: list[float]) -> list[Path]:
    """Write an H.264 clip of each length with x264's usual settings and a sync frame every 5 seconds."""
    width, height = SIZES[size]
    return [
        write_long_clip(
            folder / f"{size}_{number}.mp4", length, width=width, height=height, fps=FPS, segment_seconds=GROUP_SECONDS
        )
        for number, length in enumerate(seconds)
    ]
