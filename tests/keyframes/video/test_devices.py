"""Are files that cameras, recorders and other projects wrote exact, or refused only where FFmpeg complains, too?"""

from __future__ import annotations

import json
import shutil
import time

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus_eval.core.errors import VideoError
from focus_eval.keyframes.video import open_video
from focus_eval.keyframes.video.nal import nal_length_bytes
from focus_eval.keyframes.video.packets import blank_test, can_start, form_test, reference_test, usual_padding
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


@given(st.lists(st.integers(0, 100), min_size=1, max_size=60))
def test_zeros_that_picture_after_picture_ends_with_are_padding_and_those_of_one_are_not(tails):
    tails = np.array(tails)
    is_padded = int((tails > 3).sum()) >= min(3, tails.size / 2)
    assert (usual_padding(tails) > 3) == is_padded
    if is_padded:
        assert sorted(tails, reverse=True)[2:3] <= [usual_padding(tails)]
    assert usual_padding(np.append(np.zeros(9, dtype=int), tails[:1])) == 3


def test_padding_may_be_twice_as_long_as_that_of_three_pictures():
    assert usual_padding(np.array([0, 0, 0, 40, 30, 20, 10])) == 2 * 20


@pytest.mark.parametrize("form", [pad_units, hide_slices])
def test_an_edited_picture_is_still_known_as_referred_to_and_as_well_formed(form, tmp_path):
    path = write_clip(tmp_path / "clip.mp4", options={"x264-params": "bframes=2:b-pyramid=none"})
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        extradata = stream.codec_context.extradata
        packets = [bytes(packet) for packet in container.demux(stream) if packet.size]
    is_reference, is_formed = reference_test("h264", extradata), form_test("h264", extradata, ())
    plain = [is_reference(av.Packet(packet)) for packet in packets]
    edited = [av.Packet(form(packet)) for packet in packets]
    assert [is_reference(packet) for packet in edited] == plain
    assert set(plain) == {True, False}
    assert all(is_formed(packet) for packet in edited)
    assert not any(is_formed(av.Packet(b"text" + packet[4:])) for packet in packets)


def test_a_blanked_end_in_a_padded_file_is_refused_where_it_is_longer_than_padding(tmp_path):
    path = clip_makers()["camera_padded_units.mp4"](tmp_path / "clip.mp4")
    with av.open(str(path)) as container:
        packet = [packet for packet in container.demux(video=0) if packet.size][30]
    data = bytearray(path.read_bytes())
    data[packet.pos + packet.size - 60 : packet.pos + packet.size] = bytes(60)
    path.write_bytes(data)
    with open_video(path) as video, pytest.raises(VideoError, match="frame 30 asked, but it cannot be decoded"):
        video.read([30])


def test_what_is_unusual_and_harmless_is_named(tmp_path):
    notes = {
        "tail_zeros.ts": "5000 zeros behind its last packet",
        "tail_id3.mp4": "304 bytes of tags behind its last part",
        "tail_other.mp4": "504 bytes that belong to no part behind its last",
        "long_mdat.mp4": "its last part states 8 bytes too many",
        "stale_checksum.mkv": "the checksum of its title does not match",
    }
    for name, note in notes.items():
        with open_video(clip_makers()[name](tmp_path / name)) as video:
            assert video.notes == (note,)


def test_a_picture_padded_to_a_constant_size_is_read(shared):
    assert judge_here(shared("data/faults") / "padded_pictures.mov").kind == "right"


@pytest.mark.parametrize("codec", ["h264", "hevc", "mpeg4", "mpeg2video", "vp8", "vp9", "av1"])
@pytest.mark.parametrize("pattern", [b"\0", b"\xff", b"\1", b"\0\0\1", b"\0\0\3", b"\0\0\0\1\x09"])
def test_time_spent_on_a_packet_grows_with_its_size_alone(codec, pattern):
    """A camera fills pictures with zeros up to a constant size: half a megabyte took hours."""
    packet = av.Packet((pattern * 1_000_000)[:1_000_000])
    sized = {"h264": bytes((1, 100, 0, 30, 0xFF, 0xE0)), "hevc": bytes((1, *bytes(20), 3, 0))}.get(codec)
    for extradata in (None, sized):
        start = time.process_time()
        is_blanked, is_reference = blank_test(codec, extradata), reference_test(codec, extradata)
        if is_blanked:
            is_blanked(packet, 3)
        if is_reference:
            is_reference(packet)
        form_test(codec, extradata, ())(packet)
        can_start(codec, packet, nal_length_bytes(extradata, codec))
        assert time.process_time() - start < 5  # quadratic, a quarter of this took half a minute


def test_bytes_missing_in_the_middle_are_no_mdat_that_states_too_many(tmp_path):
    whole = clip_makers()["long_mdat_sound.mp4"](tmp_path / "whole.mp4").read_bytes()
    for n_missing in (1, 8, 500):
        path = tmp_path / f"{n_missing}.mp4"
        path.write_bytes(whole[:9000] + whole[9000 + n_missing :])
        with pytest.raises(VideoError, match="its part mdat needs"):
            open_video(path)
