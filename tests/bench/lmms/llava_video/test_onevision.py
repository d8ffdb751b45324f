"""Transformers' own LLaVA-OneVision class against the recorded original, where the two are the same model."""

from __future__ import annotations

import pytest
import torch

from focus_eval.bench.lmms.llava_video.checkpoint import load_network
from tests.support.bench.llava_video_parity import TOLERANCE, read_cases, stage_checkpoint

ONE_TOKEN = ["f3_bilinear_one_token", "f8_bilinear_one_token"]


@pytest.fixture(scope="module")
def stock(recorded_llava_video, tmp_path_factory):
    """The stock class with the recorded weights, its tower untouched, and the recorded cases."""
    recording = recorded_llava_video
    config = stage_checkpoint(recording, tmp_path_factory.mktemp("stock"))
    network = load_network(config, dtype="float32", end_early=False)
    cases, pixels = read_cases(recording)
    return network, {case.name: case for case in cases}, pixels


def run(stock, name: str, n_tokens: int):
    """Return the stock class's outputs and its prompt of `n_tokens` placeholders, with the case's text and frames."""
    network, cases, pixels = stock
    case = cases[name]
    network.config.video_token_index, network.config.image_token_index = 127, 126
    first_ids, second_ids = case.halves
    ids = torch.tensor([[*first_ids, *[127] * n_tokens, *second_ids]])
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "pixel_values_videos": pixels[None, : case.settings["num_frames"]],
    }
    with torch.inference_mode():
        return network(**inputs), inputs


@pytest.mark.parametrize("name", ONE_TOKEN)
def test_the_stock_class_gives_what_is_recorded_with_one_newline_per_video(stock, name):
    network, cases, _ = stock
    positions, case = cases[name].feature_positions, cases[name].tensors
    outputs, inputs = run(stock, name, cases[name].settings["num_video_tokens"])
    features = outputs.video_hidden_states.flatten(0, -2)[positions]
    assert (features - case["video_features"]).abs().max() <= TOLERANCE
    logits = outputs.logits[0, case["logit_positions"].long()]
    assert (logits - case["logits"].reshape(logits.shape)).abs().max() <= TOLERANCE
    with torch.inference_mode():
        tokens = network.generate(**inputs, max_new_tokens=8, do_sample=False, pad_token_id=0)
    assert tokens[0, inputs["input_ids"].shape[1] :].tolist() == case["greedy_tokens"].reshape(-1).tolist()


def test_the_stock_class_cannot_take_the_grid_of_llava_video(stock):
    _, cases, _ = stock
    with pytest.raises(ValueError, match="do not match"):
        run(stock, "f3_bilinear_grid", cases["f3_bilinear_grid"].settings["num_video_tokens"])


def test_the_stock_video_processor_normalises_as_clip_does_unless_told():
    from transformers.models.llava_onevision.video_processing_llava_onevision import LlavaOnevisionVideoProcessor

    stock = LlavaOnevisionVideoProcessor()
    assert list(stock.image_mean) != [0.5, 0.5, 0.5]
    corrected_processor = LlavaOnevisionVideoProcessor(image_mean=[0.5] * 3, image_std=[0.5] * 3)
    white = torch.full((1, 3, 384, 384), 255, dtype=torch.uint8)
    assert torch.allclose(
        corrected_processor(videos=[white], return_tensors="pt")["pixel_values_videos"], torch.ones(1)
    )
    assert stock(videos=[white], return_tensors="pt")["pixel_values_videos"].max() > 1.5


def test_the_stock_video_processor_told_the_right_mean_is_within_a_level_of_the_original(recorded_llava_video):
    from safetensors.torch import load_file
    from transformers.models.llava_onevision.video_processing_llava_onevision import LlavaOnevisionVideoProcessor

    recorded = load_file(recorded_llava_video / "cases.safetensors")
    size = {"height": 54, "width": 54}
    processor = LlavaOnevisionVideoProcessor(image_mean=[0.5] * 3, image_std=[0.5] * 3, size=size)
    frames = recorded["frames.uint8"].permute(0, 3, 1, 2)
    pixel_values = processor(videos=[frames], return_tensors="pt")["pixel_values_videos"][0]
    levels = (pixel_values - recorded["pixel_values"]).abs() * 127.5
    assert levels.max() <= 1.01
    assert (levels > 0.5).float().mean() <= 0.01
