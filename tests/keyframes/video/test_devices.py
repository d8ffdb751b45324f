"""Are files that cameras, recorders and other projects wrote exact, or refused only where FFmpeg complains, too?"""

from __future__ import annotations

import json
import shutil
import time
from fractions import Fraction

import av
import numpy as np
import pytest

from focus_eval.core.errors import VideoError
from focus_eval.keyframes.video import open_video
from focus_eval.keyframes.video.packets import StartTest, reference_test
from focus_eval.keyframes.video.scan import SideDataType
from tests.conftest import RECORDED
from tests.support.keyframes.clip_files import edit_packets, hide_slices, pad_units, split_units, write_mpeg2_fields
from tests.support.keyframes.clips import clip_makers, write_clip
from tests.support.keyframes.devices import VERDICTS, judge_here
from tests.support.keyframes.exactness import check_clip
from tests.support.keyframes.faults import plain_decode

pytestmark = pytest.mark.slow

PHONES = RECORDED / "phones"
_MAX_BYTES = 60_000
# Kind of side data of LCEVC.
_ENHANCEMENT = 28
_X265 = {"x265-params": "log-level=error"}


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
        assert is_named or _ENHANCEMENT in {
            frame.side_data[number].type.value for number in range(len(frame.side_data))
        }
    outcome = check_clip(path)
    assert (outcome.kind, outcome.detail) == ("exact", "")


def test_no_small_file_of_other_projects_is_wrong_or_refused_without_cause(shared):
    """`scripts/checks/devices.py` reads all of them, each in a process of its own."""
    folder = shared("data/devices")
    names = [entry["file"] for entry in json.loads((folder / "manifest.json").read_text())]
    verdicts = {name: judge_here(folder / name) for name in names if (folder / name).stat().st_size < _MAX_BYTES}
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


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "ts", "mpg", "flv", "h264", "avi"])
@pytest.mark.parametrize("is_paired", [False, True])
def test_fields_make_frames_in_every_container(suffix, is_paired, shared, tmp_path):
    """A camera's fields, each in a packet of its own or both in one."""
    source, path = shared("data/faults") / "fields_apart.mts", tmp_path / f"clip.{suffix}"
    with av.open(str(source)) as clip, av.open(str(path), "w") as output:
        template = clip.streams.video[0]
        stream = output.add_stream_from_template(template)
        packets = [packet for packet in clip.demux(template) if packet.size]
        if is_paired:
            packets = [_joined(*pair) for pair in zip(packets[::2], packets[1::2], strict=True)]
        if suffix == "avi":
            stream.time_base = Fraction(1, 25 if is_paired else 50)
        for slot, packet in enumerate(packets):
            if suffix == "avi":  # which has no times, but slots
                packet.pts, packet.dts, packet.duration, packet.time_base = slot, slot, 1, stream.time_base
            packet.stream = stream
            output.mux_one(packet)
    reading = judge_here(path)
    assert reading.kind == "right", reading
    with open_video(path) as video:
        assert np.diff(video.frame_times(range(video.info.n_frames))) == pytest.approx(0.04, abs=0.001)


def _joined(first, second):
    pair = av.Packet(bytes(first) + bytes(second))
    pair.pts, pair.dts, pair.time_base = first.pts, first.dts, first.time_base
    pair.is_keyframe = first.is_keyframe
    return pair


@pytest.mark.parametrize("suffix", ["mp4", "mov", "mkv", "ts", "mpg", "m2v"])
@pytest.mark.parametrize("is_paired", [False, True])
def test_fields_of_mpeg2_make_frames_in_every_container(suffix, is_paired, tmp_path):
    """FFmpeg's decoder, told to be strict about bits, takes the second field of a packet for junk behind the first."""

    def make(path):
        return write_clip(path.with_suffix(".ts"), n_frames=40, fps=25, codec="mpeg2video", gop=1)

    path = write_mpeg2_fields(tmp_path / f"clip.{suffix}", make=make, is_paired=is_paired)
    reading = judge_here(path)
    assert reading.kind == "right", reading
    with open_video(path) as video:
        assert video.info.n_frames == 20
        if suffix in ("mp4", "mov", "mkv", "ts"):
            assert np.diff(video.frame_times(range(20))) == pytest.approx(0.04, abs=0.001)
        fields = [pixels[parity::2] for _, pixels in video.stream(np.arange(20)) for parity in (0, 1)]
    with open_video(tmp_path / "source.clip.ts") as source:
        pictures = [pixels for _, pixels in source.stream(np.arange(40))]
    # Chroma is scaled across both fields, so colours differ a little.
    differences = [np.abs(field.astype(int) - picture).mean() for field, picture in zip(fields, pictures, strict=True)]
    assert max(differences) < 2, differences


@pytest.mark.parametrize("suffix", ["ts", "mpg", "mkv", "mp4", "avi"])
@pytest.mark.parametrize("codec", ["mpeg1video", "mpeg2video"])
def test_zeros_behind_mpegs_pictures_are_no_damage(codec, suffix, tmp_path):
    """Broadcasts and discs of a constant rate fill what a picture leaves (ITU-T H.262, 5.2.3: next_start_code)."""

    def make(path):
        return write_clip(path, n_frames=24, codec=codec)

    path = edit_packets(tmp_path / f"clip.{suffix}", make=make, edit=lambda picture: picture + bytes(4000))
    reading = judge_here(path)
    assert reading.kind == "right", reading


@pytest.mark.parametrize("n_b", [0, 3])
def test_times_of_h264_in_avi_are_its_slots_and_not_those_that_ffmpeg_guesses(n_b, tmp_path):
    path, ticks = tmp_path / "clip.avi", list(range(0, 120, 2))
    write_clip(path, fps=25, ticks=ticks, options={"x264-params": f"bframes={n_b}:b-adapt=0"})
    assert judge_here(path).kind == "right"
    with open_video(path) as video:
        assert video.frame_times(range(60)) == pytest.approx(np.array(ticks) / 25)


def test_the_last_frame_of_an_avi_may_be_shown_for_long(tmp_path):
    path = tmp_path / "clip.avi"
    source = write_clip(tmp_path / "source.avi", n_frames=12, fps=25, codec="mpeg4")
    with av.open(str(source)) as clip, av.open(str(path), "w") as output:
        template = clip.streams.video[0]
        stream = output.add_stream_from_template(template)
        for packet in (packet for packet in clip.demux(template) if packet.size):
            packet.duration = 50 if packet.pts == 11 else 1
            packet.stream = stream
            output.mux_one(packet)
    with av.open(str(path)) as clip:
        assert clip.streams.video[0].frames == 61
    assert judge_here(path).kind == "right"
    path.write_bytes(path.read_bytes().replace((61).to_bytes(4, "little"), (62).to_bytes(4, "little")))
    with pytest.raises(VideoError, match="the header promises 62 frames, the file holds 61"):
        open_video(path)


def _with_enhancement_layer(picture):
    """Put a unit of type 63 behind a picture, as Dolby Vision does."""
    return picture + (40).to_bytes(4, "big") + bytes((63 << 1, 1)) + bytes(range(1, 39))


def _with_second_view(picture):
    """Put a slice of layer 1 behind a picture, as spatial video does."""
    return picture + (40).to_bytes(4, "big") + bytes((1 << 1, 1 << 3 | 1)) + bytes(range(1, 39))


@pytest.mark.parametrize("edit", [_with_enhancement_layer, _with_second_view])
@pytest.mark.parametrize("suffix", ["mp4", "ts"])
def test_further_layers_of_hevc_are_no_damage(edit, suffix, tmp_path):
    def make(path):
        return write_clip(path.with_suffix(".mp4"), n_frames=24, codec="libx265", options=_X265)

    reading = judge_here(edit_packets(tmp_path / f"clip.{suffix}", make=make, edit=edit))
    assert reading.kind == "right", reading


def _with_message(content):
    """Put a message (SEI) before each picture of HEVC."""
    unit = bytes((39 << 1, 1)) + content + b"\x80"
    return lambda picture: len(unit).to_bytes(4, "big") + unit + picture


_CAPTIONS, _LONGER_THAN_ITS_UNIT = bytes((4, 11)) + b"\xb5\x00\x31GA94\x03\xc1\xff\xfc", bytes((5, 64, 1, 2, 3))


@pytest.mark.parametrize("content", [_CAPTIONS, _LONGER_THAN_ITS_UNIT])
@pytest.mark.parametrize("suffix", ["mp4", "ts", "mkv"])
def test_a_message_that_ffmpeg_cannot_read_is_no_damage(content, suffix, tmp_path):
    def make(path):
        return write_clip(path.with_suffix(".mp4"), n_frames=24, codec="libx265", options=_X265)

    path = edit_packets(tmp_path / f"clip.{suffix}", make=make, edit=_with_message(content))
    reading = judge_here(path)
    assert reading.kind == "right", reading


@pytest.mark.parametrize("suffix", ["mp4", "ts", "mkv"])
@pytest.mark.parametrize("kind", [36, 37])
def test_a_sequence_of_hevc_may_end_and_begin_anew(kind, suffix, tmp_path):
    """`kind`: end of the sequence, or of the stream, before each picture that begins a group but the first."""
    end, n_groups = (2).to_bytes(4, "big") + bytes((kind << 1, 1)), 0

    def make(path):
        options = {"x265-params": "log-level=error:open-gop=0:repeat-headers=0"}
        return write_clip(path.with_suffix(".mp4"), n_frames=50, codec="libx265", options=options)

    def edit(picture):
        nonlocal n_groups
        begins_group = any(16 <= unit[0] >> 1 <= 21 for unit in split_units(picture))
        n_groups += begins_group
        return end + picture if begins_group and n_groups > 1 else picture

    reading = judge_here(edit_packets(tmp_path / f"clip.{suffix}", make=make, edit=edit))
    assert (reading.kind, n_groups) == ("right", 3), reading


@pytest.mark.parametrize("suffix", ["ts", "mkv"])
@pytest.mark.parametrize("codec", ["libx264", "libx265"])
def test_parameter_sets_may_change_in_mid_stream(codec, suffix, tmp_path):
    """Joined parts of one stream, with other references, sizes and tools from frame 20 on."""
    name = codec.removeprefix("lib") + "-params"
    log = "log-level=error:" if codec == "libx265" else ""
    settings = [{"params": "ref=1:bframes=0"}, {"params": "ref=4:bframes=3", "width": 128}]
    path, shift = tmp_path / f"clip.{suffix}", 0
    with av.open(str(path), "w") as output:
        stream = None
        for number, setting in enumerate(settings):
            options = {name: f"{log}repeat-headers=1:{setting.pop('params')}"}
            part = write_clip(tmp_path / f"part{number}.ts", n_frames=20, codec=codec, options=options, **setting)
            with av.open(str(part)) as clip:
                template = clip.streams.video[0]
                stream = stream or output.add_stream_from_template(template)
                for packet in clip.demux(template):
                    if packet.size:
                        packet.pts, packet.dts, packet.stream = packet.pts + shift, packet.dts + shift, stream
                        output.mux_one(packet)
            shift += 90_000
    reading = judge_here(path)
    assert reading.kind == "right", reading
    with open_video(path) as video:
        assert video.info.n_frames == 40


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
