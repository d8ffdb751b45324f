"""Cells that a fast model answers share one pass over each video, and say what each would say alone."""

from __future__ import annotations

import os
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import av
import numpy as np
import pytest

from focus_eval.core.errors import VideoError
from focus_eval.lmms import frames as shared_frames
from focus_eval.lmms.frames import SharedFrames, decode_frame_batch, read_frames
from focus_eval.matrix import answering
from focus_eval.matrix.answering import AnswerJob, AnswerWorker, answer_jobs
from focus_eval.matrix.cells import cells, selection_specs
from focus_eval.matrix.config import load_matrix
from focus_eval.matrix.folder import RunFolder
from focus_eval.matrix.plan import load_sets
from focus_eval.matrix.running import complete_run
from support.answering import N_VIDEOS, write_answering_matrix
from support.clips import write_clip
from support.matrix_rows import run_matrix
from support.synthetic import write_numbered_clip

pytest.importorskip("openvino")

MODEL = {"name": "encoder", "model": "focus_zero_shot", "args": {"answer_encoder": "offline"}, "frames": 4}
SAMPLERS = ("uniform", "random", "blind")
N_QUESTIONS = 2 * N_VIDEOS


@pytest.fixture(scope="module")
def matrix(tmp_path_factory):
    """Two questions about each of eight videos, three samplers."""
    folder = tmp_path_factory.mktemp("answering")
    return load_matrix(write_answering_matrix(folder, N_QUESTIONS, model=MODEL, samplers=SAMPLERS))


def videos_of(matrix) -> Path:
    return Path(matrix.benchmarks[0].videos)


def said(rows):
    """What every row says but for the time it took."""
    columns = ["part", "question_id", "frames_fed", "fed_frames", "fallback", "answer", "score", "error"]
    shown = rows[columns].sort_values(["part", "question_id"])
    return shown.astype({"fed_frames": str}).astype(object).where(shown.notna(), None).to_numpy().tolist()


def said_of_one_cell(rows):
    """What is expected of the cell of `selected`: its first questions."""
    asked = [f"q{number}" for number in range(6)]
    return [row for row in rows if row[0].startswith("made_up-encoder-uniform") and row[1] in asked]


@pytest.fixture(scope="module")
def alone(matrix, tmp_path_factory):
    """What comes of cell after cell, each question decoding its own frames."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answering, "shares_frames", lambda model: False)
        return said(run_matrix(matrix, out=tmp_path_factory.mktemp("runs") / "alone"))


def counted_openings(monkeypatch):
    opened = []
    real = shared_frames.open_video

    def counting(path, **options):
        opened.append(Path(path).name)
        return real(path, **options)

    monkeypatch.setattr(shared_frames, "open_video", counting)
    return opened


def test_cells_together_say_what_each_says_alone_and_open_each_video_once(matrix, alone, tmp_path, monkeypatch):
    opened = counted_openings(monkeypatch)
    together = said(run_matrix(matrix, out=tmp_path / "together"))
    assert together == alone
    assert len(together) == len(SAMPLERS) * N_QUESTIONS
    assert sorted(opened) == [f"v{number}.mp4" for number in range(N_VIDEOS)]


def test_the_selections_of_a_cell_are_read_twice_at_most(matrix, tmp_path, monkeypatch):
    """Cells take turns video by video: read at every turn, the rows of a large run would take longer than answers."""
    read = []
    selections = RunFolder.selections

    def counted(self, spec):
        read.append(spec.sampler.name)
        return selections(self, spec)

    monkeypatch.setattr(RunFolder, "selections", counted)
    complete_run(matrix, out=tmp_path / "run")
    counts = Counter(read)
    assert set(counts) == set(SAMPLERS)
    assert max(counts.values()) <= 2  # the last cell's rows are still there when it answers


@pytest.fixture
def selected(matrix, tmp_path, monkeypatch):
    """A matrix of one cell, and the folder of a run whose selections are all there, as lines."""
    one = matrix.model_copy(update={"samplers": matrix.samplers[:1], "limit": 6})
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "compact", lambda *arguments: None)
        complete_run(one.model_copy(update={"models": [], "k": [4]}), out=tmp_path / "runs" / "first")
    return one, tmp_path / "runs" / "first"


def test_a_worker_reads_a_part_that_another_run_compacts_at_that_moment(selected, alone, monkeypatch):
    """The lock of the part keeps them apart: without it the rows change under the worker, and its run ends."""
    matrix, first = selected
    sets, (spec,) = load_sets(matrix), selection_specs(matrix)
    compacting = threading.Thread(target=RunFolder(first).compact, args=(spec, sets["made_up"].all_ids))
    selections = RunFolder.selections

    def read_while_compacting(self, spec):
        rows = selections(self, spec)  # its files are found here, and read afterwards
        compacting.start()
        compacting.join(0.3)
        return rows

    second = RunFolder(first.with_name("second"))
    worker = AnswerWorker(cells(matrix), sets, second, name="local")
    monkeypatch.setattr(RunFolder, "selections", read_while_compacting)
    worker.run_all(answer_jobs(cells(matrix), sets, second))
    monkeypatch.undo()
    worker.close()
    compacting.join()
    assert not list(first.parent.glob("pool/selections/*/*.jsonl")), "the other run has compacted the part"
    assert said(run_matrix(matrix, out=second.path)) == said_of_one_cell(alone)


def test_two_workers_on_one_part_ask_no_question_twice_and_lose_none(selected, alone):
    """Two runs answer the same cell; the one that ends first compacts and leaves the other's lines in place."""
    matrix, first = selected
    sets, (cell,), both = load_sets(matrix), cells(matrix), [RunFolder(first), RunFolder(first.with_name("second"))]
    workers = [AnswerWorker([cell], sets, folder, name="local") for folder in both]
    (job,) = answer_jobs([cell], sets, both[0])  # the same for both: neither has an answer yet
    written: list[list[str]] = [[], []]

    def answer(number, n_questions):
        few = AnswerJob(job.cell, job.question_ids[:n_questions])
        workers[number].run(few, on_row=lambda row: written[number].append(row.question_id))

    with both[1].pool.writing():
        answer(0, 2)
        answer(1, 4)
        answer(0, 5)
        workers[0].close()
        both[0].compact(cell, sets["made_up"].all_ids)
        answer(1, 6)
        workers[1].close()
    assert written == [["q0", "q1", "q4"], ["q2", "q3", "q5"]]
    assert sorted(row.question_id for row in both[0].answers(cell)) == ["q0", "q1", "q2", "q3", "q4", "q5"]
    assert said(run_matrix(matrix, out=both[1].path)) == said_of_one_cell(alone)
    assert not list(both[0].part(cell).glob("*.jsonl"))


def test_videos_too_large_to_share_are_decoded_question_by_question(matrix, alone, tmp_path, monkeypatch):
    shared = lambda asked, **options: SharedFrames(asked, **{**options, "most_bytes": 1})  # noqa: E731
    monkeypatch.setattr(answering, "SharedFrames", shared)
    assert said(run_matrix(matrix, out=tmp_path / "large")) == alone


def test_a_run_that_was_stopped_answers_only_what_is_left(matrix, alone, tmp_path, monkeypatch):
    answer_row = answering.CellRecorder.write_answer

    def stopping(self, pending, row):
        if pending.question.id == "q5" and row.cell.startswith("made_up-encoder-random"):
            raise KeyboardInterrupt
        answer_row(self, pending, row)

    with monkeypatch.context() as patch:
        patch.setattr(answering.CellRecorder, "write_answer", stopping)
        with pytest.raises(KeyboardInterrupt):
            run_matrix(matrix, out=tmp_path / "stopped")
    opened = counted_openings(monkeypatch)
    assert said(run_matrix(matrix, out=tmp_path / "stopped")) == alone
    assert "v0.mp4" not in opened


def test_a_video_that_is_damaged_fails_its_own_questions_only(tmp_path):
    matrix = load_matrix(write_answering_matrix(tmp_path, N_QUESTIONS, model=MODEL, samplers=SAMPLERS[:2]))
    run_matrix(matrix.model_copy(update={"models": [], "k": [4]}), out=tmp_path / "run")
    (videos_of(matrix) / "v3.mp4").write_bytes(b"no video")
    rows = run_matrix(matrix, out=tmp_path / "run")
    failed = rows[rows["error"].notna()]
    assert set(failed["question_id"]) == {"q3", "q11"}
    assert len(failed) == 4
    assert all("v3.mp4" in error for error in failed["error"])


def test_two_benchmarks_whose_videos_lie_apart_are_read_each_from_its_place(tmp_path):
    """The second model asks the first benchmark again, after the task of the second one has been loaded."""
    first = load_matrix(write_answering_matrix(tmp_path / "a", 6, model=MODEL))
    second = load_matrix(write_answering_matrix(tmp_path / "b", 3, model=MODEL))
    for number in range(3, N_VIDEOS):
        (videos_of(second) / f"v{number}.mp4").unlink()
    other = second.benchmarks[0].model_copy(update={"name": "elsewhere"})
    again = first.models[0].model_copy(update={"name": "again"})
    both = {"benchmarks": [first.benchmarks[0], other], "models": [first.models[0], again]}
    before = os.environ.get("HF_HOME")
    rows = run_matrix(first.model_copy(update=both), out=tmp_path / "run")
    assert rows["error"].isna().all(), rows["error"].dropna().tolist()
    assert len(rows) == 2 * (6 + 3)
    assert os.environ.get("HF_HOME") == before


def test_shared_frames_are_those_asked_for_in_the_order_asked(tmp_path, monkeypatch):
    paths = [tmp_path / f"v{number}.mp4" for number in range(3)]
    for number, path in enumerate(paths):
        write_numbered_clip(path, 30 + number, width=64, height=48, fps=4)
    opened = counted_openings(monkeypatch)
    with SharedFrames({path: [[2, 9], [9, 20]] for path in paths}) as shared:
        for path in paths:
            assert shared.read(path, [3]) is None, "a frame nobody announced"
            held, alone = shared.read(path, [20, 2, 20]), read_frames(path, [20, 2, 20], backend="pyav")
            assert np.array_equal(held.pixels, alone.pixels)
            assert np.array_equal(held.times_seconds, alone.times_seconds)
            assert held.info == alone.info
            assert shared.read(tmp_path / "other.mp4", [2]) is None
    assert Counter(opened) == {"v0.mp4": 2, "v1.mp4": 2, "v2.mp4": 2}, "each once here, and once alone"


def test_questions_share_frames_as_far_as_they_fit_and_late_ones_decode_their_own(tmp_path, monkeypatch):
    paths = [tmp_path / f"v{number}.mp4" for number in range(4)]
    for path in paths:
        write_numbered_clip(path, 30, width=64, height=48, fps=4)
    opened = counted_openings(monkeypatch)
    asked = [[0, 1], [1, 2], [3, 4], [3, 5], range(9)]
    # Three parts are held, each of at most four frames.
    with SharedFrames(dict.fromkeys(paths, asked), most_bytes=12 * 64 * 48 * 3) as shared:
        assert shared.read(paths[0], [0, 2]) is not None
        assert shared.read(paths[0], [3, 5]) is not None
        assert shared.read(paths[0], [2, 3]) is None, "in two parts"
        assert shared.read(paths[0], list(range(9))) is None, "too large for any part"
        for path in paths[1:]:
            assert shared.read(path, [0, 1]) is not None
            assert shared.read(path, [3, 4]) is not None
        assert shared.read(paths[0], [0, 1]) is None, "let go"
    assert sorted(opened) == sorted([path.name for path in paths] * 2)


def test_a_damaged_stretch_fails_only_the_questions_that_show_it(tmp_path):
    options = {"x264-params": "bframes=0:scenecut=0:keyint=30"}
    path = write_clip(tmp_path / "clip.mp4", n_frames=60, gop=30, options=options)
    right = read_frames(path, [2, 40], backend="pyav").pixels
    with av.open(str(path)) as container:
        packets = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]
    place, size = packets[8]
    data = path.read_bytes()
    path.write_bytes(data[: place + size // 2] + bytes(size - size // 2) + data[place + size :])

    def shown(keyframes):
        row = SimpleNamespace(role="sampler", keyframes=keyframes, scales=None)
        return decode_frame_batch(row, path, frame_policy="exact", backend="pyav", shared=shared).pixels

    with SharedFrames({path: [[2, 40], [20]]}) as shared:
        assert np.array_equal(shown([2, 40]), right)
        with pytest.raises(VideoError, match="frame 20 asked, but it cannot be decoded"):
            shown([20])
