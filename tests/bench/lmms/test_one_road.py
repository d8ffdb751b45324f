"""One road from a request to its row: a video is opened once, a cell identified once, the model asked in order."""

from __future__ import annotations

import copy
import gc
import itertools
import json
import shutil
import threading
import weakref
from collections import Counter
from dataclasses import replace

import av
import pytest

from focus_eval.bench.answering.ahead import AnswerQueue, n_lanes
from focus_eval.bench.answering.cell import Cell
from focus_eval.bench.answering.choosing import SamplerChooser
from focus_eval.bench.answering.frames import FrameBatch
from focus_eval.bench.answering.replay import ReplayedSelections
from focus_eval.bench.lmms import recording
from focus_eval.bench.lmms.arguments import AdapterOptions
from focus_eval.core.errors import InvalidInput, RunError
from focus_eval.keyframes.pipeline.selector import Encoding, Selector
from focus_eval.keyframes.samplers.registry import make_sampler
from focus_eval.keyframes.video import scan
from focus_eval.keyframes.video.feed import DecodeProcesses
from tests.support.keyframes.chat_server import ChatServer
from tests.support.keyframes.clips import write_clip
from tests.support.keyframes.synthetic import write_numbered_clip

from .test_selecting_together import Brightness

# More than the scans that a process keeps.
N_VIDEOS = 66


@pytest.fixture(scope="module")
def many_videos(home, tools, tmp_path_factory):
    """Documents of more videos than a process keeps scans of."""
    videos = home.videos["longvideobench"]
    clip = write_numbered_clip(tmp_path_factory.mktemp("clip") / "clip.mp4", 12, width=56, height=56, fps=4)
    for number in range(N_VIDEOS):
        shutil.copy(clip, videos / f"many{number}.mp4")
    names = [f"many{number}" for number in range(N_VIDEOS)]
    rows = tools.longvideobench_rows(names, tools.QUESTIONS[:1])
    return tools.write_parquet(tmp_path_factory.mktemp("many"), "validation", rows)


@pytest.fixture
def counts(monkeypatch):
    """Counts of opened and scanned videos, and of identities of cells."""
    counts_by_name = Counter()

    def count(owner, name, key):
        real = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda *arguments, **options: (counts_by_name.update([key]), real(*arguments, **options))[1]
        )

    count(DecodeProcesses, "open_video", "opened")
    count(scan, "scan_file", "scanned")
    count(recording, "answer_identity", "identities")
    return counts_by_name


@pytest.mark.parametrize(("sampler", "batch"), [("uniform", 1), ("topk", 1), ("topk", 4)])
def test_a_video_is_opened_and_scanned_once_and_a_cell_identified_once(
    qwen, evaluate, many_videos, tools, tmp_path, monkeypatch, counts, sampler, batch
):
    monkeypatch.setattr(qwen, "batch_size_per_gpu", batch)
    chooser = SamplerChooser(Selector(sampler=make_sampler(sampler), encoder=Brightness(), k=2))
    qwen.show(chooser, frames=2, options=replace(qwen.adapter_options, record=str(tmp_path)))
    evaluate(qwen, ["focus_longvideobench"], data=many_videos, max_new_tokens=1)
    rows = tools.read_record(tmp_path, "answers")
    assert [row["error"] for row in rows] == [None] * N_VIDEOS
    # A batch of several questions spans videos: all frames are chosen first, and a video is opened again to be read.
    n_openings = N_VIDEOS if batch == 1 else 2 * N_VIDEOS
    assert counts == {"opened": n_openings, "scanned": N_VIDEOS, "identities": 1}


def test_the_model_gets_one_batch_at_a_time_while_the_next_is_prepared(qwen, evaluate, tools, tmp_path, monkeypatch):
    kind, changed, counts_by_name = type(qwen.processor), threading.Condition(), Counter()
    prepare, generate = kind.__call__, qwen._model.generate

    def counting(self, *arguments, **inputs):
        prepared_inputs = prepare(self, *arguments, **inputs)
        with changed:
            counts_by_name["prepared"] += 1
            changed.notify_all()
        return prepared_inputs

    def one_at_a_time(**inputs):
        with changed:
            counts_by_name["in the model"] += 1
            assert counts_by_name["in the model"] == 1
            counts_by_name["asked"] += 1
            n_wanted = min(8, counts_by_name["asked"] + 1)
            assert changed.wait_for(lambda: counts_by_name["prepared"] >= n_wanted, 60), (
                "nobody prepares the next question"
            )
        output = generate(**inputs)
        counts_by_name["in the model"] -= 1
        return output

    uniform = SamplerChooser(Selector(sampler=make_sampler("uniform"), encoder=None, k=2))
    qwen.show(uniform, frames=2, options=replace(qwen.adapter_options, record=str(tmp_path)))
    monkeypatch.setattr(kind, "__call__", counting)
    monkeypatch.setattr(qwen._model, "generate", one_at_a_time)
    evaluate(qwen, ["focus_longvideobench"], max_new_tokens=1)
    rows = tools.read_record(tmp_path, "answers")
    assert [row["error"] for row in rows] == [None] * 8
    # Video by video, in the order of the documents.
    videos = [row["video"] for row in rows]
    assert videos == sorted(videos, key=list(dict.fromkeys(videos)).index)


@pytest.mark.parametrize("batch", [1, 4])
def test_a_copy_that_keeps_ranks_in_step_is_answered_and_gets_no_row(
    qwen, evaluate, tools, tmp_path, monkeypatch, batch
):
    requests_by_call = []

    def with_a_copy(requests):
        copied = copy.copy(requests[0])
        copied.metadata = {**(copied.metadata or {}), "__padding_only__": True}
        requests_by_call.append([*requests, copied])
        outputs = stock(requests_by_call[-1])
        assert outputs[-1] == outputs[0]
        return outputs[:-1]

    stock = qwen.generate_until
    uniform = SamplerChooser(Selector(sampler=make_sampler("uniform"), encoder=None, k=2))
    qwen.show(uniform, frames=2, options=replace(qwen.adapter_options, record=str(tmp_path)))
    monkeypatch.setattr(qwen, "generate_until", with_a_copy)
    monkeypatch.setattr(qwen, "batch_size_per_gpu", batch)
    evaluate(qwen, ["focus_longvideobench"], max_new_tokens=1)
    assert [len(requests) for requests in requests_by_call] == [9]
    for kind in ("selections", "answers"):
        rows = tools.read_record(tmp_path, kind)
        assert sorted(row["error"] is None for row in rows) == [True] * 8
        assert len({row["question_id"] for row in rows}) == 8


@pytest.fixture
def live_bytes(monkeypatch):
    """The most bytes of decoded pixels that are alive at one time, measured on the arrays themselves."""
    lock, counts_by_name, initialise = threading.Lock(), Counter(), FrameBatch.__init__

    def change(n_bytes):
        with lock:
            counts_by_name["now"] += n_bytes
            counts_by_name["most"] = max(counts_by_name["most"], counts_by_name["now"])

    def noting(self, **fields):
        initialise(self, **fields)
        pixels = fields["pixels"]
        if pixels.nbytes and not pixels.flags.writeable:
            return
        if pixels.nbytes:
            pixels.flags.writeable = False  # a copy of the batch has the same array, which counts once
            change(pixels.nbytes)
            weakref.finalize(pixels, change, -pixels.nbytes)

    monkeypatch.setattr(FrameBatch, "__init__", noting)
    return counts_by_name


@pytest.mark.parametrize("batch", [1, 4])
def test_no_more_bytes_are_alive_than_allowed_and_frames_stay_the_same(
    qwen, evaluate, tools, tmp_path, monkeypatch, live_bytes, batch
):
    monkeypatch.setattr(qwen, "batch_size_per_gpu", batch)
    uniform = SamplerChooser(Selector(sampler=make_sampler("uniform"), encoder=None, k=16))
    frames_by_run, peaks = {}, {}
    for name, gigabytes in (("plenty", 4.0), ("little", 0.0012)):
        gc.collect()
        live_bytes["most"] = live_bytes["now"]
        options = replace(qwen.adapter_options, record=str(tmp_path / name), decode_gigabytes=gigabytes)
        qwen.show(uniform, frames=16, options=options)
        evaluate(qwen, ["focus_longvideobench"])
        rows = tools.read_record(tmp_path / name, "answers")
        assert [row["error"] for row in rows] == [None] * 8
        frames_by_run[name] = {row["question_id"]: row["fed_frames"] for row in rows}
        peaks[name] = live_bytes["most"]
    qwen.show(qwen.context.chooser, frames=16, options=qwen.adapter_options)
    assert frames_by_run["little"] == frames_by_run["plenty"]
    largest = 16 * 3 * 84 * 140  # 564,480 bytes: one question of the portrait clip
    assert largest <= peaks["little"] <= 0.0012e9 < peaks["plenty"]


def test_a_limit_of_nothing_is_refused():
    with pytest.raises(InvalidInput, match=r"option 'decode_gigabytes' of --model_args must be .*above 0"):
        AdapterOptions(sampler="uniform", decode_gigabytes=0)


@pytest.mark.upper_rooms
def test_a_damaged_stretch_fails_only_the_questions_that_show_it(qwen, evaluate, home, tools, tmp_path):
    videos = home.videos["longvideobench"]
    options = {"x264-params": "bframes=0:scenecut=0:keyint=30"}
    path = write_clip(videos / "stretch.mp4", n_frames=60, gop=30, options=options)
    with av.open(str(path)) as container:
        packets = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]
    place, size = packets[8]
    data = path.read_bytes()
    path.write_bytes(data[: place + size // 2] + bytes(size - size // 2) + data[place + size :])
    frames_by_question = {"stretch_0": [2, 40], "stretch_1": [20]}
    file = tmp_path / "chosen.json"
    file.write_text(json.dumps(frames_by_question))
    qwen.show(
        ReplayedSelections(file, frames=2), frames=2, options=replace(qwen.adapter_options, record=str(tmp_path / "r"))
    )
    rows = tools.longvideobench_rows(["stretch"], tools.QUESTIONS[:2])
    with pytest.raises(RunError, match="1 of 2 questions have no answer"):
        evaluate(qwen, ["focus_longvideobench"], data=tools.write_parquet(tmp_path / "data", "validation", rows))
    answers = {row["question_id"]: row for row in tools.read_record(tmp_path / "r", "answers")}
    assert answers["stretch_0"]["fed_frames"] == [2, 40]
    assert "frame 20 asked, but it cannot be decoded" in answers["stretch_1"]["error"]


def test_an_interrupted_run_asks_a_service_no_further_question(home, evaluate, tmp_path, monkeypatch):
    from focus_eval.bench.lmms.models.openai import FocusGPT4oChat

    numbers, asked_numbers, is_ending = itertools.count(1), [], threading.Event()

    def reply_to(body):
        asked_numbers.append(number := next(numbers))
        # All but the first wait for the run's end, so that no more than two can be under way.
        assert number == 1 or is_ending.wait(60)
        return "A", {}

    def interrupted(cell, framed, reply):
        is_ending.set()
        raise KeyboardInterrupt

    monkeypatch.setenv("OPENAI_API_KEY", "any")
    with ChatServer(reply_to=reply_to) as server:
        model = FocusGPT4oChat(base_url=server.url, sampler="uniform", frames=2, num_concurrent=2, record=str(tmp_path))
        monkeypatch.setattr(Cell, "write_answer", interrupted)
        with pytest.raises(KeyboardInterrupt):
            evaluate(model, ["focus_longvideobench"])
    assert len(asked_numbers) <= 3


def test_an_interrupted_run_stops_choosing_within_a_video(qwen, evaluate, tools, tmp_path, monkeypatch):
    has_ended, late_batches, end_run = threading.Event(), [], AnswerQueue.end

    class Waiting(Brightness):
        def embed(self, frames):
            if self.n_embedded >= 9:  # the first video is embedded
                assert has_ended.wait(60)
                late_batches.append(len(frames))
            return super().embed(frames)

    def end(queue, *arguments, **options):
        end_run(queue, *arguments, **options)
        has_ended.set()

    def interrupted(cell, framed, reply):
        raise KeyboardInterrupt

    selector = Selector(sampler=make_sampler("topk"), encoder=Waiting(), k=2, encoding=Encoding(batch_size=2))
    qwen.show(SamplerChooser(selector), frames=2, options=replace(qwen.adapter_options, record=str(tmp_path / "r")))
    monkeypatch.setattr(AnswerQueue, "end", end)
    monkeypatch.setattr(Cell, "write_answer", interrupted)
    rows = tools.longvideobench_rows(["landscape", "portrait"], tools.QUESTIONS[:1])
    with pytest.raises(KeyboardInterrupt):
        evaluate(qwen, ["focus_longvideobench"], data=tools.write_parquet(tmp_path / "data", "validation", rows))
    # Of the 8 frames of the second video, no batch after the one that was being embedded.
    assert late_batches == [2]


def test_lanes_follow_the_cores():
    assert [n_lanes(cores) for cores in (1, 2, 8, 64)] == [2, 3, 6, 16]
