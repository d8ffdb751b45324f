"""The integer resize gives what Pillow gives, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from focus_eval.core.errors import InvalidInput
from focus_eval.encoders.preprocess import pillow_weights, resize_exactly

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
    ours = resize_exactly(torch.from_numpy(image).permute(2, 0, 1)[None], to_height, to_width, resample=resample)
    assert np.array_equal(ours[0].permute(1, 2, 0).numpy(), np.asarray(pillow))


@pytest.mark.parametrize("size", [(360, 640), (720, 1280), (1080, 1920), (854, 480)])
def test_equals_pillow_at_the_sizes_of_videos(size):
    image = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    pillow = Image.fromarray(image).resize((384, size[0]), 3).resize((384, 384), 3)
    ours = resize_exactly(torch.from_numpy(image).permute(2, 0, 1)[None], 384, 384, resample=3)
    assert np.array_equal(ours[0].permute(1, 2, 0).numpy(), np.asarray(pillow))


def test_weights_of_an_output_pixel_sum_to_one():
    _, fixed = pillow_weights(640, 384, 3)
    assert np.abs(fixed.sum(axis=1) - (1 << 22)).max() <= fixed.shape[1]


def test_another_filter_is_refused_by_name():
    with pytest.raises(InvalidInput, match="use resize=pil"):
        resize_exactly(torch.zeros(1, 3, 8, 8, dtype=torch.uint8), 4, 4, resample=1)
