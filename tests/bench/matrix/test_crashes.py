"""Does a decoder that ends its process cost the questions of its video, and no others, in each engine?"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from focus_eval.bench.matrix.engines import _PhaseActor
from focus_eval.core.errors import VideoError
from focus_eval.keyframes.video import open_video
from focus_eval.keyframes.video.crashes import crash_record, noting_reads, record_crashes
from focus_eval.keyframes.video.feed import TINY_BYTES

from .conftest import write_noise_matrix

pytest.importorskip("openvino", reason="the offline extra is not installed")

N_VIDEOS = 4
FAULTY = "v1.mp4"
# Python runs this before anything else, in processes that an engine starts too.
_FAULT = """
import os
import focus_eval.keyframes.video.decoder as decoder
plain = decoder.Decoder._decode
def decode(self, packet):
    is_faulty = self.path.name == os.environ.get("FAULTY_VIDEO")
    seconds = float(os.environ.get("FAULTY_SECONDS", 40 / 8))  # frame 40
    if is_faulty and packet is not None and packet.pts * packet.time_base >= seconds:
        os.abort()
    return plain(self, packet)
decoder.Decoder._decode = decode
"""


@pytest.fixture
def matrix_file(tmp_path):
    """Four videos with two questions each, scored by the offline encoder."""
    file = write_noise_matrix(
        tmp_path, n_videos=N_VIDEOS, gop=96, name="crashing", samplers=["topk"], max_error_share=1
    )
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "sitecustomize.py").write_text(_FAULT)
    return file


def _environment(folder: Path, faulty_video: str) -> dict[str, str]:
    return {
        **os.environ, "PYTHONPATH": str(folder / "python"), "FAULTY_VIDEO": faulty_video, "OMP_NUM_THREADS": "1",
        "RAY_memory_monitor_refresh_ms": "0", "RAY_local_fs_capacity_threshold": "1",
    }  # fmt: skip


def _run(matrix_file: Path, *arguments: str, faulty_video: str = FAULTY) -> subprocess.CompletedProcess[str]:
    folder = matrix_file.parent
    command = [sys.executable, "-m", "focus_eval", "run", str(matrix_file), *arguments]
    command += ["--out", str(folder / "out" / "run")]
    environment = _environment(folder, faulty_video)
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=400)


def _rows(matrix_file: Path) -> pd.DataFrame:
    (part,) = (matrix_file.parent / "out" / "pool" / "selections").iterdir()
    return pd.read_parquet(part / "rows.parquet")


def _check_rows(matrix_file: Path) -> None:
    """Each question has one row, and those of the faulty video record what happened."""
    rows = _rows(matrix_file)
    assert sorted(rows["question_id"]) == sorted(f"q{10 * n + part}" for n in range(N_VIDEOS) for part in range(2))
    errors = rows.set_index("question_id")["error"].dropna()
    assert set(errors.index) == {"q10", "q11"}
    assert all("v1.mp4: reading this file ended the process (signal 6)" in error for error in errors)
    assert not [*(matrix_file.parent / "out" / "run").glob("reading-*")]


def _grow_past_tiny(folder: Path) -> None:
    """Let the videos be worth processes that decode: a box without content follows one of them."""
    with (folder / "v0.mp4").open("ab") as file:
        file.write((TINY_BYTES + 8).to_bytes(4, "big") + b"free" + bytes(TINY_BYTES))


@pytest.mark.slow
@pytest.mark.parametrize("faulty_seconds", [40 / 8, 0], ids=["while decoding", "while opening"])
def test_one_process_whose_videos_others_decode_goes_on_at_once(matrix_file, monkeypatch, faulty_seconds):
    monkeypatch.setenv("FAULTY_SECONDS", str(faulty_seconds))
    _grow_past_tiny(matrix_file.parent)
    result = _run(matrix_file, "--set", "select_resources={decode_cores: 2}")
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("v1.mp4: reading this file ended the process (signal 6)\n") == 1
    _check_rows(matrix_file)
    assert _run(matrix_file, "--retry-errors", faulty_video="").returncode == 0
    assert _rows(matrix_file)["error"].isna().all()


@pytest.mark.slow
def test_the_next_start_of_one_process_goes_on_without_the_video_that_ended_it(matrix_file):
    """Several videos were open: the one that ends another process, too, is found."""
    assert _run(matrix_file).returncode == -signal.SIGABRT
    result = _run(matrix_file)
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("v1.mp4: reading this file ended the process (signal 6)\n") == 1
    _check_rows(matrix_file)
    assert _run(matrix_file, "--retry-errors", faulty_video="").returncode == 0
    assert _rows(matrix_file)["error"].isna().all()


@pytest.mark.slow
def test_a_worker_of_ray_whose_videos_others_decode_goes_on_at_once(matrix_file):
    pytest.importorskip("ray", reason="the ray extra is not installed")
    _grow_past_tiny(matrix_file.parent)
    small = "{gpus: 0, cpus: 1, decode_cores: 2}"
    settings = ["--set", f"select_resources={small}", "--set", f"answer_resources={small}"]
    result = _run(matrix_file, "--engine", "ray", "--no-preflight", *settings)
    assert result.returncode == 0, result.stderr
    assert "lost" not in result.stderr
    _check_rows(matrix_file)


@pytest.mark.slow
def test_ray_replaces_a_worker_and_goes_on_without_the_video_that_ended_it(matrix_file):
    pytest.importorskip("ray", reason="the ray extra is not installed")
    small = "{gpus: 0, cpus: 1}"
    settings = ["--set", f"select_resources={small}", "--set", f"answer_resources={small}"]
    result = _run(matrix_file, "--engine", "ray", "--no-preflight", *settings)
    assert result.returncode == 0, result.stderr
    _check_rows(matrix_file)


@pytest.mark.slow
def test_a_process_ended_by_a_signal_from_outside_loses_no_row(matrix_file):
    """Such a signal looks like a crash: the video that was open records it, and is read again when told to."""
    process = subprocess.Popen(
        [sys.executable, "-m", "focus_eval", "run", str(matrix_file), "--out", str(matrix_file.parent / "out" / "run")],
        env=_environment(matrix_file.parent, ""), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    while "loading encoder" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGSEGV)
    process.communicate()
    assert process.returncode == -signal.SIGSEGV
    assert _run(matrix_file, faulty_video="").returncode == 0
    assert _run(matrix_file, "--retry-errors", faulty_video="").returncode == 0
    rows = _rows(matrix_file)
    assert rows["question_id"].is_unique
    assert len(rows) == 2 * N_VIDEOS
    assert rows["error"].isna().all()


@pytest.mark.slow
def test_verify_names_the_video_that_crashes_the_decoder_and_it_is_not_opened_again(matrix_file):
    folder, environment = matrix_file.parent, _environment(matrix_file.parent, FAULTY)
    command = [sys.executable, "-m", "focus_eval", "videos", "verify", str(folder), "--jobs", "2"]
    for _ in range(2):  # the second time by its verdict
        result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=400)
        assert result.returncode == 1
        assert f"{N_VIDEOS} videos, 1 of them damaged" in result.stdout
        assert "v1.mp4: crashes the decoder (signal 6)" in result.stdout
    with pytest.raises(VideoError, match=r"v1\.mp4: crashes the decoder"):
        open_video(folder / FAULTY)
    open_video(folder / "v0.mp4").close()


def test_select_says_in_a_line_which_file_ended_it(matrix_file):
    command = [sys.executable, "-m", "focus_eval", "select", str(matrix_file.parent / FAULTY)]
    environment = _environment(matrix_file.parent, FAULTY)
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=400)
    assert result.returncode == -signal.SIGABRT
    (line,) = result.stderr.splitlines()
    assert line.endswith("v1.mp4: reading this file ended the process; re-encode it, or name another (Aborted)")


def test_a_process_that_was_killed_from_outside_blames_no_video(matrix_file, tmp_path):
    noting = noting_reads(tmp_path, "local")
    noting.__enter__()
    with open_video(matrix_file.parent / FAULTY):
        record_crashes(tmp_path, worker="local")
        assert (tmp_path / "reading-local.jsonl").exists(), "of a process that may run"
        record_crashes(tmp_path)
    assert not (tmp_path / "crashes.jsonl").exists()
    noting.__exit__(None, None, None)


def test_pythons_own_report_of_a_crash_is_on_again_after_a_run(tmp_path):
    was_enabled = faulthandler.is_enabled()
    faulthandler.enable()
    with noting_reads(tmp_path, "local"):
        pass
    assert faulthandler.is_enabled()
    if not was_enabled:
        faulthandler.disable()


def test_a_video_that_was_closed_is_not_to_blame(matrix_file, tmp_path):
    opened = [("v1.mp4", True), ("v1.mp4", False), ("v0.mp4", True)]
    notes = [{"video": str(matrix_file.parent / name), "open": is_open} for name, is_open in opened]
    (tmp_path / "reading-w.jsonl").write_text("".join(json.dumps(note) + "\n" for note in notes))
    (tmp_path / "crash-w.txt").write_text("Fatal Python error: Segmentation fault\n\nCurrent thread")
    record_crashes(tmp_path)
    # One line, of the only open video, which is not read again.
    assert json.loads((tmp_path / "crashes.jsonl").read_text())["video"] == notes[2]["video"]


def test_a_recorded_video_is_refused_only_where_reads_are_noted(matrix_file, tmp_path):
    video = matrix_file.parent / FAULTY
    (tmp_path / "reading-w.jsonl").write_text(json.dumps({"video": str(video), "open": True}) + "\n{torn")
    (tmp_path / "crash-w.txt").write_text("Fatal Python error: Segmentation fault\n\nCurrent thread")
    record_crashes(tmp_path, worker="w")
    refusal = r"ended the process \(signal 11\); re-encode it, or run again with --retry-errors"
    with crash_record(tmp_path), noting_reads(tmp_path, "other"), pytest.raises(VideoError, match=refusal):
        open_video(video)
    open_video(video).close()
    with crash_record(tmp_path, forget=True), noting_reads(tmp_path, "other"):
        open_video(video).close()
    assert not list(tmp_path.glob("*.jsonl"))


def test_a_worker_of_ray_that_is_killed_before_its_first_job_leaves_no_notes(tmp_path):
    worker = SimpleNamespace(run=lambda job, on_row: None, close=lambda: None)
    phase = SimpleNamespace(run=SimpleNamespace(path=tmp_path), worker=lambda **_: worker)
    actor = _PhaseActor(phase, "ray-1", None, None)
    assert [*tmp_path.iterdir()] == []
    actor.run("job")
    assert (tmp_path / "reading-ray-1.jsonl").exists()
    actor.close()
    assert [*tmp_path.iterdir()] == []
