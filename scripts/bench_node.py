"""How busy is a GPU while frames are chosen, and how long does LongVideoBench take, by cores and GPUs?

No GPU is needed. A stand-in encoder takes a stated time per batch and gives up its thread meanwhile, as a GPU does; the
rest is real: files are decoded, samplers run, rows are written.

  costs   seconds to decode a frame that FOCUS asks for, by resolution; the share that holds Python's lock; opening
  real    the worker on this machine's cores with the stand-in, against the simulation of the same work
  node    LongVideoBench val (753 videos, FOCUS) simulated on 8 to 64 cores and 1 to 8 GPUs: as it was (one video at a
          time, 4 threads a GPU, batches as they come), as it is, and with several workers on one GPU

The ways differ only in how a worker works. Run: python scripts/bench_node.py [--quick]
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
from node_costs import (
    FPS,
    GROUP_SECONDS,
    SIZES,
    DecodeCosts,
    make_clips,
    measured_costs,
    patched,
    pulls_of,
    read_all,
    runs_in_groups,
    runs_of_reader,
)
from node_simulation import Costs, Job, Outcome, Pass, Setting, simulate

from focus_eval.core.types import VideoInfo
from focus_eval.matrix import selecting
from focus_eval.matrix.cells import selection_specs
from focus_eval.matrix.config import MatrixConfig
from focus_eval.matrix.folder import RunFolder
from focus_eval.matrix.machine import BATCH_FRAMES, WorkerResources
from focus_eval.matrix.plan import load_sets
from focus_eval.matrix.selecting import SelectWorker, select_jobs
from focus_eval.video import open_video
from focus_eval.video.decoder import n_cores
from focus_eval.video.pyav import PyAVReader

# LongVideoBench val where its file of lengths is not given: as many videos of about its lengths, in seconds.
_LENGTHS = (*[15.0] * 180, *[45.0] * 190, *[400.0] * 220, *[1800.0] * 163)
_LAUNCH = 0.005  # seconds of a batch whatever is in it: assumed


class StandIn:
    """An encoder that takes `launch + n * frame` seconds for a batch of n and computes nothing to speak of."""

    name, revision, stores_embeddings = "stand-in", "1", False

    def __init__(self, *, launch: float, frame: float, batch_size: int, fills: bool) -> None:
        self.launch, self.frame, self.batch_size, self.fills_batches = launch, frame, batch_size, fills
        self.device = "cpu"
        self.seconds = 0.0
        self.n_batches = 0

    def embed(self, frames):
        """Return the mean colour of each frame, after the time a GPU would take."""
        return self.embed_parts([frames])

    def embed_parts(self, parts):
        """Return the mean colour of each frame of all parts, after the time a GPU would take."""
        n = sum(len(part) for part in parts)
        started = time.perf_counter()
        found = np.concatenate([part[:, ::16, ::16].mean(axis=(1, 2)).astype(np.float32) for part in parts])
        time.sleep(max(0.0, self.launch + n * self.frame - (time.perf_counter() - started)))
        self.seconds += time.perf_counter() - started
        self.n_batches += 1
        return found

    def relevance(self, features, query):
        """Return a number in [0, 1] that varies with the picture."""
        return np.asarray(features[:, 0], dtype=np.float64) / 255

    def close(self):
        """Nothing is held."""


def run_worker(
    folder: Path, clips: list[Path], encoder: StandIn, setting: Setting
) -> tuple[Outcome, list[tuple[Path, np.ndarray]]]:
    """Choose frames of all clips with the real worker; return how that went, and which frames were read."""
    (folder / "questions.json").write_text(json.dumps([_question(number, clip) for number, clip in enumerate(clips)]))
    benchmark = {"name": "clips", "benchmark": "longvideobench", "videos": str(clips[0].parent),
                 "annotations": str(folder / "questions.json")}  # fmt: skip
    matrix = MatrixConfig.model_validate(
        {"name": "bench", "benchmarks": [benchmark], "encoders": [{"name": "standin", "encoder": "standin"}],
         "samplers": [{"sampler": "focus"}], "k": [64]}
    )  # fmt: skip
    sets, specs = load_sets(matrix), selection_specs(matrix)
    run = RunFolder(folder / f"run-{time.monotonic_ns()}" / "run")
    read: list[tuple[Path, np.ndarray]] = []

    class Share(WorkerResources):
        videos_at_once = setting.videos

        def threads_per_video(self, n_videos=None):
            return setting.threads

    def noted(stream):
        def wrapped(self, frames):
            read.append((self.path, np.unique(frames)))
            return stream(self, frames)

        return wrapped

    selecting.make_encoder = lambda name, **options: encoder
    worker = SelectWorker(specs, sets, run, name="bench", store=None, share=Share(setting.cores, 4_000_000_000))
    with patched(PyAVReader, "stream", noted):
        started = time.perf_counter()
        worker.run_all(select_jobs(specs, sets, run))
        seconds = time.perf_counter() - started
    worker.close()
    return Outcome(seconds, encoder.seconds / seconds), read


def _question(number: int, clip: Path) -> dict[str, object]:
    with open_video(clip) as video:  # from here on its index is remembered
        seconds = video.info.duration_seconds
    return {
        "id": f"q{number}", "video_id": clip.stem, "video_path": clip.name, "question": f"what is in {number}?",
        "candidates": ["a", "b"], "correct_choice": 0, "duration": seconds, "duration_group": 60,
        "question_category": "S2E", "topic_category": "x", "level": "L1-Perception", "position": [0],
        "subtitle_path": "", "starting_timestamp_for_subtitles": 0, "question_wo_referring_query": "what?",
    }  # fmt: skip


def settings(cores: int) -> dict[str, Setting]:
    """Return how a worker with `cores` cores worked, works, and works with others on its GPU."""
    share = WorkerResources(cores, 0)
    several = max(1, cores // 8)
    part = WorkerResources(max(1, cores // several), 0)
    now = Setting(
        cores=cores, videos=share.videos_at_once, threads=share.threads_per_video(), batch=BATCH_FRAMES, fills=True
    )
    videos = max(2, cores // 2 + 1)
    return {
        "one video at a time": Setting(cores=min(cores, 4), videos=1, threads=4, batch=BATCH_FRAMES, fills=False),
        "padded to 64": replace(now, videos=videos, threads=min(cores, max(4, -(-cores // videos))), batch=64),
        "now": now,
        "now, workers of 8 cores": replace(
            now, videos=part.videos_at_once, threads=part.threads_per_video(), processes=several
        ),
    }


def print_real(args, folder: Path) -> None:
    """Print the real worker on this machine beside the simulation of the same work, decoding measured around it."""
    cores = n_cores()
    lengths = [20.0, 40.0, 120.0, 60.0, 20.0, 240.0] if args.quick else [60.0, 120.0, 300.0] * 3
    clips = make_clips(folder, "360p", lengths)
    decode = measured_costs(clips)
    print(f"\n## Real worker, {cores} cores, {len(clips)} videos, medians of {args.rounds} rounds\n")
    print("| stand-in frames/s | way | seconds | simulated | difference | busy | simulated | frames a batch |")
    print("|---:|---|---:|---:|---:|---:|---:|---:|")
    for rate in (60.0, 600.0):
        found: dict[str, list[tuple[Outcome, Outcome]]] = {}
        filled: Counter[str] = Counter()
        for _ in range(args.rounds):
            for name, setting in list(settings(cores).items())[:3]:
                setting = replace(setting, threads=min(setting.threads, cores))
                encoder = StandIn(launch=_LAUNCH, frame=1 / rate, batch_size=setting.batch, fills=setting.fills)
                real, read = run_worker(folder, clips, encoder, setting)
                asked, passed, seconds = read_all(read)
                costs = costs_of(replace(decode, passed=seconds / passed), encode=1 / rate, locked=decode.locked)
                told = simulate(jobs_of(read), replace(costs, index=0.0), setting)
                found.setdefault(name, []).append((real, told))
                filled[name] = round(asked / encoder.n_batches)
        for name, outcomes in found.items():
            print(_real_line(rate, name, outcomes) + f" {filled[name]} |", flush=True)


def _real_line(rate: float, name: str, outcomes: list[tuple[Outcome, Outcome]]) -> str:
    real, told = (statistics.median(pair[at].seconds for pair in outcomes) for at in (0, 1))
    busy, told_busy = (statistics.median(pair[at].busy for pair in outcomes) for at in (0, 1))
    return f"| {rate:g} | {name} | {real:.1f} | {told:.1f} | {told / real - 1:+.0%} | {busy:.0%} | {told_busy:.0%} |"


def jobs_of(read: list[tuple[Path, np.ndarray]]) -> list[Job]:
    """Return the passes that were read, by video in the order in which they began."""
    passes: dict[Path, list[Pass]] = {}
    for clip, frames in read:
        with open_video(clip, n_threads=1) as video:
            passes.setdefault(clip, []).append(runs_of_reader(video, frames))
    return [Job(0, tuple(of_video)) for of_video in passes.values()]


def costs_of(decode: DecodeCosts, *, encode: float, locked: float | None = None) -> Costs:
    """Return what the simulation needs of measured costs."""
    locked = decode.locked if locked is None else locked
    return Costs(
        decode=decode.passed, locked=decode.passed * locked, open=decode.open, index=decode.index, encode=encode,
        launch=_LAUNCH,
    )  # fmt: skip


def benchmark_jobs(path: Path | None) -> list[Job]:
    """Return both passes over each video of LongVideoBench val, all its questions served together."""
    asked: dict[str, tuple[float, float, int]] = {}
    if path is None:
        asked = {str(at): (seconds, float(FPS), 2) for at, seconds in enumerate(_LENGTHS)}
    else:
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                n = asked.get(row["video_id"], (0.0, 0.0, 0))[2]
                top, _, bottom = row["fps"].partition("/")
                asked[row["video_id"]] = (float(row["duration_s"]), float(top) / float(bottom or 1), n + 1)
    found = []
    for seconds, fps, n_questions in asked.values():
        info = VideoInfo(max(1, int(seconds * fps)), fps)
        pulls = [pulls_of(info, seed=seed) for seed in range(n_questions)]
        together = [np.concatenate(frames) for frames in zip(*pulls, strict=True)]
        group = max(1, round(GROUP_SECONDS * fps))
        found.append(Job(info.n_frames, tuple(runs_in_groups(frames, group=group) for frames in together)))
    return found


def print_node(args, decode: dict[str, DecodeCosts]) -> None:
    """Print utilisation and hours by cores and GPUs."""
    jobs = benchmark_jobs(args.rates)
    rng = np.random.default_rng(0)
    scale = args.every
    jobs = [jobs[at] for at in rng.permutation(len(jobs))][::scale]
    n_frames = scale * sum(run.n_frames for job in jobs for one in job.passes for run in one)
    print(
        f"\n## Simulated node: {len(jobs)} videos, {n_frames:,} frames, encoder {args.frames_per_second:g} frames/s\n",
        flush=True,
    )
    ways = " | ".join(f"{way}: busy, GPU hours" for way in settings(8))
    print(f"| video | cores | GPUs | {ways} |")
    print("|---|---:|---:|" + "---|" * 4)
    for size, cost in decode.items():
        costs = costs_of(cost, encode=1 / args.frames_per_second)
        for cores, gpus in ((8, 1), (16, 1), (16, 2), (16, 8), (64, 1), (64, 4), (64, 8)):
            cells = []
            for setting in settings(cores // gpus).values():
                told = simulate(jobs, costs, setting, gpus=gpus)
                cells.append(f"{told.busy:.0%}, {told.seconds * scale / 3600 * gpus:.2f}")
            print(f"| {size} | {cores} | {gpus} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    """Measure the costs, run the worker, simulate nodes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short clips, no 1080p")
    parser.add_argument("--rounds", type=int, default=3, help="of the real worker")
    parser.add_argument("--every", type=int, default=1, help="simulate every n-th video")
    parser.add_argument("--rates", type=Path, help="CSV with id, video_id, duration_s, fps of LongVideoBench val")
    parser.add_argument("--frames-per-second", type=float, default=500.0, help="of the encoder on one GPU")
    args = parser.parse_args()
    costs: dict[str, DecodeCosts] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print("| video | core ms a frame asked for | frames/s and core | holding Python's lock | first opening, ms |")
        print("|---|---:|---:|---:|---:|")
        for size in list(SIZES)[: 2 if args.quick else 3]:
            seconds = 60.0 if args.quick else 300.0
            cost = costs[size] = measured_costs(make_clips(folder, size, [seconds]))
            told = f"{1000 * cost.asked:.1f} | {1 / cost.asked:.0f} | {cost.locked:.0%}"
            print(f"| {size} | {told} | {1000 * cost.index * seconds * FPS:.0f} |", flush=True)
        print_real(args, folder)
    print_node(args, costs)


if __name__ == "__main__":
    main()
