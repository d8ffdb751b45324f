"""What does `videos verify` cost, and what does reading VP8 and VP9 cost before and after it?

Makes clips and prints processor seconds: of verifying an hour of H.264 by size, and of reading every frame of VP8 and
VP9, which are decoded twice until they are verified. The clips are kept in FOLDER and made once.
Run: python -m scripts.speed.verify FOLDER [--seconds 120] [--repeats 2] [--make-only]
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from focus_eval.keyframes.video import open_video
from focus_eval.keyframes.video.clip_writer import ClipWriter
from focus_eval.keyframes.video.manifest import MANIFEST_NAME, VERDICTS_NAME
from focus_eval.keyframes.video.verification import verify_folder
from tests.support.keyframes.synthetic import moving_texture, write_long_clip

_FPS = 30
_SIZES = {"360p": (640, 360), "720p": (1280, 720), "1080p": (1920, 1080)}
_CODECS = {"VP8": "libvpx", "VP9": "libvpx-vp9"}


def processor_seconds(work: Callable[[], object], *, repeats: int, prepare: Callable[[], object]) -> float:
    """Return the fewest processor seconds that `work` takes, processes that it starts and ends included.

    `prepare` runs before each repeat and is not counted.
    """
    costs = []
    for _ in range(repeats):
        prepare()
        started = sum(os.times()[:4])
        work()
        costs.append(sum(os.times()[:4]) - started)
    return min(costs)


def forget(folder: Path) -> None:
    """Delete the manifest and the verdicts of a folder."""
    for name in (MANIFEST_NAME, VERDICTS_NAME):
        (folder / name).unlink(missing_ok=True)


def read_all(path: Path) -> None:
    """Read every frame of a video, one thread decoding."""
    with open_video(path, n_threads=1) as video:
        for _ in video.stream(np.arange(video.info.n_frames)):
            pass


def verifying_seconds(folder: Path, size: str, *, seconds: float, repeats: int) -> float:
    """Return the processor seconds of verifying an hour of H.264 of a size, or make the clip if `repeats` is 0."""
    path = folder / f"{size}_{seconds:g}s" / "clip.mp4"
    width, height = _SIZES[size]
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        segment_seconds = min(60, seconds)
        write_long_clip(path, seconds, width=width, height=height, fps=_FPS, crf=20, segment_seconds=segment_seconds)
    if not repeats:
        return 0.0
    short = folder / "short" / "clip.mp4"
    if not short.exists():
        short.parent.mkdir()
        write_long_clip(short, 1 / _FPS, width=64, height=48, fps=_FPS, crf=20, segment_seconds=1)
    # Less what verifying any video takes: two processes start, to index it and to decode it.
    cost, fixed_cost = (
        processor_seconds(partial(verify_folder, file.parent), repeats=repeats, prepare=partial(forget, file.parent))
        for file in (path, short)
    )
    return (cost - fixed_cost) * 3600 / seconds


def reading_seconds(folder: Path, codec: str, size: str, *, seconds: float, repeats: int) -> tuple[float, float]:
    """Return processor seconds of reading a clip before and after it is verified, or make it if `repeats` is 0."""
    path = folder / f"{codec}_{size}_{seconds:g}s" / "clip.webm"
    width, height = _SIZES[size]
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        options = {"cpu-used": "8", "deadline": "realtime"}
        with ClipWriter(
            path, width=width, height=height, fps=_FPS, gop=150, crf=30, codec=_CODECS[codec], options=options
        ) as writer:
            for pixels in moving_texture(round(seconds * _FPS), width=width, height=height):
                writer.write(pixels)
    if not repeats:
        return 0.0, 0.0
    unverified_cost, verified_cost = (
        processor_seconds(lambda: read_all(path), repeats=repeats, prepare=lambda prepare=prepare: prepare(path.parent))
        for prepare in (forget, verify_folder)
    )
    return unverified_cost, verified_cost


def main() -> None:
    """Make the clips, measure and print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="keep the clips here")
    parser.add_argument("--seconds", type=float, default=120, help="length of the H.264 clips; VP8, VP9: a sixth of it")
    parser.add_argument("--repeats", type=int, default=2, help="measurements, of which the fastest counts (default: 2)")
    parser.add_argument("--make-only", action="store_true", help="only make the clips")
    options = parser.parse_args()
    repeats = 0 if options.make_only else options.repeats
    for size in _SIZES:
        cost = verifying_seconds(options.folder, size, seconds=options.seconds, repeats=repeats)
        if repeats:
            print(f"videos verify, an hour of {size}, H.264, 30 frames a second: {cost:.0f} processor s", flush=True)
    for codec in _CODECS:
        for size in ("360p", "720p"):
            costs = reading_seconds(options.folder, codec, size, seconds=options.seconds / 6, repeats=repeats)
            if repeats:
                figures = f"{costs[0]:.2f} and, verified, {costs[1]:.2f} processor s, x{costs[0] / costs[1]:.2f}"
                print(f"read {codec}, {size}: {figures}", flush=True)


if __name__ == "__main__":
    main()
