"""The plugin lets processes decode its videos: the same rows, nothing left running, and ranks that share the cores."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from focus_eval.bench.answering import ahead
from focus_eval.bench.answering.cell import Cell
from focus_eval.bench.answering.choosing import SamplerChooser
from focus_eval.keyframes.pipeline.selector import Selector
from focus_eval.keyframes.samplers.registry import make_sampler
from focus_eval.keyframes.video import feed
from focus_eval.keyframes.video.feed import DecodeProcesses

from .test_selecting_together import Brightness


def children() -> set[int]:
    lists = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return {int(pid) for pids in lists for pid in pids.read_text().split()}


@pytest.fixture
def answered(qwen, evaluate, tools, tmp_path, monkeypatch):
    """Answer with a sampler that reads pixels; return the rows' frames and answers, and how many processes decoded."""
    started = []
    initialise = DecodeProcesses.__init__

    def noting(self, n_processes):
        started.append(n_processes)
        initialise(self, n_processes)

    monkeypatch.setattr(DecodeProcesses, "__init__", noting)
    monkeypatch.setattr(ahead, "n_cores", lambda: 4)
    monkeypatch.setattr(feed, "TINY_BYTES", 0)

    def answer(name):
        chooser = SamplerChooser(Selector(sampler=make_sampler("topk"), encoder=Brightness(), k=3))
        # One video is shorter than a second, of which this sampler chooses nothing.
        options = replace(qwen.adapter_options, record=str(tmp_path / name), max_error_share=0.25)
        qwen.show(chooser, frames=3, options=options)
        evaluate(qwen, ["focus_longvideobench"], max_new_tokens=1)
        rows = tools.read_record(tmp_path / name, "answers")
        return {row["question_id"]: (row["error"], row["fed_frames"], row["answer"]) for row in rows}, started.pop()

    return answer


def test_processes_decode_the_same_frames_and_ranks_share_the_cores(answered, monkeypatch):
    earlier = children()
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    rows, n_processes = answered("in process")
    assert n_processes == 0, "a rank with one core"
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert answered("fed") == (rows, 2)
    assert len([error for error, _, _ in rows.values() if error is None]) == 6
    assert children() == earlier


def test_an_interrupt_leaves_no_process(answered, monkeypatch):
    earlier, seen = children(), []

    def interrupted(cell, framed, reply):
        seen.append(children() - earlier)
        raise KeyboardInterrupt

    monkeypatch.setattr(Cell, "write_answer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        answered("interrupted")
    assert seen[0]
    assert children() == earlier
