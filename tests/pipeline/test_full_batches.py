"""Frames of several videos share batches of one size, and each video gets what is its own."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from focus_eval.core.errors import EncoderError
from focus_eval.encoders.torch_scorer import EncoderOptions
from focus_eval.matrix.machine import BATCH_FRAMES
from focus_eval.pipeline.full_batches import FullBatches

pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")


class Mean:
    """Features are a frame's mean; notes the size of each batch. A frame of 255 is one it cannot embed."""

    fills_batches = True

    def __init__(self, batch_size=8, seconds=0.0):
        self.batch_size, self.seconds = batch_size, seconds
        self.sizes = []

    def embed_parts(self, parts):
        self.sizes.append(sum(len(part) for part in parts))
        time.sleep(self.seconds)
        if any((part == 255).any() for part in parts):
            raise EncoderError("no memory for this picture")
        return np.concatenate([part.reshape(len(part), -1).mean(axis=1, keepdims=True) for part in parts])


def frames(values, *, side=2):
    return np.repeat(np.array(values, dtype=np.uint8), side * side * 3).reshape(-1, side, side, 3)


def hand_in(batches, encoder, chunks, *, pause=0.0, ready=None):
    """One pass over a video: its chunks of frames, one after another, once all passes are `ready`."""
    with batches.open_pass():
        if ready is not None:
            ready.wait()
        found = []
        for chunk in chunks:
            time.sleep(pause)
            found.append(batches.embed(encoder, chunk)[0])
    return np.concatenate(found)[:, 0].tolist()


def passes(videos, encoder, **options):
    batches = FullBatches()
    ready = threading.Barrier(len(videos))

    def work(values):
        chunks = [frames(values[at : at + 3], side=2 + len(values) % 3) for at in range(0, len(values), 3)]
        return hand_in(batches, encoder, chunks, ready=ready, **options)

    with ThreadPoolExecutor(len(videos)) as pool:
        return list(pool.map(work, videos))


@pytest.mark.parametrize("pause", [0.0, 0.002])
def test_each_video_gets_its_own_features_and_every_batch_has_the_full_size(pause):
    videos = [[(17 * video + at) % 250 for at in range(9 + 5 * video)] for video in range(6)]
    encoder = Mean()
    assert passes(videos, encoder, pause=pause) == [[float(value) for value in video] for video in videos]
    assert set(encoder.sizes) == {8}


def test_frames_of_several_videos_fill_batches():
    encoder = Mean(batch_size=12)
    passes([[video] * 30 for video in range(8)], encoder)
    assert len(encoder.sizes) <= 2 * 240 / 12  # alone each chunk of 3 would take a batch: 80


def test_a_video_alone_waits_for_nobody():
    encoder = Mean(batch_size=64)
    assert passes([[1, 2, 3, 4]], encoder) == [[1.0, 2.0, 3.0, 4.0]]
    assert encoder.sizes == [64, 64]


def test_more_frames_than_a_batch_holds_come_back_in_order():
    encoder = Mean(batch_size=4)
    found = hand_in(FullBatches(), encoder, [frames(range(11))])
    assert found == [float(at) for at in range(11)]
    assert encoder.sizes == [4, 4, 4]


def test_a_picture_that_fails_is_its_own_videos_error():
    batches, encoder = FullBatches(), Mean(batch_size=64)
    ready = threading.Barrier(2)

    def work(values):
        return hand_in(batches, encoder, [frames(values)], ready=ready)

    with ThreadPoolExecutor(2) as pool:
        bad, good = pool.submit(work, [3, 255]), pool.submit(work, [4, 5])
        assert good.result(600) == [4.0, 5.0]
        with pytest.raises(EncoderError, match="no memory"):
            bad.result(600)
    assert hand_in(batches, encoder, [frames([6])]) == [6.0]  # and nothing is left behind


def test_passes_that_use_two_encoders_do_not_wait_for_each_other_for_ever():
    batches, first, second = FullBatches(), Mean(batch_size=32), Mean(batch_size=16)
    ready = threading.Barrier(3)

    def work(encoders):
        with batches.open_pass():
            ready.wait()
            return [batches.embed(encoder, frames([at]))[0][0, 0] for at in range(5) for encoder in encoders]

    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(work, order) for order in ((first, second), (second, first), (first, first))]
        assert all(found.result(600) == [float(at) for at in range(5) for _ in range(2)] for found in waiting)


def test_the_seconds_of_a_batch_are_shared_out_by_frames():
    batches, encoder = FullBatches(), Mean(batch_size=4, seconds=0.05)
    started = time.perf_counter()
    with batches.open_pass():
        _, seconds = batches.embed(encoder, frames(range(8)))
    assert 0.1 <= seconds <= time.perf_counter() - started


def test_a_video_alone_pads_only_the_last_batch_of_a_pass():
    """What a video hands in at a time is a full batch of an encoder with its default options."""
    encoder = Mean(batch_size=EncoderOptions().batch_size)
    values = [at % 250 for at in range(3 * BATCH_FRAMES + 4)]
    chunks = [frames(values[at : at + BATCH_FRAMES]) for at in range(0, len(values), BATCH_FRAMES)]
    assert hand_in(FullBatches(), encoder, chunks) == [float(value) for value in values]
    assert sum(encoder.sizes) - len(values) < BATCH_FRAMES
