"""Pictures reach the device whole and in order through one buffer that is used again and again."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from focus_eval.keyframes.encoders.upload import Uploader, start_fetch

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
]


def pictures(n, height, width, seed):
    return np.random.default_rng(seed).integers(0, 256, (n, height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize("device", DEVICES)
def test_parts_of_any_layout_arrive_in_order_and_neighbours_of_one_size_together(device):
    whole = pictures(9, 12, 20, 0)
    parts = [whole[:2], whole[::3], pictures(1, 30, 8, 1), np.broadcast_to(whole[:1], (4, 12, 20, 3))]
    tensors = Uploader(torch.device(device)).upload(parts)
    assert [tuple(part.shape) for part in tensors] == [(5, 12, 20, 3), (1, 30, 8, 3), (4, 12, 20, 3)]
    assert np.array_equal(tensors[0].cpu().numpy(), np.concatenate(parts[:2]))
    assert np.array_equal(tensors[1].cpu().numpy(), parts[2])
    assert np.array_equal(tensors[2].cpu().numpy(), parts[3])


@pytest.mark.parametrize("device", DEVICES)
def test_a_later_batch_does_not_touch_an_earlier_one(device):
    uploader = Uploader(torch.device(device))
    batches = [pictures(4, 40 - at, 60, at) for at in range(8)]
    tensors = [uploader.upload([batch])[0] for batch in batches]
    for batch, tensor in zip(batches, tensors, strict=True):
        assert np.array_equal(tensor.cpu().numpy(), batch)


def test_the_buffer_is_made_once_for_batches_that_fit():
    uploader = Uploader(torch.device("cpu"))
    uploader.upload([pictures(4, 30, 40, 0)])
    address = uploader._buffer.data_ptr()
    uploader.upload([pictures(2, 30, 40, 1), pictures(1, 8, 8, 2)])
    assert uploader._buffer.data_ptr() == address


@pytest.mark.parametrize("device", DEVICES)
def test_a_result_is_that_of_the_moment_it_was_asked_for(device):
    tensor = torch.arange(1000.0, device=device)
    result = start_fetch(tensor * 2)
    assert torch.equal(result(), torch.arange(1000.0) * 2)
    assert result().device.type == "cpu"
