"""A model gets one batch at a time, in order, while threads prepare the next ones."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from types import SimpleNamespace

import pytest

from focus_eval.core.errors import RunError
from focus_eval.lmms.answering import RequestRunner
from focus_eval.lmms.arguments import AdapterOptions
from focus_eval.lmms.checks import RunCounts
from focus_eval.lmms.turns import OwnProcessors, Turn, Turns, n_lanes


def test_the_model_goes_from_batch_to_batch_in_order_whoever_comes_first():
    turns, order, holders = Turns(), [], []

    def work(at):
        time.sleep(0.01 * (5 - at))
        if at != 2:  # one that failed before it came to the model
            Turn(turns, at).take()
            holders.append(at)
            order.append(at)
            assert holders == [at]
            time.sleep(0.002)
            holders.clear()
        turns.give_back(at)

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
    turns.give_back(0)
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
    context = SimpleNamespace(options=AdapterOptions(sampler="uniform"), shared=None, kept=None, cores=2)
    made = RequestRunner(model, context, counts=RunCounts(), quiet=True)
    monkeypatch.setattr(made, "_keep", lambda pending: None)
    return made


def questions(n):
    return [SimpleNamespace(row=None, path=None, seconds={}, number=number) for number in range(n)]


def test_the_next_batches_are_prepared_while_one_is_answered(runner, monkeypatch):
    prepared, answered = [threading.Event() for _ in range(8)], []

    def answer(batch, turn):
        number = batch[0].number
        prepared[number].set()
        turn.take()
        if number + 2 < len(prepared):
            assert prepared[number + 2].wait(60), "nobody prepares the one after the next"
        answered.append(number)

    monkeypatch.setattr(runner, "_batches", SimpleNamespace(answer=answer))
    runner.answer(runner.parts(questions(8)), 8)
    assert answered == list(range(8))


def test_a_failure_of_the_device_ends_the_run_and_no_later_batch_gets_the_model(runner, monkeypatch):
    reached = []

    def answer(batch, turn):
        turn.take()
        reached.append(batch[0].number)
        if batch[0].number == 1:
            raise RunError("CUDA error")

    monkeypatch.setattr(runner, "_batches", SimpleNamespace(answer=answer))
    with pytest.raises(RunError, match="CUDA error"):
        runner.answer(runner.parts(questions(30)), 30)
    assert reached == [0, 1]


def test_each_thread_has_a_processor_of_its_own_which_stays_a_pair_with_its_tokenizer(qwen):
    own, turn = OwnProcessors(), Turn(Turns(), 0)
    model = SimpleNamespace(processor=qwen.processor, _tokenizer=qwen.processor.tokenizer, _model=object())
    with own.of(model, turn) as first, own.of(model, turn) as second:
        assert set(first) == {"processor", "_tokenizer"}
        assert first["processor"].tokenizer is first["_tokenizer"]
        assert len({id(of["_tokenizer"]) for of in (first, second, vars(model))}) == 3
    with own.of(model, turn) as again:
        assert again["_tokenizer"] in (first["_tokenizer"], second["_tokenizer"])
    del model.processor
    with own.of(model, turn) as changed:
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
    turns.give_back(0)
    threads[2].join()
    assert sorted(moved) == [0, 1, 2]
    turns.end()
    threads[3].join()
    assert sorted(moved) == [0, 1, 2]


def test_lanes_follow_the_cores():
    assert [n_lanes(cores) for cores in (1, 2, 8, 64)] == [2, 3, 6, 16]
