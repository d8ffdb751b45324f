"""What an interrupt leaves undone while a service answers many questions at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from types import SimpleNamespace

import pytest

from focus_eval.bench.lmms import answering, lookahead
from focus_eval.bench.lmms.answering import RequestRunner
from focus_eval.bench.lmms.arguments import AdapterOptions
from focus_eval.bench.lmms.recording import RunCounts


def test_an_interrupted_run_asks_a_service_no_further_question(monkeypatch):
    asked_requests, is_ending = [], Event()

    class Pool(ThreadPoolExecutor):
        def shutdown(self, **options):
            is_ending.set()
            super().shutdown(**options)

    def answer(model, context, requests, turn):
        asked_requests.extend(requests)
        # All but the first wait for the run's end, so that no more than two can be under way.
        assert requests == [first] or is_ending.wait(60)

    def interrupted(context, pending):
        raise KeyboardInterrupt

    monkeypatch.setattr(lookahead, "ThreadPoolExecutor", Pool)
    first, *later_requests = (SimpleNamespace(row=None, path=None, seconds={}, number=number) for number in range(6))
    context = SimpleNamespace(options=AdapterOptions(sampler="uniform"), scan_cache=None, cores=2)
    runner = RequestRunner(SimpleNamespace(questions_at_once=2), [context], counts=RunCounts(), quiet=True)
    monkeypatch.setattr(answering, "answer_batch", answer)
    monkeypatch.setattr(runner, "write_row", interrupted)
    with pytest.raises(KeyboardInterrupt):
        runner.answer(runner.batches(context, [first, *later_requests]), 6)
    assert len(asked_requests) <= 3
