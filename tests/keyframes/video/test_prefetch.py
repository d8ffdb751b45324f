"""Do results that are made ahead in threads come in order, and do the threads end?"""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from focus_eval.core.errors import InvalidInput, VideoError
from focus_eval.keyframes.video import open_video
from focus_eval.keyframes.video.pyav import PyAVReader, in_order_ahead
from tests.support.keyframes.damage import blank_out
from tests.support.keyframes.synthetic import frame_number, write_numbered_clip


def _slow(start: int, n: int):
    def task():
        for number in range(start, start + n):
            time.sleep(0.001 * (start % 3))
            yield number

    return task


@pytest.mark.parametrize("n_workers", [1, 2, 5])
def test_results_come_in_the_order_of_the_tasks(n_workers):
    tasks = [_slow(start, 7) for start in range(0, 140, 7)]
    assert list(in_order_ahead(tasks, n_workers=n_workers, n_held=2)) == list(range(140))


def test_no_task_gives_nothing():
    assert list(in_order_ahead([], n_workers=2)) == []


def test_tasks_really_run_side_by_side():
    meeting = threading.Barrier(3, timeout=600)

    def task():
        meeting.wait()
        yield 1

    assert list(in_order_ahead([task] * 3, n_workers=3)) == [1, 1, 1]


def test_an_error_comes_when_its_turn_comes():
    def broken():
        yield 3
        raise VideoError("clip.mp4: broken")

    results = in_order_ahead([_slow(0, 3), broken, _slow(9, 2)], n_workers=3)
    assert [next(results) for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(VideoError, match="broken"):
        next(results)


def test_no_more_is_held_than_promised():
    results_so_far = []

    def task(number):
        def results():
            for _ in range(50):
                results_so_far.append(number)
                yield number

        return results

    results = in_order_ahead([task(n) for n in range(20)], n_workers=2, n_held=3)
    next(results)
    time.sleep(0.3)
    assert len(results_so_far) <= 2 * (3 + 2) + 1
    results.close()


def decoding():
    """Return the threads that decode ahead; others may come and go."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("decode")}


def test_threads_end_when_the_results_are_left():
    earlier_threads = decoding()
    results = in_order_ahead([_slow(n, 100) for n in range(10)], n_workers=3, n_held=1)
    next(results)
    assert len(decoding() - earlier_threads) == 3
    results.close()
    assert not decoding() - earlier_threads


@pytest.mark.parametrize("n_threads", [1, 2, 3, None])
def test_the_number_of_threads_changes_no_frame(make_clip, n_threads):
    with open_video(make_clip("open_gop.mp4"), n_threads=n_threads) as video:
        assert [frame_number(pixels) for _, pixels in video.stream(np.arange(100))] == list(range(100))


@pytest.mark.parametrize(("name", "n_threads"), [("all_intra.mp4", 1), ("all_intra.mp4", 3), ("mpeg4_b.avi", 1)])
def test_the_clock_of_decoding_counts_the_processor_seconds_of_every_thread_and_no_waiting(
    make_clip, monkeypatch, name, n_threads
):
    convert = PyAVReader._pixels

    def slow_pixels(*args):
        since = time.thread_time()
        while time.thread_time() - since < 0.01:  # computes
            pass
        time.sleep(0.02)  # waits
        return convert(*args)

    monkeypatch.setattr(PyAVReader, "_pixels", slow_pixels)
    with open_video(make_clip(name), n_threads=n_threads) as video:
        assert video.decode_cpu_seconds == 0
        since = time.process_time()
        video.read(np.arange(20))
        assert 0.2 <= video.decode_cpu_seconds <= time.process_time() - since


def test_a_stream_left_early_ends_its_threads(make_clip):
    earlier_threads = decoding()
    with open_video(make_clip("all_intra.mp4"), n_threads=4) as video:
        stream = video.stream(np.arange(40))
        assert frame_number(next(stream)[1]) == 0
        assert decoding() - earlier_threads
        assert frame_number(video.read([7])[0]) == 7
        assert not decoding() - earlier_threads


def test_damage_is_reported_from_a_worker_thread(tmp_path):
    whole = write_numbered_clip(
        tmp_path / "whole.mp4",
        200,
        gop=10,
        options={"x264-params": "scenecut=0"},
        container_options={"movflags": "faststart"},
    )
    damaged = blank_out(whole, tmp_path / "damaged.mp4", start=0.5, stop=0.55)
    with open_video(damaged, n_threads=3) as video, pytest.raises(VideoError, match="cannot be decoded"):
        video.read(np.arange(200))


def test_no_thread_cannot_decode(make_clip):
    with pytest.raises(InvalidInput, match="n_threads must be at least 1, got 0"):
        open_video(make_clip("one_frame.mp4"), n_threads=0)
    with pytest.raises(InvalidInput, match="n_threads must be at least 1, got -3"):
        open_video(make_clip("one_frame.mp4"), backend="pyav:n_threads=-3")
