"""A video exchanged between two starts of a run is refused, made again or kept and told by `audit`."""

from __future__ import annotations

import os
import re

import pytest
from typer.testing import CliRunner

from focus_eval.bench.matrix.config import load_matrix
from focus_eval.bench.matrix.running import complete_run
from focus_eval.bench.report.run import load_run
from focus_eval.cli import app
from focus_eval.core.errors import RunError

from .conftest import write_noise_matrix

EXCHANGED = r"v0\.mp4: exchanged since rows were made in selections/.* \(.* bytes of .* then, .* now\)"


@pytest.fixture
def started(tmp_path):
    """Two videos of which each sampler has selected; returns folder of videos, matrix and folder of the run."""
    videos = tmp_path / "videos"
    videos.mkdir()
    matrix = write_noise_matrix(videos, n_videos=2, gop=8, samplers=["uniform", "topk"])
    complete_run(load_matrix(matrix), out=tmp_path / "results" / "run")
    return videos, matrix, tmp_path / "results" / "run"


def exchange(videos, name="v0"):
    """Put another video of other size in the place of one, with eight frames fewer."""
    folder = videos / "other"
    folder.mkdir(exist_ok=True)
    write_noise_matrix(folder, n_videos=1, gop=4)
    os.replace(folder / "v0.mp4", videos / f"{name}.mp4")


def spoken(result):
    return re.sub(r"\s+", " ", result.output)


def run_again(matrix, out, *options):
    return CliRunner().invoke(app, ["run", str(matrix), "--out", str(out), "--no-preflight", *options])


def stamps(out):
    return {(row.sampler, row.question_id): row.seconds for row in load_run(out).selections}


def test_a_resumed_run_refuses_an_exchanged_video_and_writes_nothing(started):
    videos, matrix, out = started
    first = {file: file.read_bytes() for file in out.glob("selections/*/*.*")}
    exchange(videos)
    for _ in range(2):
        with pytest.raises(RunError, match=EXCHANGED):
            complete_run(load_matrix(matrix), out=out)
    assert {file: file.read_bytes() for file in out.glob("selections/*/*.*")} == first
    refused = run_again(matrix, out, "--changed-videos", "reuse")
    assert refused.exit_code == 1
    assert "refuse" in str(refused.exception)


def test_retry_makes_the_rows_of_the_exchanged_video_alone_again(started):
    videos, matrix, out = started
    first = stamps(out)
    exchange(videos)
    assert run_again(matrix, out, "--changed-videos", "retry").exit_code == 0
    rows = stamps(out)
    assert {key[1] for key in first if first[key] != rows[key]} == {"q0", "q1"}
    assert rows.keys() == first.keys()
    complete_run(load_matrix(matrix), out=out)
    assert "exchanged" not in spoken(CliRunner().invoke(app, ["audit", str(out)]))


@pytest.mark.upper_rooms
def test_kept_rows_of_two_files_are_a_fault_for_audit(started):
    videos, matrix, out = started
    exchange(videos)
    assert run_again(matrix, out, "--changed-videos", "keep").exit_code == 0
    complete_run(load_matrix(matrix), out=out)  # said once, it stays
    result = CliRunner().invoke(app, ["audit", str(out)])
    assert result.exit_code == 1
    assert spoken(result).count("videos exchanged between rows") == 1
    assert "1 of 2; the first is v0.mp4" in spoken(result)


def test_a_touched_video_is_another_where_nothing_tells_its_content_and_a_moved_one_is_not(started, tmp_path):
    videos, matrix, out = started
    os.utime(videos / "v0.mp4")
    complete_run(load_matrix(matrix), out=out)  # the manifest tells that the content is the same
    moved = tmp_path / "moved"
    os.rename(videos, moved)
    for name in ("v0.mp4", "v1.mp4"):
        os.utime(moved / name, ns=(0, 10**18))  # a copy without times
    text = (moved / "matrix.yaml").read_text().replace(str(videos), str(moved))
    (moved / "matrix.yaml").write_text(text)
    complete_run(load_matrix(moved / "matrix.yaml"), out=out)
    os.remove(moved / "videos.manifest.json")
    os.utime(moved / "v0.mp4")
    with pytest.raises(RunError, match=EXCHANGED):
        complete_run(load_matrix(moved / "matrix.yaml"), out=out)


def test_a_damaged_video_stops_no_run_and_is_the_earlier_one_when_whole_again(started):
    videos, matrix, out = started
    whole = (videos / "v0.mp4").read_bytes()
    for content in (b"no video", whole):
        (videos / "v0.mp4").write_bytes(content)
        complete_run(load_matrix(matrix), out=out)
    exchange(videos)
    with pytest.raises(RunError, match=EXCHANGED):
        complete_run(load_matrix(matrix), out=out)


def test_a_video_without_rows_or_with_errors_alone_may_be_replaced(tmp_path):
    videos = tmp_path / "videos"
    videos.mkdir()
    matrix = write_noise_matrix(videos, n_videos=2, gop=8, samplers=["uniform"], max_error_share=1.0)
    whole = (videos / "v0.mp4").read_bytes()
    (videos / "v0.mp4").write_bytes(whole[:200])
    out = tmp_path / "results" / "run"
    complete_run(load_matrix(matrix), out=out)
    (videos / "v0.mp4").write_bytes(whole)
    complete_run(load_matrix(matrix), out=out, retry_errors=True)
    assert all(row.error is None for row in load_run(out).selections)
