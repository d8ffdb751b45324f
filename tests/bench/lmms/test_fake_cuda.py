"""Answers on fake CUDA devices are those of the processor, by each model, and injected faults are noticed."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
import transformers

from focus_eval.bench.answering import ahead
from focus_eval.bench.answering.frames import FrameBatch
from focus_eval.bench.lmms.adapter import FrameAdapter
from focus_eval.bench.lmms.arguments import _on_own_device
from focus_eval.bench.lmms.llava_video import wrapper as llava_video_wrapper
from focus_eval.bench.lmms.llava_video.model import LlavaVideo, VideoNetwork
from focus_eval.bench.lmms.models.llava_hf import FocusLlavaOnevision
from focus_eval.bench.lmms.models.qwen_vl import FocusQwen2VL
from focus_eval.bench.matrix.answering import AnswerWorker, answer_jobs
from focus_eval.bench.matrix.cells import cells
from focus_eval.bench.matrix.config import load_matrix
from focus_eval.bench.matrix.folder import RunFolder
from focus_eval.bench.matrix.plan import load_sets
from focus_eval.bench.matrix.running import complete_run
from focus_eval.core.errors import RunError
from tests.support.bench.answering import write_answering_matrix
from tests.support.keyframes.fake_cuda import FakeCuda
from tests.support.keyframes.random_weights import write_tiny_clip

from .llava_video.conftest import write_checkpoint

pytestmark = pytest.mark.slow

N_QUESTIONS = 2
MODELS = ("focus_llava_video", "focus_llava_onevision", "focus_qwen2_vl")


class Road:
    """A matrix of one model and two samplers, with its selections; `answer` answers it on a device.

    Args:
        arguments: of the model's wrapper.
    """

    def __init__(self, folder, model, **arguments):
        config = {"name": model, "model": model, "args": arguments, "frames": 4}
        file = write_answering_matrix(folder, N_QUESTIONS, model=config, samplers=("uniform", "random"))
        self.folder, self.matrix, self.n_runs = folder, load_matrix(file), 0
        self.expected = self.answer("cpu")

    def worker(self, device, *, batch_size=1):
        """Return a worker on `device` and its jobs, in a folder with selections of its own."""
        self.n_runs += 1
        run = self.folder / f"runs_{self.n_runs}" / "run"
        complete_run(self.matrix.model_copy(update={"models": [], "k": [4]}), out=run)
        (model,) = self.matrix.models
        model = model.model_copy(update={"args": {**model.args, "device": device}, "batch_size": batch_size})
        parts = cells(self.matrix.model_copy(update={"models": [model]}))
        folder, sets = RunFolder(run), load_sets(self.matrix)
        return AnswerWorker(parts, sets, folder, name="local", cores=2), answer_jobs(parts, sets, folder)

    def answer(self, device, **options):
        """Return the rows of a run, and the tensors that `generate` was given."""
        worker, jobs = self.worker(device, **options)
        rows, tensors = run_jobs(worker, jobs)
        worker.close()
        return rows, tensors


def run_jobs(worker, jobs, after_job=lambda: None):
    """Run jobs one by one; return each row's values, and device, dtype and numbers of what `generate` was given."""
    rows, inputs = [], []
    generate = transformers.GenerationMixin.generate

    def noted(model, *args, **options):
        tensors = {name: value for name, value in options.items() if isinstance(value, torch.Tensor)}
        inputs.append({name: (str(x.device), x.dtype, x.cpu().numpy().copy()) for name, x in tensors.items()})
        return generate(model, *args, **{**options, "max_new_tokens": 3})

    with mock.patch.object(transformers.GenerationMixin, "generate", noted):
        for job in jobs:
            worker.run_all([job], on_row=rows.append)
            gc.collect()
            after_job()
    return [(row.question_id, row.answer, row.error, row.fed_frames, row.tokens) for row in rows], inputs


@pytest.fixture(scope="module")
def roads(tiny_llava, tiny_qwen, tmp_path_factory):
    """The road of a model by its name, made once."""
    road_by_model = {}

    def road(model):
        if model not in road_by_model:
            folder = tmp_path_factory.mktemp("road")
            arguments = {
                "focus_llava_video": lambda: {"pretrained": str(write_checkpoint(folder / "tiny")), "dtype": "float32"},
                "focus_llava_onevision": lambda: {"pretrained": str(tiny_llava)},
                "focus_qwen2_vl": lambda: {"pretrained": str(tiny_qwen), "max_pixels": 50000},
            }[model]()
            road_by_model[model] = Road(folder, model, **arguments)
        return road_by_model[model]

    return road


def check_on_gpu(road, device):
    """Answer a road on a fake GPU; check rows, inputs, the other GPU and what stays in memory."""
    expected_rows, expected_inputs = road.expected
    assert all(error is None for _, _, error, _, _ in expected_rows)
    with FakeCuda() as cuda:
        worker, jobs = road.worker(device)
        n_bytes = []
        rows, inputs = run_jobs(worker, jobs, lambda: n_bytes.append(cuda.bytes_alive(device)))
        assert rows == expected_rows
        for tensors, expected in zip(inputs, expected_inputs, strict=True):
            assert tensors.keys() == expected.keys()
            for name, (place, dtype, values) in tensors.items():
                assert (place, dtype) == (device, expected[name][1])
                np.testing.assert_allclose(values, expected[name][2], rtol=0, atol=1e-4)
        assert n_bytes == n_bytes[:1] * len(n_bytes), "an answer keeps nothing"
        other_device = "cuda:1" if device == "cuda:0" else "cuda:0"
        assert cuda.n_operations(other_device) == 0
        model = worker._loaded[1].model
        worker.close()
        gc.collect()
        assert [cuda.bytes_alive(gpu) for gpu in ("cuda:0", "cuda:1")] == [0, 0], f"{model.model_id} is closed"


@pytest.mark.parametrize("model", MODELS)
def test_answers_of_a_gpu_are_those_of_the_processor_and_nothing_is_kept(roads, model):
    check_on_gpu(roads(model), "cuda:1")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("model", MODELS)
def test_answers_of_this_machines_gpu_are_those_of_the_processor_and_nothing_is_kept(roads, model):
    road = roads(model)
    for _ in range(2):  # what libraries keep for themselves is there after the first
        gc.collect()
        n_bytes = torch.cuda.memory_allocated()
        rows, inputs = road.answer("cuda:0")
    assert rows == road.expected[0]
    for tensors, expected in zip(inputs, road.expected[1], strict=True):
        assert {name: device for name, (device, _, _) in tensors.items()} == dict.fromkeys(expected, "cuda:0")
    gc.collect()
    assert torch.cuda.memory_allocated() <= n_bytes


def test_each_process_of_a_node_has_a_gpu_of_its_own_for_model_and_encoder(tmp_path, monkeypatch):
    two_processes = SimpleNamespace(num_processes=2, local_process_index=1)
    one_process = SimpleNamespace(num_processes=1, local_process_index=0)
    checkpoint = {"checkpoint": str(write_tiny_clip(tmp_path / "clip"))}
    monkeypatch.setenv("LOCAL_RANK", "1")
    with FakeCuda():
        assert llava_video_wrapper._own_device(two_processes, None) == "cuda:1"
        assert llava_video_wrapper._own_device(one_process, "cuda:0") == "cuda:0"
        assert llava_video_wrapper._own_device(one_process, None) == "cuda"
        for options, device in [({}, "cuda:1"), ({"device": "cuda:0"}, "cuda:0"), ({"device": "cpu"}, "cpu")]:
            encoder = _on_own_device("clip", {**checkpoint, **options})
            assert encoder.device.startswith(device)
            encoder.close()


def test_a_batch_that_does_not_fit_is_answered_question_by_question_without_its_memory(roads):
    road = roads("focus_llava_video")
    peaks = []
    for batch_size in (1, 2):
        with FakeCuda() as cuda:
            road.answer("cuda:1", batch_size=batch_size)
            peaks.append(cuda.peak_bytes)
    # Of two questions one byte is missing: torch itself may still hold the inputs of the operation that failed.
    with FakeCuda(capacity=peaks[1] - 1):
        rows, _ = road.answer("cuda:1", batch_size=2)
    assert rows == road.expected[0]


def test_a_question_that_does_not_fit_is_an_error_that_names_memory(roads):
    road = roads("focus_llava_video")
    with FakeCuda() as cuda:
        worker, jobs = road.worker("cuda:1")
        worker._session(worker._cells[jobs[0].cell].model)
        cuda.capacity = cuda.bytes_alive("cuda:1") + 1000
        rows, inputs = run_jobs(worker, jobs)
        assert not inputs
        assert all("CUDA out of memory" in error for _, _, error, _, _ in rows)
        assert cuda.bytes_alive("cuda:1") < cuda.capacity
        worker.close()


# Faults put into the code that runs, each under the mistake it makes on a real GPU.
_pixel_values, _take, _video_tokens = LlavaVideo.pixel_values, FrameBatch.take, VideoNetwork.video_tokens
_tokens_kept = []


def _keep_tokens(network, pixel_values):
    _tokens_kept.append(_video_tokens(network, pixel_values))
    return _tokens_kept[-1]


VIDEO, QWEN, ONEVISION = "focus_llava_video", "focus_qwen2_vl", "focus_llava_onevision"
FAULTS = {
    "pixels left on the processor": (
        VIDEO,
        LlavaVideo,
        "pixel_values",
        lambda *arguments: _pixel_values(*arguments).cpu(),
    ),
    "pixels of half the digits": (
        VIDEO,
        LlavaVideo,
        "pixel_values",
        lambda *arguments: _pixel_values(*arguments).bfloat16(),
    ),
    "tokens left on the processor": (VIDEO, VideoNetwork, "device", property(lambda _: torch.device("cpu"))),
    "frames on another GPU": (VIDEO, VideoNetwork, "vision_device", property(lambda _: torch.device("cuda:0"))),
    "a frame is lost": (VIDEO, FrameBatch, "take", lambda frame_batch: _take(frame_batch)[1:]),
    "the model on the first GPU": (VIDEO, llava_video_wrapper, "_own_device", lambda *_: "cuda:0"),
    "threads without a device": (VIDEO, ahead, "_use_same_device", lambda device: None),
    "frames are kept after the answer": (VIDEO, VideoNetwork, "video_tokens", _keep_tokens),
    "weights are kept after close": (VIDEO, FrameAdapter, "close", lambda adapter: None),
    "inputs on the wrapper's own device": (QWEN, FocusQwen2VL, "defaults", lambda *_: None),
    "the wrapper's own map": (ONEVISION, FocusLlavaOnevision, "defaults", lambda *_: None),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_device_memory_or_frames_is_noticed(fault, roads, monkeypatch):
    model, target, name, replacement = FAULTS[fault]
    road = roads(model)
    monkeypatch.setattr(target, name, replacement)
    with pytest.raises((AssertionError, RuntimeError, RunError)):
        check_on_gpu(road, "cuda:1")
    _tokens_kept.clear()
