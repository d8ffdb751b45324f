"""Full-size frames of several videos in work stay within the stated bytes, and the rows are the same."""

from __future__ import annotations

import json
import os
import shutil
import time
import tracemalloc

import pytest
import yaml

from focus_eval.bench.matrix.config import Resources, load_matrix
from focus_eval.bench.matrix.machine import BATCH_FRAMES, WorkerResources
from focus_eval.keyframes.encoders.dual_encoder import ClipScorer
from focus_eval.keyframes.encoders.torch_scorer import TorchScorer
from focus_eval.keyframes.pipeline.relevance import VideoSession
from focus_eval.keyframes.video import feed
from focus_eval.keyframes.video.decode_jobs import N_BATCHES
from tests.support.bench.matrix_rows import run_matrix
from tests.support.keyframes.random_weights import write_tiny_clip
from tests.support.keyframes.synthetic import write_long_clip

from .conftest import lvb_question
from .test_running import result_bytes

WIDTH, HEIGHT, SECONDS = 480, 272, 70  # one frame a second is asked for: three chunks of a video
N_VIDEOS = 3
OTHER_BYTES = 4_000_000  # rows, tables and the like, which are no frames


@pytest.fixture(scope="module")
def matrix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("big_frames")
    questions = []
    clip = write_long_clip(folder / "v0.mp4", SECONDS, width=WIDTH, height=HEIGHT, fps=2, segment_seconds=5)
    for number in range(N_VIDEOS):
        if number:
            shutil.copy(clip, folder / f"v{number}.mp4")
        questions.append(lvb_question(number, f"v{number}", SECONDS, answer=0))
    (folder / "questions.json").write_text(json.dumps(questions))
    benchmark = {"name": "big", "benchmark": "longvideobench", "videos": str(folder)}
    benchmark["annotations"] = str(folder / "questions.json")
    options = {"checkpoint": str(write_tiny_clip(folder / "clip")), "device": "cpu"}
    encoder = {"name": "tiny", "encoder": "clip", "options": options}
    document = {"name": "big", "benchmarks": [benchmark], "encoders": [encoder], "samplers": ["topk"], "k": [4]}
    (folder / "matrix.yaml").write_text(yaml.safe_dump(document))
    return load_matrix(folder / "matrix.yaml")


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Frames reach the encoder at full size, and it is slower than the decoders, so that frames pile up."""
    queue = ClipScorer.queue_parts

    def slow(self, parts):
        finish = queue(self, parts)

        def finish_late():
            time.sleep(0.1)
            return finish()

        return finish_late

    monkeypatch.setattr(VideoSession, "prepare", None)
    monkeypatch.setattr(TorchScorer, "fills_batches", True)
    monkeypatch.setattr(ClipScorer, "queue_parts", slow)


def peak_bytes(matrix, out, *, gigabytes):
    """Return the most bytes of arrays and objects alive at a time in a run, above those before it."""
    wide = matrix.model_copy(update={"select_resources": Resources(decode_cores=2, frame_gigabytes=gigabytes)})
    tracemalloc.start()
    bytes_at_start = tracemalloc.get_traced_memory()[0]
    try:
        frame = run_matrix(wide, out=out)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert frame["error"].isna().all()
    return peak - bytes_at_start


@pytest.mark.slow
def test_frames_of_all_videos_stay_within_the_budget_and_the_rows_are_the_same(matrix, as_on_a_gpu, tmp_path):
    video = WorkerResources(2, 0).bytes_of_video(WIDTH, HEIGHT)
    run_matrix(matrix, out=tmp_path / "plenty" / "run")  # imports and caches are no frames
    peak = peak_bytes(matrix, tmp_path / "little" / "run", gigabytes=1.01 * video / 1e9)
    assert 3 * WIDTH * HEIGHT * 60 < peak <= video + OTHER_BYTES  # for a moment a chunk of 32 frames is there twice
    assert result_bytes(tmp_path / "little" / "run") == result_bytes(tmp_path / "plenty" / "run")


@pytest.mark.slow
def test_frames_of_other_processes_stay_within_the_budget_too(matrix, as_on_a_gpu, tmp_path, monkeypatch):
    run_matrix(matrix, out=tmp_path / "here" / "run")
    monkeypatch.setattr(feed, "TINY_BYTES", 0)
    rings = []
    monkeypatch.setattr(os, "ftruncate", lambda file, n_bytes: (rings.append(n_bytes), truncate(file, n_bytes)))
    video = WorkerResources(2, 0).bytes_of_video(WIDTH, HEIGHT)
    peak = peak_bytes(matrix, tmp_path / "fed" / "run", gigabytes=2.01 * video / 1e9)
    # Two videos have room at a time; the third takes the memory of the first.
    assert rings == [N_BATCHES * BATCH_FRAMES * 3 * WIDTH * HEIGHT] * 2
    # A batch of 32 frames goes to the encoder's own buffer; no other copy is made here.
    assert peak < 3 * BATCH_FRAMES * 3 * WIDTH * HEIGHT + OTHER_BYTES
    assert result_bytes(tmp_path / "fed" / "run") == result_bytes(tmp_path / "here" / "run")


truncate = os.ftruncate
