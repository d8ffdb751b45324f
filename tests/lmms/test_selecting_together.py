"""The questions of one video are served together, and choose what each would choose alone."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest


class Brightness:
    """An encoder of real pixels: relevance is the mean brightness, turned about by the length of the query."""

    name: ClassVar[str] = "brightness"
    stores_embeddings: ClassVar[bool] = True
    revision = "1"
    device = "cpu"

    def __init__(self) -> None:
        self.n_embedded = 0

    def embed(self, frames):
        self.n_embedded += len(frames)
        return frames.mean(axis=(1, 2)).astype(np.float32)

    def relevance(self, features, query):
        return (features.mean(axis=1) * (1 + len(query) % 5) % 256) / 256.0

    def close(self) -> None:
        pass


@pytest.mark.parametrize("sampler", ["focus", "topk"])
def test_questions_of_one_video_share_each_frame_and_choose_as_alone(
    tiny_llava, home, evaluate, tools, tmp_path, sampler
):
    from focus_eval.benchmarks.registry import make_benchmark
    from focus_eval.lmms.models.llava_hf import FocusLlavaOnevision
    from focus_eval.pipeline.selector import Selector
    from focus_eval.samplers.registry import make_sampler

    model = FocusLlavaOnevision(
        pretrained=str(tiny_llava), device="cpu", sampler="uniform", frames=4, record=str(tmp_path)
    )
    together = Brightness()
    model.show(Selector(sampler=make_sampler(sampler), encoder=together, k=4), frames=4)
    documents = tools.longvideobench_rows(["landscape", "portrait", "odd"], tools.QUESTIONS[:2])
    evaluate(model, ["focus_longvideobench"], data=tools.write_parquet(tmp_path / "data", "validation", documents))
    rows = {row["question_id"]: row for row in tools.read_record(tmp_path, "selections")}
    answers = {row["question_id"]: row for row in tools.read_record(tmp_path, "answers")}
    assert all(row["error"] is None for row in answers.values())

    alone = Brightness()
    selector = Selector(sampler=make_sampler(sampler), encoder=alone, k=4)
    for document in documents:
        question = make_benchmark("longvideobench").question(document)
        row = selector.select(question, home.videos["longvideobench"] / question.video)
        assert rows[question.id]["keyframes"] == row.keyframes == answers[question.id]["fed_frames"]
        assert rows[question.id]["pulled_frames"] == row.pulled_frames
    assert together.n_embedded < alone.n_embedded
    if sampler == "topk":  # both questions pull the same candidates
        assert together.n_embedded == alone.n_embedded / 2
