"""Any video model of transformers sees exactly the chosen frames, and is told which ones they are."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.support.keyframes.tiny_transformers import MODELS

pytestmark = pytest.mark.slow

K = 7


@pytest.fixture(scope="module", params=MODELS)
def model(request, tmp_path_factory):
    from focus_eval.bench.lmms.models.huggingface import FocusHuggingface

    if request.param == "smolvlm":
        pytest.importorskip("num2words")
    folder = MODELS[request.param](tmp_path_factory.mktemp(request.param))
    return FocusHuggingface(pretrained=str(folder), device="cpu", sampler="random", frames=K, batch_size=1)


class Seen:
    """Stands before a model's `generate` and keeps what goes in."""

    def __init__(self, model):
        self.model = model
        self.inputs = []

    def __getattr__(self, name):
        return getattr(self.model, name)

    def generate(self, **inputs):
        self.inputs.append({name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)})
        return self.model.generate(**inputs)


def test_the_chosen_frames_reach_the_model_and_nothing_samples_them_again(
    model, evaluate, home, tools, tmp_path, monkeypatch
):
    from dataclasses import replace

    tap = tools.Tap(model.processor)
    monkeypatch.setattr(model, "processor", tap)
    recorded_model = Seen(model._model)
    monkeypatch.setattr(model, "_model", recorded_model)
    monkeypatch.setattr(model, "_unwrapped", recorded_model)
    model.show(model.context.chooser, frames=K, options=replace(model.adapter_options, record=str(tmp_path)))
    evaluate(model, ["focus_longvideobench"])
    selections = {row["question_id"]: row for row in tools.read_record(tmp_path, "selections")}
    answers = tools.read_record(tmp_path, "answers")
    assert [row["error"] for row in answers] == [None] * len(answers)
    compared = 0
    assert len(tap.calls) == len(recorded_model.inputs)
    reached = [inputs.get("pixel_values_videos", inputs.get("pixel_values")) for inputs in recorded_model.inputs]
    for call in tap.calls:
        (metadata,), (shown_frames,) = call["video_metadata"], call["videos"]
        row = next(row for row in selections.values() if row["keyframes"] == metadata.frames_indices)
        all_frames = tools.decode_all(home.videos["longvideobench"] / row["video"])
        assert np.array_equal(shown_frames, all_frames[row["keyframes"]])
        assert (metadata.total_num_frames, metadata.fps) == (len(all_frames), 10.0)
        # What the video processor makes of these frames alone is what reaches the model.
        processed_alone = model.processor.video_processor(
            [all_frames[row["keyframes"]]], do_sample_frames=False, video_metadata=[metadata], return_tensors="pt"
        )
        expected = (
            dict(processed_alone).get("pixel_values_videos", dict(processed_alone).get("pixel_values")).reshape(-1)
        )
        # Threads prepare several questions at a time: the calls may have another order than the answers.
        position = next(
            at for at, pixel_values in enumerate(reached) if torch.equal(pixel_values.reshape(-1), expected)
        )
        del reached[position]
        compared += len(shown_frames)
    assert compared == sum(2 * min(K, clip["n_frames"]) for clip in tools.CLIPS.values())
    assert {row["frames_fed"] for row in answers} == {K, 5}
    print(f"{type(model._model.model).__name__}: {compared} frames compared, 0 differ")


def test_a_processor_that_drops_frames_is_an_error_not_an_answer(model, evaluate, tools, tmp_path, monkeypatch):
    from dataclasses import replace

    class Dropping:
        def __init__(self, processor):
            self.processor = processor

        def __getattr__(self, name):
            return getattr(self.processor, name)

        def __call__(self, **inputs):
            inputs["videos"] = [video[:2] for video in inputs["videos"]]
            for metadata in inputs["video_metadata"]:
                metadata.frames_indices = metadata.frames_indices[:2]
            return self.processor(**inputs)

    monkeypatch.setattr(model, "processor", Dropping(model.processor))
    options = replace(model.adapter_options, record=str(tmp_path), max_error_share=1.0)
    model.show(model.context.chooser, frames=K, options=options)
    evaluate(model, ["focus_longvideobench"])
    errors = [row["error"] for row in tools.read_record(tmp_path, "answers")]
    assert all("2 reached the model" in error for error in errors)
