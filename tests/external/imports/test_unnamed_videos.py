"""Logs that name no video: three questions a video where their ids say so, else intervals by question."""

from __future__ import annotations

import gzip
import json

import pytest
from typer.testing import CliRunner

from focus_eval.cli import app

pytestmark = pytest.mark.slow

METRIC = "videomme_perception_score"


def called(*arguments):
    """Return what a command prints, in one line."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "300"})
    assert result.exit_code == 0, f"{result.output} {result.exception!r}"
    return " ".join(result.output.split())


def write_log(folder, ids, *, wrong=(), has_ids=True):
    """Write a log without documents of the questions `ids`, right but for the places in `wrong`."""
    folder.mkdir()
    lines = []
    for place, question_id in enumerate(ids):
        answer = {"pred_answer": "B" if place in wrong else "A", "answer": "A"}
        entry = {"question_id": question_id, **answer} if has_ids else answer
        prompt = f"What is seen at {place}?\nA. x\nB. y"
        lines.append({"doc_id": place, "target": "A", "filtered_resps": ["A"], "input": prompt, METRIC: entry})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "20250101_000000_samples_videomme.jsonl").write_text(text)
    figures = {f"{METRIC},none": 100 * (1 - len([*wrong]) / len(ids))}
    results = {"results": {"videomme": figures}, "model_name": "m", "config": {"model_args": "max_frames_num=8"}}
    (folder / "20250101_000000_results.json").write_text(json.dumps(results))
    return folder


def three_each(n_videos):
    return [f"{video:03d}-{question}" for video in range(1, n_videos + 1) for question in (1, 2, 3)]


def test_the_video_follows_from_ids_of_three_questions_each(tmp_path):
    # Nine of 60 answers differ, which are all of three videos.
    ids = three_each(20)
    a, b = write_log(tmp_path / "a", ids), write_log(tmp_path / "b", ids, wrong=range(9))
    output = called("compare", a, b)
    assert "(3 of 20 videos differ)" in output
    assert "no video is named" not in output
    imported = called("import", "lmms", a, "--out", tmp_path / "run")
    assert "60 about 20 videos" in imported
    assert "videos by the questions' ids, which name three of each" in imported
    report = called("report", tmp_path / "run")
    assert "clustered by video" in report
    assert "no video is named" not in report


@pytest.mark.parametrize(
    ("ids", "has_ids"),
    [
        (three_each(20), False),  # no ids at all
        ([f"{video:03d}-{question}" for video in range(1, 31) for question in (1, 2)], True),  # two of each
        ([f"{place:03d}-1" for place in range(60)], True),
        ([f"q{place}" for place in range(60)], True),
    ],
    ids=["no ids", "two of each", "one of each", "other ids"],
)
def test_without_such_ids_every_command_says_that_intervals_are_by_question(tmp_path, ids, has_ids):
    a, b = (
        write_log(tmp_path / name, ids, wrong=wrong, has_ids=has_ids) for name, wrong in (("a", ()), ("b", range(3)))
    )
    note = "videomme: no video is named, so intervals and tests are by question, not by video."
    output = called("compare", a, b)
    assert "(3 of 60 questions differ)" in output
    assert note in output
    for name in (a, b):
        called("import", "lmms", name, "--out", tmp_path / "run", "--name", name.name)
    report = called("report", tmp_path / "run", "--baseline", "a")
    assert report.count(note) == 1
    assert "t on the logit scale, by question." in report
    assert "clustered by video" not in report


def test_a_log_that_ends_within_a_video_still_has_videos(tmp_path):
    ids = three_each(20)[:-2]
    a, b = write_log(tmp_path / "a", ids), write_log(tmp_path / "b", ids, wrong=[0, 57])
    assert "(2 of 20 videos differ)" in called("compare", a, b)


def test_public_logs_of_video_mme_are_compared_by_video(shared):
    logs = [shared(f"data/field/lmms_logs/videomme_selected_frames_{name}") for name in ("ASK_8_updated", "dbfp1")]
    with gzip.open(next(logs[0].glob("*samples*"))) as file:
        assert "doc" not in json.loads(next(file))
    assert "(1 of 900 videos differ)" in called("compare", *logs)
