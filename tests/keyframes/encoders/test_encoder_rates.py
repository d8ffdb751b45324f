"""The work of an encoder is what torch counts when it runs."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.support.keyframes.encoder_rates import image_gflop, text_gflop
from tests.support.keyframes.random_weights import random_blip


@pytest.fixture(scope="module")
def model():
    return random_blip("tiny", image_size=96)[0].eval()


def counted(call):
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops() / 1e9


def test_the_image_towers_work_is_what_torch_counts(model):
    frame = torch.zeros(1, 3, 96, 96)
    assert image_gflop(model.config) == pytest.approx(counted(lambda: model.vision_model(frame)))


def test_the_text_encoders_work_is_what_torch_counts(model):
    states = torch.zeros(
        1, (96 // model.config.vision_config.patch_size) ** 2 + 1, model.config.vision_config.hidden_size
    )
    ids = torch.ones(1, 7, dtype=torch.long)

    def run():
        model.text_encoder(input_ids=ids, attention_mask=torch.ones_like(ids), encoder_hidden_states=states)

    assert text_gflop(model.config, n_tokens=7) == pytest.approx(counted(run))
