"""A model gets one batch at a time, in order, while threads decode and prepare the next ones within their memory."""

from __future__ import annotations

import threading
import time
import weakref
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace

import av
import numpy as np
import pytest

from focus_eval.bench.lmms import answering, lookahead
from focus_eval.bench.lmms import requests as frames_module
from focus_eval.bench.lmms.answering import RequestRunner
from focus_eval.bench.lmms.arguments import AdapterOptions
from focus_eval.bench.lmms.lookahead import Batch, LookAhead, OwnProcessors, Turn, Turns, frame_groups, n_lanes
from focus_eval.bench.lmms.recording import RunCounts
from focus_eval.bench.lmms.requests import DecodedFrames, read_frames
from focus_eval.core.errors import RunError, VideoError
from tests.support.keyframes.clips import write_clip
from tests.support.keyframes.synthetic import write_numbered_clip


def test_the_model_goes_from_batch_to_batch_in_order_whoever_comes_first():
    turns, order, holders = Turns(), [], []

    def work(at):
        time.sleep(0.01 * (5 - at))
        turn = Turn(turns, at)
        if at != 2:  # one that failed before it came to the model
            turn.take()
            holders.append(at)
            order.append(at)
            assert holders == [at]
            time.sleep(0.002)
            holders.clear()
        turn.give_back()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert order == [0, 1, 3, 4, 5]


def test_who_waits_and_who_is_waited_for_is_told_apart():
    turns = Turns()
    late, next_one = Turn(turns, 0), Turn(turns, 1)
    time.sleep(0.05)
    late.take()
    waiting = threading.Thread(target=next_one.take)
    waiting.start()
    time.sleep(0.05)
    late.take()  # a question of the batch is asked again
    late.give_back()
    waiting.join()
    assert late.idle_seconds >= 0.05 > late.waited_seconds
    assert next_one.waited_seconds >= 0.04
    assert next_one.idle_seconds == 0


def test_nobody_gets_a_model_whose_run_has_ended():
    turns, raised = Turns(), []

    def work():
        with pytest.raises(RunError, match="the run ends"):
            Turn(turns, 1).take()
        raised.append(True)

    waiting = threading.Thread(target=work)
    waiting.start()
    turns.end()
    waiting.join()
    assert raised == [True]


@pytest.fixture
def runner(monkeypatch):
    """A runner of a local model whose batches are answered by the test."""
    model = SimpleNamespace(questions_at_once=None, batch_size=1)
    context = SimpleNamespace(options=AdapterOptions(sampler="uniform"), scan_cache=None, cores=2)
    request_runner = RequestRunner(model, [context], counts=RunCounts(), quiet=True)
    monkeypatch.setattr(request_runner, "write_row", lambda context, pending: None)
    return request_runner


def questions(n):
    return [SimpleNamespace(row=None, path=None, seconds={}, number=number) for number in range(n)]


def test_the_next_batches_are_prepared_while_one_is_answered(runner, monkeypatch):
    prepared, answered = [threading.Event() for _ in range(8)], []

    def answer(model, context, requests, turn):
        number = requests[0].number
        prepared[number].set()
        turn.take()
        if number + 2 < len(prepared):
            assert prepared[number + 2].wait(60), "nobody prepares the one after the next"
        answered.append(number)

    monkeypatch.setattr(answering, "answer_batch", answer)
    runner.answer(runner.batches(runner._contexts[0], questions(8)), 8)
    assert answered == list(range(8))


def test_a_failure_of_the_device_ends_the_run_and_no_later_batch_gets_the_model(runner, monkeypatch):
    reached = []

    def answer(model, context, requests, turn):
        turn.take()
        reached.append(requests[0].number)
        if requests[0].number == 1:
            raise RunError("CUDA error")

    monkeypatch.setattr(answering, "answer_batch", answer)
    with pytest.raises(RunError, match="CUDA error"):
        runner.answer(runner.batches(runner._contexts[0], questions(30)), 30)
    assert reached == [0, 1]


def test_each_thread_has_a_processor_of_its_own_which_stays_a_pair_with_its_tokenizer(qwen):
    processors, turn = OwnProcessors(), Turn(Turns(), 0)
    model = SimpleNamespace(processor=qwen.processor, _tokenizer=qwen.processor.tokenizer, _model=object())
    with processors.of(model, turn) as first, processors.of(model, turn) as second:
        assert set(first) == {"processor", "_tokenizer"}
        assert first["processor"].tokenizer is first["_tokenizer"]
        assert len({id(of["_tokenizer"]) for of in (first, second, vars(model))}) == 3
    with processors.of(model, turn) as third:
        assert third["_tokenizer"] in (first["_tokenizer"], second["_tokenizer"])
    del model.processor
    with processors.of(model, turn) as changed:
        assert set(changed) == {"_tokenizer"}


def test_inputs_go_to_the_device_when_no_more_than_one_batch_is_before_them(qwen):
    turns, moved = Turns(), []

    def prepare(at):
        with OwnProcessors().of(SimpleNamespace(processor=qwen.processor), Turn(turns, at)) as processors:
            inputs = processors["processor"](text=["a b"], padding=True, return_tensors="pt")
            assert "input_ids" in inputs
            assert "to" not in inputs
            with suppress(RunError) if at == 3 else nullcontext():
                inputs.to("cpu")
                moved.append(at)

    threads = [threading.Thread(target=prepare, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads[:2]:
        thread.join()
    time.sleep(0.05)
    assert sorted(moved) == [0, 1]
    Turn(turns, 0).give_back()
    threads[2].join()
    assert sorted(moved) == [0, 1, 2]
    turns.end()
    threads[3].join()
    assert sorted(moved) == [0, 1, 2]


def test_lanes_follow_the_cores():
    assert [n_lanes(cores) for cores in (1, 2, 8, 64)] == [2, 3, 6, 16]


# Memory: a frame of the made-up videos takes one byte.


def pending_request(number, path, keyframes):
    pending = SimpleNamespace(number=number, path=path, seconds={}, frame_batch=None, error=None)
    pending.row = SimpleNamespace(role="sampler", keyframes=list(keyframes), scales=None)
    pending.parts = SimpleNamespace(key=("task", "split", number))
    pending.fail = lambda error: setattr(pending, "error", error)
    return pending


@pytest.fixture
def memory(monkeypatch):
    """Bytes of decoded pixels that are alive, after each decode or copy; videos are read without a file."""
    lock, totals, alive = threading.Lock(), [], Counter()
    initialise = DecodedFrames.__init__

    def change(n_bytes):
        with lock:
            alive["bytes"] += n_bytes

    def counted(self, info, frames, times_seconds, pixels):
        initialise(self, info, frames, times_seconds, pixels)
        change(pixels.nbytes)
        totals.append(alive["bytes"])
        weakref.finalize(pixels, change, -pixels.nbytes)

    def read(path, frames, **options):
        pixels = np.zeros((len(frames), 1, 1, 1), dtype=np.uint8)
        return DecodedFrames(SimpleNamespace(fps=1.0, n_frames=1000), frames, frames / 1.0, pixels)

    monkeypatch.setattr(DecodedFrames, "__init__", counted)
    monkeypatch.setattr(lookahead, "read_frames", read)
    monkeypatch.setattr(lookahead, "frame_bytes", lambda path: 1)
    return totals


def look_ahead_of(runner, *, at_once, max_bytes):
    def answer(batch, turn):
        answering.answer_batch(runner._model, batch.context, batch.requests, turn)

    return LookAhead(runner.prepare, answer, at_once=at_once, cores=8, max_bytes=max_bytes)


def answered(runner, batches, *, at_once, max_bytes):
    look_ahead = look_ahead_of(runner, at_once=at_once, max_bytes=max_bytes)
    with closing(look_ahead.run(Batch(runner._contexts[0], requests) for requests in batches)) as answered_batches:
        return [[pending.number for pending in batch.requests] for batch in answered_batches]


def answer_after(seconds):
    """Return a stand-in for a model that answers a batch after so many seconds, once its turn has come."""

    def answer(model, context, requests, turn):
        if turn is not None:
            turn.take()
        time.sleep(seconds)
        assert [pending.error for pending in requests] == [None] * len(requests)
        for pending in requests:
            pending.frame_batch = None

    return answer


@pytest.mark.parametrize("at_once", [None, 8])
def test_decoded_frames_stay_within_their_memory_and_a_larger_batch_goes_alone(runner, monkeypatch, memory, at_once):
    sizes = [60, 60, 30, 250, 10, 90, 5, 100]
    requests = [pending_request(at, Path(f"v{at}.mp4"), range(size)) for at, size in enumerate(sizes)]
    monkeypatch.setattr(answering, "answer_batch", answer_after(0.01))
    monkeypatch.setattr(runner._model, "ready", lambda frame_batch: None, raising=False)
    order = answered(runner, [[request] for request in requests], at_once=at_once, max_bytes=100)
    assert order == [[at] for at in range(len(sizes))]
    assert len(memory) == len(sizes)
    assert all(total <= 100 or total == 250 for total in memory)


def test_questions_of_one_video_copy_their_frames_within_the_memory(runner, monkeypatch, memory):
    requests = [pending_request(at, Path("v.mp4"), range(at, at + 8)) for at in range(6)]
    monkeypatch.setattr(answering, "answer_batch", answer_after(0.01))
    monkeypatch.setattr(runner._model, "ready", lambda frame_batch: None, raising=False)
    assert answered(runner, [[request] for request in requests], at_once=None, max_bytes=104) == [
        [at] for at in range(6)
    ]
    assert len(memory) == 1 + 6, "one pass over the video, one copy each"
    assert 13 < max(memory) <= 104


def test_a_group_takes_an_eighth_of_the_memory_with_eight_cores(runner, monkeypatch, memory):
    requests = [pending_request(at, Path("v.mp4"), range(at, at + 8)) for at in range(7)]
    monkeypatch.setattr(answering, "answer_batch", answer_after(0.01))
    monkeypatch.setattr(runner._model, "ready", lambda frame_batch: None, raising=False)
    answered(runner, [[request] for request in requests], at_once=None, max_bytes=96)
    assert len(memory) == 2 + 7, "the frames of five questions are 12 bytes: two passes, one copy each"


def test_frames_that_an_adapter_made_smaller_leave_room_for_others(runner, monkeypatch, memory):
    barrier = threading.Barrier(4)

    def answer(model, context, requests, turn):
        barrier.wait(60)

    monkeypatch.setattr(answering, "answer_batch", answer)
    shrink = lambda frame_batch: frame_batch.replace_pixels("url", n_bytes=2)  # noqa: E731
    monkeypatch.setattr(runner._model, "ready", shrink, raising=False)
    requests = [[pending_request(at, Path(f"v{at}.mp4"), range(90))] for at in range(4)]
    assert len(answered(runner, requests, at_once=4, max_bytes=100)) == 4
    assert max(memory) <= 180  # the pixels of the one before may not be collected yet


def test_a_run_that_stops_early_leaves_nobody_waiting(runner, monkeypatch, memory):
    monkeypatch.setattr(answering, "answer_batch", answer_after(0.001))
    monkeypatch.setattr(runner._model, "ready", lambda frame_batch: None, raising=False)
    requests = [pending_request(at, Path(f"v{at}.mp4"), range(60)) for at in range(40)]
    look_ahead = look_ahead_of(runner, at_once=None, max_bytes=100)
    with closing(look_ahead.run(Batch(runner._contexts[0], [request]) for request in requests)) as batches:
        assert next(batches).requests == [requests[0]]
    assert requests[-1].seconds == {}


def grouped(runner, paths, frames, max_bytes):
    context = runner._contexts[0]
    batches = [
        Batch(context, [pending_request(at, path, indices)]) for path in paths for at, indices in enumerate(frames)
    ]
    groups = list(frame_groups(batches, max_bytes=max_bytes))
    assert [batch for group in groups for batch in group.batches] == batches
    return groups


def test_questions_of_a_video_share_frames_as_far_as_they_fit(runner, monkeypatch):
    monkeypatch.setattr(lookahead, "frame_bytes", lambda path: 1)
    frames = [[0, 1], [1, 2], [3, 4], [3, 5], range(9), range(9)]
    groups = grouped(runner, [Path("a.mp4"), Path("b.mp4")], frames, 4)
    assert [len(group.batches) for group in groups] == [2, 2, 1, 1] * 2
    assert [group.n_bytes for group in groups] == [3, 3, 9, 9] * 2
    assert [group.copied_bytes(group.batches[0]) for group in groups] == [2, 2, 0, 0] * 2
    assert [len(group.batches) for group in grouped(runner, [Path("a.mp4")], frames, 0)] == [1] * 6


def test_each_question_gets_its_frames_in_the_order_asked(runner, monkeypatch, tmp_path):
    path = write_numbered_clip(tmp_path / "v.mp4", 30, width=64, height=48, fps=4)
    opened, real = [], frames_module.open_video
    monkeypatch.setattr(
        frames_module, "open_video", lambda path, **options: (opened.append(path), real(path, **options))[1]
    )
    selections = [(20, 2, 20), (9, 20)]
    (group,) = grouped(runner, [path], selections, 1 << 30)
    group.decode()
    assert opened == [path]
    for frames in selections:
        decoded_together, decoded_alone = group.take(path, frames), read_frames(path, frames, backend="pyav")
        assert np.array_equal(decoded_together.pixels, decoded_alone.pixels)
        assert np.array_equal(decoded_together.times_seconds, decoded_alone.times_seconds)
        assert decoded_together.info == decoded_alone.info
    for batch in group.batches:
        group.release(batch)
    assert (group.decoded, group.n_bytes) == ({}, 0)


def test_a_damaged_stretch_fails_only_the_questions_that_show_it(runner, monkeypatch, tmp_path):
    options = {"x264-params": "bframes=0:scenecut=0:keyint=30"}
    path = write_clip(tmp_path / "clip.mp4", n_frames=60, gop=30, options=options)
    right = read_frames(path, [2, 40], backend="pyav").pixels
    with av.open(str(path)) as container:
        packets = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]
    place, size = packets[8]
    data = path.read_bytes()
    path.write_bytes(data[: place + size // 2] + bytes(size - size // 2) + data[place + size :])
    monkeypatch.setattr(runner._model, "ready", lambda frame_batch: None, raising=False)
    (group,) = grouped(runner, [path], [[2, 40], [20]], 1 << 30)
    group.decode()
    for batch in group.batches:
        runner.prepare(batch)
    good, bad = (batch.requests[0] for batch in group.batches)
    assert np.array_equal(good.frame_batch.pixels, right)
    assert isinstance(bad.error, VideoError)
    assert "frame 20 asked, but it cannot be decoded" in str(bad.error)
