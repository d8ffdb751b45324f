"""Cells that a fast model answers share one pass over each video, and say what each would say alone."""

from __future__ import annotations

import os
import threading
from collections import Counter
from pathlib import Path

import pytest

from focus_eval.bench.answering import stream
from focus_eval.bench.answering.cell import Cell
from focus_eval.bench.matrix import answering
from focus_eval.bench.matrix.answering import AnswerJob, AnswerWorker, answer_jobs
from focus_eval.bench.matrix.cells import cells, selection_specs
from focus_eval.bench.matrix.config import Resources, load_matrix
from focus_eval.bench.matrix.folder import RunFolder
from focus_eval.bench.matrix.plan import load_sets
from focus_eval.bench.matrix.running import complete_run
from focus_eval.keyframes.video import feed
from focus_eval.keyframes.video.feed import DecodeProcesses
from tests.support.bench.answering import N_VIDEOS, write_answering_matrix
from tests.support.bench.matrix_rows import run_matrix

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


def answer_values(rows):
    """Return the rows' frames, answers, scores and errors without timings, sorted by part and question."""
    columns = ["part", "question_id", "frames_fed", "fed_frames", "fallback", "answer", "score", "error"]
    answers = rows[columns].sort_values(["part", "question_id"])
    return answers.astype({"fed_frames": str}).astype(object).where(answers.notna(), None).to_numpy().tolist()


def answers_of_first_cell(rows):
    """Return the answers expected of the cell in the fixture `selected`: those to its first six questions."""
    question_ids = [f"q{number}" for number in range(6)]
    return [row for row in rows if row[0].startswith("made_up-encoder-uniform") and row[1] in question_ids]


@pytest.fixture(scope="module")
def separate_answers(matrix, tmp_path_factory):
    """The answers when cells are answered one after another and every question decodes its own frames."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answering, "shares_frames", lambda session: False)
        return answer_values(run_matrix(matrix, out=tmp_path_factory.mktemp("runs") / "alone"))


def counted_openings(monkeypatch):
    """Return a list to which the name of every video opened from now on is added."""
    opened = []

    class CountingProcesses(DecodeProcesses):
        def open_video(self, path, **options):
            opened.append(Path(path).name)
            return super().open_video(path, **options)

    monkeypatch.setattr(answering, "DecodeProcesses", CountingProcesses)
    return opened


def test_cells_together_say_what_each_says_alone_and_open_each_video_once(
    matrix, separate_answers, tmp_path, monkeypatch
):
    opened = counted_openings(monkeypatch)
    answers_together = answer_values(run_matrix(matrix, out=tmp_path / "together"))
    assert answers_together == separate_answers
    assert len(answers_together) == len(SAMPLERS) * N_QUESTIONS
    assert sorted(opened) == [f"v{number}.mp4" for number in range(N_VIDEOS)]


# Python runs this before anything else in processes that decode.
FAULT = """
import os
import focus_eval.keyframes.video.decoder as decoder
plain = decoder.Decoder._decode
def decode(self, packet):
    if self.path.name == "v1.mp4" and packet is not None and packet.pts * packet.time_base >= 1:
        os.abort()
    return plain(self, packet)
decoder.Decoder._decode = decode
"""


def test_processes_decode_the_same_frames_and_a_decoder_that_dies_costs_its_video(
    matrix, separate_answers, tmp_path, monkeypatch
):
    monkeypatch.setattr(feed, "TINY_BYTES", 0)
    matrix = matrix.model_copy(update={"answer_resources": Resources(decode_cores=2)})
    assert answer_values(run_matrix(matrix, out=tmp_path / "whole" / "run")) == separate_answers
    (tmp_path / "sitecustomize.py").write_text(FAULT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    rows = run_matrix(matrix, out=tmp_path / "faulty" / "run")
    failed = rows[rows["error"].notna()]
    assert set(failed["question_id"]) == {"q1", "q9"}
    assert all("v1.mp4: reading this file ended the process (signal 6)" in error for error in failed["error"])
    answered = [row for row in separate_answers if row[1] not in ("q1", "q9")]
    assert answer_values(rows[rows["error"].isna()]) == answered


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
    """A matrix of one cell, and the folder of a run that holds all of its selections, not yet compacted."""
    one_cell_matrix = matrix.model_copy(update={"samplers": matrix.samplers[:1], "limit": 6})
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "compact", lambda *arguments: None)
        complete_run(one_cell_matrix.model_copy(update={"models": [], "k": [4]}), out=tmp_path / "runs" / "first")
    return one_cell_matrix, tmp_path / "runs" / "first"


def test_a_worker_reads_a_part_that_another_run_compacts_at_that_moment(selected, separate_answers, monkeypatch):
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
    assert answer_values(run_matrix(matrix, out=second.path)) == answers_of_first_cell(separate_answers)


def test_two_workers_on_one_part_ask_no_question_twice_and_lose_none(selected, separate_answers):
    """Two runs answer the same cell; the one that ends first compacts and leaves the other's lines in place."""
    matrix, first = selected
    sets, (cell,), folders = load_sets(matrix), cells(matrix), [RunFolder(first), RunFolder(first.with_name("second"))]
    workers = [AnswerWorker([cell], sets, folder, name="local") for folder in folders]
    (job,) = answer_jobs([cell], sets, folders[0])  # the same for both: neither has an answer yet
    written: list[list[str]] = [[], []]

    def answer(number, n_questions):
        short_job = AnswerJob(job.cell, job.question_ids[:n_questions])
        workers[number].run(short_job, on_row=lambda row: written[number].append(row.question_id))

    with folders[1].pool.writing():
        answer(0, 2)
        answer(1, 4)
        answer(0, 5)
        workers[0].close()
        folders[0].compact(cell, sets["made_up"].all_ids)
        answer(1, 6)
        workers[1].close()
    assert written == [["q0", "q1", "q4"], ["q2", "q3", "q5"]]
    assert sorted(row.question_id for row in folders[0].answers(cell)) == ["q0", "q1", "q2", "q3", "q4", "q5"]
    assert answer_values(run_matrix(matrix, out=folders[1].path)) == answers_of_first_cell(separate_answers)
    assert not list(folders[0].part(cell).glob("*.jsonl"))


def test_videos_too_large_to_share_are_decoded_question_by_question(matrix, separate_answers, tmp_path, monkeypatch):
    parts_of_video = stream._parts_of_video
    monkeypatch.setattr(
        stream, "_parts_of_video", lambda questions, frame_bytes, _: parts_of_video(questions, frame_bytes, 1)
    )
    assert answer_values(run_matrix(matrix, out=tmp_path / "large")) == separate_answers


def test_a_run_that_was_stopped_answers_only_what_is_left(matrix, separate_answers, tmp_path, monkeypatch):
    write_answer = Cell.write_answer

    def stopping(self, framed, reply):
        question_id = framed.task_question.question.id
        if question_id == "q5" and self.settings.names.cell.startswith("made_up-encoder-random"):
            raise KeyboardInterrupt
        return write_answer(self, framed, reply)

    with monkeypatch.context() as patch:
        patch.setattr(Cell, "write_answer", stopping)
        with pytest.raises(KeyboardInterrupt):
            run_matrix(matrix, out=tmp_path / "stopped")
    opened = counted_openings(monkeypatch)
    assert answer_values(run_matrix(matrix, out=tmp_path / "stopped")) == separate_answers
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
    second_benchmark = second.benchmarks[0].model_copy(update={"name": "elsewhere"})
    second_model = first.models[0].model_copy(update={"name": "again"})
    changes = {"benchmarks": [first.benchmarks[0], second_benchmark], "models": [first.models[0], second_model]}
    data_home = os.environ.get("HF_HOME")
    rows = run_matrix(first.model_copy(update=changes), out=tmp_path / "run")
    assert rows["error"].isna().all(), rows["error"].dropna().tolist()
    assert len(rows) == 2 * (6 + 3)
    assert os.environ.get("HF_HOME") == data_home
