"""Are files that cameras, recorders and other projects wrote exact, or refused only where FFmpeg complains, too?"""

from __future__ import annotations

import json
import shutil
import time

import av
import numpy as np
import pytest

from focus_eval.keyframes.video import open_video
from focus_eval.keyframes.video.packets import StartTest, reference_test
from focus_eval.keyframes.video.scan import SideDataType
from tests.conftest import RECORDED
from tests.support.keyframes.clip_files import hide_slices, pad_units
from tests.support.keyframes.clips import clip_makers, write_clip
from tests.support.keyframes.devices import VERDICTS, judge_here
from tests.support.keyframes.exactness import check_clip
from tests.support.keyframes.faults import plain_decode

PHONES = RECORDED / "phones"
_MOST_BYTES = 60_000
# Kind of side data of LCEVC.
_ENHANCEMENT = 28


@pytest.mark.parametrize("name", ["sample_android_slow_motion.mp4", "sample_sef_slow_motion.mp4"])
def test_every_frame_of_a_phones_clip_is_exact(name):
    outcome = check_clip(PHONES / name)
    assert (outcome.kind, outcome.detail) == ("exact", "")


def test_side_data_that_pyav_has_no_name_for_harms_no_clip(tmp_path):
    path = clip_makers()["camera_enhancement.mp4"](tmp_path / "clip.mp4")
    with av.open(str(path)) as container:
        frame = next(container.decode(video=0))
        # PyAV 19 has a name for it.
        is_named = _ENHANCEMENT in {kind.value for kind in SideDataType}
        assert is_named or _ENHANCEMENT in {data.type.value for data in frame.side_data}
    outcome = check_clip(path)
    assert (outcome.kind, outcome.detail) == ("exact", "")


def test_no_small_file_of_other_projects_is_wrong_or_refused_without_cause(shared):
    """`scripts/checks/devices.py` reads all of them, each in a process of its own."""
    folder = shared("data/devices")
    names = [entry["file"] for entry in json.loads((folder / "manifest.json").read_text())]
    verdicts = {name: judge_here(folder / name) for name in names if (folder / name).stat().st_size < _MOST_BYTES}
    assert {reading.kind for reading in verdicts.values()} == {"right", "refused rightly"}, verdicts
    assert sum(reading.kind == "right" for reading in verdicts.values()) > 20


def test_a_refusal_is_false_where_a_plain_decode_finds_nothing_wrong(tmp_path, monkeypatch):
    path = write_clip(tmp_path / "clip.mp4", n_frames=12)
    assert judge_here(path).kind == "right"
    monkeypatch.setattr("tests.support.keyframes.devices.plain_decode", lambda path: (plain_decode(path)[0][:-1], ""))
    assert judge_here(path).kind == "wrong"
    monkeypatch.undo()
    shutil.copy(path, tmp_path / "cut.mp4")
    (tmp_path / "cut.mp4").write_bytes(path.read_bytes()[:-2000])
    reading = judge_here(tmp_path / "cut.mp4")
    assert reading.kind == "refused rightly"
    assert "plain decode" in reading.detail
    monkeypatch.setattr("tests.support.keyframes.devices.plain_decode", lambda path: ([], ""))
    assert judge_here(tmp_path / "cut.mp4").kind == "refused falsely"
    assert {"right", "wrong", "refused rightly", "refused falsely"} < set(VERDICTS)


@pytest.mark.parametrize("form", [pad_units, hide_slices])
def test_an_edited_picture_is_still_known_as_referred_to(form, tmp_path):
    path = write_clip(tmp_path / "clip.mp4", options={"x264-params": "bframes=2:b-pyramid=none"})
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        extradata = stream.codec_context.extradata
        packets = [bytes(packet) for packet in container.demux(stream) if packet.size]
    is_reference = reference_test("h264", extradata)
    plain = [is_reference(av.Packet(packet)) for packet in packets]
    edited = [av.Packet(form(packet)) for packet in packets]
    assert [is_reference(packet) for packet in edited] == plain
    assert set(plain) == {True, False}


def test_what_is_unusual_and_harmless_is_named(tmp_path):
    notes = {
        "tail_zeros.ts": "5000 zeros behind its last packet",
        "stale_checksum.mkv": "the checksum of its title does not match",
    }
    for name, note in notes.items():
        with open_video(clip_makers()[name](tmp_path / name)) as video:
            assert video.notes == (note,)


_FAULTS = (
    "fields_apart.mts", "mvhevc_stereo.mp4", "padded_pictures.mov", "numbers_begin_anew.mp4",
    "first_frames_refused.mp4",
)  # fmt: skip


@pytest.mark.parametrize("name", _FAULTS)
def test_a_valid_file_that_was_once_refused_is_right(name, shared):
    assert judge_here(shared("data/faults") / name).kind == "right"


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "ts", "mpg", "flv", "h264"])
@pytest.mark.parametrize("is_paired", [False, True])
def test_fields_make_frames_in_every_container(suffix, is_paired, shared, tmp_path):
    """A camera's fields, each in a packet of its own or both in one."""
    source, path = shared("data/faults") / "fields_apart.mts", tmp_path / f"clip.{suffix}"
    with av.open(str(source)) as clip, av.open(str(path), "w") as output:
        template = clip.streams.video[0]
        stream = output.add_stream_from_template(template)
        packets = [packet for packet in clip.demux(template) if packet.size]
        for first, second in zip(packets[::2], packets[1::2], strict=True):
            pair = av.Packet(bytes(first) + bytes(second))
            pair.pts, pair.dts, pair.time_base, pair.is_keyframe = (
                first.pts,
                first.dts,
                first.time_base,
                first.is_keyframe,
            )
            for packet in [pair] if is_paired else [first, second]:
                packet.stream = stream
                output.mux_one(packet)
    reading = judge_here(path)
    assert reading.kind == "right", reading
    with open_video(path) as video:
        assert np.diff(video.frame_times(range(video.info.n_frames))) == pytest.approx(0.04, abs=0.001)


@pytest.mark.parametrize("codec", ["h264", "hevc", "mpeg4", "mpeg2video", "vp8", "vp9", "av1"])
@pytest.mark.parametrize("pattern", [b"\0", b"\xff", b"\1", b"\0\0\1", b"\0\0\3", b"\0\0\0\1\x09"])
def test_time_spent_on_a_packet_grows_with_its_size_alone(codec, pattern):
    """A camera fills pictures with zeros up to a constant size: half a megabyte took hours."""
    packet = av.Packet((pattern * 1_000_000)[:1_000_000])
    sized = {"h264": bytes((1, 100, 0, 30, 0xFF, 0xE0)), "hevc": bytes((1, *bytes(20), 3, 0))}.get(codec)
    for extradata in (None, sized):
        start = time.process_time()
        is_reference = reference_test(codec, extradata)
        if is_reference:
            is_reference(packet)
        packet.is_keyframe = True
        StartTest(codec, extradata).look_at(packet)
        assert time.process_time() - start < 5  # quadratic, a quarter of this took half a minute
