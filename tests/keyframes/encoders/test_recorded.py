"""Recorded relevance equals the file, or an error names the missing frame."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from focus_eval.core.errors import EncoderError, InvalidInput
from focus_eval.keyframes.encoders.recorded import RecordedScorer
from focus_eval.keyframes.encoders.registry import make_encoder
from focus_eval.keyframes.rows.records import SelectionRow

CLIP = Path("videos/clip.mp4")


def line(video="clip.mp4", query="a cat", frames=(3, 7), values=(0.25, 0.5)):
    return json.dumps({"video": video, "query": query, "pulled_frames": list(frames), "pulled_relevance": list(values)})


def test_a_trace_is_for_every_video_and_query():
    scorer = RecordedScorer(np.array([0.0, 0.5, 1.0]))
    for video, query in ((CLIP, "a cat"), (Path("other.mkv"), "a dog")):
        np.testing.assert_array_equal(scorer.relevance_of(video, np.array([2, 0, 2]), query), [1.0, 0.0, 1.0])


def test_a_frame_without_a_record_is_named(tmp_path):
    scorer = RecordedScorer(np.array([0.0, np.nan, 1.0]))
    for frame in (1, 3, -1):
        with pytest.raises(EncoderError, match=rf"clip\.mp4: frame {frame} has no relevance in the trace \(2 have\)"):
            scorer.relevance_of(CLIP, np.array([0, frame]), "a cat")


@pytest.mark.parametrize("ending", ["npy", "jsonl"])
def test_every_kind_of_file_gives_back_what_was_written(tmp_path, ending):
    path, frames, values = tmp_path / f"kept.{ending}", np.array([0, 1, 2]), np.array([0.1, 0.7, 1 / 3])
    if ending == "npy":
        np.save(path, values)
    else:
        path.write_text(line(frames=frames.tolist(), values=values.tolist()) + "\n")
    scorer = make_encoder("recorded", path=str(path))
    np.testing.assert_array_equal(scorer.relevance_of(CLIP, frames[::-1], " a cat "), values[::-1])


def test_the_selection_rows_of_a_run_are_replayed(tmp_path):
    row = SelectionRow(
        benchmark="b", question_id="1", video="clip.mp4", query="a cat", selection_id="s", sampler="topk", options={},
        encoder="offline", encoder_revision="1", k=2, seed=0, bucket="short", duration_seconds=1.0,
        pulled_frames=[5, 2, 8], pulled_relevance=[0.1 + 0.2, None, 1.0],
    )  # fmt: skip
    failed = SelectionRow(**{**asdict(row), "question_id": "2", "pulled_frames": [], "pulled_relevance": []})
    path = tmp_path / "selections.jsonl"
    path.write_text("".join(json.dumps(asdict(item)) + "\n" for item in (row, failed)) + '{"video": "to')
    scorer = RecordedScorer(path=path)
    np.testing.assert_array_equal(scorer.relevance_of(CLIP, np.array([8, 5]), "a cat"), [1.0, 0.1 + 0.2])
    with pytest.raises(EncoderError, match="frame 2 has no relevance"):
        scorer.relevance_of(CLIP, np.array([2]), "a cat")


@pytest.mark.parametrize(("video", "query"), [("other.mp4", "a cat"), ("clip.mp4", "a dog")])
def test_another_video_or_query_has_no_record(tmp_path, video, query):
    path = tmp_path / "kept.jsonl"
    path.write_text(line() + "\n")
    with pytest.raises(EncoderError, match=f"{video}: nothing is recorded for the query '{query}'"):
        RecordedScorer(path=path).relevance_of(Path(video), np.array([3]), query)


def test_an_edited_file_is_another_revision(tmp_path):
    path, revisions = tmp_path / "kept.jsonl", set()
    for text in (line(), line(values=(0.25, 0.75)), line(query="a dog"), line(frames=(3, 8))):
        path.write_text(text + "\n")
        revisions.add(RecordedScorer(path=path).revision)
    path.write_text(line(frames=(7,), values=(0.5,)) + "\n" + line(frames=(3,), values=(0.25,)))
    assert len(revisions) == 4
    assert RecordedScorer(path=path).revision in revisions


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gone.npy", None, "No such file"),
        ("kept.csv", b"", "relevance is read from"),
        ("kept.npy", b"no array", "no recorded relevance can be read"),
        ("kept.jsonl", b"{broken\n{}\n", "line 1 is not JSON"),
        ("kept.jsonl", b"[1, 2]\n", "line 1 has no video"),
        ("kept.jsonl", b'{"video": "a", "query": "b", "pulled_frames": [1]}\n', "line 1 has no pulled_relevance"),
        ("kept.jsonl", b"", "no relevance in this file"),
        ("kept.jsonl", line(frames=(1,)).encode(), "1 frame indices for 2 relevance values"),
        ("kept.jsonl", line(values=(0.5, 1.5)).encode(), "frame 7 has relevance 1.5"),
        ("kept.jsonl", line(values=("high", 0.5)).encode(), "no recorded relevance can be read"),
        ("kept.jsonl", line(frames=(3, -7)).encode(), "frame -7"),
        ("kept.jsonl", (line() + "\n" + line(values=(0.25, 0.6))).encode(), "frame 7 is recorded twice"),
    ],
)
def test_a_file_that_holds_no_relevance_says_what_is_wrong(tmp_path, name, content, message):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidInput, match=name) as caught:
        RecordedScorer(path=path)
    assert message in str(caught.value)


@pytest.mark.parametrize("trace", [np.zeros((2, 2)), np.array(["a"]), [], [np.nan], [0.5, 1.5], [0.5, -0.1]])
def test_a_trace_that_is_none_is_refused(trace):
    with pytest.raises(InvalidInput, match="trace"):
        RecordedScorer(trace)


def test_exactly_one_source_is_needed(tmp_path):
    with pytest.raises(InvalidInput, match="exactly one of the two"):
        RecordedScorer()
    with pytest.raises(InvalidInput, match="exactly one of the two"):
        RecordedScorer([0.5], path=tmp_path / "x.npy")


@pytest.mark.parametrize("shape", ["(1000000000000000,)", "(9999999999999999999999,)"])
def test_an_array_that_states_a_huge_shape_is_one_line(shape, tmp_path):
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
    path = tmp_path / "trace.npy"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"trace.*no recorded relevance can be read") as caught:
        RecordedScorer(path=path)
    assert "\n" not in str(caught.value)
