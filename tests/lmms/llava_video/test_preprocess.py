"""Pixels reach the tower as the original's image processor makes them: PIL bicubic, mean and deviation 0.5."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from focus_eval.lmms.llava_video.model import normalised
from focus_eval.lmms.llava_video.preprocess import resize_frame, resize_frames


def test_the_recorded_pixel_values_are_met_bit_for_bit(shared):
    recorded = load_file(shared("parity/llava_video") / "cases.safetensors")
    levels = torch.from_numpy(resize_frames(recorded["frames.uint8"].numpy(), size=54))
    assert torch.equal(normalised(levels), recorded["pixel_values"])


def test_bicubic_at_384_is_that_of_the_pillow_the_original_ran_with(shared):
    """Landscape, portrait, full HD and an enlarged one, recorded with Pillow 10.4: portrait differs by call order."""
    folder = shared("parity/blip")
    images = json.loads((folder / "cases.json").read_text())["axes"]
    resized = sorted((folder / "images").glob("*.resized384.png"))
    assert len(resized) == 4, images
    for path in resized:
        frame = np.asarray(Image.open(path.with_name(path.name.replace(".resized384", ""))).convert("RGB"))
        expected = np.asarray(Image.open(path).convert("RGB"))
        assert hashlib.sha256(resize_frame(frame, size=384)).digest() == hashlib.sha256(expected).digest(), path.name


def test_width_is_resized_before_height():
    frame = np.random.default_rng(0).integers(0, 256, (90, 40, 3), dtype=np.uint8)
    image = Image.fromarray(frame).resize((27, 90), Image.Resampling.BICUBIC).resize((27, 27), Image.Resampling.BICUBIC)
    assert np.array_equal(resize_frame(frame, size=27), np.asarray(image))
    other = Image.fromarray(frame).resize((40, 27), Image.Resampling.BICUBIC).resize((27, 27), Image.Resampling.BICUBIC)
    assert not np.array_equal(resize_frame(frame, size=27), np.asarray(other))


def test_frames_of_different_sizes_keep_their_order():
    frames = [np.full((20, 30, 3), 10, np.uint8), np.full((31, 17, 3), 200, np.uint8)]
    assert resize_frames(frames, size=16).reshape(2, -1).mean(axis=1).tolist() == [10, 200]


@pytest.mark.parametrize(("level", "value"), [(0, -1.0), (255, 1.0), (51, -0.6)])
def test_levels_become_values_between_minus_one_and_one(level, value):
    values = normalised(torch.full((1, 2, 2, 3), level, dtype=torch.uint8))
    assert values.shape == (1, 3, 2, 2)
    assert torch.allclose(values, torch.tensor(value))
