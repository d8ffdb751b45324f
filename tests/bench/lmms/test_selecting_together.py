"""The questions of one video are served together, and choose what each would choose alone."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from focus_eval.keyframes.encoders.base import Encoder


class Brightness(Encoder):
    """An encoder of real pixels: relevance is the mean brightness, turned about by the length of the query."""

    name: ClassVar[str] = "brightness"
    stores_embeddings: ClassVar[bool] = True
    revision = "1"

    def __init__(self) -> None:
        self.n_embedded = 0

    def embed(self, frames):
        self.n_embedded += len(frames)
        return frames.mean(axis=(1, 2)).astype(np.float32)

    def relevance(self, features, query):
        return (features.mean(axis=1) * (1 + len(query) % 5) % 256) / 256.0


@pytest.mark.parametrize("sampler", ["focus", "topk"])
def test_questions_of_one_video_share_each_frame_and_choose_as_alone(
    tiny_llava, home, evaluate, tools, tmp_path, sampler
):
    from focus_eval.bench.answering.choosing import SamplerChooser
    from focus_eval.bench.benchmarks.registry import make_benchmark
    from focus_eval.bench.lmms.models.llava_hf import FocusLlavaOnevision
    from focus_eval.keyframes.pipeline.selector import Selector
    from focus_eval.keyframes.samplers.registry import make_sampler

    model = FocusLlavaOnevision(
        pretrained=str(tiny_llava), device="cpu", sampler="uniform", frames=4, record=str(tmp_path)
    )
    shared_encoder = Brightness()
    model.show(SamplerChooser(Selector(sampler=make_sampler(sampler), encoder=shared_encoder, k=4)), frames=4)
    documents = tools.longvideobench_rows(["landscape", "portrait", "odd"], tools.QUESTIONS[:2])
    evaluate(model, ["focus_longvideobench"], data=tools.write_parquet(tmp_path / "data", "validation", documents))
    rows = {row["question_id"]: row for row in tools.read_record(tmp_path, "selections")}
    answers = {row["question_id"]: row for row in tools.read_record(tmp_path, "answers")}
    assert all(row["error"] is None for row in answers.values())

    separate_encoder = Brightness()
    selector = Selector(sampler=make_sampler(sampler), encoder=separate_encoder, k=4)
    for document in documents:
        question = make_benchmark("longvideobench").question(document)
        row = selector.select(question, home.videos["longvideobench"] / question.video)
        assert rows[question.id]["keyframes"] == row.keyframes == answers[question.id]["fed_frames"]
        assert rows[question.id]["pulled_frames"] == row.pulled_frames
    assert shared_encoder.n_embedded < separate_encoder.n_embedded
    if sampler == "topk":  # both questions pull the same candidates
        assert shared_encoder.n_embedded == separate_encoder.n_embedded / 2


def test_a_scan_encoder_is_named_in_model_args_and_chooses_as_in_python(tiny_llava, home, evaluate, tools, tmp_path):
    from focus_eval.bench.benchmarks.registry import make_benchmark
    from focus_eval.bench.lmms.models.llava_hf import FocusLlavaOnevision
    from focus_eval.keyframes.encoders.registry import make_encoder
    from focus_eval.keyframes.pipeline.selector import Selector
    from focus_eval.keyframes.samplers.registry import make_sampler

    pytest.importorskip("openvino", reason="the offline extra is not installed")
    arguments = {"sampler": "scan_cover", "sampler.scan_encoder": "'offline:size=64'", "sampler.share": 0.2}
    model = FocusLlavaOnevision(
        pretrained=str(tiny_llava), device="cpu", encoder="offline", frames=4, record=str(tmp_path), **arguments
    )
    documents = tools.longvideobench_rows(["landscape", "portrait"], tools.QUESTIONS[:2])
    evaluate(model, ["focus_longvideobench"], data=tools.write_parquet(tmp_path / "data", "validation", documents))
    rows = {row["question_id"]: row for row in tools.read_record(tmp_path, "selections")}
    answers = {row["question_id"]: row for row in tools.read_record(tmp_path, "answers")}
    selector = Selector(
        sampler=make_sampler("scan_cover", scan_encoder="offline:size=64", share=0.2),
        encoder=make_encoder("offline"),
        scan_encoder=make_encoder("offline:size=64"),
        k=4,
    )
    for document in documents:
        question = make_benchmark("longvideobench").question(document)
        row = selector.select(question, home.videos["longvideobench"] / question.video)
        assert rows[question.id]["error"] is None
        assert rows[question.id]["keyframes"] == row.keyframes == answers[question.id]["fed_frames"]
        assert rows[question.id]["scanned_frames"] == row.scanned_frames
        assert rows[question.id]["selection_id"] == row.selection_id
    assert all(row["scanned_frames"] for row in rows.values())


def test_a_scan_encoder_that_is_missing_is_refused_before_weights_load():
    from focus_eval.bench.lmms.models.llava_hf import FocusLlavaOnevision
    from focus_eval.core.errors import InvalidInput

    with pytest.raises(InvalidInput, match="name it with scan_encoder=NAME"):
        FocusLlavaOnevision(pretrained="nowhere", device="cpu", sampler="scan_cover", encoder="offline", frames=4)
