"""How busy is the GPU while the real worker chooses frames, and where do the seconds go?

BLIP-large with random weights and clips of several sizes, FOCUS at K = 64, one question a video: the worker of
`focus-eval run` with this machine's cores. Busy is the share of the time in which the GPU ran the encoder. The seconds
of the stages are those of the rows: open, encode, select and idle add up to the time the GPU was held; decoding and
resizing run beside them (decode_cpu: processor seconds of decoding), device is what the GPU's own clock says. Alone:
what it says of as many full batches where nothing decodes; where that is much less, the GPU waited between the kernels.

A forward launches some hundred kernels, and each launch gives up Python's lock, for which the threads that decode wait
too. With larger batches (--batch-sizes) or a compiled image tower (--compile) a frame takes fewer launches.

Run: python scripts/speed/feed.py [--tiny] [--sizes 360p 720p 1080p] [--precisions tf32 fp32] [--batch-sizes 32 128]
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np

from focus_eval.bench.matrix.config import Resources
from focus_eval.bench.matrix.machine import frame_bytes
from focus_eval.core.processes import n_cores
from focus_eval.keyframes.encoders.blip import BlipScorer
from focus_eval.keyframes.encoders.torch_scorer import PRECISIONS, torch_device
from focus_eval.keyframes.pipeline.timing import STAGES, device_name
from scripts.node.clips import SIZES, make_clips
from scripts.node.worker import Outcome, run_worker, settings
from scripts.speed.encoders import scorer_of
from tests.support.keyframes.random_weights import random_blip

_PULLS = 446_610  # of FOCUS on LongVideoBench val
_STAGES = [stage for stage in STAGES if stage not in ("scan", "ask", "generate")]  # which selecting with BLIP has not


class Unclosed(BlipScorer):
    """BLIP scorer that stays open, so that several workers can use it one after another."""

    fills_batches = True
    n_batches = 0

    def queue_parts(self, parts):
        """Queue frames as the scorer does, and count the batch."""
        self.n_batches += 1
        return super().queue_parts(parts)

    def close(self) -> None:
        """Do nothing: the next worker needs the weights."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="a tiny encoder, one small clip; always without a GPU")
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), help="default: all, with --tiny 360p")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, help="default: tf32 fp32, with --tiny fp32")
    parser.add_argument("--videos", type=int, help="default: 16, with --tiny 2")
    parser.add_argument("--seconds", type=float, help="of each (default: 300, with --tiny 6)")
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[32])
    parser.add_argument("--compile", action="store_true", help="compile the image tower")
    args = parser.parse_args()
    device = torch_device("auto")
    tiny = args.tiny or device.type == "cpu"
    parts = random_blip("tiny", image_size=96) if tiny else random_blip("large", device=str(device))
    size = "tiny" if tiny else "large"
    print(f"# BLIP-ITM {size}, random weights, {device_name(str(device))}, {n_cores()} cores\n")
    stages = " | ".join(f"{stage}, s" for stage in _STAGES)
    titles = "frames | batches | seconds | frames/s | busy | alone, s"
    print(f"| video | precision | batch | {titles} | {stages} | hours for {_PULLS:,} frames |")
    print("|---|---|" + "---:|" * (8 + len(_STAGES)))
    with tempfile.TemporaryDirectory() as name:
        for size in args.sizes or (["360p"] if tiny else list(SIZES)):
            lengths = [args.seconds or (6.0 if tiny else 300.0)] * (args.videos or (2 if tiny else 16))
            clips = make_clips(Path(name), size, lengths)
            precisions = args.precisions or (["fp32"] if tiny else ["tf32", "fp32"])
            for precision, batch_size in product(precisions, args.batch_sizes):
                options = {"device": str(device), "precision": precision, "compile": args.compile}
                encoder = scorer_of(parts, tiny=tiny, scorer_class=Unclosed, batch_size=batch_size, **options)
                encoder.relevance(encoder.embed(np.zeros((encoder.batch_size, 96, 96, 3), np.uint8)), "warm up")
                print(line_of(Path(name), clips, encoder, size), flush=True)


def line_of(folder: Path, clips: list[Path], encoder: Unclosed, size: str) -> str:
    """Choose frames of all clips with the real worker and return the table's line.

    Raises:
        RuntimeError: a selection failed.
    """
    seconds, frames = Counter[str](), []

    def noted(row) -> None:
        """Add a row's seconds and forwards up; raises RuntimeError if the row failed."""
        if row.error:
            raise RuntimeError(row.error)
        seconds.update(row.seconds)
        frames.append(row.forwards)

    setting = settings(n_cores(), size, frame_gigabytes=frame_bytes(Resources()) / 1e9)["one worker per GPU"]
    encoder.n_batches = 0
    outcome: Outcome = run_worker(folder, clips, encoder, setting, on_row=noted)[0]
    n, n_batches = sum(frames), encoder.n_batches
    device_seconds, batch = encoder.device_seconds, np.zeros((encoder.batch_size, 96, 96, 3), np.uint8)
    for _ in range(n_batches):
        encoder.relevance(encoder.embed(batch), "alone")
    alone_seconds = encoder.device_seconds - device_seconds
    cells = [size, encoder.options.precision, f"{encoder.batch_size}", f"{n}", f"{n_batches}", f"{outcome.seconds:.1f}"]
    cells += [f"{n / outcome.seconds:.0f}", f"{outcome.busy:.0%}", f"{alone_seconds:.1f}"]
    cells += [f"{seconds[stage]:.1f}" for stage in _STAGES]
    return "| " + " | ".join([*cells, f"{outcome.seconds / n * _PULLS / 3600:.2f}"]) + " |"


if __name__ == "__main__":
    main()
