"""How busy is a GPU while frames are chosen, and how long does LongVideoBench take, by cores and GPUs?

No GPU is needed. A stand-in encoder takes a stated time per batch and gives up its thread meanwhile, as a GPU does; the
rest is real: files are decoded, frames are copied as they are for a GPU, samplers run, rows are written.

  costs   processor seconds to decode a frame that FOCUS asks for and to bring it to the device, by resolution; the
          share that holds Python's lock; opening
  real    the worker on this machine's cores with the stand-in, against the simulation of the same work
  node    LongVideoBench val (753 videos, FOCUS) simulated on 16 to 128 cores and 1 to 8 GPUs: as it is;
          shrunk by Pillow in the decoding threads (resize=pil); and with several workers on one GPU

What a GPU takes is assumed: its rate (--frames-per-second), 5 ms a batch, and 3 TB/s of memory while it resizes. Busy
is the share of the time in which it runs the encoder. Run: python scripts/node/bench.py [--quick]
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from node_costs import (
    FPS,
    GROUP_SECONDS,
    SIZES,
    DecodeCosts,
    HostCosts,
    host_costs,
    make_clips,
    measured_costs,
    patched,
    pulls_of,
    read_all,
    runs_in_groups,
    runs_of_reader,
)
from node_simulation import Costs, Job, Outcome, Pass, Setting, simulate

from focus_eval.bench.matrix import selecting
from focus_eval.bench.matrix.cells import selection_specs
from focus_eval.bench.matrix.config import MatrixConfig, Resources
from focus_eval.bench.matrix.folder import RunFolder
from focus_eval.bench.matrix.machine import BATCH_FRAMES, MOST_FRAME_GIGABYTES, WorkerResources, frame_bytes
from focus_eval.bench.matrix.plan import load_sets
from focus_eval.bench.matrix.selecting import SelectWorker, select_jobs
from focus_eval.core.processes import n_cores
from focus_eval.core.types import VideoInfo
from focus_eval.keyframes.encoders.base import Encoder
from focus_eval.keyframes.encoders.upload import Uploader
from focus_eval.keyframes.rows.records import SelectionRow
from focus_eval.keyframes.video import open_video
from focus_eval.keyframes.video.pyav import PyAVReader

# LongVideoBench val where its file of lengths is not given: as many videos of about its lengths, in seconds.
_LENGTHS = (*[15.0] * 180, *[45.0] * 190, *[400.0] * 220, *[1800.0] * 163)
_LAUNCH = 0.005  # seconds of a batch whatever is in it: assumed
_DEVICE_BYTES = 3e12  # that a GPU reads and writes in a second: assumed
_TAP_BYTES = 27  # of a value's way through one tap of the integer resize: 8 bits in, several of 32 bits through memory
_SIDE = 384  # of the encoder's input


def device_resize_seconds(width: int, height: int) -> float:
    """Return the seconds that a GPU needs to resize a frame, by the bytes that its integer arithmetic moves."""
    across, down = (4 * max(1.0, side / _SIDE) + 1 for side in (width, height))
    return 3 * _SIDE * (height * across + _SIDE * down) * _TAP_BYTES / _DEVICE_BYTES


class StandIn(Encoder):
    """Stand-in encoder that takes as long as a GPU for each batch and only computes mean colours.

    Frames are copied on the processor as they are for a GPU.

    Args:
        costs: seconds of a batch, of a frame in it, and to resize that frame.
    """

    name, revision = "stand-in", "1"

    def __init__(self, costs: Costs, *, batch_size: int, fills: bool) -> None:
        self.costs, self.batch_size, self.fills_batches = costs, batch_size, fills
        self._device_seconds = 0.0
        self.n_batches = 0
        self._uploader = Uploader(torch.device("cpu"))
        self._free_at = 0.0

    @property
    def device_seconds(self):
        """Seconds that the stand-in's device has computed."""
        return self._device_seconds

    def embed(self, frames):
        """Return the mean colour of each frame after the seconds that a GPU would take."""
        return self.queue_parts([frames])()

    def queue_parts(self, parts):
        """Copy all parts and return a function that waits as long as a GPU and returns each frame's mean colour."""
        filled = self._uploader.fill(parts)
        part_means, at = [], 0
        for part in parts:
            part_values = filled[at : at + part.nbytes].numpy().reshape(part.shape)
            part_means.append(part_values[:, ::16, ::16].mean(axis=(1, 2)).astype(np.float32))
            at += part.nbytes
        means_of_parts = np.concatenate(part_means)
        encoding = self.costs.launch + len(means_of_parts) * self.costs.encode
        ends = max(time.perf_counter(), self._free_at) + len(means_of_parts) * self.costs.resize + encoding
        self._free_at, self.n_batches = ends, self.n_batches + 1
        self._device_seconds += encoding

        def finish():
            time.sleep(max(0.0, ends - time.perf_counter()))
            return means_of_parts

        return finish

    def relevance(self, features, query):
        """Return each frame's mean red value, scaled to [0, 1], as its relevance."""
        return np.asarray(features[:, 0], dtype=np.float64) / 255


def run_worker(
    folder: Path,
    clips: list[Path],
    encoder: Any,
    setting: Setting,
    *,
    on_row: Callable[[SelectionRow], None] | None = None,
) -> tuple[Outcome, list[tuple[Path, np.ndarray]]]:
    """Choose frames of all clips with the real worker; return its outcome and the frames read, by pass.

    Args:
        encoder: counts the seconds that its device has computed in `device_seconds`.
    """
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

    share = Share(setting.cores, frame_bytes(Resources()))
    worker = SelectWorker(specs, sets, run, name="bench", store=None, share=share)
    patch = patched(selecting, "make_encoder", lambda _: lambda name, **options: encoder)
    with patch, patched(PyAVReader, "stream", noted):
        device_seconds, started = encoder.device_seconds, time.perf_counter()
        worker.run_all(select_jobs(specs, sets, run), on_row=on_row)
        seconds = time.perf_counter() - started
    return Outcome(seconds, (encoder.device_seconds - device_seconds) / seconds), read


def _question(number: int, clip: Path) -> dict[str, object]:
    """Return a question about a clip, as a line of LongVideoBench's annotations; its index is cached by this."""
    with open_video(clip) as video:  # from here on its index is remembered
        seconds = video.info.duration_seconds
    return {
        "id": f"q{number}", "video_id": clip.stem, "video_path": clip.name, "question": f"what is in {number}?",
        "candidates": ["a", "b"], "correct_choice": 0, "duration": seconds, "duration_group": 60,
        "question_category": "S2E", "topic_category": "x", "level": "L1-Perception", "position": [0],
        "subtitle_path": "", "starting_timestamp_for_subtitles": 0, "question_wo_referring_query": "what?",
    }  # fmt: skip


def settings(cores: int, size: str, *, frame_gigabytes: float) -> dict[str, Setting]:
    """Return worker settings by name: one worker per GPU, with and without `resize=pil`, or several.

    All workers of a GPU share `cores`. Frames of the videos in work fit into `frame_gigabytes`.
    """

    def setting(cores: int) -> Setting:
        """Return the setting of a worker with so many cores, with as many videos as they and the memory allow."""
        share = WorkerResources(cores, 0)
        threads = share.threads_per_video()
        room = int(1e9 * frame_gigabytes / share.bytes_of_video(*SIZES[size], n_threads=threads))
        videos = max(1, min(share.videos_at_once, room))
        return Setting(cores=cores, videos=videos, threads=threads, batch=BATCH_FRAMES, fills=True)

    several = max(1, cores // 8)
    return {
        "one worker per GPU": setting(cores),
        "one worker, resize=pil": setting(cores),
        "a worker for every 8 cores": replace(setting(max(1, cores // several)), cores=cores, processes=several),
    }


def print_real(args, folder: Path) -> None:
    """Print the real worker's seconds beside the simulated ones, with decoding costs measured in each round."""
    cores = n_cores()
    lengths = [20.0, 40.0, 120.0, 60.0, 20.0, 240.0] if args.quick else [60.0, 120.0, 300.0] * 3
    print(f"\n## Real worker, {cores} cores, {len(lengths)} videos, medians of {args.rounds} rounds\n")
    print("| video | stand-in frames/s | way | seconds | simulated | difference | busy | simulated | frames a batch |")
    print("|---|---:|---|---:|---:|---:|---:|---:|---:|")
    for size in args.sizes:
        clips, hosts = make_clips(folder, size, lengths), host_costs(size)
        decode = measured_costs(clips)
        for rate in (60.0, 600.0):
            outcomes_by_setup: dict[str, list[tuple[Outcome, Outcome]]] = {}
            filled: Counter[str] = Counter()
            for _ in range(args.rounds):
                for name, setting in list(settings(cores, size, frame_gigabytes=args.frame_gigabytes).items())[:1]:
                    assumed = costs_of(decode, hosts, name, size, encode=1 / rate)
                    encoder = StandIn(assumed, batch_size=setting.batch, fills=setting.fills)
                    real, read = run_worker(folder, clips, encoder, setting)
                    n_requested, passed, seconds = read_all(read)
                    costs = costs_of(replace(decode, passed=seconds / passed), hosts, name, size, encode=1 / rate)
                    outcome = simulate(jobs_of(read), replace(costs, index=0.0), setting)
                    outcomes_by_setup.setdefault(name, []).append((real, outcome))
                    filled[name] = round(n_requested / encoder.n_batches)
            for name, outcomes in outcomes_by_setup.items():
                print(f"| {size} " + _real_line(rate, name, outcomes) + f" {filled[name]} |", flush=True)


def _real_line(rate: float, name: str, outcomes: list[tuple[Outcome, Outcome]]) -> str:
    """Return the Markdown row that compares the medians of real and of simulated runs."""
    real, simulated = (statistics.median(pair[at].seconds for pair in outcomes) for at in (0, 1))
    busy = " | ".join(f"{statistics.median(pair[at].busy for pair in outcomes):.0%}" for at in (0, 1))
    return f"| {rate:g} | {name} | {real:.1f} | {simulated:.1f} | {simulated / real - 1:+.0%} | {busy} |"


def jobs_of(read: list[tuple[Path, np.ndarray]]) -> list[Job]:
    """Return a job for each video that was read, with its passes in the order in which they began."""
    passes: dict[Path, list[Pass]] = {}
    for clip, frames in read:
        with open_video(clip, n_threads=1) as video:
            passes.setdefault(clip, []).append(runs_of_reader(video, frames))
    return [Job(0, tuple(of_video)) for of_video in passes.values()]


def costs_of(decode: DecodeCosts, host: HostCosts, decoding: str, size: str, *, encode: float) -> Costs:
    """Return the simulation's costs from the measured ones, for the setting named `decoding`."""
    in_thread, load, resize = host.joined, host.reused, device_resize_seconds(*SIZES[size])
    if decoding == "one worker, resize=pil":
        in_thread, load, resize = host.shrunk, host.reused_shrunk, 0.0
    return Costs(
        decode=decode.passed, locked=decode.passed * decode.locked, open=decode.open, index=decode.index, encode=encode,
        launch=_LAUNCH, prepare=in_thread, load=load, resize=resize,
    )  # fmt: skip


def benchmark_jobs(path: Path | None) -> list[Job]:
    """Return a job for each video of LongVideoBench val, whose two passes read the frames of all its questions."""
    lengths: dict[str, tuple[float, float, int]] = {}
    if path is None:
        lengths = {str(at): (seconds, float(FPS), 2) for at, seconds in enumerate(_LENGTHS)}
    else:
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                n = lengths.get(row["video_id"], (0.0, 0.0, 0))[2]
                top, _, bottom = row["fps"].partition("/")
                lengths[row["video_id"]] = (float(row["duration_s"]), float(top) / float(bottom or 1), n + 1)
    pull_counts = []
    for seconds, fps, n_questions in lengths.values():
        info = VideoInfo(max(1, int(seconds * fps)), fps)
        pulls = [pulls_of(info, seed=seed) for seed in range(n_questions)]
        joined = [np.concatenate(frames) for frames in zip(*pulls, strict=True)]
        group = max(1, round(GROUP_SECONDS * fps))
        pull_counts.append(Job(info.n_frames, tuple(runs_in_groups(frames, group=group) for frames in joined)))
    return pull_counts


def print_node(args, decode: dict[str, DecodeCosts], hosts: dict[str, HostCosts]) -> None:
    """Print utilisation and hours by cores and GPUs."""
    jobs = benchmark_jobs(args.rates)
    rng = np.random.default_rng(0)
    scale = args.every
    jobs = [jobs[at] for at in rng.permutation(len(jobs))][::scale]
    n_frames = scale * sum(run.n_frames for job in jobs for job_pass in job.passes for run in job_pass)
    print(
        f"\n## Simulated node: {len(jobs)} videos, {n_frames:,} frames, encoder {args.frames_per_second:g} frames/s\n",
        flush=True,
    )
    setups = settings(8, "360p", frame_gigabytes=args.frame_gigabytes)
    print("| video | cores | GPUs | " + " | ".join(f"{setup}: busy, GPU hours" for setup in setups) + " |")
    print("|---|---:|---:|" + "---|" * len(setups))
    for size in decode:
        for cores, gpus in ((16, 1), (64, 4), (128, 8), (64, 1)):
            cells = []
            for setup, setting in settings(cores // gpus, size, frame_gigabytes=args.frame_gigabytes).items():
                costs = costs_of(decode[size], hosts[size], setup, size, encode=1 / args.frames_per_second)
                outcome = simulate(jobs, costs, setting, gpus=gpus)
                cells.append(f"{outcome.busy:.0%}, {outcome.seconds * scale / 3600 * gpus:.2f}")
            print(f"| {size} | {cores} | {gpus} | " + " | ".join(cells) + " |", flush=True)


def print_costs(args, folder: Path) -> tuple[dict[str, DecodeCosts], dict[str, HostCosts]]:
    """Measure, print and return the processor seconds of a frame, by resolution."""
    decode, hosts = dict[str, DecodeCosts](), dict[str, HostCosts]()
    print("| video | core ms a frame asked for | holding Python's lock | first opening, ms | joined, 32 frames, ms |"
          " copied into a buffer | shrunk by Pillow |")  # fmt: skip
    print("|---|" + "---:|" * 6)
    for size in args.sizes:
        seconds = 60.0 if args.quick else 300.0
        cost = decode[size] = measured_costs(make_clips(folder, size, [seconds]))
        host = hosts[size] = host_costs(size)
        cells = f"{1000 * cost.requested:.1f} | {cost.locked:.0%} | {1000 * cost.index * seconds * FPS:.0f}"
        copies = (host.joined, host.reused, host.shrunk)
        print(f"| {size} | {cells} | " + " | ".join(f"{32_000 * hours:.0f}" for hours in copies) + " |", flush=True)
    return decode, hosts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short clips")
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--rounds", type=int, default=3, help="of the real worker; 0 to leave it out")
    parser.add_argument("--every", type=int, default=1, help="simulate every n-th video")
    parser.add_argument("--rates", type=Path, help="CSV with id, video_id, duration_s, fps of LongVideoBench val")
    parser.add_argument("--frames-per-second", type=float, default=480.0, help="of the encoder on one GPU")
    parser.add_argument("--frame-gigabytes", type=float, default=MOST_FRAME_GIGABYTES, help="of a worker")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        decode, hosts = print_costs(args, folder)
        if args.rounds:
            print_real(args, folder)
    print_node(args, decode, hosts)


if __name__ == "__main__":
    main()
