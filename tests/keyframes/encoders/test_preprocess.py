"""Frames become what the encoders' own image processors make of them; the integer resize is Pillow's, to the bit."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from focus_eval.core.errors import EncoderError, InvalidInput
from focus_eval.keyframes.encoders.preprocess import (
    ImageRules,
    normalise,
    pillow_weights,
    read_image_rules,
    resize_exactly,
    resize_frames,
    resize_on_device,
)

# Frames become what the encoders' own image processors make of them.


CLIP = CLIPImageProcessorPil()
SIGLIP = SiglipImageProcessorPil(size={"height": 384, "width": 384})
# Where Pillow 13 resizes a portrait image in another order, transformers follows it and the published runs did not.
LANDSCAPE = [(360, 640), (240, 240), (1080, 1920), (75, 100), (33, 200)]


@pytest.mark.parametrize("processor", [CLIP, SIGLIP], ids=["clip", "siglip"])
@pytest.mark.parametrize("size", LANDSCAPE)
def test_pixel_values_equal_those_of_transformers_pillow_processor(processor, size, tmp_path):
    processor.save_pretrained(tmp_path)
    frame = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    expected = processor(Image.fromarray(frame), return_tensors="pt")["pixel_values"][0]
    rules = read_image_rules(tmp_path)
    resized = torch.from_numpy(resize_frames(frame[None], rules).copy()).permute(0, 3, 1, 2)
    assert (normalise(resized, rules)[0] - expected).abs().max() < 1e-6


@pytest.mark.parametrize("rules", [ImageRules(height=96, width=96), ImageRules(height=80, width=80, shortest_edge=90)])
@pytest.mark.parametrize("size", [(120, 200), (200, 120), (90, 90), (50, 70), (91, 300)])
def test_the_device_resizes_as_pillow_does(rules, size):
    frames = np.random.default_rng(1).integers(0, 256, (3, *size, 3), dtype=np.uint8)
    on_device = resize_on_device(torch.from_numpy(frames), rules)
    assert np.array_equal(on_device.permute(0, 2, 3, 1).numpy(), resize_frames(frames, rules))


@pytest.mark.parametrize("rules", [ImageRules(height=96, width=96), ImageRules(height=80, width=80, shortest_edge=80)])
def test_frames_of_the_right_size_come_back_unchanged(rules):
    frames = np.random.default_rng(2).integers(0, 256, (2, 120, 200, 3), dtype=np.uint8)
    prepared = resize_frames(frames, rules)
    assert np.array_equal(resize_frames(prepared, rules), prepared)


def test_old_and_new_spellings_of_the_settings_mean_the_same(tmp_path):
    old = {"size": 224, "crop_size": 224, "resample": 3, "image_mean": CLIP.image_mean, "image_std": CLIP.image_std}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(old))
    from_old = read_image_rules(tmp_path)
    CLIP.save_pretrained(tmp_path)
    assert read_image_rules(tmp_path) == from_old == ImageRules(height=224, width=224, shortest_edge=224)


def test_a_step_switched_off_is_refused(tmp_path):
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"size": 8, "do_normalize": False}))
    with pytest.raises(EncoderError, match="do_normalize is false"):
        read_image_rules(tmp_path)


def test_missing_settings_are_named(tmp_path):
    with pytest.raises(EncoderError, match=r"preprocessor_config\.json"):
        read_image_rules(tmp_path)


def test_of_an_odd_rest_the_smaller_half_is_cut_above_and_left_as_transformers_does():
    rules = ImageRules(height=224, width=224, shortest_edge=225)
    assert rules.centre(225, 301) == (slice(0, 224), slice(38, 262))


def test_a_centre_larger_than_the_image_is_refused():
    with pytest.raises(InvalidInput, match="cannot be cut"):
        ImageRules(height=224, width=224, shortest_edge=200)


# The integer resize gives what Pillow gives, to the bit.


SIDES = st.integers(1, 300)


@settings(max_examples=60)
@given(
    SIDES, SIDES, st.integers(1, 120), st.integers(1, 120), st.sampled_from([2, 3]), st.booleans(), st.integers(0, 9)
)
def test_equals_pillow_at_any_size(height, width, to_height, to_width, resample, is_harsh, seed):
    image = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    if is_harsh:  # black and white pixels: bicubic overshoots and is clipped
        image = (image > 127).astype(np.uint8) * 255
    filtered = Image.Resampling(resample)
    pillow = Image.fromarray(image).resize((to_width, height), filtered).resize((to_width, to_height), filtered)
    resized = resize_exactly(torch.from_numpy(image).permute(2, 0, 1)[None], to_height, to_width, resample=resample)
    assert np.array_equal(resized[0].permute(1, 2, 0).numpy(), np.asarray(pillow))


@pytest.mark.parametrize("size", [(360, 640), (720, 1280), (1080, 1920), (854, 480)])
def test_equals_pillow_at_the_sizes_of_videos(size):
    image = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    pillow = Image.fromarray(image).resize((384, size[0]), 3).resize((384, 384), 3)
    resized = resize_exactly(torch.from_numpy(image).permute(2, 0, 1)[None], 384, 384, resample=3)
    assert np.array_equal(resized[0].permute(1, 2, 0).numpy(), np.asarray(pillow))


def test_weights_of_an_output_pixel_sum_to_one():
    _, fixed = pillow_weights(640, 384, 3)
    assert np.abs(fixed.sum(axis=1) - (1 << 22)).max() <= fixed.shape[1]


def test_another_filter_is_refused_by_name():
    with pytest.raises(InvalidInput, match="use resize=pil"):
        resize_exactly(torch.zeros(1, 3, 8, 8, dtype=torch.uint8), 4, 4, resample=1)
