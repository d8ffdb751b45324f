"""Does a manifest notice a file that is another than when its folder was indexed, and spare reading it?"""

from __future__ import annotations

import json
import os
import shutil

import pytest
from typer.testing import CliRunner

from focus_eval.cli import app
from focus_eval.core.errors import InvalidInput, VideoError
from focus_eval.keyframes.video import manifest, open_video
from focus_eval.keyframes.video.manifest import MANIFEST_NAME, content_hash, known_info
from focus_eval.keyframes.video.verification import index_folder, note_first_sight
from tests.support.keyframes.clips import write_clip


@pytest.fixture
def folder(tmp_path):
    """Two videos, one in a folder below, in codecs whose damage leaves no trace, and a note that is no video."""
    (tmp_path / "videos" / "part").mkdir(parents=True)
    write_clip(tmp_path / "videos" / "a.webm", n_frames=30, codec="libvpx")
    write_clip(tmp_path / "videos" / "part" / "b.mp4", n_frames=45, fps=25)
    (tmp_path / "videos" / "note.txt").write_text("not a video")
    return tmp_path / "videos"


def test_the_command_writes_what_the_reader_finds(folder):
    result = CliRunner().invoke(app, ["videos", "index", str(folder)])
    assert result.exit_code == 0, result.output
    videos = json.loads((folder / MANIFEST_NAME).read_text())["videos"]
    assert sorted(videos) == ["a.webm", "part/b.mp4"]
    with open_video(folder / "part" / "b.mp4") as video:
        assert (videos["part/b.mp4"]["frames"], videos["part/b.mp4"]["fps"]) == (45, video.info.fps)
    assert videos["part/b.mp4"]["seconds"] == pytest.approx(45 / 25)
    assert videos["a.webm"]["bytes"] == (folder / "a.webm").stat().st_size


def test_a_changed_bit_is_noticed_where_no_decoder_could(folder):
    index_folder(folder)
    path = folder / "a.webm"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(VideoError, match=r"a.webm: its content is not what videos.manifest.json was written for"):
        open_video(path)
    path.write_bytes(data[:-1])
    with pytest.raises(VideoError, match=r"a.webm: \d+ bytes, its manifest says \d+; download it again"):
        open_video(path)


def test_a_video_fetched_again_is_right_after_indexing_anew(folder):
    index_folder(folder)
    write_clip(folder / "a.webm", n_frames=31, codec="libvpx")
    with pytest.raises(VideoError, match="videos index"):
        open_video(folder / "a.webm")
    index_folder(folder)
    assert open_video(folder / "a.webm").info.n_frames == 31


def test_a_file_that_the_manifest_does_not_name_is_read(folder):
    index_folder(folder)
    shutil.copy(folder / "a.webm", folder / "c.webm")
    assert open_video(folder / "c.webm").info.n_frames == 30


def test_length_and_rate_are_known_without_the_video(folder):
    index_folder(folder)
    os.unlink(folder / "part" / "b.mp4")
    assert known_info(folder / "part" / "b.mp4").n_frames == 45
    assert known_info(folder / "other.mp4") is None
    (folder / "a.webm").write_bytes(b"something else")
    assert known_info(folder / "a.webm") is None


def test_a_manifest_of_the_version_before_is_read(folder):
    index_folder(folder)
    content = json.loads((folder / MANIFEST_NAME).read_text())
    content["videos"]["a.webm"]["checked"] = "cannot be checked"
    (folder / MANIFEST_NAME).write_text(json.dumps(content))
    assert known_info(folder / "a.webm").n_frames == 30


def test_a_name_that_is_not_utf8_is_found_again(folder):
    path = (folder / "a.webm").rename(folder / os.fsdecode(b"caf\xe9.webm"))
    index_folder(folder)
    assert known_info(path).n_frames == 30


def test_a_video_that_cannot_be_read_is_named_and_exits_1(folder):
    (folder / "broken.mp4").write_bytes(b"\0\0\0\x18ftypmp42" + bytes(500))
    result = CliRunner().invoke(app, ["videos", "index", str(folder)])
    assert result.exit_code == 1
    assert "cannot be read: broken.mp4: an MP4 without its index" in result.output
    assert known_info(folder / "broken.mp4") is None


def test_rates_of_questions_are_read_from_their_videos(folder, tmp_path):
    question = {"candidates": ["x", "y"], "correct_choice": 0, "duration": 2, "position": [1]}
    videos = ["part/b.mp4", "part/b.mp4", "nowhere.mp4"]
    rows = [{**question, "id": f"q{n}", "question": "why?", "video_path": video} for n, video in enumerate(videos)]
    (tmp_path / "lvb.json").write_text(json.dumps(rows))
    rates = tmp_path / "rates.csv"
    command = ["videos", "rates", str(folder), "--annotations", str(tmp_path / "lvb.json"), "--out", str(rates)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert "2 of 3 questions about 1 videos" in result.output
    assert "nowhere.mp4: no such file" in result.output
    assert rates.read_text() == "id,duration_s,fps\nq0,1.8001,25/1\nq1,1.8001,25/1\n"
    result = CliRunner().invoke(app, [*command[:2], str(tmp_path), *command[3:]])
    assert "none of 2 videos can be read; the first:" in str(result.exception)
    result = CliRunner().invoke(app, command[:3])
    assert "give --annotations" in str(result.exception)


def test_a_folder_without_videos_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="no videos in it"):
        index_folder(tmp_path)
    with pytest.raises(InvalidInput, match="no such folder"):
        index_folder(tmp_path / "nowhere")


@pytest.mark.parametrize("text", ["", "[]", '{"version": 1}', '{"version": 9, "videos": {}}', "[" * 100_000])
def test_a_damaged_manifest_is_an_error_and_not_ignored(folder, text):
    (folder / MANIFEST_NAME).write_text(text)
    with pytest.raises(VideoError, match=MANIFEST_NAME):
        open_video(folder / "a.webm")


def test_a_video_written_down_at_first_sight_is_refused_when_it_changed(folder):
    path = folder / "a.webm"
    assert note_first_sight(folder, path, sha256=content_hash(path))
    assert note_first_sight(folder, folder / "part" / "b.mp4", sha256=content_hash(folder / "part" / "b.mp4"))
    assert known_info(path).n_frames == 30
    assert known_info(folder / "part" / "b.mp4").n_frames == 45
    os.utime(path, ns=(7, 7))
    assert open_video(path).info.n_frames == 30  # the same content
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(VideoError, match="its content is not what"):
        open_video(path)


def test_first_sight_hashes_nothing_while_the_time_of_change_is_the_same(folder, monkeypatch):
    path = folder / "a.webm"
    note_first_sight(folder, path, sha256=content_hash(path))
    monkeypatch.setattr("focus_eval.keyframes.video.manifest.content_hash", None)
    manifest.check_file(path)


def test_first_sight_leaves_an_indexed_folder_and_files_elsewhere_alone(folder, tmp_path):
    index_folder(folder)
    text = (folder / MANIFEST_NAME).read_text()
    assert note_first_sight(folder, folder / "a.webm", sha256="0" * 64)
    assert (folder / MANIFEST_NAME).read_text() == text
    other_clip = write_clip(tmp_path / "other.mp4", n_frames=12)
    assert not note_first_sight(folder, other_clip, sha256="0" * 64)


def test_a_file_that_changes_while_it_is_hashed_has_no_hash(tmp_path, monkeypatch):
    path = tmp_path / "v.mp4"
    path.write_bytes(b"first")
    state = manifest.file_state(path)
    states = iter([state, state._replace(mtime_ns=state.mtime_ns + 1)])
    monkeypatch.setattr(manifest, "file_state", lambda _: next(states))
    with pytest.raises(VideoError, match="changed while it was read"):
        manifest.content_hash(path)
