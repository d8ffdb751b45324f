"""Does a second decoder find damage in VP8 and VP9 that FFmpeg's own decoders pass over, and nothing else?"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import av
import pytest

from focus_eval.core.errors import VideoError
from focus_eval.keyframes.video import open_video
from focus_eval.keyframes.video.decoder import SecondDecoder
from focus_eval.keyframes.video.verification import verify_folder
from tests.support.keyframes.clips import write_clip
from tests.support.keyframes.exactness import check_clip
from tests.support.keyframes.faults import damaged, fault_clips, frame_prints, judge_here

_TEN_BIT = Path(__file__).parents[2] / "recorded" / "vp9_10bit.webm"


@pytest.mark.parametrize(("name", "n_refused"), [("vp8.webm", 10), ("vp9.webm", 10)])
def test_a_changed_byte_is_refused_or_decodes_as_in_a_plain_decode(name, n_refused, tmp_path):
    """Without the second decoder a damaged picture of VP8 shows rests of whichever picture its memory held before."""
    whole = fault_clips()[name](tmp_path / name)
    prints, data, kinds = frame_prints(whole), whole.read_bytes(), Counter[str]()
    for kind in ("byte", "bit"):
        for number in range(8):
            path = tmp_path / f"{kind}{number}.webm"
            path.write_bytes(damaged(data, clip=name, kind=kind, number=number))
            kinds[judge_here(path, prints).kind] += 1
    assert kinds["wrong"] == 0
    assert kinds["refused"] >= n_refused, kinds


def test_ten_bits_are_read_though_the_second_decoder_knows_only_eight():
    assert check_clip(_TEN_BIT).kind == "exact"


def test_only_unverified_files_are_decoded_twice(tmp_path, monkeypatch):
    path = write_clip(tmp_path / "clip.webm", n_frames=20, codec="libvpx")
    verify_folder(tmp_path)
    monkeypatch.setattr(SecondDecoder, "agrees", lambda *arguments: False)
    with open_video(path) as video:
        assert video.read([3]).shape[0] == 1
    copy = tmp_path / "unverified" / "clip.webm"
    copy.parent.mkdir()
    copy.write_bytes(path.read_bytes())
    with open_video(copy) as video, pytest.raises(VideoError, match="frame 3 asked, but it cannot be decoded"):
        video.read([3])


def test_an_ffmpeg_without_libvpx_is_named(tmp_path, monkeypatch):
    path = write_clip(tmp_path / "clip.webm", n_frames=5, codec="libvpx-vp9", options={"cpu-used": "8"})
    monkeypatch.setattr("focus_eval.keyframes.video.decoder._SECOND_DECODERS", {"vp9": "missing"})
    with pytest.raises(VideoError, match=f"^{path}: missing, which finds damage in vp9, is not in this FFmpeg"):
        open_video(path)


def test_the_decoders_of_other_codecs_have_no_second():
    with av.open(str(_TEN_BIT)) as container:
        assert not SecondDecoder.exists_for(container.streams.video[0].codec_context)
    assert not SecondDecoder.exists_for(av.CodecContext.create("h264", "r"))
