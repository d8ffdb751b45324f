"""How fast does each reader give frames by resolution, and do they give the exact ones?

Reads 60 frames at random places of a clip with a sync frame every 5 seconds, H.264 at 30 fps, with each reader that
works here. A line of the table is printed as soon as it is known.

Run: python -m scripts.speed.readers [--seconds 600] [--sizes 360p 720p 1080p]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from focus_eval.core.errors import FocusEvalError
from focus_eval.keyframes.video import open_video
from scripts.node.clips import SIZES
from tests.support.keyframes.synthetic import write_long_clip

READERS = ("pyav", "torchcodec")


def read_once(clip: Path, backend: str, exact: dict[int, np.ndarray]) -> str:
    """Read the frames with one reader and return the last three cells of its line.

    The default reader runs first and fills `exact`, with which the others are compared.
    """
    started, cpu = time.perf_counter(), time.process_time()
    try:
        with open_video(clip, backend=backend) as video:
            frames = np.unique(np.random.default_rng(0).integers(0, video.info.n_frames, 60))
            pictures = {number: pixels.copy() for number, pixels in video.stream(frames)}
    except FocusEvalError as error:
        message = " ".join(str(error).replace(str(clip), "the clip").replace("|", "/").split())
        return f"{message} | | "
    wall, cpu = time.perf_counter() - started, time.process_time() - cpu
    exact.update({} if exact else pictures)
    differing = sum(not np.array_equal(pixels, exact[number]) for number, pixels in pictures.items())
    return f"{len(pictures) / wall:.0f} | {1000 * cpu / len(pictures):.1f} | {differing} of {len(pictures)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0, help="of each clip")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    args = parser.parse_args()
    print("| video | reader | frames/s | core ms a frame | frames that differ from pyav's |")
    print("|---|---|---:|---:|---:|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for size in args.sizes:
            width, height = SIZES[size]
            clip = write_long_clip(
                Path(folder) / f"{size}.mp4", args.seconds, width=width, height=height, segment_seconds=5
            )
            exact: dict[int, np.ndarray] = {}
            for reader in READERS:
                print(f"| {size} | {reader} | {read_once(clip, reader, exact)} |", flush=True)


if __name__ == "__main__":
    main()
