"""What does selecting take on a CPU with decode processes, and with threads alone? Turn about.

Four videos of the demo with its samplers at K = 8, or with --size four made clips with FOCUS at K = 16; the encoder's
features are kept from a first run that is not measured. Where frames are encoded on the same cores too, this takes most
of the time with either.

Run: python -m scripts.speed.fed_selection [--size 360p] [--seconds 180] [--rounds 2] [--record MACHINE]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from pathlib import Path

from focus_eval.bench.demo.photo_events import build_photo_events
from focus_eval.bench.matrix import selecting
from focus_eval.bench.matrix.config import MatrixConfig, load_matrix
from focus_eval.bench.matrix.engines import LocalEngine
from focus_eval.bench.matrix.running import complete_run
from focus_eval.core.processes import n_cores
from focus_eval.core.resources import resource_path
from scripts.node.clips import SIZES, make_clips
from scripts.node.worker import patched, write_questions
from scripts.speed.recording import record

VIDEOS = ("medium_a", "medium_b", "medium_c", "medium_d")
ROADS = ("feed", "threads")


def measure(matrix: MatrixConfig, road: str, folder: Path) -> tuple[float, float]:
    """Return wall and processor seconds of one run with an empty store and the features beside `folder`."""
    processor_start, start = _processor_seconds(), time.perf_counter()
    engine = LocalEngine(store=folder / "store.sqlite", features=folder.parent / "features")
    # However small the videos: what is measured is the road.
    with patched(selecting, "n_processes_for", lambda _: lambda *_: n_cores() if road == "feed" else 0):
        complete_run(matrix, out=folder / "run", engine=engine)
    return time.perf_counter() - start, _processor_seconds() - processor_start


def _processor_seconds() -> float:
    """Return the processor seconds of this process and its ended children."""
    usages = [resource.getrusage(process) for process in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _matrix(folder: Path, size: str | None, seconds: float) -> MatrixConfig:
    if size is None:
        build_photo_events(folder / "data", video_ids=VIDEOS)
        os.environ["FOCUS_EVAL_DEMO"] = str(folder / "data")
        return load_matrix(resource_path("configs") / "demo.yaml", overrides={"models": [], "available_only": True})
    clips = make_clips(folder, size, [seconds] * len(VIDEOS))
    benchmark = {"name": "clips", "benchmark": "longvideobench", "videos": str(folder),
                 "annotations": str(write_questions(folder, clips))}  # fmt: skip
    encoder = {"name": "offline", "encoder": "offline"}
    document = {"name": "bench", "benchmarks": [benchmark], "encoders": [encoder], "samplers": ["focus"], "k": [16]}
    (folder / "matrix.json").write_text(json.dumps(document))
    return load_matrix(folder / "matrix.json")


def main() -> None:
    """Print the seconds of each run, and the ratios of the sums."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2, help="runs of each road")
    parser.add_argument("--size", choices=list(SIZES), help="of made clips; default: the demo's videos")
    parser.add_argument("--seconds", type=float, default=180, help="of each clip")
    parser.add_argument("--record", metavar="MACHINE", help="with --size: write the figures of this machine")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        matrix = _matrix(folder, args.size, args.seconds)
        measure(matrix, "threads", folder / "first")
        sums = {road: [0.0, 0.0] for road in ROADS}
        for number in range(args.rounds):
            for road in ROADS[:: 1 if number % 2 == 0 else -1]:
                seconds = measure(matrix, road, folder / f"{road}{number}")
                sums[road] = [total + part for total, part in zip(sums[road], seconds, strict=True)]
                print(f"{road:<10} {seconds[0]:6.1f} s wall, {seconds[1]:6.1f} s of processors", flush=True)
        wall, processors = (
            feed_sum / threads_sum for feed_sum, threads_sum in zip(sums["feed"], sums["threads"], strict=True)
        )
        print(f"feed over threads, {n_cores()} cores: wall x{wall:.2f}, processors x{processors:.2f}")
    if args.record and args.size:
        values = {
            (f"{road}, focus, {args.size}", unit): round(total / args.rounds, 1)
            for road, totals in sums.items()
            for unit, total in zip(("s", "processor s"), totals, strict=True)
        }
        command = f"python -m scripts.speed.fed_selection --size {args.size} --seconds {args.seconds:g}"
        record("feed", values, of_machine=args.record, command=command)


if __name__ == "__main__":
    main()
