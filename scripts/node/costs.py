"""Measure what it costs to decode the frames that FOCUS requests and bring them to a GPU, to simulate a node."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from node_simulation import Pass, Run

from focus_eval import make_sampler
from focus_eval.core.processes import n_cores
from focus_eval.core.types import VideoInfo
from focus_eval.keyframes.video import open_video
from focus_eval.keyframes.video.decoder import Decoder
from focus_eval.keyframes.video.pyav import PyAVReader
from focus_eval.keyframes.video.scan import scan_file
from support.keyframes.synthetic import write_long_clip

SIZES = {"360p": (640, 360), "720p": (1280, 720), "1080p": (1920, 1080)}
FPS = 30
# Between the sync frames of the clips, which stand for those of a benchmark.
GROUP_SECONDS = 5


@dataclass(frozen=True, kw_only=True)
class DecodeCosts:
    """Measured core seconds of decoding.

    Args:
        requested: per requested frame, all frames on the way to it included.
        passed: per decoded frame, requested or only passed over.
        locked: share of its time that a decoding thread holds Python's lock, at most.
        open: to open a file with a stored index, its decoders included.
        index: per frame, to index a file that is opened for the first time.
    """

    requested: float
    passed: float
    locked: float
    open: float
    index: float


def make_clips(folder: Path, size: str, seconds: list[float]) -> list[Path]:
    """Write an H.264 clip of each length with x264's usual settings and a sync frame every 5 seconds."""
    width, height = SIZES[size]
    return [
        write_long_clip(
            folder / f"{size}_{number}.mp4", length, width=width, height=height, fps=FPS, segment_seconds=GROUP_SECONDS
        )
        for number, length in enumerate(seconds)
    ]


def measured_costs(clips: list[Path]) -> DecodeCosts:
    """Measure the costs of reading `clips` for FOCUS with every core at work."""
    n_requested, passed, seconds = read_all(
        [(clip, frames) for clip in clips for frames in pulls_of_clip(clip)] * n_cores()
    )
    started = time.perf_counter()
    for clip in clips:
        open_video(clip, n_threads=1).close()
    opening = (time.perf_counter() - started) / len(clips)
    started, n_frames = time.perf_counter(), 0
    for clip in clips:
        n_frames += scan_file(clip).info.n_frames
    index = (time.perf_counter() - started) / n_frames
    return DecodeCosts(
        requested=seconds / n_requested,
        passed=seconds / passed,
        locked=locked_share(clips[-1]),
        open=opening,
        index=index,
    )


def read_all(jobs: list[tuple[Path, np.ndarray]]) -> tuple[int, int, float]:
    """Read all frames with one thread per core; return requested frames, decoded frames and processor seconds."""
    passed = 0

    def read(job: tuple[Path, np.ndarray]) -> int:
        """Decode the frames of a file with one thread, and return their number."""
        with open_video(job[0], n_threads=1) as video:
            for _ in video.stream(job[1]):
                pass
        return len(job[1])

    for clip, frames in jobs:
        with open_video(clip, n_threads=1) as video:
            passed += sum(run.n_passed for run in runs_of_reader(video, frames))
    started = time.process_time()
    with ThreadPoolExecutor(n_cores()) as pool:  # two threads of one core are slower than two cores
        n_requested = sum(pool.map(read, jobs))
    return n_requested, passed, time.process_time() - started


def locked_share(clip: Path) -> float:
    """Return an upper bound on the share of its time that a decoding thread holds Python's lock.

    FFmpeg releases the lock while it decodes and converts to RGB. All other time counts as locked, although a part of
    it (demuxing, copies) is not.
    """
    inside = [0.0]

    def timed(call):
        """Return `call` with the processor seconds inside it added up."""

        def wrapped(*args, **options):
            started = time.thread_time()
            try:
                return call(*args, **options)
            finally:
                inside[0] += time.thread_time() - started

        return wrapped

    with (
        open_video(clip, n_threads=1) as video,
        patched(Decoder, "_decode", timed),
        patched(PyAVReader, "_pixels", timed),
    ):
        started = time.thread_time()
        for _ in video.stream(np.unique(np.concatenate(pulls_of(video.info)))):
            pass
        whole = time.thread_time() - started
    return 1 - inside[0] / whole


@dataclass(frozen=True, kw_only=True)
class HostCosts:
    """Measured processor seconds of one frame between the decoder and the GPU.

    Args:
        joined: to put the frame into a chunk, in the decoding thread.
        reused: to copy it into the uploader's own buffer.
        shrunk: to shrink it with Pillow, in the decoding thread (`resize=pil`).
        reused_shrunk: `joined` and `reused` together, for a shrunk frame.
    """

    joined: float
    reused: float
    shrunk: float
    reused_shrunk: float


def host_costs(size: str, *, side: int = 384, n: int = 32, rounds: int = 5) -> HostCosts:
    """Measure the costs of a frame of that size in batches of `n`; return medians over alternating rounds."""
    import torch  # here, so that who only wants sizes or decoding loads none

    from focus_eval.keyframes.encoders.preprocess import ImageRules, resize_frames
    from focus_eval.keyframes.encoders.upload import Uploader

    width, height = SIZES[size]
    rules = ImageRules(height=side, width=side)
    frames = [np.random.default_rng(at).integers(0, 256, (1, height, width, 3), np.uint8) for at in range(8)] * (n // 8)
    chunk, small = np.concatenate(frames), np.zeros((n, side, side, 3), np.uint8)
    uploader = Uploader(torch.device("cpu"))

    def shrink() -> None:
        for frame in frames[:4]:  # one at a time, as a decoding thread does
            resize_frames(frame, rules)

    modes = {
        "joined": lambda: np.concatenate(frames),
        "reused": lambda: uploader.fill([chunk]),
        "shrunk": shrink,
        "reused_shrunk": lambda: uploader.fill([np.concatenate(list(small[:, np.newaxis]))]),
    }
    seconds: dict[str, list[float]] = {name: [] for name in modes}
    for _ in range(rounds):
        for name, mode in modes.items():
            started = time.process_time()
            mode()
            seconds[name].append((time.process_time() - started) / (4 if name == "shrunk" else n))
    return HostCosts(**{name: float(np.median(values)) for name, values in seconds.items()})


@contextmanager
def patched(kind, name, wrap):
    """Wrap the method `name` of the class `kind` inside the block."""
    original = getattr(kind, name)
    setattr(kind, name, wrap(original))
    try:
        yield
    finally:
        setattr(kind, name, original)


def pulls_of(info: VideoInfo, *, seed: int = 0) -> list[np.ndarray]:
    """Return the frames of FOCUS's two passes over a video with random relevance."""
    passes: list[np.ndarray] = []
    relevance = np.random.default_rng(seed)

    def pull(frames: np.ndarray) -> np.ndarray:
        passes.append(np.sort(frames))
        return relevance.random(frames.shape)

    make_sampler("focus").select(info, k=64, pull=pull, rng=np.random.default_rng(seed))
    return passes


def pulls_of_clip(clip: Path) -> list[np.ndarray]:
    """Return the frames of FOCUS's two passes over a clip."""
    with open_video(clip) as video:
        return pulls_of(video.info)


def runs_of_reader(video: PyAVReader, frames: np.ndarray) -> Pass:
    """Return the runs in which the reader decodes `frames`."""
    index = video._scan.index
    return tuple(
        Run(len(run.frames), int(run.last_packet - index.sync_packet[run.sync]) + 1)
        for run in index.runs(np.unique(frames))
    )


def runs_in_groups(frames: Iterable[int], *, group: int) -> Pass:
    """Return the runs of `frames` in a video with a sync frame every `group` frames."""
    distinct = np.unique(np.fromiter(frames, dtype=np.int64))
    groups = distinct // group
    return tuple(
        Run(int(np.count_nonzero(groups == number)), int(distinct[groups == number].max() % group) + 1)
        for number in np.unique(groups)
    )
