"""Subtitles in both forms of LongVideoBench's files, on the clock of the video."""

from __future__ import annotations

import json

import pytest

from focus_eval.core.types import TimedText
from focus_eval.keyframes.video.subtitles import read_subtitles


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
def test_lines_are_in_order_on_the_clock_of_the_video(tmp_path, entries):
    path = tmp_path / "subtitles.json"
    path.write_text(json.dumps(entries))
    expected = (TimedText(0.0, 1.5, "first"), TimedText(2.5, 4.0, "later"))
    assert read_subtitles(path, offset_seconds=10.0) == expected


def test_a_line_without_an_end_lasts_until_the_next_and_never_ends_before_it_starts(tmp_path):
    path = tmp_path / "subtitles.json"
    lines = [([3, None], "a"), ([5, None], "b"), ([4, None], "out of order")]
    path.write_text(json.dumps([{"timestamp": times, "text": text} for times, text in lines]))
    stops = {line.text: line.stop_seconds for line in read_subtitles(path)}
    assert stops == {"a": 5.0, "b": 5.0, "out of order": 4.0}
