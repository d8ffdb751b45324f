"""Do processes that decode give the reader's frames and errors, and end with whoever started them, however it ends?"""

from __future__ import annotations

import contextlib
import gc
import itertools
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from focus_eval.core.errors import RunError, VideoError
from focus_eval.keyframes.encoders.base import Encoder
from focus_eval.keyframes.encoders.store import RelevanceStore
from focus_eval.keyframes.pipeline.relevance import VideoSession, decoded_batches, pictures_of
from focus_eval.keyframes.pipeline.timing import Meter
from focus_eval.keyframes.video import open_video
from focus_eval.keyframes.video.feed import TINY_BYTES, DecodeProcesses, FedReader, n_processes_for
from focus_eval.keyframes.video.manifest import file_state
from tests.support.keyframes.damage import blank_out
from tests.support.keyframes.synthetic import frame_number, write_long_clip, write_numbered_clip

# Python runs this before anything else in the processes: a decoder that meets a frame which ends it.
_FAULT = """
import os, signal
import focus_eval.keyframes.video.decoder as decoder
plain = decoder.Decoder._decode
def decode(self, packet):
    if self.path.name == "faulty.mp4" and packet is not None and packet.pts * packet.time_base >= 1:
        os.kill(os.getpid(), int(os.environ["FAULT_SIGNAL"]))
    return plain(self, packet)
decoder.Decoder._decode = decode
"""


@pytest.fixture(scope="module")
def video_path(tmp_path_factory) -> Path:
    """200 numbered frames in groups of 20, at 10 a second."""
    return write_numbered_clip(tmp_path_factory.mktemp("feed") / "clip.mp4", 200, gop=20)


def child_pids(parent: int | None = None) -> set[int]:
    """Return the processes whose parent is `parent`, this process by default."""
    lists = Path(f"/proc/{parent or os.getpid()}/task").glob("*/children")
    return {int(pid) for pids in lists for pid in pids.read_text().split()}


def wait_until(is_true, *, seconds: float = 30) -> None:
    """Wait until `is_true()`; fails after so many seconds."""
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def numbers_in(batches) -> list[int]:
    """Return the numbers that the frames of batches carry; each must be the frame that it is called."""
    numbers = []
    for frames, pixels in batches:
        shown = [frame_number(picture) for picture in pixels]
        assert shown == frames.tolist()
        numbers += shown
    return numbers


@pytest.mark.parametrize("size", [1, 7, 32, 500])
@pytest.mark.parametrize("step", [1, 3, 50])
def test_batches_hold_the_frames_in_order_whatever_their_size(decode_processes, video_path, size, step):
    with decode_processes.open_video(video_path) as video:
        assert isinstance(video, FedReader)
        assert numbers_in(video.batches(np.arange(0, 200, step), size)) == list(range(0, 200, step))


@pytest.mark.slow
def test_frames_of_recorded_sizes_are_the_readers_to_the_bit(decode_processes, tmp_path):
    for width, height in ((640, 360), (1280, 720)):
        path = write_long_clip(tmp_path / f"{height}.mp4", 4, width=width, height=height, fps=10, segment_seconds=1)
        frames = np.arange(1, 40, 3)
        with open_video(path) as here, decode_processes.open_video(path) as fed:
            expected = here.read(frames)
            assert here.info == fed.info
            assert (here.notes, here.decoder_version) == (fed.notes, fed.decoder_version)
            np.testing.assert_array_equal(here.reference_frames, fed.reference_frames)
            copies = [pixels.copy() for _, pixels in fed.batches(frames, 4)]
            np.testing.assert_array_equal(np.concatenate(copies), expected)
            assert fed.n_decoded == here.n_decoded


def test_a_batch_is_a_view_that_lasts_until_the_next(decode_processes, video_path):
    with decode_processes.open_video(video_path) as video:
        batches = video.batches(np.arange(200), 5)
        for frames, pixels in batches:
            time.sleep(0.01)  # the processes fill the other batches meanwhile
            assert [frame_number(picture) for picture in pixels] == frames.tolist()
            assert pixels.base is not None


class FrameKeeper(Encoder):
    """An encoder whose features are the frames that it is given."""

    def embed(self, frames):
        return frames


def test_features_that_are_the_frames_outlast_their_batch(decode_processes, video_path):
    with decode_processes.open_video(video_path) as video:
        session = VideoSession(reader=video, encoder=FrameKeeper(), batch_size=4)
        features = [
            session.embed(frames, pixels, meter=Meter())[0]
            for frames, pixels in decoded_batches(video, np.arange(200), 4, Meter())
        ]
    assert [frame_number(picture) for batch in features for picture in batch] == list(range(200))


def test_pictures_that_a_sampler_looks_at_outlast_their_batch(decode_processes, video_path):
    with decode_processes.open_video(video_path) as video:
        pictures = pictures_of(partial(VideoSession, reader=video, batch_size=4), np.arange(199, -1, -1), None)
    assert [frame_number(picture) for picture in pictures] == list(range(199, -1, -1))


def test_readers_in_many_threads_share_the_processes(decode_processes, video_path):
    errors = []

    def read(start):
        try:
            with decode_processes.open_video(video_path) as video:
                for _ in range(3):
                    assert numbers_in(video.batches(np.arange(start, 200, 3), 8)) == list(range(start, 200, 3))
        except BaseException as error:  # noqa: BLE001 (raised in the test)
            errors.append(error)

    threads = [threading.Thread(target=read, args=(start,)) for start in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_good_frames_before_damage_in_a_batch_come_then_the_readers_own_error(decode_processes, tmp_path):
    whole = write_numbered_clip(
        tmp_path / "whole.mp4", 200, gop=20, options={"x264-params": "scenecut=0"},
        container_options={"movflags": "faststart"},
    )  # fmt: skip
    damaged = blank_out(whole, tmp_path / "damaged.mp4", start=0.5, stop=0.52)
    with open_video(damaged) as here, decode_processes.open_video(damaged) as fed:
        good = []
        with pytest.raises(VideoError) as expected:
            good += (number for number, _ in here.stream(np.arange(200)))
        shown, batches = [], fed.batches(np.arange(200), 64)
        with pytest.raises(VideoError) as error:
            shown += (number for frames, pixels in batches for number in numbers_in([(frames, pixels)]))
        assert str(error.value) == str(expected.value)
        assert shown == list(range(len(shown)))
        assert len(shown) % 64, "the error is within a batch"
        assert numbers_in(fed.batches([0, 199], 4)) == [0, 199]
        assert numbers_in(fed.batches(good, 64)) == good


def test_a_file_replaced_after_opening_is_noticed(decode_processes, tmp_path):
    path = write_numbered_clip(tmp_path / "clip.mp4", 40)
    with decode_processes.open_video(path) as video:
        write_numbered_clip(path, 60)
        with pytest.raises(VideoError, match="replaced or changed after it was opened"):
            video.read([3])


def test_a_scan_is_kept_in_the_store(decode_processes, tmp_path):
    path, store = write_numbered_clip(tmp_path / "clip.mp4", 40), RelevanceStore(tmp_path / "store.sqlite")
    with decode_processes.open_video(path, kept=store):
        assert store.kept_scan(path, file_state(path)) is not None


@pytest.mark.parametrize("fault", [signal.SIGSEGV, signal.SIGABRT])
def test_a_decoder_that_dies_costs_its_video_at_once_and_no_other(tmp_path, video_path, monkeypatch, fault, capfd):
    (tmp_path / "sitecustomize.py").write_text(_FAULT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("FAULT_SIGNAL", str(int(fault)))
    faulty = tmp_path / "faulty.mp4"
    faulty.write_bytes(video_path.read_bytes())
    message = rf"faulty\.mp4: reading this file ended the process \(signal {int(fault)}\)"
    with DecodeProcesses(2) as processes:
        with processes.open_video(video_path) as video, processes.open_video(faulty) as faulty_video:
            batches = video.batches(np.arange(200), 8)
            assert next(batches)[0].size == 8
            with pytest.raises(VideoError, match=message):
                faulty_video.read([150])
            with pytest.raises(VideoError, match=message):
                faulty_video.read([0])
            assert numbers_in(batches) == list(range(8, 200))
        with pytest.raises(VideoError, match=message):
            processes.open_video(faulty)
    assert capfd.readouterr().err.count("ended the process") == 1


def test_a_process_that_is_killed_from_outside_loses_no_frame(video_path):
    earlier_pids = child_pids()
    with DecodeProcesses(2) as processes, processes.open_video(video_path) as video:
        batches = video.batches(np.arange(200), 8)
        numbers = []
        for n_batch, (frames, pixels) in enumerate(batches):
            numbers += [frame_number(picture) for picture in pixels]
            assert numbers[-frames.size :] == frames.tolist()
            if n_batch % 5 == 0:
                os.kill(min(child_pids() - earlier_pids), signal.SIGKILL)
    assert numbers == list(range(200))


def test_a_video_whose_process_is_killed_each_time_is_given_up(tmp_path, video_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(_FAULT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("FAULT_SIGNAL", str(int(signal.SIGKILL)))
    faulty = tmp_path / "faulty.mp4"
    faulty.write_bytes(video_path.read_bytes())
    message = r"faulty\.mp4: the process that decodes it was killed 2 times \(signal 9\)"
    with (
        DecodeProcesses(2) as processes,
        processes.open_video(faulty) as video,
        pytest.raises(VideoError, match=message),
    ):
        video.read([150])


def test_an_early_end_leaves_no_process_and_no_open_file(video_path):
    gc.collect()
    earlier_pids, n_files = child_pids(), len(os.listdir("/proc/self/fd"))
    with DecodeProcesses(2) as processes, contextlib.suppress(KeyError):
        video = processes.open_video(video_path)
        next(video.batches(np.arange(200), 8))
        raise KeyError
    assert child_pids() == earlier_pids
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= n_files


_OWNER = """
import sys, time
import numpy as np
from focus_eval.keyframes.video.feed import DecodeProcesses
if __name__ == {guard!r} or {guard!r} == "":
    with DecodeProcesses(2) as processes, processes.open_video(sys.argv[1]) as video:
        for frames, pixels in video.batches(np.arange(200), 8):
            print(frames[0], flush=True)
            for _ in range({pauses}):  # short ones: a signal just before a sleep does not wake it
                time.sleep(0.1)
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_processes_end_with_the_one_that_started_them(tmp_path, video_path, end):
    script = tmp_path / "owner.py"
    script.write_text(_OWNER.format(guard="", pauses=600))
    owner = subprocess.Popen(
        [sys.executable, str(script), str(video_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"0\n"
    pids = child_pids(owner.pid)
    assert pids
    owner.send_signal(end)
    _, errors = owner.communicate(timeout=60)
    assert owner.returncode == -end
    wait_until(lambda: not any(map(is_alive, pids)))
    if end == signal.SIGINT:
        assert errors.count(b"Traceback") == 1, "its own"


def test_a_script_without_a_main_guard_may_use_them(tmp_path, video_path):
    script = tmp_path / "script.py"
    script.write_text(_OWNER.format(guard="", pauses=0))
    result = subprocess.run([sys.executable, str(script), str(video_path)], capture_output=True, text=True, timeout=100)
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) == 25


def _read_there(path: Path, line) -> None:
    with DecodeProcesses(2) as processes, processes.open_video(path) as video:
        line.send(numbers_in(video.batches(np.arange(0, 200, 9), 8)))


def test_they_work_in_a_process_of_multiprocessing(video_path):
    line, process_line = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_read_there, args=(video_path, process_line), daemon=True
    )
    process.start()
    assert line.recv() == list(range(0, 200, 9))
    process.join()


def test_processes_load_no_torch_and_need_no_shared_memory_of_a_container(video_path):
    """Frames lie in memory without a name, which no limit of /dev/shm concerns."""
    earlier_pids = child_pids()
    with DecodeProcesses(2) as processes, processes.open_video(video_path) as video:
        next(video.batches(np.arange(200), 8))
        for pid in child_pids() - earlier_pids:
            maps = Path(f"/proc/{pid}/maps")
            # The second process may still be starting.
            wait_until(lambda maps=maps: "/memfd:focus-eval frames" in maps.read_text())
            assert "libtorch" not in maps.read_text()
            assert "/dev/shm" not in maps.read_text()


@pytest.mark.slow
def test_memory_and_files_do_not_grow_with_the_number_of_videos(tmp_path, video_path):
    paths = [tmp_path / f"{number}.mp4" for number in range(60)]
    for path in paths:
        path.hardlink_to(video_path)
    earlier_pids = child_pids()

    def n_bytes() -> int:
        kinds = [Path(f"/proc/{pid}/smaps_rollup").read_text().split("Pss:")[1] for pid in child_pids() - earlier_pids]
        return sum(1024 * int(kind.split()[0]) for kind in kinds)

    with DecodeProcesses(2) as processes:
        sizes = []
        for path in paths:
            with processes.open_video(path) as video:
                assert numbers_in(video.batches(np.arange(0, 200, 25), 4)) == list(range(0, 200, 25))
            sizes.append((n_bytes(), len(os.listdir("/proc/self/fd"))))
    assert sizes[-1][0] < 1.15 * sizes[20][0]
    assert sizes[-1][1] == sizes[20][1]


def test_two_thousand_open_files_do_not_matter(video_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4000:
        pytest.skip("no more files may be open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (4000, hard))
    try:
        with contextlib.ExitStack() as files:
            for _ in range(2000):
                files.enter_context(open(os.devnull))
            with DecodeProcesses(2) as processes, processes.open_video(video_path) as video:
                assert numbers_in(video.batches(np.arange(0, 200, 9), 8)) == list(range(0, 200, 9))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_one_core_and_tiny_videos_start_no_process(tmp_path, video_path):
    large = tmp_path / "large.mp4"
    with large.open("wb") as file:
        file.truncate(TINY_BYTES)
    assert n_processes_for([large], 1) == 0
    assert n_processes_for([video_path, tmp_path / "missing.mp4"], 8) == 0
    assert n_processes_for([video_path, large], 8) == 8
    earlier_pids = child_pids()
    with DecodeProcesses(0) as processes, processes.open_video(video_path) as video:
        assert not isinstance(video, FedReader)
        assert frame_number(video.read([7])[0]) == 7
        assert child_pids() == earlier_pids


def test_a_process_that_cannot_start_is_an_error_of_one_line_and_waits_for_nobody(video_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with DecodeProcesses(2) as processes:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            with pytest.raises(RunError, match=r"a process that decodes cannot start: .*Too many open files"):
                processes.scan(video_path)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        with processes.open_video(video_path) as video:
            assert numbers_in(video.batches([3, 150], 8)) == [3, 150]


@pytest.mark.parametrize(
    ("limit", "is_here", "cause"),
    [
        (resource.RLIMIT_NOFILE, True, "Too many open files"),
        (resource.RLIMIT_NOFILE, False, "Too many open files"),
        (resource.RLIMIT_AS, False, "Cannot allocate memory"),
    ],
)
def test_a_machine_that_gives_no_shared_memory_is_an_error_with_the_fix(video_path, limit, is_here, cause):
    earlier_pids = child_pids()
    with DecodeProcesses(1) as processes, processes.open_video(video_path) as video:
        processes.scan(video_path)
        (pid,) = child_pids() - earlier_pids
        limited = os.getpid() if is_here else pid
        limits = resource.prlimit(limited, limit, (3, resource.getrlimit(limit)[1]))
        message = rf"clip\.mp4: no shared memory of \d+ MB for its frames: .*{cause}; raise .*decode_cores: 1"
        try:
            with pytest.raises(RunError, match=message):
                next(video.batches([3, 150], 8))
        finally:
            resource.prlimit(limited, limit, limits)


def test_requests_that_end_early_do_not_disturb_those_of_other_videos(tmp_path, video_path):
    paths = [shutil.copy(video_path, tmp_path / f"{number}.mp4") for number in range(40)]

    def first_numbers(path):
        with processes.open_video(path) as video:
            frames = itertools.islice(video.stream(np.arange(100)), 4)
            return [(frame, frame_number(pixels)) for frame, pixels in frames]

    # A process that asks for the scan of one video is told meanwhile that the request for another has ended.
    with DecodeProcesses(2) as processes, ThreadPoolExecutor(6) as pool:
        assert list(pool.map(first_numbers, paths)) == [[(number, number) for number in range(4)]] * 40
