"""Is every frame of a slice of the made clips (`make clips` reads all) that of a sequential decode?"""

from __future__ import annotations

import subprocess
import sys

import av
import numpy as np
import pytest

from focus_eval.core.errors import VideoError
from focus_eval.keyframes.video import open_video
from focus_eval.keyframes.video.decoder import TAG_ERRORS
from tests.support.keyframes.clip_files import replace_bytes, with_sound
from tests.support.keyframes.clips import clip_makers, write_clip
from tests.support.keyframes.exactness import check_clip
from tests.support.keyframes.synthetic import frame_number

_SLICE = (
    "h264_b16.mp4", "h264_b_pyramid_normal.mkv", "h264_open_gop.ts", "h264_open_gop.flv", "h264_intra_refresh.mp4",
    "h264_intra_refresh.ts", "h264_intra_refresh_b.mp4", "h264_i_not_idr.ts", "h264.nut", "h264.mpg", "h264.mxf",
    "h264.asf", "h264_fragments_dash.mp4", "h264_leading_cut.ts", "hevc_open_gop.ts", "hevc_picture_hash.mkv",
    "hevc_leading_cut.mp4", "vp8.ogg", "vp9_altref.mp4", "vp9.ivf", "mpeg4_packed_b.avi", "mpeg4_b2.avi", "mpeg4.m4v",
    "mpeg2_b2.ts", "mpeg2_sound.mpg", "mpeg1.mpg", "h263.avi", "ffv1.mkv", "prores.mov", "wmv2.wmv", "gif.gif",
    "rate_0.5.mp4", "rate_2000.mp4", "pauses.ts", "uneven_rate.flv", "late_start.mkv", "late_start_sound.mkv",
    "one_frame.ts", "joined.ts", "joined.mpg", "joined_going_back.ts", "joined_going_on.ts", "changing_size.ts",
    "size_33x127.mkv", "latin1_tags.mkv", "latin1_tags.avi", "sound.ts", "camera_padded_units.mkv",
    "camera_hidden_slices_b.mp4", "palette_raw.avi", "palette_raw.mov", "palette_smc.mov", "tail_many_zeros.ts",
    "tail_zeros_fragments_index.mp4", "programme_changes.ts",
)  # fmt: skip


@pytest.mark.parametrize("name", _SLICE)
def test_every_frame_of_a_valid_clip_is_exact(name, tmp_path):
    outcome = check_clip(clip_makers()[name](tmp_path / name))
    assert (outcome.kind, outcome.detail) == ("exact", "")


def test_the_suite_has_over_150_clips_with_names_of_their_own():
    assert len(clip_makers()) > 150
    assert set(_SLICE) < set(clip_makers())


@pytest.mark.parametrize("name", ["mpeg4_packed_b.avi", "joined_going_back.ts", "joined.ts", "late_start_sound.mkv"])
def test_frame_i_carries_the_number_i(name, tmp_path):
    with open_video(clip_makers()[name](tmp_path / name)) as video:
        numbers = [frame_number(pixels) for _, pixels in video.stream(np.arange(video.info.n_frames))]
    assert numbers == list(range({"mpeg4_packed_b.avi": 60, "late_start_sound.mkv": 100}.get(name, 120)))


def test_a_packed_avi_holds_two_pictures_in_a_packet(tmp_path):
    path = clip_makers()["mpeg4_packed_b.avi"](tmp_path / "clip.avi")
    with av.open(str(path)) as container:
        counts = [bytes(packet).count(b"\x00\x00\x01\xb6") for packet in container.demux(video=0) if packet.size]
    assert sorted(set(counts)) == [1, 2]


def test_an_intra_refresh_has_one_sync_frame_though_the_container_marks_more(tmp_path):
    path = clip_makers()["h264_intra_refresh.mp4"](tmp_path / "clip.mp4")
    with av.open(str(path)) as container:
        marked = sum(packet.is_keyframe for packet in container.demux(video=0))
    with open_video(path) as video:
        assert video.info.sync_frames.tolist() == [0]
    assert marked > 1


def test_tags_that_are_not_utf8_are_no_obstacle(tmp_path):
    path = clip_makers()["latin1_tags.mp4"](tmp_path / "clip.mp4")
    if TAG_ERRORS:
        with pytest.raises(UnicodeDecodeError):
            av.open(str(path))
    with open_video(path) as video:
        assert video.info.n_frames == 60


def test_sound_and_pictures_lie_between_each_other_in_a_program_stream(tmp_path):
    path = with_sound(
        tmp_path / "clip.mpg", make=lambda path: write_clip(path, codec="mpeg2video", fps=25), sound="mp2"
    )
    with av.open(str(path)) as container:
        kinds = {stream.type for stream in container.streams}
    assert kinds == {"video", "audio"}


def test_bytes_that_are_not_there_cannot_be_replaced(tmp_path):
    path = write_clip(tmp_path / "clip.mp4", n_frames=1)
    with pytest.raises(ValueError, match="cannot be replaced"):
        replace_bytes(path, tmp_path / "other.mp4", b"nowhere in it", b"something new")


_PLAYLISTS = {
    "list.m3u8": "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\n{clip}\n#EXT-X-ENDLIST\n",
    "list.ffconcat": "ffconcat version 1.0\nfile '{clip}'\n",
    "list.mp4": "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\n{clip}\n#EXT-X-ENDLIST\n",
    "list.txt": "file '{clip}'\n",
    "list.mpd": '<?xml version="1.0"?><MPD><BaseURL>{clip}</BaseURL></MPD>',
    "list.sdp": "v=0\no=- 0 0 IN IP4 127.0.0.1\nm=video 5004 RTP/AVP 96\na=rtpmap:96 H264/90000\n",
}


@pytest.mark.parametrize("name", _PLAYLISTS)
def test_a_playlist_is_no_video_and_what_it_names_is_not_opened(name, tmp_path):
    clip = write_clip(tmp_path / "clip.ts", n_frames=5)
    path = tmp_path / name
    path.write_text(_PLAYLISTS[name].format(clip=clip))
    access_time = clip.stat().st_atime_ns
    with pytest.raises(VideoError, match="a playlist or script, not a video"):
        open_video(path)
    assert clip.stat().st_atime_ns == access_time


def test_a_playlist_behind_an_unknown_beginning_is_not_followed(tmp_path):
    # FFmpeg finds HLS by its tags behind a first line that it knows; the whitelist refuses it by format.
    path = tmp_path / "list.m3u8"
    path.write_text("\n\n\ufeff#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\nclip.ts\n", encoding="utf-8")
    with pytest.raises(VideoError):
        open_video(path)


@pytest.mark.parametrize("name", ["concat:a|b.mp4", "http:x.mp4", "clip%03d.mp4", "a:b.mkv", "-i.mp4"])
def test_a_name_that_looks_like_an_address_is_a_name(name, tmp_path):
    path = write_clip(tmp_path / "clip.mkv", n_frames=3).rename(tmp_path / name)
    with open_video(path) as video:
        assert frame_number(video.read([2])[0]) == 2


_ON_A_FULL_DISK = """
import resource, sys
import numpy as np
from focus_eval.core.errors import VideoError
from focus_eval.keyframes.video.clip_writer import ClipWriter
path, n_frames, most_bytes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
errors = []
try:
    with ClipWriter(path, width=64, height=64) as writer:
        for number in range(n_frames):
            try:
                writer.write(np.random.default_rng(number).integers(0, 255, (64, 64, 3), dtype=np.uint8))
            except VideoError as error:  # as a caller would that does not stop
                errors.append(str(error))
except VideoError as error:
    errors.append(str(error))
print(errors[0].removeprefix(path), errors[-1].removeprefix(path), sep="|")
"""


@pytest.mark.parametrize(
    ("n_frames", "most_bytes", "first", "last"),
    [
        (1, -1, ": the file could not be finished: [Errno 28]", ": the file could not be finished: [Errno 28]"),
        (200, -1, "could not be encoded: [Errno 28]", ": an earlier frame could not be written"),
        (200, 100_000, "could not be encoded: [Errno 27]", ": an earlier frame could not be written"),
    ],
)
def test_a_full_disk_is_an_error_and_ends_no_process(n_frames, most_bytes, first, last, tmp_path):
    """In a process of its own: FFmpeg crashed where more was written after a failure, of the header or of a frame."""
    if most_bytes < 0:
        (tmp_path / "clip.mp4").symlink_to("/dev/full")
    command = [sys.executable, "-c", _ON_A_FULL_DISK, str(tmp_path / "clip.mp4"), str(n_frames), str(most_bytes)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    first_error, last_error = result.stdout.split("|")
    assert first in first_error
    assert last in last_error
