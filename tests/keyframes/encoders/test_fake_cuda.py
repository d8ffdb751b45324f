"""Encoders on fake CUDA devices give the processor's numbers, and each of twelve injected faults is noticed."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest
import torch

from focus_eval.core.errors import EncoderError
from focus_eval.keyframes.encoders import preprocess, torch_scorer, upload
from focus_eval.keyframes.encoders.dual_encoder import DualEncoderScorer, pooled_output
from focus_eval.keyframes.encoders.registry import make_encoder
from focus_eval.keyframes.encoders.torch_scorer import DeviceClock, TorchScorer
from tests.support.keyframes.fake_cuda import CudaTensor, Event, FakeCuda, Stream
from tests.support.keyframes.random_weights import TINY_BLIP_HEADS

from .test_contract import SCORERS
from .test_release import ON_TORCH

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
FRAMES = np.random.default_rng(3).integers(0, 256, (5, 40, 60, 3), dtype=np.uint8)
BATCHES = (FRAMES[:3], FRAMES[3:])
TOLERANCES = {"fp32": 1e-6, "tf32": 1e-6, "bf16": 0.03, "fp16": 0.003}


@pytest.fixture(scope="module")
def family(request, tmp_path_factory):
    """Name, options and the processor's relevance of a family of encoders with tiny weights."""
    if request.param == "open_clip":
        pytest.importorskip("open_clip", reason="the extra open-clip is not installed")
    return _family(request.param, tmp_path_factory.mktemp("weights"))


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return _family("clip", tmp_path_factory.mktemp("weights"))


def _family(name, folder):
    with closing(SCORERS[name].make(folder)) as encoder:
        relevance = np.concatenate([encoder.relevance(encoder.embed(frames), "a cat") for frames in BATCHES])
    options = {"checkpoint": str(folder), "batch_size": 2}
    options |= {"text_heads": TINY_BLIP_HEADS} if name == "blip" else {}
    return name.partition(" ")[0], options, relevance


def check_on_gpu(family, device, precision):
    """Run an encoder on a fake GPU and check its numbers, clock, memory and events; return its recoveries."""
    name, options, expected = family
    with FakeCuda() as cuda:
        encoder = make_encoder(name, **options, device=device, precision=precision)
        queued = [encoder.queue_parts([frames]) for frames in BATCHES]
        features = [finish() for finish in queued]
        relevance = np.concatenate([encoder.relevance(part, "a cat") for part in features])
        np.testing.assert_allclose(relevance, expected, rtol=0, atol=TOLERANCES[precision])
        is_half = precision in ("bf16", "fp16")
        assert (np.abs(relevance - expected).max() > 1e-6) == is_half
        assert encoder.device_seconds > 0
        n_events = len(Event.alive)
        for _ in range(4):
            encoder.embed(FRAMES[:1])
        assert len(Event.alive) <= n_events + 4, "events of finished work are dropped"
        other = "cuda:1" if torch.device(device).index in (None, 0) else "cuda:0"
        assert cuda.bytes_alive(other) == 0
        encoder.close()
        del queued, features
        assert [cuda.bytes_alive(each) for each in ("cuda:0", "cuda:1")] == [0, 0]
        return encoder.recoveries


# TF32 is a setting that a processor does not have: its numbers here are those of fp32, whatever the class.
FAMILIES_IN_TF32 = ("blip", "clip", "open_clip")
CASES = [
    (name, device, precision)
    for name in ON_TORCH
    for device, precision in (("cuda", "fp32"), ("cuda:1", "bf16"), ("cuda:1", "tf32"), ("cuda:0", "fp16"))
    if precision != "tf32" or name in FAMILIES_IN_TF32
]


@pytest.mark.slow
@pytest.mark.parametrize(("family", "device", "precision"), CASES, indirect=["family"])
def test_a_gpu_gives_the_numbers_of_the_processor_and_keeps_nothing(family, device, precision):
    assert not check_on_gpu(family, device, precision)


def test_a_gpu_is_chosen_where_there_is_one():
    with FakeCuda():
        assert torch_scorer.torch_device("auto").type == "cuda"


def test_a_batch_that_does_not_fit_into_a_gpu_is_halved_and_counted(clip):
    name, options, _ = clip
    with FakeCuda() as cuda, closing(make_encoder(name, **options, device="cuda:1")) as encoder:
        n_weight_bytes = cuda.bytes_alive("cuda:1")
        features = encoder.embed(FRAMES)
        n_peak_bytes = cuda.peak_bytes
    with FakeCuda(capacity=n_peak_bytes - 1), closing(make_encoder(name, **options, device="cuda:1")) as encoder:
        np.testing.assert_allclose(encoder.embed(FRAMES), features, rtol=0, atol=1e-5)
        assert (encoder.batch_size, encoder.recoveries["halved_batches"]) == (1, 1)
    with FakeCuda(capacity=n_weight_bytes + 1000), pytest.raises(EncoderError, match="no memory for a batch of 1"):
        make_encoder(name, **options, device="cuda:1").embed(FRAMES)


# Faults put into the code that runs, each under the mistake it makes on a real GPU.
_upload, _constants, _record = upload.Uploader.fill, preprocess._constants.__wrapped__, DeviceClock._record
_leaked_events = []


def _fill_without_waiting(uploader, parts):
    is_copied, uploader._is_copied = uploader._is_copied, None
    try:
        return _upload(uploader, parts)
    finally:
        uploader._is_copied = is_copied


def _text_on_the_processor(encoder, query):
    inputs = encoder.text_inputs([query])
    forward = lambda _: pooled_output(encoder._model.get_text_features(**inputs))  # noqa: E731
    return encoder._text_runner.run(forward, 1, dtype=torch.float32)[0].double().cpu().numpy()


def _leak_event(clock):
    _leaked_events.append(_record(clock))
    return _leaked_events[-1]


def _record_on_first_gpu(clock):
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(torch.device("cuda:0")))
    return event


def _fetch_without_waiting(tensor):
    on_host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    on_host.copy_(tensor, non_blocking=True)
    return lambda: on_host


def _fetch_with_another_event(tensor):
    on_host, is_copied = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True), Event()
    on_host.copy_(tensor, non_blocking=True)
    is_copied.record()  # on the current device, which is the first
    return lambda: (is_copied.synchronize(), on_host)[1]


FAULTS = {
    "constants left on the processor": (preprocess, "_constants", lambda rules, _: _constants(rules, CPU)),
    "text left on the processor": (DualEncoderScorer, "_embed_query", _text_on_the_processor),
    "frames on another GPU": (torch_scorer, "Uploader", lambda _: upload.Uploader(torch.device("cuda:0"))),
    "compute does not wait for the upload": (Stream, "wait_event", lambda stream, event: None),
    "the reader is not named to the allocator": (CudaTensor, "record_stream", lambda tensor, stream: None),
    "the buffer is filled while it is copied": (upload.Uploader, "fill", _fill_without_waiting),
    "a result is read before it is there": (torch_scorer, "start_fetch", _fetch_without_waiting),
    "a fetch waits for another GPU": (torch_scorer, "start_fetch", _fetch_with_another_event),
    "the clock runs on another GPU": (DeviceClock, "_record", _record_on_first_gpu),
    "events are kept": (DeviceClock, "_record", _leak_event),
    "weights are kept after close": (TorchScorer, "close", lambda encoder: encoder._uploader.close()),
    "autocast is that of the processor": (torch, "autocast", lambda _, dtype: torch.amp.autocast("cpu", dtype=dtype)),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_device_or_stream_is_noticed(fault, clip, monkeypatch):
    target, name, replacement = FAULTS[fault]
    monkeypatch.setattr(target, name, replacement)
    if fault == "constants left on the processor":
        monkeypatch.setattr(replacement, "cache_clear", lambda: None, raising=False)
    with pytest.raises((AssertionError, RuntimeError, EncoderError)):
        check_on_gpu(clip, "cuda:1", "fp16")
    _leaked_events.clear()
