"""Does `videos verify` find damage once, and is then refused what it found, and nothing else?"""

from __future__ import annotations

import json
import os

import av
import numpy as np
import pytest
from typer.testing import CliRunner

from focus_eval.cli import app
from focus_eval.core.errors import VideoError
from focus_eval.keyframes.video import decoder, open_video, verification
from focus_eval.keyframes.video.manifest import MANIFEST_NAME, VERDICTS_NAME, count_verified, read_manifest, verdict_on
from focus_eval.keyframes.video.verification import index_folder, verify_folder
from tests.support.keyframes.clips import write_clip
from tests.support.keyframes.faults import frame_prints, read_here

pytestmark = pytest.mark.slow


def _samples(path):
    with av.open(str(path)) as container:
        return [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]


def _damage(path, *, packet: int) -> None:
    """Overwrite the middle of a packet with zeros."""
    place, size = _samples(path)[packet]
    data = bytearray(path.read_bytes())
    data[place + size // 2 : place + size - 4] = bytes(size - 4 - size // 2)
    path.write_bytes(data)


@pytest.fixture
def folder(tmp_path):
    """A whole video, one with a damaged frame, one that is counted by decoding, and one in a folder below."""
    folder = tmp_path / "videos"
    (folder / "part").mkdir(parents=True)
    write_clip(folder / "whole.mp4", n_frames=40, gop=20)
    options = {"x264-params": "bframes=0:scenecut=0:keyint=20"}
    _damage(write_clip(folder / "damaged.mp4", n_frames=60, gop=20, options=options), packet=25)
    write_clip(folder / "counted.avi", n_frames=30, codec="mpeg4", fps=25, options={"bf": "2"})
    write_clip(folder / "part" / "clip.webm", n_frames=30, gop=10, codec="libvpx")
    return folder


def test_the_command_names_what_is_damaged_and_exits_1(folder):
    result = CliRunner().invoke(app, ["videos", "verify", str(folder), "--jobs", "2"])
    assert result.exit_code == 1
    assert "4 videos, 1 of them damaged" in result.output
    assert "damaged.mp4: damaged: frames 25 to 39 of 60" in result.output
    (folder / "damaged.mp4").unlink()
    assert CliRunner().invoke(app, ["videos", "verify", str(folder)]).exit_code == 0


def test_one_file_is_verified_alone_and_others_keep_their_entries(folder, monkeypatch):
    damaged, clip = folder / "damaged.mp4", folder / "part" / "clip.webm"
    result = CliRunner().invoke(app, ["videos", "verify", str(damaged)])
    assert result.exit_code == 1
    assert "1 video, 1 of them damaged" in result.output
    assert "damaged.mp4: damaged: frames 25 to 39 of 60" in result.output
    assert (verdict_on(damaged).damaged, verdict_on(folder / "whole.mp4")) == (((25, 40),), None)
    # With a manifest of the folder above, and named from another folder: the entry stays there.
    index_folder(folder)
    names = set(read_manifest(folder))
    monkeypatch.chdir(folder / "part")
    for action in ("verify", "index"):
        result = CliRunner().invoke(app, ["videos", action, "clip.webm"])
        assert result.exit_code == 0, result.output
        assert "1 video, " in result.output
    assert set(read_manifest(folder)) == names
    assert not (clip.parent / MANIFEST_NAME).exists()
    assert verdict_on(clip).is_whole


def test_damaged_frames_are_refused_before_decoding_and_the_others_are_right(folder):
    path = folder / "damaged.mp4"
    prints = frame_prints(path)
    verify_folder(folder)
    assert verdict_on(path).damaged == ((25, 40),)
    with open_video(path) as video:
        with pytest.raises(VideoError, match="frame 25 asked, but it cannot be decoded: the file is damaged, by its"):
            video.read([0, 25, 30])
        assert video.n_decoded == 0
        assert video.read([*range(25), *range(40, 60)]).shape[0] == 45
        assert video.frame_times([30]).shape == (1,)
    assert read_here(path, prints).kind == "refused"


def test_a_verified_video_is_not_decoded_again_and_one_of_the_same_content_neither(folder):
    decoded = []
    verify_folder(folder, progress=decoded.append)
    assert set(decoded) == {path for path in folder.rglob("*") if path.suffix in (".mp4", ".avi", ".webm")}
    decoded.clear()
    (folder / "copy.mp4").write_bytes((folder / "whole.mp4").read_bytes())
    os.utime(folder / "whole.mp4", ns=(5, 5))
    verify_folder(folder, progress=decoded.append)
    assert decoded == [folder / "copy.mp4"]  # to index it
    assert verdict_on(folder / "copy.mp4") == verdict_on(folder / "whole.mp4")


def test_another_version_decodes_again(folder, monkeypatch):
    verify_folder(folder)
    monkeypatch.setattr(verification, "writer_version", lambda: "another")
    decoded = []
    verify_folder(folder, progress=decoded.append)
    assert len(decoded) == 4


def test_damage_that_no_decoder_notices_is_found_by_an_earlier_reading(folder):
    path = folder / "part" / "clip.webm"
    verify_folder(folder)
    place, size = _samples(path)[14]
    data = bytearray(path.read_bytes())
    data[place + size - 6] ^= 1
    path.write_bytes(data)
    verdict = verify_folder(folder)["part/clip.webm"]
    assert verdict.damaged[0][0] <= 14 < verdict.damaged[-1][1] <= 20
    with pytest.raises(VideoError, match="its content is not what"):
        open_video(path)
    # Indexed anew, as it cannot be fetched again: the frames that changed are refused, the others read.
    index_folder(folder)
    with open_video(path) as video:
        assert video.read([0, 25]).shape[0] == 2
        with pytest.raises(VideoError, match="frame 14 asked"):
            video.read([14])


def test_another_video_behind_a_name_is_no_damage_of_the_one_before(folder):
    verify_folder(folder)
    write_clip(folder / "whole.mp4", n_frames=41, gop=20)
    assert verify_folder(folder)["whole.mp4"].error == "its content is not what its manifest was written for"


def test_a_video_that_cannot_be_opened_is_damaged_as_a_whole(folder):
    (folder / "broken.mp4").write_bytes(b"\0\0\0\x18ftypmp42" + bytes(500))
    verdict = verify_folder(folder)["broken.mp4"]
    assert (verdict.frames, verdict.is_whole) == (0, False)
    assert verdict.error.startswith("an MP4 without its index")


def test_verified_videos_are_counted(folder):
    paths = [folder / "whole.mp4", folder / "damaged.mp4", folder / "part" / "clip.webm"]
    assert count_verified(paths) == "0 of 3 videos verified"
    verify_folder(folder)
    assert count_verified(paths) == "3 of 3 videos verified, 1 of them damaged"
    os.utime(paths[0], (1, 1))
    with open(paths[1], "ab") as file:
        file.write(b"\0")
    assert count_verified(paths) == "1 of 3 videos verified; 2 changed since: videos verify says how"
    # The first has its content still, the second is refused until it is fetched again.
    result = CliRunner().invoke(app, ["videos", "verify", str(folder)])
    assert result.exit_code == 1
    assert "damaged.mp4: not the file its manifest was written for" in " ".join(result.output.split())
    assert "whole.mp4: not the file" not in result.output
    assert count_verified(paths) == "2 of 3 videos verified; 1 changed since: videos verify says how"


@pytest.mark.parametrize("text", ["", "[]", '{"version": 1}', '{"version": 9, "videos": {}}'])
def test_damaged_verdicts_are_an_error_and_not_ignored(folder, text):
    verify_folder(folder)
    (folder / VERDICTS_NAME).write_text(text)
    with pytest.raises(VideoError, match=VERDICTS_NAME):
        open_video(folder / "whole.mp4")


def test_verdicts_hold_a_checksum_for_each_group_of_pictures(folder):
    verify_folder(folder)
    verdicts = json.loads((folder / VERDICTS_NAME).read_text())["videos"].values()
    assert sorted(len(verdict["groups"]) for verdict in verdicts) == [0, 2, 3, 3]
    for verdict in verdicts:
        starts, stops = np.array([group[:2] for group in verdict["groups"]] or [[0, verdict["frames"]]]).T
        assert (starts[0], stops[-1]) == (0, verdict["frames"])
        assert (starts[1:] <= stops[:-1]).all()


def test_signs_of_damage_that_ffmpeg_passes_over_are_reported_and_refuse_nothing(tmp_path):
    path = write_clip(tmp_path / "clip.webm", n_frames=30, gop=10, codec="libvpx", width=320, height=192)
    place, size = max(_samples(path)[10:20], key=lambda sample: sample[1])
    assert verify_folder(tmp_path)["clip.webm"].notes == ()
    data = bytearray(path.read_bytes())
    data[place + size // 2 : place + size // 2 + 100] = bytes(100)
    path.write_bytes(data)
    index_folder(tmp_path)
    (tmp_path / VERDICTS_NAME).unlink()
    verdict = verify_folder(tmp_path)["clip.webm"]
    assert verdict.is_whole
    assert verdict.notes[0] == "1 of 30 packets hold 64 zeros in a row, as blanked sectors do"
    assert "pictures otherwise than FFmpeg" in verdict.notes[1]
    with open_video(path) as video:
        assert video.read(range(30)).shape[0] == 30
    assert verify_folder(tmp_path)["clip.webm"] == verdict  # as it was kept
    result = CliRunner().invoke(app, ["videos", "verify", str(tmp_path)])
    assert "packets hold 64 zeros in a row" in " ".join(result.output.split())


def test_only_unverified_vp9_is_decoded_by_libvpx_too(tmp_path, monkeypatch):
    (tmp_path / "verified").mkdir()
    path = write_clip(tmp_path / "verified" / "clip.webm", n_frames=5, codec="libvpx-vp9", options={"cpu-used": "8"})
    verify_folder(path.parent)
    copy = tmp_path / "clip.webm"
    copy.write_bytes(path.read_bytes())
    monkeypatch.setattr(decoder, "is_refused", lambda second, packet: True)
    with open_video(path) as video:
        assert video.read([3]).shape[0] == 1
    with open_video(copy) as video, pytest.raises(VideoError, match="frame 3 asked, but it cannot be decoded"):
        video.read([3])
