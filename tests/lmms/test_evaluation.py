"""What an interrupt leaves undone while a service answers many questions at once."""

from __future__ import annotations

from threading import Event
from types import SimpleNamespace

import pytest

from focus_eval.lmms.answering import RequestRunner
from focus_eval.lmms.arguments import AdapterOptions
from focus_eval.lmms.checks import RunCounts
from focus_eval.lmms.decoding import FrameMemory


def test_an_interrupted_run_asks_a_service_no_further_question(monkeypatch):
    asked, is_ending = [], Event()
    release = FrameMemory.open

    def ending(memory):
        is_ending.set()
        release(memory)

    def answer(batch, turn):
        asked.extend(batch)
        # All but the first wait for the run's end, so that no more than two can be under way.
        assert batch == [first] or is_ending.wait(60)

    def interrupted(pending):
        raise KeyboardInterrupt

    monkeypatch.setattr(FrameMemory, "open", ending)
    first, *others = (SimpleNamespace(row=None, path=None, seconds={}, number=number) for number in range(6))
    context = SimpleNamespace(options=AdapterOptions(sampler="uniform"), shared=None, kept=None)
    runner = RequestRunner(SimpleNamespace(questions_at_once=2), context, counts=RunCounts(), quiet=True)
    monkeypatch.setattr(runner, "_batches", SimpleNamespace(answer=answer))
    monkeypatch.setattr(runner, "_keep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        runner.answer(runner.parts([first, *others]), 6)
    assert len(asked) <= 3
