"""Reading subtitle files: formats, encodings, tags, offsets, and files that cannot be read."""

from __future__ import annotations

import json
import time

import pytest

from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import TimedText
from focus_eval.keyframes.subtitles import files
from focus_eval.keyframes.subtitles.files import read_subtitles

SRT = (
    '1\n00:00:01,500 --> 00:00:03,000\n<font color="white" size=".72c">hello</font>\n\n'
    "2\n00:00:03,000 --> 00:01:04,250\n{\\an8}{laughs} <i>two</i>\nlines\n"
)
VTT = (
    "WEBVTT\n\nNOTE made by hand\n\nSTYLE\n::cue { color: red }\n\n"
    "first\n00:01.500 --> 00:03.000 align:start\n<v Ann>hello</v>\n\n"
    "00:03.000 --> 00:01:04.250\n{laughs} <c.yellow>two</c>\nlines\n"
)
LINES = (TimedText(1.5, 3.0, "hello"), TimedText(3.0, 64.25, "{laughs} two lines"))


def write_file(folder, content, name="talk.srt"):
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("content", [SRT, SRT.replace("\n", "\r\n"), "\n\n" + SRT, VTT, VTT.replace("\n", "\r")])
def test_web_formats_give_the_same_lines_whatever_their_name_and_line_ends(tmp_path, content):
    assert read_subtitles(write_file(tmp_path, content, "talk.txt")) == LINES


@pytest.mark.parametrize(
    "entries",
    [
        [{"timestamp": [12.5, 14], "text": "later"}, {"timestamp": [10, 11.5], "text": "first"}],
        [
            {"start": "00:00:12.5", "end": "0:00:14", "line": "later"},
            {"start": "00:00:10", "end": "00:00:11.500", "line": "first"},
        ],
    ],
)
def test_lines_are_on_the_clock_of_the_video_in_the_order_of_the_file(tmp_path, entries):
    path = write_file(tmp_path, json.dumps(entries), "subtitles.json")
    assert read_subtitles(path, offset_seconds=10.0) == (TimedText(2.5, 4.0, "later"), TimedText(0.0, 1.5, "first"))


def test_a_line_without_an_end_lasts_until_the_next_or_to_the_stated_end(tmp_path):
    lines = [([3, None], "a"), ([5, None], "b"), ([4, None], "out of order")]
    path = write_file(tmp_path, json.dumps([{"timestamp": times, "text": text} for times, text in lines]))
    assert [line.stop_seconds for line in read_subtitles(path)] == [5.0, 5.0, 4.0]
    assert [line.stop_seconds for line in read_subtitles(path, open_end_seconds=60.0)] == [60.0, 60.0, 60.0]


SPOKEN = {"cp1251": "Добрый вечер", "shift_jis": "こんにちは、世界", "gb18030": "大家好", "utf-16": "Ça va? 大家好"}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252", *SPOKEN])
def test_other_encodings_are_read_by_their_mark_or_their_name_and_never_guessed(tmp_path, encoding):
    sentence = SPOKEN.get(encoding, "Où êtes-vous allés? Ça va très bien, à bientôt")
    path = write_file(tmp_path, SRT.replace("hello", sentence).encode(encoding))
    has_mark = encoding.startswith("utf")
    if not has_mark:
        with pytest.raises(InvalidInput, match=r"line 3, byte .* is not utf-8: name the file's encoding or save it"):
            read_subtitles(path)
    assert read_subtitles(path, encoding="" if has_mark else encoding)[0].text == sentence


def test_an_unknown_encoding_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="no encoding is called 'cp12520', try cp1252"):
        read_subtitles(write_file(tmp_path, SRT), encoding="cp12520")


@pytest.mark.parametrize("content", ["", " \n\n", "[]", "WEBVTT\n\n"])
def test_a_file_without_a_line_gives_none(tmp_path, content):
    assert read_subtitles(write_file(tmp_path, content)) == ()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("Dear reader,\nthis is a letter.\n", "neither SubRip, WebVTT nor JSON"),
        (b"\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00" + bytes(range(256)) * 40, "no text"),
        (SRT.replace("00:00:03,000 -->", "00:00:3 -->"), "line 6 is no range of times: '00:00:3 --> 00:01:04,250'"),
        ('{"timestamp": [1, 2]}', "not a list of lines"),
        ('[{"timestamp": [1, 2], "text": "a"}, {"timestamp": [1], "text": "b"}]', "entry 1 is not a line"),
        ('[{"timestamp": [NaN, 2], "text": "a"}]', "entry 0 is not a line"),
        ('[{"start": "1:2", "end": 3, "line": "a"}]', "entry 0 is not a line"),
        ('[{"timestamp": [1, 2], "text": ', "subtitles cannot be read"),
    ],
)
def test_a_broken_or_foreign_file_is_named_with_its_first_fault(tmp_path, content, reason):
    path = write_file(tmp_path, content)
    with pytest.raises(InvalidInput) as caught:
        read_subtitles(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert reason in message
    assert "\n" not in message


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    for path in (tmp_path / "gone.srt", tmp_path):
        with pytest.raises(InvalidInput, match=f"{path}: subtitles cannot be read"):
            read_subtitles(path)


def test_ten_thousand_lines_take_no_time(tmp_path):
    def clock(seconds):
        return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02},000"

    cues = "".join(f"{n}\n{clock(n)} --> {clock(n + 1)}\nline {n}\n\n" for n in range(10_000))
    started = time.process_time()
    lines = read_subtitles(write_file(tmp_path, cues))
    assert (len(lines), lines[-1]) == (10_000, TimedText(9999.0, 10000.0, "line 9999"))
    assert time.process_time() - started < 5


def test_a_file_larger_than_subtitles_are_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_BYTES", 1_000_000)
    path = write_file(tmp_path, SRT + "\n" * (1_000_000 - len(SRT)))
    assert read_subtitles(path) == LINES
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(InvalidInput, match="more than 1 MB"):
        read_subtitles(path)
