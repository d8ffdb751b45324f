"""Does a file that is no whole video give one clear line: path, what, what to do?"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from fractions import Fraction
from functools import partial
from pathlib import Path

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from focus_eval.core.errors import VideoError
from focus_eval.keyframes.video import open_video
from focus_eval.keyframes.video.reader import VideoReader
from tests.support.keyframes.clip_files import with_sound
from tests.support.keyframes.clips import write_clip
from tests.support.keyframes.damage import blank_out, claim_avi_frames, cut_off, edit_programme_map, set_display_matrix
from tests.support.keyframes.synthetic import frame_number, write_numbered_clip


def _refusal(path: Path, *, backend: str = "pyav") -> str:
    """Return what follows the path in the error of opening it."""
    with pytest.raises(VideoError) as caught:
        open_video(path, backend=backend)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


def test_a_missing_file_is_named(backend, tmp_path):
    assert _refusal(tmp_path / "no.mp4", backend=backend) == "no such file; check the path"


def test_a_link_to_itself_is_not_called_missing(backend, tmp_path):
    (tmp_path / "loop.mp4").symlink_to(tmp_path / "loop.mp4")
    refusal = _refusal(tmp_path / "loop.mp4", backend=backend)
    assert refusal.startswith("cannot be read (Too many levels of symbolic links); check the path")


def test_a_directory_is_no_video(backend, tmp_path):
    assert _refusal(tmp_path, backend=backend).startswith("a directory, not a video file")


def test_an_empty_file_says_so(backend, tmp_path):
    (tmp_path / "empty.mp4").touch()
    assert _refusal(tmp_path / "empty.mp4", backend=backend) == "the file is empty (0 bytes); download it again"


def test_text_named_mp4_is_no_video(backend, tmp_path):
    (tmp_path / "text.mp4").write_text("this is not a video\n" * 50)
    assert _refusal(tmp_path / "text.mp4", backend=backend).startswith("not a video this FFmpeg can open")


_AS_NOBODY = """
import os, sys
from focus_eval.core.errors import VideoError
from focus_eval.keyframes.video.pyav import PyAVReader
os.setuid(65534)
try:
    PyAVReader(sys.argv[1])
except VideoError as error:
    print(error)
"""


def test_a_file_without_permission_says_so():
    with tempfile.TemporaryDirectory() as folder:
        path = write_numbered_clip(Path(folder) / "clip.mp4", 5)
        path.chmod(0)
        Path(folder).chmod(0o755)
        if os.geteuid() != 0:
            assert _refusal(path).startswith("no permission to read the file")
            return
        # Root may read anything, so the file is opened as another user.
        result = subprocess.run(
            [sys.executable, "-c", _AS_NOBODY, str(path)], capture_output=True, text=True, check=False
        )
    assert result.stdout == f"{path}: no permission to read the file; change its permissions or owner\n", result.stderr


def _write_sound(path: Path, *, with_cover: bool) -> Path:
    """Write a file with sound and no video; with `with_cover`, it has a cover picture too."""
    with av.open(str(path), "w") as container:
        sound = container.add_stream("aac", rate=16000, layout="mono")
        cover = container.add_stream("mjpeg", rate=1) if with_cover else None
        if cover is not None:
            cover.width, cover.height, cover.pix_fmt = 64, 64, "yuvj420p"
            cover.disposition = av.stream.Disposition.attached_pic.value
            picture = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), format="rgb24")
            container.mux(cover.encode(picture))
        for start in range(0, 16000, 1024):
            frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
            frame.rate, frame.pts, frame.time_base = 16000, start, Fraction(1, 16000)
            container.mux(sound.encode(frame))
        container.mux(sound.encode(None))
    return path


def test_a_name_that_is_not_utf8_opens_or_names_the_reader_that_opens_it(backend, make_clip, tmp_path):
    path = tmp_path / os.fsdecode(b"caf\xe9.mp4")
    path.write_bytes(make_clip("constant.mp4").read_bytes())
    if backend == "pyav":
        with open_video(path) as video:
            assert video.read([99]).shape == (1, 64, 96, 3)
    else:
        assert _refusal(path, backend=backend).endswith("use backend pyav")


@pytest.mark.parametrize("with_cover", [False, True])
def test_sound_alone_has_no_frames(tmp_path, with_cover):
    path = _write_sound(tmp_path / "sound.mp4", with_cover=with_cover)
    reason = "its only picture is a cover, beside audio" if with_cover else "no video stream, the file holds audio"
    assert _refusal(path).startswith(reason)


@pytest.mark.parametrize(("suffix", "codec"), [("mp3", "mp3"), ("wav", "pcm_s16le"), ("flac", "flac"), ("m4a", "aac")])
def test_a_file_of_sound_is_called_so_whatever_its_container(tmp_path, suffix, codec):
    path = tmp_path / f"song.{suffix}"
    with av.open(str(path), "w") as container:
        sound = container.add_stream(codec, rate=16000, layout="mono")
        kind = sound.codec_context.format.name
        dtype = np.float32 if kind.startswith("flt") else np.int32 if kind.startswith("s32") else np.int16
        silence = np.zeros((1, 1024), dtype)
        for start in range(0, 16000, 1024):
            frame = av.AudioFrame.from_ndarray(silence, format=kind, layout="mono")
            frame.rate, frame.pts = 16000, start
            container.mux(sound.encode(frame))
        container.mux(sound.encode(None))
    assert _refusal(path) == "no video stream, the file holds audio; name a file with pictures"


@pytest.mark.parametrize("share", [0.3, 0.5, 0.7, 0.8, 0.9])
def test_an_mp4_cut_before_or_within_its_index_says_so(backend, share, tmp_path):
    whole = write_numbered_clip(tmp_path / "whole.mp4", 200)
    cut = cut_off(whole, tmp_path / "cut.mp4", share=share)
    assert _refusal(cut, backend=backend).startswith("an MP4 without its index (moov box), so cut off")


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "webm", "avi"])
def test_a_file_cut_in_the_middle_says_what_is_missing(tmp_path, suffix):
    encoding = {
        "mp4": {"container_options": {"movflags": "faststart"}},
        "webm": {"codec": "libvpx-vp9"},
    }.get(suffix, {})
    whole = write_numbered_clip(tmp_path / f"whole.{suffix}", 200, gop=30, **encoding)
    cut = cut_off(whole, tmp_path / f"cut.{suffix}", share=0.7)
    message = _refusal(cut)
    beginning = {"mp4": "cut off (stream 0", "avi": "the header promises 200 frames"}
    assert message.startswith(beginning.get(suffix, f"the header promises {whole.stat().st_size} bytes"))
    assert "cut off" in message


def test_a_header_that_counts_more_frames_is_refused(backend, tmp_path):
    whole = write_numbered_clip(tmp_path / "whole.avi", 60, codec="mpeg4")
    claim = claim_avi_frames(whole, tmp_path / "claim.avi", n_frames=5000)
    assert _refusal(claim, backend=backend).startswith("the header promises 5000 frames, the file holds 60")


def test_the_last_frame_of_an_avi_may_be_repeated(tmp_path, sparse_avi):
    """As FFmpeg writes where one slot of time is much shorter than a frame."""
    with av.open(str(sparse_avi)) as clip:
        n_slots = clip.streams.video[0].frames
    repeated = claim_avi_frames(sparse_avi, tmp_path / "repeated.avi", n_frames=n_slots + 19)
    with open_video(repeated) as video:
        assert video.info.n_frames == 80
    lacking = claim_avi_frames(sparse_avi, tmp_path / "lacking.avi", n_frames=n_slots + 600)
    assert "cut off" in _refusal(lacking)


def test_a_damaged_stretch_refuses_its_frames_and_no_others(tmp_path):
    whole = write_numbered_clip(
        tmp_path / "whole.mp4",
        200,
        gop=20,
        options={"x264-params": "scenecut=0"},
        container_options={"movflags": "faststart"},
    )
    damaged = blank_out(whole, tmp_path / "damaged.mp4", start=0.5, stop=0.52)
    with open_video(damaged) as video:
        assert video.info.n_frames == 200
        refused = [number for number in range(200) if not _comes_out(video, number)]
        with pytest.raises(VideoError, match=rf"damaged.mp4: frame {refused[0]} asked, but it cannot be decoded"):
            video.read([0, refused[0], 199])
    assert len(refused) > 0
    assert refused[-1] - refused[0] < 60


def _comes_out(video: VideoReader, number: int) -> bool:
    """Tell whether the frame is given at all; a wrong one fails the test."""
    try:
        pixels = video.read([number])[0]
    except VideoError:
        return False
    assert frame_number(pixels) == number
    return True


def test_a_picture_without_size_is_refused(tmp_path):
    whole = write_numbered_clip(tmp_path / "whole.avi", 5, codec="rawvideo", pixel_format="bgr24")
    data = bytearray(whole.read_bytes())
    size = data.find(b"strf") + 12
    data[size : size + 8] = bytes(8)
    (tmp_path / "flat.avi").write_bytes(data)
    assert "no frame of it can be decoded" in _refusal(tmp_path / "flat.avi")


def test_a_picture_turned_askew_is_refused(tmp_path):
    whole = write_numbered_clip(tmp_path / "whole.mp4", 5)
    askew = set_display_matrix(whole, tmp_path / "askew.mp4", matrix=(0.7071, 0.7071, -0.7071, 0.7071))
    assert _refusal(askew).startswith("turned by an angle that is not a multiple of 90 degrees")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [0x05, 0x06, 0x15, 0x2D, 0x86, 0xEA])
def test_a_stream_that_no_decoder_knows_ends_no_process(kind, tmp_path):
    """PyAV 15 crashes where the type of such a stream is read: SCTE-35, teletext, MPEG-H, private data."""
    both = with_sound(tmp_path / "both.ts", make=partial(write_clip, n_frames=30), sound="mp2")
    with open_video(edit_programme_map(both, tmp_path / "more.ts", types={3: kind}, absent_types=(kind,))) as video:
        assert video.info.n_frames == 30
    # Without a video there is a line to write of what the file holds.
    sound = tmp_path / "sound.ts"
    with av.open(str(sound), "w") as output:
        _write_tone(output, "mp2")
    hidden = edit_programme_map(sound, tmp_path / "hidden.ts", types={}, absent_types=(kind, kind))
    code = f"from tests.keyframes.video.test_bad_input import _refusal; print(_refusal({str(hidden)!r}))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_a_file_whose_only_picture_is_its_cover_says_so(tmp_path):
    song = tmp_path / "song.mp4"
    with av.open(str(song), "w") as output:
        _write_tone(output, "aac")
    song.write_bytes(_with_cover(song.read_bytes()))
    assert _refusal(song) == "its only picture is a cover, beside audio; name a file with moving pictures"


_CIPHER = {
    "encryption_scheme": "cenc-aes-ctr", "encryption_key": "76a6c65c5ea762046bd749a2e632ccbb",
    "encryption_kid": "a7e61c373e219033c21091fa607bf3b8",
}  # fmt: skip


@pytest.mark.parametrize("scheme", [b"cenc", b"cbcs"])
@pytest.mark.parametrize("flags", ["faststart", "frag_keyframe+empty_moov"])
def test_an_encrypted_mp4_is_not_called_damaged(scheme, flags, tmp_path):
    path = write_clip(tmp_path / "clip.mp4", n_frames=30, container_options={**_CIPHER, "movflags": flags})
    path.write_bytes(path.read_bytes().replace(b"schm\0\0\0\0cenc", b"schm\0\0\0\0" + scheme))
    assert _refusal(path) == "encrypted; name a decrypted copy"


@pytest.mark.parametrize("sign", ["scrambled", "samples"])
def test_an_encrypted_transport_stream_is_not_called_damaged(sign, tmp_path):
    plain, path = write_clip(tmp_path / "plain.ts", n_frames=30), tmp_path / "clip.ts"
    edit_programme_map(plain, path, types={0x1B: 0xDB} if sign == "samples" else {})
    data, rng = bytearray(path.read_bytes()), np.random.default_rng(0)
    for start in range(0, len(data), 188):
        if data[start + 2] == 0 and data[start + 1] & 31 == 1:  # the video's packets
            data[start + 3] |= 0x80 if sign == "scrambled" else 0
            if not data[start + 3] & 0x20:
                data[start + 60 : start + 188] = rng.bytes(128)
    path.write_bytes(data)
    with pytest.raises(VideoError, match=r"encrypted; name a decrypted copy$"), open_video(path) as video:
        video.read(np.arange(30))


def _write_tone(output: av.container.OutputContainer, codec: str) -> None:
    stream = output.add_stream(codec, rate=16000, layout="mono")
    frame = av.AudioFrame.from_ndarray(np.zeros((1, 8192), dtype=np.int16), format="s16", layout="mono")
    frame.rate, frame.pts, frame.time_base = 16000, 0, Fraction(1, 16000)
    output.mux([*stream.encode(frame), *stream.encode(None)])


def _with_cover(song: bytes) -> bytes:
    """Return an MP4 that ends in its index, with a picture among its tags."""
    picture = io.BytesIO()
    Image.new("RGB", (32, 32), "red").save(picture, "png")
    handler = _box(b"hdlr", bytes(8) + b"mdirappl" + bytes(9))
    cover = _box(b"covr", _box(b"data", bytes((0, 0, 0, 14)) + bytes(4) + picture.getvalue()))
    tags = _box(b"udta", _box(b"meta", bytes(4) + handler + _box(b"ilst", cover)))
    start = song.index(b"moov") - 4
    assert start + int.from_bytes(song[start : start + 4], "big") == len(song)
    return song[:start] + _box(b"moov", song[start + 8 :] + tags)


def _box(name: bytes, content: bytes) -> bytes:
    return (8 + len(content)).to_bytes(4, "big") + name + content


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(["mkv", "ts", "nut", "avi"]),
    st.lists(st.tuples(st.sampled_from(["early", "same", "twice", "empty", "none"]), st.integers(0, 19)), max_size=6),
)
def test_packets_with_odd_times_and_sizes_give_frames_or_a_video_error(suffix, edits):
    with tempfile.TemporaryDirectory() as folder:
        source, path = write_clip(Path(folder) / "source.mp4", n_frames=20, gop=8), Path(folder) / f"clip.{suffix}"
        with av.open(str(source)) as clip, av.open(str(path), "w") as output:
            template = clip.streams.video[0]
            stream = output.add_stream_from_template(template)
            for number, packet in enumerate(packet for packet in clip.demux(template) if packet.size):
                kinds = {kind for kind, place in edits if place == number}
                for _ in range(1 + ("twice" in kinds)):
                    copy = av.Packet(b"" if "empty" in kinds else bytes(packet))
                    copy.stream, copy.time_base, copy.is_keyframe = stream, packet.time_base, packet.is_keyframe
                    copy.pts, copy.dts = packet.pts, packet.dts
                    if kinds & {"early", "same"}:
                        copy.pts = copy.dts = 0 if "early" in kinds else packet.dts
                    if "none" in kinds:
                        copy.pts = None
                    with suppress(av.FFmpegError, ValueError):  # the muxer refuses some
                        output.mux_one(copy)
        with suppress(VideoError), open_video(path) as video:
            for number in range(video.info.n_frames):
                with suppress(VideoError):
                    video.read([number])
