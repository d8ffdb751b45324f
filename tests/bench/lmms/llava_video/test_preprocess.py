"""Pixels reach the tower as the original's image processor makes them: Pillow's bicubic, mean and deviation 0.5."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from focus_eval.bench.lmms.llava_video.model import tower_rules
from focus_eval.keyframes.encoders.preprocess import normalise, resize_frames


def pixel_values(frames: np.ndarray, size: int) -> torch.Tensor:
    rules = tower_rules(size)
    return normalise(torch.from_numpy(resize_frames(frames, rules)).permute(0, 3, 1, 2), rules)


def test_the_recorded_pixel_values_are_met_bit_for_bit(recorded_llava_video):
    recorded = load_file(recorded_llava_video / "cases.safetensors")
    assert torch.equal(pixel_values(recorded["frames.uint8"].numpy(), 54), recorded["pixel_values"])


def test_bicubic_at_384_is_that_of_the_pillow_the_original_ran_with(recorded_blip):
    """Landscape, portrait, full HD and an enlarged one, recorded with Pillow 10.4; portrait depends on the order."""
    resized = sorted((recorded_blip / "images").glob("*.resized384.png"))
    assert len(resized) == 4
    for path in resized:
        frame = np.asarray(Image.open(path.with_name(path.name.replace(".resized384", ""))).convert("RGB"))
        expected = np.asarray(Image.open(path).convert("RGB"))
        assert np.array_equal(resize_frames(frame[None], tower_rules(384))[0], expected), path.name


def test_width_is_resized_before_height():
    frame = np.random.default_rng(0).integers(0, 256, (90, 40, 3), dtype=np.uint8)
    resized_frame = resize_frames(frame[None], tower_rules(27))[0]
    width_first, height_first = (
        Image.fromarray(frame).resize(size, Image.Resampling.BICUBIC).resize((27, 27), Image.Resampling.BICUBIC)
        for size in ((27, 90), (40, 27))
    )
    assert np.array_equal(resized_frame, np.asarray(width_first))
    assert not np.array_equal(resized_frame, np.asarray(height_first))


@pytest.mark.parametrize(("level", "value"), [(0, -1.0), (255, 1.0), (51, -0.6)])
def test_levels_become_values_between_minus_one_and_one(level, value):
    values = pixel_values(np.full((1, 2, 2, 3), level, dtype=np.uint8), 2)
    assert values.shape == (1, 3, 2, 2)
    assert torch.allclose(values, torch.tensor(value))
