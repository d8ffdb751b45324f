"""Does the default reader decode no more than it must, and hold no more than it was asked for?"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import av
import numpy as np
import pytest

from focus_eval.core.errors import UnknownName, VideoError
from focus_eval.keyframes.video import open_video
from focus_eval.keyframes.video.packets import StartTest, average_rate
from focus_eval.keyframes.video.pyav import PyAVReader
from tests.support.keyframes.clip_files import copy_video, split_units
from tests.support.keyframes.synthetic import frame_number, repeat_clip, write_numbered_clip


def test_sync_frames_are_where_groups_start(make_clip):
    with open_video(make_clip("h264.mkv")) as video:
        sync = video.info.sync_frames.tolist()
    assert sync[0] == 0
    assert all(later - earlier <= 20 for earlier, later in itertools.pairwise(sync))


def test_a_sync_frame_costs_one_decoded_frame(make_clip):
    with open_video(make_clip("constant.mp4")) as video:
        video.read(video.info.sync_frames)
        assert video.n_decoded == video.info.sync_frames.size


def test_groups_that_hold_no_asked_frame_are_not_decoded(tmp_path):
    clip = write_numbered_clip(
        tmp_path / "clip.mp4", 200, gop=20, options={"x264-params": "scenecut=0:keyint=20:bframes=0"}
    )
    with open_video(clip) as video:
        video.read([45, 182])
        assert video.n_decoded == 6 + 3


def test_frames_nobody_refers_to_are_dropped_on_the_way(tmp_path):
    clip = write_numbered_clip(
        tmp_path / "clip.mp4", 100, options={"x264-params": "scenecut=0:bframes=3:b-adapt=0:b-pyramid=none"}
    )
    with open_video(clip) as video:
        video.read([99])
        assert video.n_decoded <= 27
        assert [frame_number(pixels) for pixels in video.read([1, 50, 51, 98])] == [1, 50, 51, 98]


def test_reference_frames_are_decoded_on_the_way_to_the_last_anyway(tmp_path):
    clip = write_numbered_clip(
        tmp_path / "clip.mp4", 100, options={"x264-params": "scenecut=0:bframes=3:b-adapt=0:b-pyramid=none"}
    )
    with open_video(clip) as video:
        frames = video.reference_frames
        assert frames.tolist() == [*range(0, 100, 4), 99]
        assert [frame_number(pixels) for _, pixels in video.stream(frames)] == frames.tolist()
        assert video.n_decoded == frames.size


def test_where_packets_show_no_references_every_frame_counts_and_counted_files_know_none(make_clip):
    with open_video(make_clip("odd_vp9.webm")) as video:
        assert video.reference_frames.tolist() == list(range(video.info.n_frames))
    with open_video(make_clip("mpeg4_b.avi")) as video:
        assert video.reference_frames is None


def test_a_repeated_frame_is_decoded_once(make_clip):
    with open_video(make_clip("all_intra.mp4")) as video:
        assert [frame_number(pixels) for pixels in video.read([7] * 5)] == [7] * 5
        assert video.n_decoded == 1


def test_opening_a_file_again_uses_the_remembered_index_until_it_changes(tmp_path):
    path = write_numbered_clip(tmp_path / "clip.mp4", 30)
    assert open_video(path).info.n_frames == 30
    write_numbered_clip(path, 50)
    assert open_video(path).info.n_frames == 50


def test_a_file_with_other_times_behind_the_same_name_size_and_date_is_noticed(tmp_path):
    path = write_numbered_clip(tmp_path / "clip.ts", 60, gop=10)
    status = path.stat()
    open_video(path).close()
    write_numbered_clip(path, 60, gop=10, ticks=range(5000, 5060))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_size == status.st_size
    with open_video(path) as video, pytest.raises(VideoError, match="was the file replaced"):
        video.read([5])


def test_a_shorter_file_put_in_place_of_a_counted_one_is_noticed(tmp_path):
    path = write_numbered_clip(tmp_path / "clip.avi", 60, gop=10)
    with open_video(path) as video:
        assert video.info.sync_frames is None
        assert frame_number(video.read([59])[0]) == 59
        os.replace(write_numbered_clip(tmp_path / "other.avi", 40, gop=10), path)
        with pytest.raises(VideoError, match="replaced or changed after it was opened"):
            video.read([59])


def test_a_new_request_ends_the_stream_before(make_clip):
    with open_video(make_clip("constant.mp4")) as video:
        first = video.stream([10, 20, 90])
        assert frame_number(next(first)[1]) == 10
        assert frame_number(video.read([55])[0]) == 55
        with pytest.raises(VideoError, match="another stream was started"):
            next(first)


def test_threads_that_share_a_reader_read_one_after_the_other(make_clip):
    with open_video(make_clip("constant.mp4"), n_threads=2) as video, ThreadPoolExecutor(4) as pool:
        requests = [np.arange(start, 100, 7) for start in range(16)]
        numbers = list(pool.map(lambda frames: [frame_number(pixels) for pixels in video.read(frames)], requests))
    assert numbers == [frames.tolist() for frames in requests]


def test_a_stream_begun_while_a_thread_decodes_waits_for_it(make_clip, monkeypatch):
    decoding, asking = threading.Event(), threading.Event()

    def slowly(reader, frames):
        decoding.set()
        assert asking.wait(60)
        time.sleep(0.2)  # meanwhile the other thread asks
        yield from decode(reader, frames)

    decode = PyAVReader._decode
    monkeypatch.setattr(PyAVReader, "_decode", slowly)
    with open_video(make_clip("constant.mp4")) as video, ThreadPoolExecutor(1) as pool:
        first = pool.submit(lambda: next(video.stream([10])))
        assert decoding.wait(60)
        asking.set()
        second = video.stream([20, 30])
        assert frame_number(first.result()[1]) == 10
        assert [frame_number(pixels) for _, pixels in second] == [20, 30]


def test_streams_of_four_threads_on_a_reader_give_right_frames_or_say_that_another_began(make_clip):
    wanted = [np.arange(start, 100, 5) for start in range(4)]

    def numbers_until_ended(video, frames):
        numbers = []
        with suppress(VideoError):
            for number, pixels in video.stream(frames):
                assert frame_number(pixels) == number
                numbers.append(number)
        return numbers

    with open_video(make_clip("constant.mp4"), n_threads=2) as video, ThreadPoolExecutor(4) as pool:
        rounds = [list(pool.map(partial(numbers_until_ended, video), wanted)) for _ in range(5)]
    for numbers_by_thread in rounds:
        assert all(
            numbers == frames.tolist()[: len(numbers)]
            for numbers, frames in zip(numbers_by_thread, wanted, strict=True)
        )
        assert any(len(numbers) == frames.size for numbers, frames in zip(numbers_by_thread, wanted, strict=True))


@pytest.mark.parametrize("name", ["pyav", "decord"])
def test_threads_that_share_a_stream_get_each_frame_once(make_clip, name):
    if name == "decord":
        pytest.importorskip("decord")
    with open_video(make_clip("constant.mp4"), backend=name) as video, ThreadPoolExecutor(4) as pool:
        stream = video.stream(np.arange(100))
        parts = list(pool.map(lambda _: [(number, frame_number(pixels)) for number, pixels in stream], range(4)))
    numbered_frames = sorted(pair for part in parts for pair in part)
    assert numbered_frames == [(number, number) for number in range(100)]


def test_a_stream_that_is_left_early_harms_no_later_one(make_clip):
    with open_video(make_clip("b_frames.mp4")) as video:
        for number in (70, 3, 41):
            assert frame_number(next(iter(video.stream([number, 99])))[1]) == number


def test_a_stream_runs_in_a_worker_thread(make_clip):
    numbers = []

    def work():
        with open_video(make_clip("constant.mp4")) as video:
            numbers.extend(frame_number(pixels) for _, pixels in video.stream(np.arange(100)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert numbers == list(range(100))


def test_the_rate_is_the_containers_where_timestamps_agree():
    assert average_rate(29.97, n_frames=2997, seconds=100.05) == 29.97
    # Within 1 % of what the frames say, and not.
    assert average_rate(25.2, n_frames=250, seconds=10.0) == 25.2
    assert average_rate(25.5, n_frames=250, seconds=10.0) == 25.0
    assert average_rate(1000.0, n_frames=300, seconds=10.0) == 30.0
    assert average_rate(None, n_frames=300, seconds=10.0) == 30.0
    assert average_rate(25.0, n_frames=1, seconds=0.0) == 25.0


def test_length_in_seconds_follows_the_timestamps_of_a_variable_rate(make_clip):
    with open_video(make_clip("variable_rate.mp4")) as video:
        last = video.frame_times([99])[0]
        assert last == pytest.approx(99 * 0.04 + 99 % 7 * 0.005)
        assert video.info.duration_seconds == pytest.approx(last, abs=0.1)


def test_counted_frames_have_the_times_of_their_packets(tmp_path, sparse_avi):
    with open_video(sparse_avi) as video:
        assert video.info.sync_frames is None
        assert video.info.fps == pytest.approx(80 / 3.2, rel=0.05)
        # Of a frame with B-frames around it the container says when it is decoded.
        times = video.frame_times(np.arange(80))
    np.testing.assert_allclose(times[[0, 40, 60, 79]], [0, 40 / 30, 60 / 30 + 0.5, 79 / 30 + 0.5], atol=0.05)


def test_a_raw_stream_has_the_rate_that_it_states(tmp_path):
    path = write_numbered_clip(tmp_path / "clip.h264", 10, fps=10)
    with open_video(path) as video:
        assert video.info.fps == 10


def test_an_unknown_backend_names_the_nearest(make_clip):
    with pytest.raises(UnknownName, match="did you mean 'pyav'"):
        open_video(make_clip("one_frame.mp4"), backend="pyva")


# The peak of this process alone: ru_maxrss of a child starts with its parent's.
_PEAK = """
import sys
from pathlib import Path
import numpy as np
from focus_eval.keyframes.video import open_video
with open_video(sys.argv[1]) as video:
    for number, pixels in video.stream(np.arange(0, video.info.n_frames, 7)):
        pass
status = Path("/proc/self/status").read_text().split()
print(int(status[status.index("VmHWM:") + 1]) // 1024)
"""


def _peak_mib(path) -> int:
    result = subprocess.run([sys.executable, "-c", _PEAK, str(path)], capture_output=True, text=True, check=True)
    return int(result.stdout)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_memory_does_not_grow_with_the_length(tmp_path):
    short = write_numbered_clip(tmp_path / "short.mp4", 120, width=320, height=180, gop=30)
    long = repeat_clip(short, tmp_path / "long.mp4", n_times=100)
    # 12000 frames of 320 x 180 are 1977 MiB as RGB; their index is below 1 MiB.
    assert _peak_mib(long) - _peak_mib(short) < 20


def test_second_fields_are_known_where_the_header_alone_has_the_parameters(shared, tmp_path):
    """Of a camera's fields in MP4, without the parameter sets that its first packet has, too."""
    copy = copy_video(shared("data/faults") / "fields_apart.mts", tmp_path / "a.mp4")
    with av.open(str(copy)) as clip:
        extradata = clip.streams.video[0].codec_context.extradata
        pictures = [(bytes(packet), packet.is_keyframe) for packet in clip.demux(video=0) if packet.size]
    test, n_removed, is_second = StartTest("h264", extradata), 0, []
    for picture, is_keyframe in pictures:
        units = [*split_units(picture)]
        kept = [unit for unit in units if unit[0] & 31 not in (7, 8)]
        n_removed += len(units) - len(kept)
        packet = av.Packet(b"".join(len(unit).to_bytes(4, "big") + unit for unit in kept))
        packet.is_keyframe = is_keyframe
        is_second.append(test.look_at(packet)[1])
    assert n_removed > 0
    assert is_second == [False, True] * (len(pictures) // 2)
