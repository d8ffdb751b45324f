"""Subtitles of evenly spaced frames against lmms-eval's own functions, letter for letter."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from focus_eval.keyframes.subtitles.files import read_subtitles
from focus_eval.keyframes.subtitles.prompts import block_text, interleaved, shown_lines, text_of_parts
from tests.support.keyframes.synthetic import write_numbered_clip


def spoken_entries(form, *, seconds, n_lines, offset, seed):
    """Entries of a LongVideoBench file: overlapping, short, empty, late and open ones, some out of order."""
    rng = random.Random(seed)
    entries = []
    for number in range(n_lines):
        start = round(rng.uniform(-2, seconds + 5), 3) + offset
        stop = round(start + rng.choice([0.0, 0.4, 1.0, 2.5, 9.0]), 3)
        text = rng.choice([f"line {number}", "", "Ça va? <i>yes</i>"])
        if form == "timestamp":
            entries.append({"timestamp": [start, None if rng.random() < 0.1 else stop], "text": text})
        else:
            start, stop = max(start, 0.0), max(stop, 0.0)
            times = [f"{int(t // 3600):02}:{int(t // 60) % 60:02}:{t % 60:06.3f}" for t in (start, stop)]
            entries.append({"start": times[0], "end": times[1], "line": text})
    return (
        entries
        if rng.random() < 0.2
        else sorted(entries, key=lambda entry: str(entry.get("start", entry.get("timestamp"))))
    )


@pytest.mark.parametrize("form", ["timestamp", "start"])
@pytest.mark.parametrize("k", [16, 32])
@pytest.mark.parametrize("seed", range(8))
def test_longvideobenchs_lines_stand_between_even_frames_as_lmms_eval_puts_them(tmp_path, form, k, seed):
    from lmms_eval.tasks.longvideobench.utils import compute_frame_timestamps, insert_subtitles_into_frames

    seconds, offset = random.Random(seed).choice([(12.0, 0.0), (61.5, 0.0), (905.25, 30.0), (3600.0, 2.5)])
    entries = spoken_entries(form, seconds=seconds, n_lines=50 + int(seconds), offset=offset, seed=seed)
    times = [float(time) for time in compute_frame_timestamps(seconds, k)]
    official = insert_subtitles_into_frames(times, entries, offset, seconds)
    path = tmp_path / "spoken.json"
    path.write_text(json.dumps(entries))
    lines = read_subtitles(path, offset_seconds=offset, open_end_seconds=seconds)
    shown_texts = shown_lines(lines, times, rule="longvideobench", fps=25.0)
    assert text_of_parts(interleaved(lines, times, texts_of=shown_texts)) == official
    assert 0 < len(shown_texts) < len(lines)


def spoken_srt(*, seconds, n_lines, seed):
    """A file as those of Video-MME: a font tag around each line, some of several lines, overlapping or empty."""
    rng = random.Random(seed)

    def clock(time):
        milliseconds = round(time * 1000)
        minutes, seconds = milliseconds // 60_000, milliseconds // 1000 % 60
        return f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02},{milliseconds % 1000:03}"

    starts = sorted(rng.sample(range(int(seconds * 1000)), n_lines))
    cues = []
    for number, start in enumerate(starts):
        text = rng.choice([f"line {number}", f"two\nlines {number}", "Ça va?"])
        stop = start / 1000 + rng.choice([0.3, 2.0, 6.5])
        cues.append(
            f'{number + 1}\n{clock(start / 1000)} --> {clock(stop)}\n<font color="white" size=".72c">{text}</font>\n'
        )
    return "\n".join(cues)


@pytest.mark.parametrize("k", [16, 32])
@pytest.mark.parametrize(("seconds", "n_lines", "fps"), [(30, 12, 25), (40, 60, 30), (64, 30, 24)])
def test_video_mmes_lines_are_those_lmms_eval_lists_in_the_order_of_time(
    tmp_path, monkeypatch, k, seconds, n_lines, fps
):
    from lmms_eval.tasks.videomme import utils

    (tmp_path / "videomme" / "data").mkdir(parents=True)
    (tmp_path / "videomme" / "subtitle").mkdir()
    write_numbered_clip(tmp_path / "videomme" / "data" / "v.mp4", seconds * fps, width=32, height=32, fps=fps)
    path = tmp_path / "videomme" / "subtitle" / "v.srt"
    path.write_text(spoken_srt(seconds=seconds, n_lines=n_lines, seed=k + seconds))
    monkeypatch.setattr(utils, "base_cache_dir", str(tmp_path))
    document = {"videoID": "v", "question": "What?", "options": ["A. this", "B. that"]}
    official = utils.videomme_doc_to_text_subtitle(document, {"frame_num": k})
    frames = np.linspace(0, seconds * fps - 1, k, dtype=int)
    lines = read_subtitles(path)
    shown_texts = shown_lines(lines, [frame / fps for frame in frames.tolist()], rule="videomme", fps=float(fps))
    block = block_text(shown_texts)
    # lmms-eval takes the lines from a set of their numbers, whose order is that of time up to some hundred lines.
    assert official.startswith(f"{block}Select the best answer")
    assert 0 < len(shown_texts) < len(lines)


def test_a_frame_between_those_of_a_constant_rate_counts_by_its_time(tmp_path):
    path = tmp_path / "v.srt"
    path.write_text("1\n00:00:01,010 --> 00:00:02,000\nspoken\n")
    lines = read_subtitles(path)
    assert shown_lines(lines, [1.0], rule="videomme", fps=25.0) == lines  # frame 25 lasts until 1.04 s
    assert shown_lines(lines, [1.005], rule="videomme", fps=25.0) == ()
    assert shown_lines(lines, [1.011], rule="videomme", fps=25.0) == lines
    assert shown_lines(lines, [2.0], rule="videomme", fps=25.0) == ()
