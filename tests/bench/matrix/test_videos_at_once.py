"""Videos are served two at a time, in threads: the same rows as one at a time, and all stop together."""

from __future__ import annotations

import errno
import itertools
import json
import threading
import time
from contextlib import contextmanager

import pytest

from focus_eval.bench.matrix import engines, selecting
from focus_eval.bench.matrix.cells import selection_specs
from focus_eval.bench.matrix.config import EncoderConfig, SamplerConfig, load_matrix
from focus_eval.bench.matrix.folder import RunFolder
from focus_eval.bench.matrix.machine import WorkerResources
from focus_eval.bench.matrix.plan import make_plan
from focus_eval.bench.matrix.selecting import SelectWorker
from focus_eval.bench.report.run import load_run
from focus_eval.core.errors import RunError
from focus_eval.keyframes.encoders.cache import duplicate_cache
from focus_eval.keyframes.encoders.dual_encoder import ClipScorer
from focus_eval.keyframes.encoders.registry import make_encoder
from focus_eval.keyframes.encoders.torch_scorer import TorchScorer
from focus_eval.keyframes.pipeline.batch_packer import BatchPacker
from focus_eval.keyframes.rows.json_lines import RowWriter
from focus_eval.keyframes.rows.records import BLOCKING_STAGES
from focus_eval.keyframes.video import feed
from tests.support.bench.matrix_rows import run_matrix
from tests.support.keyframes.random_weights import write_tiny_clip

from .conftest import write_noise_matrix
from .test_running import result_bytes

pytestmark = pytest.mark.slow

pytest.importorskip("openvino", reason="the offline extra is not installed")

N_VIDEOS = 4


@pytest.fixture(scope="module")
def matrix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rendered")
    samplers = ["uniform", "topk", "focus"]
    return load_matrix(write_noise_matrix(folder, n_videos=N_VIDEOS, gop=24, name="rendered", samplers=samplers))


@pytest.fixture(scope="module")
def one_at_a_time(matrix, tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WorkerResources, "videos_at_once", 1)
        run_matrix(matrix, out=folder / "run")
    return result_bytes(folder / "run")


def test_rows_are_those_of_one_video_at_a_time(matrix, one_at_a_time, tmp_path):
    frame = run_matrix(matrix, out=tmp_path / "run")
    assert frame["error"].isna().all()
    assert result_bytes(tmp_path / "run") == one_at_a_time


def test_rows_are_the_same_where_other_processes_decode(matrix, one_at_a_time, tmp_path, monkeypatch):
    monkeypatch.setattr(feed, "TINY_BYTES", 0)
    frame = run_matrix(matrix, out=tmp_path / "run")
    assert frame["error"].isna().all()
    assert result_bytes(tmp_path / "run") == one_at_a_time
    assert all(row["decode"] > 0 for row in frame["seconds"] if "encode" in row)


def test_the_rows_add_up_to_the_time_that_passed(matrix, tmp_path):
    """Two videos at once, three samplers each: no second is counted twice, and they are not all missed."""
    worker_seconds, video_seconds = [], []

    class Timed(SelectWorker):
        def run_all(self, jobs, **callbacks):
            started = time.perf_counter()
            super().run_all(jobs, **callbacks)
            worker_seconds.append(time.perf_counter() - started)

        def _rows_of_video(self, *arguments):
            started = time.perf_counter()
            rows = super()._rows_of_video(*arguments)
            video_seconds.append((time.perf_counter() - started) / self._share.videos_at_once)
            return rows

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines, "SelectWorker", Timed)
        run_matrix(matrix, out=tmp_path / "run")
    rows = [row for spec in selection_specs(matrix) for row in RunFolder(tmp_path / "run").selections(spec)]
    held_seconds = sum(row.seconds.get(stage, 0.0) for row in rows for stage in BLOCKING_STAGES)
    # While n videos are in work each is charged one nth, and n never exceeds how many are allowed at once.
    rounding = 1e-6 * len(rows) * len(BLOCKING_STAGES)
    assert sum(video_seconds) - rounding <= held_seconds <= worker_seconds[0] + rounding


@pytest.mark.parametrize("n_rows_before_interrupt", [1, 7])
def test_an_interrupt_stops_every_video_and_the_next_run_ends_the_same(
    matrix, one_at_a_time, tmp_path, n_rows_before_interrupt
):
    threads_at_start = set(threading.enumerate())

    class Impatient:
        rows = 0

        def start(self, phase, n_rows, work):
            """Nothing is shown."""

        def advance(self, phase, n_rows, n_errors, work):
            self.rows += n_rows
            if self.rows == n_rows_before_interrupt:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_matrix(matrix, out=tmp_path / "run", progress=Impatient())
    remaining_threads = set(threading.enumerate()) - threads_at_start
    assert not [
        thread.name
        for thread in remaining_threads
        if thread.name.startswith(("video", "question", "decode", "ThreadPool"))
    ]
    run_matrix(matrix, out=tmp_path / "run")
    assert result_bytes(tmp_path / "run") == one_at_a_time


def test_what_an_encoder_mends_is_written_down_before_it_is_closed(matrix, tmp_path, monkeypatch):
    """A batch redone in fp32 is in run.json at the end, and in a file of its own when the run is killed before that."""
    encoder_classes = []

    def mending(name, **options):
        encoder = make_encoder(name, **options)
        kind = type("Mending", (type(encoder),), {"recoveries": {}})
        encoder.__class__ = kind
        encoder_classes.append(kind)
        return encoder

    class Mishap:
        n_rows = 0

        def start(self, phase, n_rows, work):
            """Nothing is shown."""

        def advance(self, phase, n_rows, n_errors, work):
            self.n_rows += n_rows
            encoder_classes[0].recoveries = {"fp32_batches": self.n_rows}

    monkeypatch.setattr(selecting, "make_encoder", mending)
    run_matrix(matrix, out=tmp_path / "run", progress=(progress := Mishap()))
    run = RunFolder(tmp_path / "run")
    assert run.recoveries() == {"offline": {"fp32_batches": progress.n_rows}}
    assert json.loads((run.path / "run.json").read_text())["recoveries"] == run.recoveries()
    (file,) = run.path.glob("recoveries-*.jsonl")
    assert len(file.read_text().splitlines()) >= 2  # noted as the run went on


@pytest.mark.parametrize("share", [True, False])
def test_selections_that_share_no_frames_pay_for_their_own_and_choose_the_same(matrix, tmp_path, share):
    clip = write_tiny_clip(tmp_path / "clip")
    encoder = EncoderConfig(name="tiny", encoder="clip", options={"checkpoint": str(clip), "device": "cpu"})
    encoder_matrix = matrix.model_copy(update={"encoders": [encoder], "share_frames": share})
    plan = make_plan(encoder_matrix)
    run_matrix(encoder_matrix, out=tmp_path / "run")
    run = load_run(tmp_path / "run")
    assert all(run.pays_its_own.values()) is not share
    whole = run_matrix(matrix.model_copy(update={"encoders": [encoder]}), out=tmp_path / "other" / "run")
    keyframes = {(row.sampler, row.question_id): row.keyframes for row in run.selections}
    assert keyframes == {(row.sampler, row.question_id): row.keyframes for row in whole.itertuples()}
    forwards = sum(row.forwards for row in run.selections)
    assert forwards <= plan.forwards_by_encoder["tiny"] * 1.2
    if not share:
        assert forwards >= plan.forwards_by_encoder["tiny"] * 0.8


def test_batches_filled_across_videos_change_no_row(matrix, tmp_path, monkeypatch):
    """As on a GPU: one batch size, frames of several videos in it. Whoever is in a batch changes no bit."""
    clip = write_tiny_clip(tmp_path / "clip")
    options = {"checkpoint": str(clip), "device": "cpu", "batch_size": 16}
    encoder = EncoderConfig(name="tiny", encoder="clip", options=options)
    mixed = matrix.model_copy(update={"encoders": [encoder]})
    sizes, n_videos, n_passes = [], {}, itertools.count()
    embed, next_batch, open_pass = ClipScorer.queue_parts, BatchPacker._next_batch, BatchPacker.open_pass

    def noting(self, parts):
        sizes.append(sum(len(part) for part in parts))
        return embed(self, parts)

    def counting(self):
        batch = next_batch(self)
        n_videos[folder] = max(n_videos.get(folder, 0), len({id(share.call) for share in batch}))
        return batch

    @contextmanager
    def together(self):
        with open_pass(self):
            # No video hands in frames before all have begun: whether they share a batch is not left to their speed.
            if folder == "four" and next(n_passes) < N_VIDEOS:
                everyone.wait(120)
            yield

    everyone = threading.Barrier(N_VIDEOS)
    monkeypatch.setattr(TorchScorer, "fills_batches", True)
    monkeypatch.setattr(ClipScorer, "queue_parts", noting)
    monkeypatch.setattr(BatchPacker, "_next_batch", counting)
    monkeypatch.setattr(BatchPacker, "open_pass", together)
    for folder, at_once in (("alone", 1), ("four", N_VIDEOS)):
        monkeypatch.setattr(WorkerResources, "videos_at_once", at_once)
        frame = run_matrix(mixed, out=tmp_path / folder / "run")
        assert frame["error"].isna().all()
    assert set(sizes) == {16}
    assert n_videos["alone"] == 1 < n_videos["four"]
    assert result_bytes(tmp_path / "four" / "run") == result_bytes(tmp_path / "alone" / "run")


def test_a_disk_that_is_full_for_a_moment_makes_no_error_row(matrix, one_at_a_time, tmp_path, monkeypatch):
    write, rows = RowWriter.write, []

    def full_once(self, row):
        rows.append(row)
        if len(rows) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, row)

    with monkeypatch.context() as patch:
        patch.setattr(RowWriter, "write", full_once)
        with pytest.raises(OSError, match="No space left"):
            run_matrix(matrix, out=tmp_path / "run")
    frame = run_matrix(matrix, out=tmp_path / "run")
    assert frame["error"].isna().all()
    assert result_bytes(tmp_path / "run") == one_at_a_time


def test_a_device_that_fails_leaves_what_is_undone_undone(matrix, one_at_a_time, tmp_path, monkeypatch):
    from focus_eval.keyframes.encoders.offline import OfflineScorer

    embed, batches = OfflineScorer.embed, []

    def sticky(self, frames):
        batches.append(len(frames))
        if len(batches) > 2:
            raise RunError("cuda:0 failed: CUDA error: an illegal memory access was encountered")
        return embed(self, frames)

    duplicate_cache.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(OfflineScorer, "embed", sticky)
        with pytest.raises(RunError, match="illegal memory access"):
            run_matrix(matrix, out=tmp_path / "run")
    assert run_matrix(matrix, out=tmp_path / "run")["error"].isna().all()
    assert result_bytes(tmp_path / "run") == one_at_a_time


def test_a_fact_that_json_does_not_hold_is_that_questions_error(matrix, tmp_path):
    file = tmp_path / "odd.py"
    file.write_text(ODD_SAMPLER)
    odd = matrix.model_copy(
        update={"samplers": [SamplerConfig(sampler=f"{file}:Odd"), *matrix.samplers], "max_error_share": 1.0}
    )
    frame = run_matrix(odd, out=tmp_path / "run")
    errors = frame.groupby("sampler")["error"].count()
    assert errors["odd"] == N_VIDEOS * 2
    assert errors.drop("odd").sum() == 0


ODD_SAMPLER = """
from dataclasses import dataclass
from typing import ClassVar
import numpy as np
from focus_eval.keyframes.samplers.base import Choice, FrameSampler

@dataclass(frozen=True, kw_only=True)
class Odd(FrameSampler):
    name: ClassVar[str] = "odd"
    source: ClassVar[str] = "this test"
    needs_encoder: ClassVar[bool] = False

    def choose(self, request):
        return Choice(keyframes=np.arange(request.k), facts={"peak": np.float32(0.5)})
"""
