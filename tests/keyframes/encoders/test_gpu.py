"""Encoders on the GPU of this machine: the processor's numbers, the same bits again, no memory kept."""

from __future__ import annotations

import gc
from contextlib import closing

import numpy as np
import pytest
import torch

from focus_eval import select_keyframes
from focus_eval.keyframes.encoders.registry import make_encoder
from tests.support.keyframes.random_weights import TINY_BLIP_HEADS
from tests.support.keyframes.synthetic import write_numbered_clip

from .test_contract import SCORERS
from .test_release import ON_TORCH

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

FRAMES = np.random.default_rng(3).integers(0, 256, (11, 40, 60, 3), dtype=np.uint8)
TOLERANCES = {"fp32": 1e-5, "tf32": 5e-3, "bf16": 0.05, "fp16": 0.01}


@pytest.fixture(scope="module", params=ON_TORCH)
def family(request, tmp_path_factory):
    """Name and options of an encoder with tiny weights, and the processor's relevance of `FRAMES`."""
    if request.param == "open_clip":
        pytest.importorskip("open_clip", reason="the extra open-clip is not installed")
    folder = tmp_path_factory.mktemp("weights")
    with closing(SCORERS[request.param].make(folder)) as encoder:
        relevance = encoder.relevance(encoder.embed(FRAMES), "a cat")
    options = {"checkpoint": str(folder), "batch_size": 4}
    options |= {"text_heads": TINY_BLIP_HEADS} if request.param == "blip" else {}
    return request.param.partition(" ")[0], options, relevance


def relevance_in_parts(encoder, parts):
    """Return relevance of frames that reach the encoder in `parts`, all queued before the first is fetched."""
    queued = [encoder.queue_parts([part]) for part in parts]
    return np.concatenate([encoder.relevance(finish(), "a cat") for finish in queued])


@pytest.mark.parametrize("precision", TOLERANCES)
def test_relevance_is_the_processors_and_the_same_bits_in_the_same_batches(family, precision):
    name, options, expected = family
    with closing(make_encoder(name, **options, device="cuda", precision=precision)) as encoder:
        together = relevance_in_parts(encoder, [FRAMES])
        np.testing.assert_allclose(together, expected, rtol=0, atol=TOLERANCES[precision])
        apart = relevance_in_parts(encoder, np.split(FRAMES, [4, 8]))
        np.testing.assert_array_equal(apart, together)
        # Kernels differ with the size of a batch, and so do the last bits: a run pads all batches to one size.
        for sizes in ([1] * 11, [7, 4]):
            apart = relevance_in_parts(encoder, np.split(FRAMES, np.cumsum(sizes)[:-1]))
            np.testing.assert_allclose(apart, together, rtol=0, atol=TOLERANCES[precision])
        assert encoder.device_seconds > 0
        assert not encoder.recoveries


def test_nothing_stays_in_memory_after_close(family):
    name, options, _ = family
    for _ in range(2):  # what libraries keep for themselves is there after the first
        gc.collect()
        n_bytes = torch.cuda.memory_allocated()
        encoder = make_encoder(name, **options, device="cuda", precision="bf16")
        encoder.relevance(encoder.embed(FRAMES), "a cat")
        encoder.close()
        del encoder
    gc.collect()
    assert torch.cuda.memory_allocated() <= n_bytes


def test_a_batch_that_does_not_fit_is_halved_and_counted(tmp_path):
    with closing(SCORERS["clip"].make(tmp_path)) as encoder:
        expected = encoder.relevance(encoder.embed(FRAMES), "a cat")
    many = np.concatenate([FRAMES] * 400)
    options = {"checkpoint": str(tmp_path), "batch_size": len(many), "device": "cuda"}
    with closing(make_encoder("clip", **options)) as encoder:
        torch.cuda.reset_peak_memory_stats()
        encoder.embed(many)
        n_peak_bytes = torch.cuda.max_memory_allocated()
    gc.collect()
    torch.cuda.empty_cache()
    whole = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(0.7 * n_peak_bytes / whole)
    try:
        with closing(make_encoder("clip", **options)) as encoder:
            relevance = encoder.relevance(encoder.embed(many), "a cat")
            assert encoder.recoveries["halved_batches"] > 0
            assert encoder.batch_size < len(many)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()
    np.testing.assert_allclose(relevance, np.tile(expected, 400), rtol=0, atol=1e-5)


def test_frames_chosen_on_the_gpu_are_those_of_the_processor(tmp_path):
    clip = write_numbered_clip(tmp_path / "clip.mp4", 120, width=64, height=48, fps=10, gop=20)
    weights = tmp_path / "weights"
    weights.mkdir()
    SCORERS["clip"].make(weights).close()
    chosen = {
        device: select_keyframes(
            clip, query="a cat", k=8, sampler="topk", encoder="clip",
            encoder_options={"checkpoint": str(weights), "device": device},
        ).keyframes
        for device in ("cpu", "cuda")
    }  # fmt: skip
    assert chosen["cuda"] == chosen["cpu"]
