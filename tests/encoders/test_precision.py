"""Batches that do not fit or are not numbers are mended and counted."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from focus_eval.core.errors import EncoderError, InvalidInput, RunError
from focus_eval.encoders import torch_scorer as precision
from focus_eval.encoders.torch_scorer import BatchRunner, Recoveries, arithmetic, torch_device

CPU = torch.device("cpu")


def test_batches_join_in_order_whatever_their_size():
    rows = torch.arange(23.0)[:, None]
    for size in (1, 4, 23, 100):
        found = BatchRunner(CPU, "fp32", size).run(lambda part: rows[part] * 2, 23, dtype=torch.float32)
        assert torch.equal(found, rows * 2)


def test_rows_per_frame_shrink_the_batch_and_never_below_one_frame():
    seen = []

    def forward(part):
        seen.append(part.stop - part.start)
        return torch.zeros(part.stop - part.start)

    BatchRunner(CPU, "fp32", 12).run(forward, 10, dtype=torch.float32, rows_per_frame=4)
    BatchRunner(CPU, "fp32", 12).run(forward, 2, dtype=torch.float32, rows_per_frame=50)
    assert seen == [3, 3, 3, 1, 1, 1]


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_half_precision_multiplies_in_half_and_leaves_the_weights_alone(precision):
    layer = torch.nn.Linear(64, 64)
    inputs = torch.randn(8, 64, generator=torch.Generator().manual_seed(0))
    runner = BatchRunner(CPU, precision, 8)
    found = runner.run(lambda part: layer(inputs[part]), 8, dtype=torch.float32)
    difference = (found - layer(inputs)).abs().max()
    assert 0 < difference < 0.05
    assert layer.weight.dtype == torch.float32
    assert runner.half_dtype == {"fp16": torch.float16, "bf16": torch.bfloat16}[precision]


def test_a_batch_that_overflows_half_is_computed_again_in_fp32_and_counted():
    weight = torch.full((8, 8), 1e3)
    inputs = torch.ones(6, 8)
    inputs[4:] = 1e3  # 8e6 is beyond fp16's 65504
    recoveries = Recoveries()
    runner = BatchRunner(CPU, "fp16", 2, recoveries=recoveries)
    found = runner.run(lambda part: inputs[part] @ weight, 6, dtype=torch.float32)
    assert torch.equal(found, inputs @ weight)
    assert recoveries.as_dict() == {"fp32_batches": 1}


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_nan_that_stays_in_fp32_is_an_error(precision):
    runner = BatchRunner(CPU, precision, 4)
    with pytest.raises(EncoderError, match="are the weights damaged"):
        runner.run(lambda part: torch.full((part.stop - part.start,), float("nan")), 3, dtype=torch.float32)


_OUT_OF_MEMORY = """
import resource, torch
from focus_eval.encoders.torch_scorer import BatchRunner
torch.set_num_threads(1)
rows = torch.arange(16.0)
torch.zeros(1 << 20).sum()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
limit = used + 600 * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
def forward(part):  # 100 MB a row: four rows fit, eight do not
    held = torch.ones(part.stop - part.start, 25 * 2**20)
    return rows[part] * held[:, 0]
runner = BatchRunner(torch.device("cpu"), "fp32", 16)
found = runner.run(forward, 16, dtype=torch.float32)
assert torch.equal(found, rows), found
print(runner.batch_size, runner.recoveries.as_dict())
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
held = torch.ones(560 * 2**18)  # MB
try:
    BatchRunner(torch.device("cpu"), "fp32", 4).run(forward, 4, dtype=torch.float32)
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited through Linux")
def test_a_batch_that_does_not_fit_is_halved_and_counted_until_one_frame_is_too_much():
    done = subprocess.run([sys.executable, "-c", _OUT_OF_MEMORY], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    halved, refused = done.stdout.strip().splitlines()
    assert halved == "4 {'halved_batches': 2}"
    assert refused.startswith("EncoderError cpu has no memory for a batch of 1")


def test_a_device_that_fails_is_one_line():
    def forward(part):
        raise RuntimeError("CUDA error: device-side assert triggered\nCompile with TORCH_USE_CUDA_DSA")

    with pytest.raises(RunError, match=r"^cpu failed: CUDA error: device-side assert triggered; run again"):
        BatchRunner(CPU, "fp32", 4).run(forward, 4, dtype=torch.float32)


def test_a_mistake_in_the_network_is_not_hidden():
    with pytest.raises(RuntimeError, match="must match"):
        BatchRunner(CPU, "fp32", 4).run(lambda part: torch.ones(3) + torch.ones(4), 4, dtype=torch.float32)


def test_fp32_switches_tf32_off_and_restores_it():
    before = torch.backends.cudnn.allow_tf32
    assert before  # torch's default, which the published runs had not in mind
    with arithmetic("fp32", CPU):
        assert not torch.backends.cudnn.allow_tf32
        assert not torch.backends.cuda.matmul.allow_tf32
    with arithmetic("tf32", CPU):
        assert torch.backends.cudnn.allow_tf32
        assert torch.backends.cuda.matmul.allow_tf32
    assert torch.backends.cudnn.allow_tf32 == before


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "mps:9:1", ""])
def test_an_unknown_device_is_refused(name):
    with pytest.raises(InvalidInput, match="must be auto, cpu, cuda"):
        torch_device(name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_named():
    with pytest.raises(EncoderError, match="0 GPUs"):
        torch_device("cuda")
    assert torch_device("auto") == CPU


@pytest.mark.parametrize(("precision", "batch_size"), [("fp8", 4), ("fp32", 0)])
def test_an_option_outside_its_range_is_refused(precision, batch_size):
    with pytest.raises(InvalidInput):
        BatchRunner(CPU, precision, batch_size)


def test_threads_of_different_precision_do_not_disturb_each_other():
    """torch's switches hold for the process: without taking turns one thread would compute in the other's TF32."""
    from concurrent.futures import ThreadPoolExecutor

    def seen(precision):
        def forward(part):
            before = torch.backends.cudnn.allow_tf32
            torch.ones(200, 200) @ torch.ones(200, 200)
            return torch.tensor([float(before), float(torch.backends.cudnn.allow_tf32)])

        runner = BatchRunner(CPU, precision, 1)
        return [runner.run(forward, 1, dtype=torch.float32).tolist() for _ in range(40)]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(seen, ["fp32", "tf32"] * 4))
    assert found == [[[0.0, 0.0]] * 40, [[1.0, 1.0]] * 40] * 4


def test_the_clock_counts_forwards_and_not_loads(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(precision, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def load(part):
        now[0] += 8.0
        return torch.ones(part.stop - part.start)

    def forward(inputs):
        now[0] += 0.25
        return inputs

    runner = BatchRunner(CPU, "fp32", 1)
    runner.run(forward, 2, dtype=torch.float32, load=load)
    assert runner.device_seconds == 0.5
