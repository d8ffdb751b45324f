"""Decoded frames are bounded by bytes, and a batch that is too large is answered in parts."""

from __future__ import annotations

import weakref
from dataclasses import replace
from threading import Condition
from types import SimpleNamespace

import pytest

from focus_eval.bench.lmms import answering
from focus_eval.bench.lmms.arguments import AdapterOptions
from focus_eval.bench.lmms.lookahead import decoded_bytes
from focus_eval.core.errors import InvalidInput
from focus_eval.keyframes.pipeline.selector import Selector
from focus_eval.keyframes.samplers.registry import make_sampler
from tests.support.keyframes.synthetic import write_numbered_clip


def bytes_of(path, *, role="sampler") -> int:
    """Return the estimated size of the decoded frames: three keyframes, or one black frame for the floor."""
    row = SimpleNamespace(role=role, keyframes=[0, 3, 5])
    return decoded_bytes(SimpleNamespace(row=row, path=path), "exact")


def test_frames_are_estimated_from_the_header_whatever_the_file_is_called(tmp_path):
    path = write_numbered_clip(tmp_path / "clip.mkv", 8, width=64, height=48, fps=4).rename(tmp_path / "http:x.mkv")
    assert bytes_of(path) == 3 * 3 * 64 * 48
    assert bytes_of(path, role="floor") == 3 * 64 * 48


def test_a_file_that_cannot_be_decoded_is_estimated_at_nothing_and_nothing_it_names_is_opened(tmp_path):
    clip = write_numbered_clip(tmp_path / "clip.ts", 8, width=64, height=48, fps=4)
    playlist, unknown = tmp_path / "list.m3u8", tmp_path / "unknown.mp4"
    playlist.write_text(f"#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\n{clip}\n#EXT-X-ENDLIST\n")
    data = write_numbered_clip(tmp_path / "clip.mp4", 8, width=64, height=48, fps=4).read_bytes()
    unknown.write_bytes(data.replace(b"avc1", b"zzzz"))
    assert [bytes_of(path) for path in (playlist, unknown, tmp_path / "absent.mp4")] == [0, 0, 0]


@pytest.fixture
def live_bytes(monkeypatch):
    """Bytes of decoded pixels that are alive and the most at one time, measured on the arrays themselves."""
    changed = Condition()
    counters = SimpleNamespace(now=0, most=0, n_decoded=0, changed=changed)
    make = answering.make_frame_batch

    def change(n_bytes: int) -> None:
        with changed:
            counters.now += n_bytes
            counters.most = max(counters.most, counters.now)
            counters.n_decoded += n_bytes > 0
            changed.notify_all()

    def counted(*args, **options):
        frame_batch = make(*args, **options)
        n_bytes = frame_batch.pixels.nbytes
        change(n_bytes)
        weakref.finalize(frame_batch.pixels, change, -n_bytes)
        return frame_batch

    monkeypatch.setattr(answering, "make_frame_batch", counted)
    return counters


@pytest.mark.parametrize("batch", [1, 4])
def test_no_more_bytes_are_alive_than_allowed_and_answers_stay_the_same(
    qwen, evaluate, tools, tmp_path, monkeypatch, live_bytes, batch
):
    def answer_once_both_are_decoded(model, context, requests, turn):
        with live_bytes.changed:
            assert len(requests) < 4 or live_bytes.changed.wait_for(lambda: live_bytes.n_decoded == 8, timeout=120)
        answer(model, context, requests, turn)

    answer = answering.answer_batch
    monkeypatch.setattr(qwen, "batch_size_per_gpu", batch)
    monkeypatch.setattr(answering, "answer_batch", answer_once_both_are_decoded)
    frames_by_run, peaks = {}, {}
    for name, gigabytes in (("plenty", 4.0), ("little", 0.0008)):
        live_bytes.most, live_bytes.n_decoded = live_bytes.now, 0
        source = Selector(sampler=make_sampler("uniform"), encoder=None, k=16)
        options = replace(qwen.adapter_options, record=str(tmp_path / name), decode_gigabytes=gigabytes)
        qwen.show(source, frames=16, options=options)
        evaluate(qwen, ["focus_longvideobench"])
        rows = tools.read_record(tmp_path / name, "answers")
        assert [row["error"] for row in rows] == [None] * 8
        frames_by_run[name] = {row["question_id"]: row["fed_frames"] for row in rows}
        peaks[name] = live_bytes.most
    assert frames_by_run["little"] == frames_by_run["plenty"]
    largest = 16 * 3 * 84 * 140  # 564,480 bytes: one question of the portrait clip
    assert largest <= peaks["little"] <= 0.0008e9
    if batch == 4:  # two batches, the one answered and the next: both are alive without the limit
        assert peaks["plenty"] > 2 * 0.0008e9
    print(f"batch {batch}: {peaks['plenty']:,} bytes alive at most, {peaks['little']:,} with 800,000 allowed")


def test_a_limit_of_nothing_is_refused():
    with pytest.raises(InvalidInput, match=r"option 'decode_gigabytes' of --model_args must be .*above 0"):
        AdapterOptions(sampler="uniform", decode_gigabytes=0)
