"""Does damage show: is each frame of a damaged file the right one, or refused with an error that names the file?"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import zlib
from pathlib import Path

import av
import numpy as np
import pytest

from focus_eval.core.errors import VideoError
from focus_eval.core.processes import n_cores
from focus_eval.keyframes.video import open_video
from focus_eval.keyframes.video.decoder import open_container
from tests.conftest import RECORDED
from tests.support.keyframes.clips import write_clip
from tests.support.keyframes.damage import nal_places
from tests.support.keyframes.exactness import check_clip
from tests.support.keyframes.faults import (
    SINGLE,
    STRETCHES,
    Reading,
    damaged,
    fault_clips,
    frame_prints,
    plain_decode,
    read_apart,
    read_here,
)
from tests.support.keyframes.synthetic import frame_number, write_numbered_clip

pytestmark = pytest.mark.slow

_GUARDED_CLIPS = (
    "h264.mp4",
    "h264_fragments.mp4",
    "h264.mkv",
    "h264.ts",
    "h264.flv",
    "mpeg4.avi",
    "mpeg2.mpg",
    "ffv1.avi",
)


@pytest.mark.parametrize("name", _GUARDED_CLIPS)
def test_a_damaged_stretch_gives_no_wrong_frame(name, tmp_path):
    whole = fault_clips()[name](tmp_path / name)
    prints, data = frame_prints(whole), whole.read_bytes()
    for kind in STRETCHES:
        path = tmp_path / f"{kind}.{name}"
        path.write_bytes(damaged(data, clip=name, kind=kind, number=7))
        reading = read_here(path, prints)
        assert reading.kind in ("right", "refused"), (kind, reading)
        if reading.kind == "refused":
            assert reading.detail.startswith(f"{path}: ")


def test_libvpx_finds_damage_of_vp9_that_ffmpeg_fills(tmp_path):
    """Without it 11 of these 12 files give wrong frames."""
    name = "vp9.webm"
    whole = fault_clips()[name](tmp_path / name)
    prints, data = frame_prints(whole), whole.read_bytes()
    for kind, number in itertools.product(("byte", "bit"), range(2, 8)):
        path = tmp_path / f"{kind}{number}.webm"
        path.write_bytes(damaged(data, clip=name, kind=kind, number=number))
        assert read_here(path, prints).kind == "refused", (kind, number)


def test_vp9_of_ten_bits_is_read_though_libvpx_knows_only_eight():
    assert check_clip(RECORDED / "vp9_10bit.webm").kind == "exact"


@pytest.mark.parametrize("name", ["ffv1.avi", "ffv1.mkv"])
def test_every_changed_byte_of_ffv1_is_noticed_by_its_checksums(name, tmp_path):
    whole = fault_clips()[name](tmp_path / name)
    prints, data = frame_prints(whole), whole.read_bytes()
    for kind in ("byte", "bit"):
        for number in range(3):
            path = tmp_path / f"{number}.{name}"
            path.write_bytes(damaged(data, clip=name, kind=kind, number=number))
            assert read_here(path, prints).kind in ("right", "refused")


def test_after_a_damaged_frame_the_next_group_of_pictures_is_right(tmp_path):
    """FFmpeg's H.264 decoder carries an error over a seek into the next picture, unless it is opened again."""
    name = "h264_cavlc.mp4"
    whole = fault_clips()[name](tmp_path / name)
    prints, data = frame_prints(whole), bytearray(whole.read_bytes())
    with av.open(str(whole)) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
        place, size = packets[29].pos, packets[29].size
        start, stop = [number for number, packet in enumerate(packets) if packet.is_keyframe][2:4]
    n_refused = 0
    for at in range(place + 20, place + size, 30):
        path = tmp_path / f"{at}.mp4"
        path.write_bytes(bytes(data[:at]) + bytes([data[at] ^ 0x5A]) + bytes(data[at + 1 :]))
        for n_threads in (1, 2):
            for number in range(start, stop, 3):
                with open_video(path, n_threads=n_threads) as video:
                    try:
                        video.read(np.array([29]))
                    except VideoError:
                        n_refused += 1
                    assert zlib.crc32(video.read(np.array([number]))[0].tobytes()) == prints[number], (at, number)
    assert n_refused


def test_damage_in_the_first_frame_of_a_counted_file_is_refused(tmp_path):
    """An AVI with B-frames is counted by decoding: what follows a frame that was lost would be shifted."""
    whole = write_clip(tmp_path / "whole.avi", n_frames=40, codec="mpeg4", fps=25, options={"bf": "2"})
    (place, size), path = _samples(whole)[0], tmp_path / "clip.avi"
    for start in range(20, size - 40, 200):
        data = bytearray(whole.read_bytes())
        data[place + start : place + start + 40] = np.random.default_rng(start).bytes(40)
        path.write_bytes(data)
        with pytest.raises(VideoError, match="its first frame"):
            open_video(path)


def test_a_file_of_which_the_first_group_loses_a_frame_is_refused(tmp_path):
    """Its packets would count a frame more than a plain decode gives."""
    whole = write_clip(tmp_path / "whole.mp4", n_frames=40, gop=20, options={"x264-params": "bframes=0:scenecut=0"})
    (place, size), path = _samples(whole)[0], tmp_path / "clip.mp4"
    data = bytearray(whole.read_bytes())
    data[place + size - 60 : place + size - 20] = np.random.default_rng(0).bytes(40)
    path.write_bytes(data)
    with open_video(path) as video:  # damaged, but each frame comes out of a plain decode
        assert [number for number in range(40) if _is_given(video, number)] == [*range(20, 40)]
    place, size = _samples(whole)[5]
    data[place + 4] = data[place + 4] & 0xE0 | 12  # filler, which gives no frame
    path.write_bytes(data)
    with pytest.raises(VideoError, match="some of its first frames cannot be decoded"):
        open_video(path)


def test_a_file_of_another_container_is_decoded_once_when_it_is_opened_and_says_so(tmp_path):
    path = write_clip(tmp_path / "clip.flv", n_frames=40, options={"x264-params": "bframes=0:scenecut=0"})
    with open_video(path) as video:
        (note,) = video.notes
    assert "ffmpeg -i 'clip.flv' -c copy 'clip.mkv'" in note
    (place, size), data = _samples(path)[25], bytearray(path.read_bytes())
    data[place + size // 2 : place + size // 2 + 60] = np.random.default_rng(0).bytes(60)
    path.write_bytes(data)
    with pytest.raises(VideoError, match="damaged after frame 24: later frames have no order"):
        open_video(path)


def test_an_avi_that_holds_a_part_twice_is_refused(tmp_path):
    options = {"x264-params": "bframes=0:ref=5"}
    whole = write_clip(tmp_path / "whole.avi", n_frames=60, gop=24, noise=8, options=options)
    data, path, chunks = whole.read_bytes(), tmp_path / "clip.avi", _samples(whole)
    place, stop = chunks[40][0] - 8, chunks[48][0] - 8
    path.write_bytes(data[:stop] + data[place:])
    with pytest.raises(VideoError, match=r"promises 60 frames, the file holds 6\d: part of it is there"):
        open_video(path)


def test_damage_in_a_header_of_av1_that_shows_in_the_next_packet_is_refused(tmp_path):
    path = write_clip(tmp_path / "clip.mp4", n_frames=24, gop=24, codec="libsvtav1",
                      options={"preset": "12", "svtav1-params": "lp=1"})  # fmt: skip
    prints, whole = frame_prints(path), path.read_bytes()
    (place, _), n_refused = _samples(path)[0], 0
    for at in range(place + 10, place + 60):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x20]) + whole[at + 1 :])
        plain_prints, sign = plain_decode(path)
        if sign and plain_prints and plain_prints[0] != prints[0]:
            assert not _is_given(open_video(path), 0)
            n_refused += 1
    assert n_refused


@pytest.mark.parametrize("codec", ["ffv1", "wmv2", "msmpeg4", "mpeg4"])
def test_an_index_that_marks_every_packet_as_sync_gives_no_wrong_frame(codec, tmp_path):
    """Without this, FFV1 decodes a later frame from whatever was decoded before."""
    path = write_clip(tmp_path / "clip.avi", n_frames=48, gop=12, fps=25, codec=codec)
    prints, data = frame_prints(path), bytearray(path.read_bytes())
    start = data.rindex(b"idx1") + 8
    for at in range(start, len(data) - 15, 16):
        data[at + 4] |= 0x10
    path.write_bytes(data)
    with open_video(path) as video:
        for number in np.random.default_rng(0).permutation(48):
            assert zlib.crc32(video.read(np.array([number]))[0].tobytes()) == prints[number]


def test_the_same_fault_is_the_same_file():
    data = np.random.default_rng(0).bytes(9000)
    for kind in {**STRETCHES, **SINGLE}:
        first, repeated = (damaged(data, clip="a.mp4", kind=kind, number=3) for _ in range(2))
        other_clip = damaged(data, clip="b.mp4", kind=kind, number=3)
        assert first == repeated != other_clip
        assert first != data


def test_a_reader_that_gives_other_frames_is_said_to_be_wrong(tmp_path):
    path = write_clip(tmp_path / "clip.mp4", n_frames=12)
    prints = frame_prints(path)
    assert read_here(path, prints).kind == "right"
    assert read_here(path, [*prints[:5], 1, *prints[6:]]).kind == "wrong"
    assert read_here(path, [*prints, 1]) == Reading("shorter", "12 frames of 13")


def test_a_process_that_is_killed_for_memory_is_said_to_have_crashed(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.support.keyframes.faults.SECONDS", 600)
    path = write_clip(tmp_path / "clip.mp4", n_frames=12)
    assert read_apart(path, frame_prints(path)).kind == "right"
    monkeypatch.setenv("PYTHONPATH", os.devnull)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tests.support.keyframes.faults.sys.executable", "/bin/false")
    assert read_apart(path, []).kind == "crashed"


_SLICED = {"options": {"x264-params": "bframes=2:slices=4"}}
_SHARED_OUT: dict[str, dict[str, object]] = {
    "h264.mp4": _SLICED, "h264.avi": _SLICED,
    "hevc.mp4": {"codec": "libx265", "options": {"x265-params": "log-level=error"}},
    "mpeg4.avi": {"codec": "mpeg4", "fps": 25}, "vp8.webm": {"codec": "libvpx"},
    "vp9.webm": {"codec": "libvpx-vp9", "options": {"cpu-used": "8"}},
}  # fmt: skip


@pytest.mark.parametrize("name", _SHARED_OUT)
def test_a_damaged_file_is_refused_alike_whatever_the_number_of_threads_and_cores(name, tmp_path):
    """Threads within a decoder hid damage: FFmpeg's H.264 decoder complains in them, where nobody listens."""
    data = write_clip(tmp_path / f"whole.{name}", n_frames=60, gop=12, **_SHARED_OUT[name]).read_bytes()
    for kind, number in itertools.product(("noise", "zeros", "bit"), range(2)):
        path = tmp_path / f"{kind}{number}.{name}"
        path.write_bytes(damaged(data, clip=name, kind=kind, number=100 + number))
        readings = {n_threads: _given(path, n_threads=n_threads) for n_threads in (1, 2, 4, 8)}
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(cores)})
        n_cores.cache_clear()
        try:
            readings[0] = _given(path, n_threads=None)
        finally:
            os.sched_setaffinity(0, cores)
            n_cores.cache_clear()
        assert len(set(readings.values())) == 1, (kind, number)


def _given(path: Path, *, n_threads: int | None) -> tuple[int | None, ...]:
    """Return a checksum of each frame, first of a stream that ends at the first refusal, then one by one; or None."""
    prints: list[int | None] = []
    with contextlib.suppress(VideoError), open_video(path, n_threads=n_threads) as video:
        with contextlib.suppress(VideoError):
            prints += [zlib.crc32(pixels.tobytes()) for _, pixels in video.stream(np.arange(video.info.n_frames))]
        for number in range(video.info.n_frames):
            try:
                prints.append(zlib.crc32(video.read([number])[0].tobytes()))
            except VideoError:
                prints.append(None)
    return tuple(prints)


_HEVC_IN_TWO = {
    "codec": "libx265", "options": {"x265-params": "log-level=error:slices=2:bframes=2"}, "width": 256, "height": 144,
}  # fmt: skip


def test_units_that_each_picture_has_are_no_damage(tmp_path):
    """Dolby Vision and films in 3D put units into each picture that FFmpeg leaves out."""
    path = write_clip(tmp_path / "clip.ts", n_frames=12, gop=6, **_HEVC_IN_TWO)
    prints, data = frame_prints(path), path.read_bytes()
    for place in nal_places(path):
        if data[place] >> 1 == 35:  # a delimiter, which begins each picture in TS
            data = data[:place] + bytes([63 << 1]) + data[place + 1 :]
    path.write_bytes(data)
    assert read_here(path, prints).kind == "right"


def _samples(path: Path) -> list[tuple[int, int]]:
    with av.open(str(path)) as container:
        return [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]


def test_a_frame_whose_reference_is_damaged_is_refused_though_it_decodes(tmp_path):
    path = write_clip(
        tmp_path / "clip.mp4", n_frames=60, gop=30, noise=12, options={"x264-params": "bframes=0:scenecut=0:keyint=30"}
    )
    pos, size = _samples(path)[8]
    data = bytearray(path.read_bytes())
    data[pos : pos + size] = np.random.default_rng(0).bytes(size)
    path.write_bytes(data)
    with open_video(path) as video:
        readable = [number for number in range(60) if _is_given(video, number)]
    assert readable == [*range(8), *range(30, 60)]


def _is_given(video, number: int) -> bool:
    try:
        video.read([number])
    except VideoError:
        return False
    return True


_TRUNCATED = {
    "h264.flv": {}, "wmv2.wmv": {"codec": "wmv2"}, "h264.ts": {}, "vp8.ogg": {"codec": "libvpx"}, "h264.mkv": {},
    "h264.mpg": {},
    "fragments.mp4": {"container_options": {"movflags": "frag_keyframe+empty_moov"}},
}  # fmt: skip


def _between_tags(flash):
    """Return where a Flash file may end without a sign: before or after the four bytes behind a tag."""
    ends, at = set(), 13
    while at + 11 <= len(flash):
        at += 11 + int.from_bytes(flash[at + 1 : at + 4], "big") + 4
        ends |= {at - 4, at}
    return ends


@pytest.mark.parametrize("name", _TRUNCATED)
def test_a_file_cut_anywhere_is_refused(name, tmp_path):
    whole = write_clip(tmp_path / f"whole.{name}", n_frames=60, **_TRUNCATED[name])
    data = whole.read_bytes()
    for share in (0.31, 0.66, 0.97):
        path, cut = tmp_path / name, int(len(data) * share) // 188 * 188 + 5
        # A Flash file that ends between two tags is refused only where a second is missing.
        path.write_bytes(data[: cut + 8 if name == "h264.flv" and cut in _between_tags(data) else cut])
        with pytest.raises(VideoError, match=re.escape(str(path)) + ": "):
            open_video(path)
        path.unlink()


_ENDS: dict[str, tuple[dict[str, object], str]] = {
    "index.avi": ({"codec": "mpeg4", "fps": 25}, "its container (avi) says little of missing pictures"),
    "cues.mkv": ({}, "its cues, behind the last picture, are cut off"),
    "fragments.mp4": ({"container_options": {"movflags": "frag_keyframe"}}, ""),
}


@pytest.mark.parametrize("name", _ENDS)
def test_a_file_cut_behind_its_last_picture_is_read(name, tmp_path):
    encoding, note = _ENDS[name]
    whole = write_clip(tmp_path / f"whole.{name}", n_frames=60, **encoding)
    path, prints = tmp_path / name, frame_prints(whole)
    path.write_bytes(whole.read_bytes()[:-30])
    assert read_here(path, prints).kind == "right"
    with open_video(path) as video:
        assert any(line.startswith(note) for line in video.notes) or not note
    # Some bytes of pictures are missing, too.
    path.write_bytes(whole.read_bytes()[:-2000])
    assert read_here(path, prints).kind == "refused"


def test_a_box_behind_the_samples_may_be_cut(tmp_path):
    path = write_clip(tmp_path / "clip.mp4", n_frames=30, container_options={"movflags": "faststart"})
    prints = frame_prints(path)
    path.write_bytes(path.read_bytes() + (2000).to_bytes(4, "big") + b"free" + bytes(500))
    assert read_here(path, prints).kind == "right"


def _split_units(data: bytes, *, with_time: bool) -> bytes:
    """Begin a second unit within each picture of a transport stream, as Apple's segmenter does."""
    packets, header, counter = [], b"", 0
    for at in range(0, len(data), 188):
        packet = bytearray(data[at : at + 188])
        if packet[1] & 31 == 1 and packet[2] == 0:
            start = packet.find(b"\0\0\1\xe0") if packet[1] & 0x40 else -1
            if start >= 0:
                header = bytes(packet[start : start + 9 + packet[start + 8]])
            elif header:
                unit = header if with_time else header[:7] + b"\0\0"
                fill = b"\0" + b"\xff" * (188 - 6 - len(unit))
                packets.append(b"\x47\x41\x00" + bytes((0x30 | counter, len(fill))) + fill + unit)
                counter, header = (counter + 1) % 16, b""
            packet[3] = packet[3] & 0xF0 | counter
            counter = (counter + 1) % 16
        packets.append(bytes(packet))
    return b"".join(packets)


@pytest.mark.parametrize("with_time", [True, False])
def test_a_picture_may_be_spread_over_two_units_of_a_transport_stream(with_time, tmp_path):
    whole = write_clip(tmp_path / "whole.ts", n_frames=60, width=192, height=128)
    path = tmp_path / "clip.ts"
    path.write_bytes(_split_units(whole.read_bytes(), with_time=with_time))
    assert path.stat().st_size > whole.stat().st_size + 30 * 188
    assert frame_prints(path) == frame_prints(whole)
    assert read_here(path, frame_prints(whole)).kind == "right"


def test_a_seek_that_fails_leaves_no_drained_decoder(tmp_path, monkeypatch):
    path = write_clip(tmp_path / "clip.ts", n_frames=60, gop=10)
    prints, opened, numbers = frame_prints(path), open_container, (5, 33, 37, 52, 58)
    with open_video(path) as video:
        for number in numbers:
            video.read([number])
        n_decoded = video.n_decoded

    class Unseekable:
        def __init__(self, container):
            self._container = container

        def __getattr__(self, name):
            return getattr(self._container, name)

        def seek(self, *arguments, **options):
            raise av.FFmpegError(1, "no seek")

    monkeypatch.setattr(
        "focus_eval.keyframes.video.decoder.open_container", lambda *arguments: Unseekable(opened(*arguments))
    )
    with open_video(path) as video:
        for number in numbers:
            assert zlib.crc32(video.read([number])[0].tobytes()) == prints[number]
        # Drained, it refused each second group of pictures, which was then decoded from the one before.
        assert video.n_decoded <= n_decoded + 4, (video.n_decoded, n_decoded)


def test_a_transport_stream_cut_between_packets_gives_no_half_frame(tmp_path):
    whole = write_clip(tmp_path / "whole.ts", n_frames=60, options={"x264-params": "bframes=0"})
    prints, data = frame_prints(whole), whole.read_bytes()
    for n_packets in range(60, len(data) // 188, 12):
        path = tmp_path / f"{n_packets}.ts"
        path.write_bytes(data[: n_packets * 188])
        assert read_here(path, prints).kind in ("refused", "shorter")


@pytest.mark.parametrize("n_packets", [1, 3, 12])
def test_a_transport_stream_whose_last_packets_are_overwritten_is_not_read_as_shorter(tmp_path, n_packets):
    path = write_clip(tmp_path / "clip.ts", n_frames=60)
    data = path.read_bytes()
    # Zeros would be what recorders leave behind the last packet.
    path.write_bytes(data[: -188 * n_packets] + b"\xff" * 188 * n_packets)
    with pytest.raises(VideoError, match=f"packet {len(data) // 188 - 1} of {len(data) // 188} is damaged"):
        open_video(path)


def test_a_matroska_file_without_a_cluster_is_not_shifted(tmp_path):
    whole = write_clip(tmp_path / "whole.mkv", n_frames=300, container_options={"cluster_time_limit": "1000"})
    data = whole.read_bytes()
    starts = [match.start() for match in re.finditer(b"\x1f\x43\xb6\x75", data)]
    assert len(starts) > 3
    for name, changed in {
        "missing": data[: starts[1]] + data[starts[2] :],
        "zeros": data[: starts[1]] + bytes(starts[2] - starts[1]) + data[starts[2] :],
        "changed": data[: starts[1] + 300] + b"\xff" + data[starts[1] + 301 :],
    }.items():
        path = tmp_path / f"{name}.mkv"
        path.write_bytes(changed)
        with pytest.raises(VideoError, match=r"damaged|missing"):
            open_video(path)


def test_a_lost_packet_of_a_transport_stream_is_noticed(tmp_path):
    whole = write_clip(tmp_path / "whole.ts", n_frames=60)
    data = whole.read_bytes()
    # A packet of pictures that does not begin one: 0x47, no start flag, the pid of the video (ISO 13818-1, 2.4.3.2).
    lost = data.index(b"\x47\x01\x00", 188 * 70)
    path = tmp_path / "lost.ts"
    path.write_bytes(data[:lost] + data[lost + 188 :])
    with pytest.raises(VideoError, match="missing"):
        open_video(path)


def test_a_file_that_may_still_be_written_says_so(tmp_path):
    whole = write_clip(tmp_path / "whole.mp4", n_frames=80, container_options={"movflags": "frag_keyframe+empty_moov"})
    path = tmp_path / "growing.mp4"
    path.write_bytes(whole.read_bytes()[: -whole.stat().st_size // 3])
    with pytest.raises(VideoError, match="cut off; download it again, or wait: it may still be being written"):
        open_video(path)
    os.utime(path, (0, 0))
    with pytest.raises(VideoError, match=r"cut off; download it again$"):
        open_video(path)


def test_a_transport_stream_in_which_a_picture_lost_its_beginning_is_refused(tmp_path):
    whole = write_clip(tmp_path / "whole.ts", n_frames=60)
    data = whole.read_bytes()
    # The header of a picture's packet begins with 00 00 01 E0.
    starts = [match.start() for match in re.finditer(b"\0\0\1\xe0", data)]
    for number, start in enumerate(starts[5:50:5]):
        path = tmp_path / f"{number}.ts"
        body, stop = start + 9 + data[start + 8], start // 188 * 188 + 188
        path.write_bytes(data[:body] + b"\xff" * (stop - body) + data[stop:])
        with pytest.raises(VideoError, match=r"1 of its pictures are missing"):
            open_video(path)


def test_a_file_replaced_or_deleted_while_open_is_named(tmp_path):
    path = write_numbered_clip(tmp_path / "clip.mp4", 60, gop=10)
    with open_video(path) as video:
        os.replace(write_numbered_clip(tmp_path / "other.mp4", 60, gop=10), path)
        with pytest.raises(VideoError, match=r"clip.mp4: replaced or changed after it was opened"):
            video.read([5])
    with open_video(path) as video:
        assert frame_number(video.read([5])[0]) == 5
        path.unlink()
        assert frame_number(video.read([50])[0]) == 50  # the file that is still open
    write_numbered_clip(path, 60, gop=10)
    with open_video(path) as video:
        path.unlink()
        with pytest.raises(VideoError, match=r"clip.mp4: No such file or directory; was it moved or deleted\?"):
            video.read([5])


def test_a_pipe_is_named_as_one(tmp_path):
    os.mkfifo(tmp_path / "pipe.mp4")
    with pytest.raises(VideoError, match=r"pipe.mp4: a pipe or a device, not a video file"):
        open_video(tmp_path / "pipe.mp4")
