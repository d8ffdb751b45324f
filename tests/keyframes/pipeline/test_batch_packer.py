"""Frames of several videos share batches of one size, and each video gets what is its own."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from focus_eval.bench.matrix.machine import BATCH_FRAMES
from focus_eval.core.errors import EncoderError
from focus_eval.keyframes.encoders.torch_scorer import EncoderOptions
from focus_eval.keyframes.pipeline.batch_packer import BatchPacker

pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")


class Mean:
    """Features are a frame's mean; notes the size of each batch.

    A frame of 255 cannot be queued, one of 254 not computed. `before_end` is called while a batch is computed.
    """

    fills_batches = True

    def __init__(self, batch_size=8, before_end=lambda: None):
        self.batch_size, self.before_end = batch_size, before_end
        self.sizes = []

    def queue_parts(self, parts):
        self.sizes.append(sum(len(part) for part in parts))
        if any((part == 255).any() for part in parts):
            raise EncoderError("no memory for this picture")

        def finish():
            self.before_end()
            if any((part == 254).any() for part in parts):
                raise EncoderError("no number for this picture")
            return np.concatenate([part.reshape(len(part), -1).mean(axis=1, keepdims=True) for part in parts])

        return finish


def frames(values, *, side=2):
    return np.repeat(np.array(values, dtype=np.uint8), side * side * 3).reshape(-1, side, side, 3)


def hand_in(batches, encoder, chunks, *, pause=0.0, ready=None):
    """Embed one video's chunks of frames one after another, beginning once all passes are `ready`."""
    with batches.open_pass():
        if ready is not None:
            ready.wait()
        results = []
        for chunk in chunks:
            time.sleep(pause)
            results.append(batches.embed(encoder, chunk)[0])
    return np.concatenate(results)[:, 0].tolist()


def passes(videos, encoder, **options):
    """Embed all videos at once, each in a thread; return the results of each."""
    batches = BatchPacker()
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
    results = hand_in(BatchPacker(), encoder, [frames(range(11))])
    assert results == [float(at) for at in range(11)]
    assert encoder.sizes == [4, 4, 4]


def test_a_later_batch_that_ends_first_changes_no_order():
    """Another pass runs the second half of a call and hands it out while the first half is computed."""
    later_is_out = threading.Event()

    def the_first_ends_last():
        assert threading.current_thread() is threading.main_thread() or later_is_out.wait(600)

    batches, encoder = BatchPacker(), Mean(batch_size=4, before_end=the_first_ends_last)
    with ThreadPoolExecutor(1) as pool:
        long = pool.submit(hand_in, batches, encoder, [frames(range(7))])
        while not encoder.sizes:
            time.sleep(0.001)
        assert hand_in(batches, encoder, [frames([9])]) == [9.0]
        later_is_out.set()
        assert long.result(600) == [float(at) for at in range(7)]
    assert encoder.sizes == [4, 4]


@pytest.mark.parametrize(("value", "message"), [(255, "no memory"), (254, "no number")])
def test_a_picture_that_fails_is_its_own_videos_error(value, message):
    batches, encoder = BatchPacker(), Mean(batch_size=64)
    ready = threading.Barrier(2)

    def work(values):
        return hand_in(batches, encoder, [frames(values)], ready=ready)

    with ThreadPoolExecutor(2) as pool:
        bad, good = pool.submit(work, [3, value]), pool.submit(work, [4, 5])
        assert good.result(600) == [4.0, 5.0]
        with pytest.raises(EncoderError, match=message):
            bad.result(600)
    assert hand_in(batches, encoder, [frames([6])]) == [6.0]  # and nothing is left behind


def test_passes_that_use_two_encoders_do_not_wait_for_each_other_for_ever():
    batches, first, second = BatchPacker(), Mean(batch_size=32), Mean(batch_size=16)
    ready = threading.Barrier(3)

    def work(encoders):
        with batches.open_pass():
            ready.wait()
            return [batches.embed(encoder, frames([at]))[0][0, 0] for at in range(5) for encoder in encoders]

    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(work, order) for order in ((first, second), (second, first), (first, first))]
        assert all(future.result(600) == [float(at) for at in range(5) for _ in range(2)] for future in futures)


def test_the_seconds_of_a_batch_are_shared_out_by_frames():
    batches, encoder = BatchPacker(), Mean(batch_size=4, before_end=lambda: time.sleep(0.05))
    started = time.perf_counter()
    with batches.open_pass():
        _, seconds = batches.embed(encoder, frames(range(8)))
    assert 0.1 <= seconds <= time.perf_counter() - started


def test_the_next_batch_is_queued_while_one_is_computed_and_no_third():
    changed, queued = threading.Condition(), []

    def second_is_queued():
        with changed:
            assert changed.wait_for(lambda: len(encoder.sizes) >= 2 or len(queued) > 0, 600)
            changed.wait(0.05)  # time for a third to come, which must not
            queued.append(len(encoder.sizes) - len(queued))
            changed.notify_all()

    class Noting(Mean):
        def queue_parts(self, parts):
            with changed:
                changed.notify_all()
                return super().queue_parts(parts)

    encoder = Noting(batch_size=3, before_end=second_is_queued)
    assert passes([[at] * 3 for at in range(5)], encoder) == [[float(at)] * 3 for at in range(5)]
    assert max(queued) == 2


def test_a_batch_that_is_not_full_waits_for_the_passes_of_one_underway():
    """What they hand in next fills it; alone it would be padded."""
    batches, is_released = BatchPacker(), threading.Event()

    def other_waits():
        is_released.set()
        for _ in range(10_000):
            if batches._n_waiting == 2 or len(encoder.sizes) > 1:
                break
            time.sleep(0.001)
        time.sleep(0.02)  # time for the other pass to take its frames alone, which it must not

    encoder = Mean(batch_size=8, before_end=other_waits)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(hand_in, batches, encoder, [frames([1] * 8), frames([2] * 4)])
        is_released.wait(600)
        second = pool.submit(hand_in, batches, encoder, [frames([3] * 4)])
        assert first.result(600) == [1.0] * 8 + [2.0] * 4
        assert second.result(600) == [3.0] * 4
    assert encoder.sizes == [8, 8]


def test_a_video_alone_pads_only_the_last_batch_of_a_pass():
    """What a video hands in at a time is a full batch of an encoder with its default options."""
    encoder = Mean(batch_size=EncoderOptions().batch_size)
    values = [at % 250 for at in range(3 * BATCH_FRAMES + 4)]
    chunks = [frames(values[at : at + BATCH_FRAMES]) for at in range(0, len(values), BATCH_FRAMES)]
    assert hand_in(BatchPacker(), encoder, chunks) == [float(value) for value in values]
    assert sum(encoder.sizes) - len(values) < BATCH_FRAMES
