"""`oracle` shows the annotated moments and `blind` one black frame, through real tiny models and the plugin."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from focus_eval.bench.answering.choosing import SamplerChooser
from focus_eval.keyframes.pipeline.selector import Selector
from focus_eval.keyframes.samplers.registry import make_sampler

BLACK = "no frame chosen: one black frame shown"


def show(model, folder, name, **options):
    options = replace(model.adapter_options, record=str(folder), **options)
    chooser = SamplerChooser(Selector(sampler=make_sampler(name), encoder=None, k=8))
    model.show(chooser, frames=8, options=options)


def watch(model, name, tools, monkeypatch):
    tap = tools.Tap(getattr(model, name))
    monkeypatch.setattr(model, name, tap)
    return tap


@pytest.mark.parametrize("policy", ["exact", "aks"])
@pytest.mark.parametrize(("model", "processor"), [("qwen", "processor"), ("llava", "_image_processor")])
def test_blind_shows_one_black_frame_whatever_the_frame_policy(
    request, model, processor, policy, evaluate, home, tools, tmp_path, monkeypatch
):
    model = request.getfixturevalue(model)
    tap = watch(model, processor, tools, monkeypatch)
    show(model, tmp_path, "blind", frame_policy=policy)
    evaluate(model, ["focus_longvideobench"])
    shown_videos = [np.asarray(video) for _, video in tap.by_text()]
    answers, rows = tools.read_record(tmp_path, "answers"), tools.read_record(tmp_path, "selections")
    assert len(shown_videos) == len(answers) == len(rows) == 8
    assert all(not video.any() for video in shown_videos)
    assert {len(video) for video in shown_videos} == {1}
    for answer in answers:
        assert answer["error"] is None
        assert (answer["frames_asked"], answer["frames_chosen"], answer["frames_fed"]) == (8, 0, 0)
        assert answer["fed_frames"] == []
        assert answer["fallback"] == BLACK
    assert {row["role"] for row in rows} == {"floor"}


def test_oracle_shows_the_frame_at_the_evidence_of_the_document(llava, evaluate, home, tools, tmp_path, monkeypatch):
    tap = watch(llava, "_image_processor", tools, monkeypatch)
    show(llava, tmp_path, "oracle")
    evaluate(llava, ["focus_longvideobench"])
    rows = tools.read_record(tmp_path, "selections")
    assert {row["role"] for row in rows} == {"ceiling"}
    for row in rows:
        # Position 10 at 24 frames a second is frame 4 of these clips of 10; the shortest has five frames.
        assert row["evidence_seconds"] == [pytest.approx(10 / 24)]
        assert row["keyframes"] == [4]
        assert row["facts"] == {"evidence_frames": 1, "returned_fewer": 1}
    for text, video in tap.by_text():
        row = next(row for row in rows if row["query"] in text)
        frames = tools.decode_all(home.videos["longvideobench"] / row["video"])
        assert np.array_equal(video, frames[[4]])


def test_oracle_without_annotated_evidence_is_an_error_row_of_that_question(llava, evaluate, home, tools, tmp_path):
    show(llava, tmp_path, "oracle", max_error_share=1.0)
    evaluate(llava, ["focus_videomme"])
    answers = tools.read_record(tmp_path, "answers")
    assert answers
    assert all("oracle needs annotated evidence" in answer["error"] for answer in answers)
