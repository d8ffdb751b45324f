"""Batches that do not fit or are not numbers are mended and counted."""

from __future__ import annotations

import json
import subprocess
import sys
import weakref
from collections import Counter
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch

from focus_eval.core.errors import EncoderError, InvalidInput, RunError
from focus_eval.keyframes.encoders import torch_scorer as precision
from focus_eval.keyframes.encoders.torch_scorer import BatchRunner, arithmetic, torch_device

CPU = torch.device("cpu")


def test_batches_join_in_order_whatever_their_size():
    rows = torch.arange(23.0)[:, None]
    for size in (1, 4, 23, 100):
        result = BatchRunner(CPU, "fp32", size).run(lambda part: rows[part] * 2, 23, dtype=torch.float32)
        assert torch.equal(result, rows * 2)


def test_rows_per_frame_shrink_the_batch_and_never_below_one_frame():
    sizes = []

    def forward(part):
        sizes.append(part.stop - part.start)
        return torch.zeros(part.stop - part.start)

    BatchRunner(CPU, "fp32", 12).run(forward, 10, dtype=torch.float32, rows_per_frame=4)
    BatchRunner(CPU, "fp32", 12).run(forward, 2, dtype=torch.float32, rows_per_frame=50)
    assert sizes == [3, 3, 3, 1, 1, 1]


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_half_precision_multiplies_in_half_and_leaves_the_weights_alone(precision):
    layer = torch.nn.Linear(64, 64)
    inputs = torch.randn(8, 64, generator=torch.Generator().manual_seed(0))
    runner = BatchRunner(CPU, precision, 8)
    result = runner.run(lambda part: layer(inputs[part]), 8, dtype=torch.float32)
    difference = (result - layer(inputs)).abs().max()
    assert 0 < difference < 0.05
    assert layer.weight.dtype == torch.float32
    assert runner.half_dtype == {"fp16": torch.float16, "bf16": torch.bfloat16}[precision]


def test_a_batch_that_overflows_half_is_computed_again_in_fp32_and_counted():
    weight = torch.full((8, 8), 1e3)
    inputs = torch.ones(6, 8)
    inputs[4:] = 1e3  # 8e6 is beyond fp16's 65504
    recoveries = Counter()
    runner = BatchRunner(CPU, "fp16", 2, recoveries=recoveries)
    result = runner.run(lambda part: inputs[part] @ weight, 6, dtype=torch.float32)
    assert torch.equal(result, inputs @ weight)
    assert recoveries == {"fp32_batches": 1}


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_nan_that_stays_in_fp32_is_an_error(precision):
    runner = BatchRunner(CPU, precision, 4)
    with pytest.raises(EncoderError, match="are the weights damaged"):
        runner.run(lambda part: torch.full((part.stop - part.start,), float("nan")), 3, dtype=torch.float32)


_OUT_OF_MEMORY = """
import resource, torch
from focus_eval.keyframes.encoders.torch_scorer import BatchRunner
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
print(runner.batch_size, dict(runner.recoveries))
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
    process = subprocess.run([sys.executable, "-c", _OUT_OF_MEMORY], capture_output=True, text=True, timeout=600)
    assert process.returncode == 0, process.stderr
    halved, refused = process.stdout.strip().splitlines()
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
    allows_tf32 = torch.backends.cudnn.allow_tf32
    assert allows_tf32  # torch's default, which the published runs had not in mind
    with arithmetic("fp32", CPU):
        assert not torch.backends.cudnn.allow_tf32
        assert not torch.backends.cuda.matmul.allow_tf32
    with arithmetic("tf32", CPU):
        assert torch.backends.cudnn.allow_tf32
        assert torch.backends.cuda.matmul.allow_tf32
    assert torch.backends.cudnn.allow_tf32 == allows_tf32


def precision_switches():
    """Return all that torch says of its precision switches, an error as its type."""
    backends = torch.backends
    nodes = [backends, backends.cudnn, backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn,
             backends.mkldnn.matmul, backends.mkldnn.conv, backends.mkldnn.rnn]  # fmt: skip
    reads = [lambda node=node: node.fp32_precision for node in nodes]
    reads += [lambda: backends.cuda.matmul.allow_tf32, lambda: backends.cudnn.allow_tf32]
    values = []
    for read in [*reads, torch.get_float32_matmul_precision]:
        try:
            values.append(read())
        except RuntimeError:
            values.append(RuntimeError)
    return values


# Runs each piece of code in a fork of one process that has imported torch, and prints the exit codes.
_IN_FORKS = """
import json, os, sys, traceback
import torch
from tests.keyframes.encoders.test_precision import CPU, arithmetic, precision_switches

codes = []
for code in json.load(sys.stdin):
    if os.fork() == 0:
        try:
            exec(code)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    codes.append(os.waitstatus_to_exitcode(os.wait()[1]))
print(json.dumps(codes))
"""
_SWITCHED = """
{statement}
before = precision_switches()
for precision, value in (("fp32", "ieee"), ("tf32", "tf32")):
    with arithmetic(precision, CPU):
        inside = precision_switches()
        assert inside[2:5] == [value] * 3 and inside[5:8] == ["ieee"] * 3, inside
        is_tf32 = precision == "tf32"
        assert inside[8:] == [is_tf32, is_tf32, "high" if is_tf32 else "highest"], inside
    assert precision_switches() == before, (precision_switches(), before)
torch.backends.fp32_precision = "ieee"  # switches that only showed their parent's value follow it still
after = precision_switches()
{statement}
torch.backends.fp32_precision = "ieee"
assert precision_switches() == after
"""


STATEMENTS = (
    "pass",
    "torch.backends.fp32_precision = 'tf32'",
    "torch.backends.fp32_precision = 'ieee'",
    "torch.backends.cudnn.fp32_precision = 'ieee'",
    "torch.backends.cuda.matmul.fp32_precision = 'tf32'",
    "torch.backends.cudnn.conv.fp32_precision = 'ieee'",
    "torch.set_float32_matmul_precision('medium')",
    "torch.backends.cuda.matmul.allow_tf32 = True; torch.backends.cudnn.allow_tf32 = False",
    "torch.backends.cudnn.allow_tf32 = False; torch.backends.cudnn.fp32_precision = 'tf32'",
)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(torch.backends, "fp32_precision"), reason="this torch has the older switches only")
def test_both_sets_of_torchs_precision_switches_are_set_and_restored():
    codes = [_SWITCHED.format(statement=statement) for statement in STATEMENTS]
    process = subprocess.run(
        [sys.executable, "-c", _IN_FORKS], input=json.dumps(codes), capture_output=True, text=True, timeout=600
    )
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout) == [0] * len(STATEMENTS), process.stderr


class FakeEvent:
    """Stands in for a CUDA event: notes the stream it is recorded on, and is over when its stream says so."""

    references: ClassVar[list[weakref.ref]] = []
    is_over = True

    def __init__(self, enable_timing):
        assert enable_timing
        self.stream = None
        FakeEvent.references.append(weakref.ref(self))

    def record(self, stream):
        self.stream = stream

    def query(self):
        return FakeEvent.is_over

    def synchronize(self):
        FakeEvent.is_over = True

    def elapsed_time(self, stop):
        assert self.stream == stop.stream == "stream of cuda:1"
        return 250.0


@pytest.fixture
def gpu_clock(monkeypatch):
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: f"stream of {device}")
    monkeypatch.setattr(FakeEvent, "references", [])
    monkeypatch.setattr(FakeEvent, "is_over", True)
    return precision.DeviceClock(torch.device("cuda:1"))


def test_a_gpus_clock_records_on_the_stream_of_its_own_device(gpu_clock):
    for _ in range(3):
        with gpu_clock:
            pass
    assert gpu_clock.seconds == 0.75


def test_a_gpus_clock_holds_only_the_events_of_queued_blocks(gpu_clock):
    for _ in range(100):
        with gpu_clock:
            pass
    assert sum(event() is not None for event in FakeEvent.references) <= 2
    FakeEvent.is_over = False
    for _ in range(5):
        with gpu_clock:
            pass
    assert sum(event() is not None for event in FakeEvent.references) >= 10  # still queued
    n_queued = 6  # the last of the hundred was added when the next began, which found it queued
    assert gpu_clock.seconds == (105 - n_queued) * 0.25
    FakeEvent.is_over = True
    assert gpu_clock.seconds == 105 * 0.25
    assert not any(event() for event in FakeEvent.references)


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
            allows_tf32 = torch.backends.cudnn.allow_tf32
            torch.ones(200, 200) @ torch.ones(200, 200)
            return torch.tensor([float(allows_tf32), float(torch.backends.cudnn.allow_tf32)])

        runner = BatchRunner(CPU, precision, 1)
        return [runner.run(forward, 1, dtype=torch.float32).tolist() for _ in range(40)]

    with ThreadPoolExecutor(4) as pool:
        switches = list(pool.map(seen, ["fp32", "tf32"] * 4))
    assert switches == [[[0.0, 0.0]] * 40, [[1.0, 1.0]] * 40] * 4


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
    runner.queue(forward, 2, dtype=torch.float32, load=load)()
    assert runner.clock.seconds == 0.5
