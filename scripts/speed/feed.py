"""How busy is the GPU while the real worker chooses frames, and where do the seconds go?

BLIP-large with random weights and clips of several sizes, FOCUS at K = 64, one question a video: the worker of
`focus-eval run` with this machine's cores. Busy is the share of the time in which the GPU ran the encoder. The seconds
of the stages are those of the rows: open, encode, select and idle add up to the time the GPU was held; decoding and
resizing run beside them (decode_cpu: processor seconds of decoding), device is what the GPU's own clock says. Alone:
what it says of as many full batches where nothing decodes; where that is much less, the GPU waited between the kernels.

Videos are decoded in processes of their own (`keyframes.video.feed`); with --threads also in threads of the worker.
With --fake neither a GPU nor many cores are needed: see `scripts.speed.fake_gpu`.

Run: python -m scripts.speed.feed [--fake] [--threads] [--json FILE] [--record MACHINE] [--tiny]
         [--sizes 360p 720p 1080p] [--precisions tf32 fp32] [--batch-sizes 32 128]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from focus_eval.bench.matrix import selecting
from focus_eval.bench.matrix.config import Resources
from focus_eval.bench.matrix.machine import frame_bytes
from focus_eval.core.processes import n_cores
from focus_eval.keyframes.encoders.blip import BlipScorer
from focus_eval.keyframes.encoders.torch_scorer import PRECISIONS, torch_device
from focus_eval.keyframes.pipeline.timing import STAGES, device_name
from focus_eval.keyframes.video.feed import DecodeProcesses
from scripts.node.clips import SIZES, make_clips
from scripts.node.worker import Outcome, Setting, patched, run_worker, settings
from scripts.speed import fake_gpu
from scripts.speed.encoders import scorer_of
from scripts.speed.recording import record
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
    parser.add_argument("--threads", action="store_true", help="also decode in threads of the worker")
    parser.add_argument("--fake", action="store_true", help="imitate a GPU and 16 cores, and count Python's lock")
    parser.add_argument("--json", type=Path, metavar="FILE", help="with --fake: write the figures")
    parser.add_argument(
        "--record", metavar="MACHINE", help="with --fake --threads: write the figures of this machine, and the page's"
    )
    args = parser.parse_args()
    if args.record and not (args.fake and args.threads):
        parser.error("--record needs --fake and --threads: the page compares both")
    if args.fake:
        sys.exit(measure_fake(args))
    device = torch_device("auto")
    tiny = args.tiny or device.type == "cpu"
    parts = random_blip("tiny", image_size=96) if tiny else random_blip("large", device=str(device))
    size = "tiny" if tiny else "large"
    print(f"# BLIP-ITM {size}, random weights, {device_name(str(device))}, {n_cores()} cores\n")
    stages = " | ".join(f"{stage}, s" for stage in _STAGES)
    titles = "frames | batches | seconds | frames/s | busy | alone, s"
    print(f"| video | decoded in | precision | batch | {titles} | {stages} | hours for {_PULLS:,} frames |")
    print("|---|---|---|" + "---:|" * (8 + len(_STAGES)))
    with tempfile.TemporaryDirectory() as name:
        for size in args.sizes or (["360p"] if tiny else list(SIZES)):
            lengths = [args.seconds or (6.0 if tiny else 300.0)] * (args.videos or (2 if tiny else 16))
            clips = make_clips(Path(name), size, lengths)
            precisions = args.precisions or (["fp32"] if tiny else ["tf32", "fp32"])
            roads = ["processes", "threads"] if args.threads else ["processes"]
            for precision, batch_size, road in product(precisions, args.batch_sizes, roads):
                options = {"device": str(device), "precision": precision, "compile": args.compile}
                encoder = scorer_of(parts, tiny=tiny, scorer_class=Unclosed, batch_size=batch_size, **options)
                encoder.relevance(encoder.embed(np.zeros((encoder.batch_size, 96, 96, 3), np.uint8)), "warm up")
                with _decoding_in(road, n_cores()):
                    print(line_of(Path(name), clips, encoder, size, road), flush=True)


def line_of(folder: Path, clips: list[Path], encoder: Unclosed, size: str, road: str) -> str:
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
    cells = [
        size,
        road,
        encoder.options.precision,
        f"{encoder.batch_size}",
        f"{n}",
        f"{n_batches}",
        f"{outcome.seconds:.1f}",
    ]
    cells += [f"{n / outcome.seconds:.0f}", f"{outcome.busy:.0%}", f"{alone_seconds:.1f}"]
    cells += [f"{seconds[stage]:.1f}" for stage in _STAGES]
    return "| " + " | ".join([*cells, f"{outcome.seconds / n * _PULLS / 3600:.2f}"]) + " |"


class ThreadsOfWorker(DecodeProcesses):
    """Decodes in two threads a video, as a worker with 16 cores did before it had processes for that."""

    def open_video(self, path, *, backend="pyav", n_threads=None, kept=None):
        """Open a video for decoding in this process."""
        return DecodeProcesses(0).open_video(path, backend=backend, n_threads=2, kept=kept)


@contextmanager
def _decoding_in(road: str, n_processes: int) -> Iterator[None]:
    """Let workers of the block decode in "processes", which all of them share, or in "threads"."""
    kind = DecodeProcesses if road == "processes" else ThreadsOfWorker
    with kind(n_processes) as processes:
        # A worker that ends leaves them to the next.
        shared = SimpleNamespace(open_video=processes.open_video, close=lambda: None)
        with patched(selecting, "DecodeProcesses", lambda _: lambda n: shared):
            yield


_FAKE_CORES = 16
# A process that decodes shares its lock with nobody: giving it up as often as a codec does would only take the cores of
# this machine, of which the imitated one has more.
_SITE = "from scripts.speed.fake_gpu import fake_codec; fake_codec(releases=1)\n"


# Recorded figures of the imitated device.
_UNITS = {
    "device_clock_ratio": "device's clock over the encoder's alone",
    "lock_waits_us": "us of waiting for the lock, an acquisition",
    "lock_acquisitions_a_frame": "acquisitions of the lock a frame",
    "main_process_ms_a_frame": "main process ms a frame",
    "frames_a_second": "frames a second",
}


def measure_fake(args: argparse.Namespace) -> int:
    """Measure the worker with an imitated device, in a process that counts the lock; return the exit code."""
    if "FOCUS_EVAL_LOCK_COUNTER" not in os.environ:
        with tempfile.TemporaryDirectory() as name:
            return fake_gpu.with_lock_counter(Path(name), "scripts.speed.feed", sys.argv[1:])
    os.environ.pop("LD_PRELOAD", None)
    fake_gpu.fake_codec(releases=fake_gpu.RELEASES_A_FRAME)
    encoder = fake_gpu.fake_gpu_scorer()
    encoder.counter = fake_gpu.LockCounter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sitecustomize.py").write_text(_SITE)
        # The processes that decode import it before anything else.
        os.environ["PYTHONPATH"] = os.pathsep.join([name, os.getcwd(), os.environ.get("PYTHONPATH", "")])
        lengths = [args.seconds or 120.0] * (args.videos or 11)
        clips = make_clips(folder, (args.sizes or ["360p"])[0], lengths)
        os.environ["FOCUS_EVAL_FAKE_CODEC"] = "untimed"
        encoder.is_timed = False
        keyframes = _fake_run(folder, clips, encoder, "threads")["keyframes"]
        os.environ["FOCUS_EVAL_FAKE_CODEC"], encoder.is_timed = "timed", True
        figures = {}
        for road in ["processes", "threads"] if args.threads else ["processes"]:
            figures[road] = _fake_run(folder, clips, encoder, road)
            figures[road]["same_keyframes"] = figures[road].pop("keyframes") == keyframes
    report = {**figures["processes"], **({"threads": figures["threads"]} if args.threads else {})}
    text = json.dumps(report, indent=1)
    print(text)
    if args.json is not None:
        args.json.write_text(text + "\n")
    if args.record:
        if not all(of_road["same_keyframes"] for of_road in figures.values()):
            sys.exit("the keyframes differ: nothing is recorded")
        values = {
            (decoder, unit): figures[road][name]
            for road, decoder in (("threads", "threads of the worker"), ("processes", "processes of their own"))
            for name, unit in _UNITS.items()
        }
        record("feed", values, of_machine=args.record, command="python -m scripts.speed.feed --fake --threads")
    return 0


def _fake_run(folder: Path, clips: list[Path], encoder: fake_gpu.FakeGpuScorer, road: str) -> dict[str, Any]:
    """Return the figures of one run of the real worker, and the keyframes by question."""
    keyframes = {}

    def note(row) -> None:
        """Note a row's keyframes; raises RuntimeError if the row failed."""
        if row.error:
            raise RuntimeError(row.error)
        keyframes[row.question_id] = list(row.keyframes)

    counter = encoder.counter
    assert counter is not None
    setting = Setting(cores=_FAKE_CORES, videos=11, batch=32, fills=True)
    with _decoding_in(road, _FAKE_CORES):
        for _ in range(2):  # the first starts the processes, which takes two cores longer than sixteen
            encoder.reset()
            n_acquired, cpu = counter.acquisitions(), time.process_time()
            outcome = run_worker(folder, clips, encoder, setting, on_row=note)[0]
            n_acquired, cpu = counter.acquisitions() - n_acquired, time.process_time() - cpu
    n = encoder.n_frames
    waits = {
        "lock_waits_us": round(1e6 * encoder.wait_seconds / max(encoder.takes, 1), 2),
        "main_process_ms_a_frame": round(1000 * (cpu - encoder.launch_cpu_seconds) / n, 3),
    }
    return {
        "frames": n,
        "seconds": round(outcome.seconds, 2),
        "frames_a_second": round(n / outcome.seconds, 1),
        "device_clock_ratio": round(encoder.seconds / encoder.seconds_alone(), 3),
        "lock_acquisitions_a_frame": round(n_acquired / n, 1),
        **waits,
        "keyframes": keyframes,
    }


if __name__ == "__main__":
    main()
