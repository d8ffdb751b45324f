"""The real worker of `focus-eval run` on clips, with any encoder: how long it takes, and how busy the device is."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from focus_eval.bench.matrix import selecting
from focus_eval.bench.matrix.cells import selection_specs
from focus_eval.bench.matrix.config import MatrixConfig, Resources
from focus_eval.bench.matrix.folder import RunFolder
from focus_eval.bench.matrix.machine import BATCH_FRAMES, WorkerResources, frame_bytes
from focus_eval.bench.matrix.plan import load_sets
from focus_eval.bench.matrix.selecting import SelectWorker, select_jobs
from focus_eval.keyframes.rows.records import SelectionRow
from focus_eval.keyframes.video import open_video
from focus_eval.keyframes.video.pyav import PyAVReader
from scripts.node.clips import SIZES


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Settings of the workers on one GPU.

    Args:
        cores: cores of all workers together.
        videos: videos that a worker reads at a time.
        batch: frames of a full batch.
        fills: True if batches are filled across videos and padded to full size.
        processes: workers that share the GPU, each with `cores / processes` cores.
    """

    cores: int
    videos: int
    batch: int
    fills: bool
    processes: int = 1


@dataclass(frozen=True)
class Outcome:
    """Result of a run: seconds from the start to the last row, and the share in which the GPUs ran the encoder."""

    seconds: float
    busy: float


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
    benchmark = {"name": "clips", "benchmark": "longvideobench", "videos": str(clips[0].parent),
                 "annotations": str(write_questions(folder, clips))}  # fmt: skip
    matrix = MatrixConfig.model_validate(
        {"name": "bench", "benchmarks": [benchmark], "encoders": [{"name": "standin", "encoder": "standin"}],
         "samplers": [{"sampler": "focus"}], "k": [64]}
    )  # fmt: skip
    sets, specs = load_sets(matrix), selection_specs(matrix)
    run = RunFolder(folder / f"run-{time.monotonic_ns()}" / "run")
    read: list[tuple[Path, np.ndarray]] = []

    class Share(WorkerResources):
        videos_at_once = setting.videos

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


def write_questions(folder: Path, clips: list[Path]) -> Path:
    """Write a question about each clip, as LongVideoBench's annotations; return the file."""
    path = folder / "questions.json"
    path.write_text(json.dumps([_question(number, clip) for number, clip in enumerate(clips)]))
    return path


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
        room = int(1e9 * frame_gigabytes / share.bytes_of_video(*SIZES[size]))
        videos = max(1, min(share.videos_at_once, room))
        return Setting(cores=cores, videos=videos, batch=BATCH_FRAMES, fills=True)

    several = max(1, cores // 8)
    return {
        "one worker per GPU": setting(cores),
        "one worker, resize=pil": setting(cores),
        "a worker for every 8 cores": replace(setting(max(1, cores // several)), cores=cores, processes=several),
    }


@contextmanager
def patched(kind, name, wrap):
    """Wrap the method `name` of the class `kind` inside the block."""
    original = getattr(kind, name)
    setattr(kind, name, wrap(original))
    try:
        yield
    finally:
        setattr(kind, name, original)
