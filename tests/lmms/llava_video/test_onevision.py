"""Transformers' own LLaVA-OneVision class against the recorded original, where the two are the same model."""

from __future__ import annotations

import pytest
import torch

from focus_eval.lmms.llava_video.checkpoint import load_network
from focus_eval.lmms.llava_video.parity import TOLERANCE, read_cases, stage_checkpoint

ONE_TOKEN = ["f3_bilinear_one_token", "f8_bilinear_one_token"]


@pytest.fixture(scope="module")
def stock(shared, tmp_path_factory):
    """The stock class with the recorded weights, its tower untouched, and the recorded cases."""
    recording = shared("parity/llava_video")
    config = stage_checkpoint(recording, tmp_path_factory.mktemp("stock"))
    network = load_network(config, dtype="float32", end_early=False)
    cases, pixels = read_cases(recording)
    return network, {case.name: case for case in cases}, pixels


@pytest.mark.parametrize("name", ONE_TOKEN)
def test_the_stock_class_gives_the_recorded_features_with_one_newline_per_video(stock, name):
    network, cases, pixels = stock
    case = cases[name]
    with torch.inference_mode():
        found = network.get_video_features(pixels[None, : case.settings["num_frames"]]).pooler_output[0]
    assert (found - case.tensors["video_features"]).abs().max() <= TOLERANCE


@pytest.mark.parametrize("name", ONE_TOKEN)
def test_the_stock_class_gives_the_recorded_logits_and_tokens_from_placeholders(stock, name):
    network, cases, pixels = stock
    case = cases[name]
    network.config.video_token_index, network.config.image_token_index = 127, 126
    before, after = case.halves
    ids = torch.tensor([[*before, *[127] * case.settings["num_video_tokens"], *after]])
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "pixel_values_videos": pixels[None, : case.settings["num_frames"]],
    }
    with torch.inference_mode():
        logits = network(**inputs).logits[0, case.tensors["logit_positions"].long()]
        tokens = network.generate(**inputs, max_new_tokens=8, do_sample=False, pad_token_id=0)[0, ids.shape[1] :]
    recorded = case.tensors["logits"]
    assert (logits - recorded.reshape(logits.shape)).abs().max() <= TOLERANCE
    assert tokens.tolist() == case.tensors["greedy_tokens"].reshape(-1).tolist()


def test_the_stock_class_cannot_lay_out_the_grid_of_llava_video(stock):
    network, cases, pixels = stock
    with torch.inference_mode():
        found = network.get_video_features(pixels[None, :3]).pooler_output[0]
    assert len(found) == cases["f3_bilinear_one_token"].settings["num_video_tokens"]
    assert len(found) != cases["f3_bilinear_grid"].settings["num_video_tokens"]


def test_the_stock_video_processor_normalises_as_clip_does_unless_told():
    from transformers.models.llava_onevision.video_processing_llava_onevision import LlavaOnevisionVideoProcessor

    stock = LlavaOnevisionVideoProcessor()
    assert list(stock.image_mean) != [0.5, 0.5, 0.5]
    told = LlavaOnevisionVideoProcessor(image_mean=[0.5] * 3, image_std=[0.5] * 3)
    white = torch.full((1, 3, 384, 384), 255, dtype=torch.uint8)
    assert torch.allclose(told(videos=[white], return_tensors="pt")["pixel_values_videos"], torch.ones(1))
    assert stock(videos=[white], return_tensors="pt")["pixel_values_videos"].max() > 1.5


def test_the_stock_video_processor_told_the_right_mean_is_within_a_level_of_the_original(shared):
    from safetensors.torch import load_file
    from transformers.models.llava_onevision.video_processing_llava_onevision import LlavaOnevisionVideoProcessor

    recorded = load_file(shared("parity/llava_video") / "cases.safetensors")
    size = {"height": 54, "width": 54}
    processor = LlavaOnevisionVideoProcessor(image_mean=[0.5] * 3, image_std=[0.5] * 3, size=size)
    frames = recorded["frames.uint8"].permute(0, 3, 1, 2)
    found = processor(videos=[frames], return_tensors="pt")["pixel_values_videos"][0]
    levels = (found - recorded["pixel_values"]).abs() * 127.5
    assert levels.max() <= 1.01
    assert (levels > 0.5).float().mean() <= 0.01
