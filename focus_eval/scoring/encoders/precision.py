"""Runs batches in a chosen precision; one that fails is halved or redone in fp32, and counted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch

from focus_eval.errors import EncoderError, InvalidInput, RunError, is_device_failure

Precision = Literal["fp32", "tf32", "bf16", "fp16"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "tf32", "bf16", "fp16")
_HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
_FORWARD = threading.RLock()  # torch's switches hold for the whole process, so forwards take turns
_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")


def _itself(part: slice) -> slice:
    return part


@dataclass
class Recoveries:
    """What went wrong and was recovered from, counted: for the row, never silent.

    Args:
        halved_batches: batches that did not fit and were tried again at half their size.
        fp32_batches: batches of half precision that were not finite and were computed again in fp32.
    """

    halved_batches: int = 0
    fp32_batches: int = 0

    def as_dict(self) -> dict[str, int]:
        """Return the counts above 0 by name."""
        return {name: count for name, count in asdict(self).items() if count}


class DeviceClock:
    """Adds up the seconds a device spends inside `with` blocks; on a GPU measured there, without waiting for it."""

    def __init__(self, device: torch.device) -> None:
        self._is_cuda = device.type == "cuda"
        self._seconds = 0.0
        self._pending: list[tuple[Any, Any]] = []
        self._event: Any = torch.cuda.Event
        self._started = 0.0

    def __enter__(self) -> None:
        if self._is_cuda:
            start, stop = self._event(enable_timing=True), self._event(enable_timing=True)
            start.record()
            self._pending.append((start, stop))
        else:
            self._started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        if self._is_cuda:
            self._pending[-1][1].record()
        else:
            self._seconds += time.perf_counter() - self._started

    @property
    def seconds(self) -> float:
        """Seconds so far; waits for the blocks still queued on the device."""
        with _FORWARD:
            pending, self._pending = self._pending, []
        for start, stop in pending:
            stop.synchronize()
            self._seconds += start.elapsed_time(stop) / 1000
        return self._seconds


class BatchRunner:
    """Runs a forward over `n` frames in batches, in one arithmetic, on one device.

    Args:
        device: where it runs.
        precision: fp32 (what the published runs used; TF32 off, in convolutions too), tf32 (fp32 with TF32 matrix
            products where the GPU has them), bf16, fp16 (weights stay fp32, products are done in half).
        batch_size: most rows at once; halved for good when they do not fit.
    """

    def __init__(
        self, device: torch.device, precision: Precision, batch_size: int, *, recoveries: Recoveries | None = None
    ) -> None:
        if precision not in PRECISIONS:
            raise InvalidInput(f"precision {precision!r} must be one of {', '.join(PRECISIONS)}")
        if batch_size < 1:
            raise InvalidInput(f"batch_size must be at least 1, got {batch_size}")
        self.device = device
        self.precision: Precision = precision
        self.batch_size = batch_size
        self.recoveries = Recoveries() if recoveries is None else recoveries
        self._clock = DeviceClock(device)

    @property
    def device_seconds(self) -> float:
        """Seconds that the device has spent in forwards so far; waits for those still queued."""
        return self._clock.seconds

    @property
    def half_dtype(self) -> torch.dtype:
        """The type in which image tokens are kept: half if the arithmetic is half, else fp32."""
        return _HALF.get(self.precision, torch.float32)

    def run(
        self,
        forward: Callable[[Any], torch.Tensor],
        n: int,
        *,
        dtype: torch.dtype,
        load: Callable[[slice], Any] = _itself,
        rows_per_frame: int = 1,
    ) -> torch.Tensor:
        """Return `forward(load(slice))` over the frames `[0, n)` in batches, joined along the first axis, as `dtype`.

        All batches are queued before the first is looked at, so that a GPU does not wait for the check. May be
        called from several threads: forwards take turns, since torch's switches hold for the whole process; loads
        do not wait.

        Args:
            n: frames, at least 1.
            load: makes the input of a batch, e.g. its pixel values on the device.
            rows_per_frame: rows of the batch that one frame takes (questions, in a text encoder).

        Raises:
            EncoderError: one frame alone does not fit, or fp32 gives no finite number either.
            RunError: the device failed.
        """
        parts: list[tuple[slice, torch.Tensor]] = []
        start = 0
        while start < n:
            part = slice(start, min(n, start + max(1, self.batch_size // rows_per_frame)))
            result = self._attempt(forward, load, part, self.precision)
            if result is None:
                self._halve(part, rows_per_frame)
                continue
            parts.append((part, result.to(dtype)))
            start = part.stop
        finite = torch.stack([result.isfinite().all() for _, result in parts]).tolist()
        kept = [
            result if is_finite else self._again_in_fp32(forward, load, part).to(dtype)
            for (part, result), is_finite in zip(parts, finite, strict=True)
        ]
        return kept[0] if len(kept) == 1 else torch.cat(kept)

    def _attempt(
        self, forward: Callable[[Any], torch.Tensor], load: Callable[[slice], Any], part: slice, precision: Precision
    ) -> torch.Tensor | None:
        """Return the result, or None where it does not fit into memory."""
        try:
            with torch.inference_mode():
                inputs = load(part)
                with arithmetic(precision, self.device), self._clock:
                    return forward(inputs)
        except RuntimeError as error:  # torch's out-of-memory and device errors are RuntimeErrors
            if isinstance(error, torch.cuda.OutOfMemoryError) or any(text in str(error) for text in _OUT_OF_MEMORY):
                return None
            if is_device_failure(error):
                line = str(error).strip().splitlines()[0]
                raise RunError(f"{self.device} failed: {line}; run again, finished rows are kept") from error
            raise

    def _halve(self, part: slice, rows_per_frame: int) -> None:
        size = part.stop - part.start
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        if size == 1:
            raise EncoderError(f"{self.device} has no memory for a batch of 1; free some, or use precision=bf16")
        self.batch_size = size // 2 * rows_per_frame
        self.recoveries.halved_batches += 1

    def _again_in_fp32(
        self, forward: Callable[[Any], torch.Tensor], load: Callable[[slice], Any], part: slice
    ) -> torch.Tensor:
        where = f"frames {part.start} to {part.stop - 1} of a batch"
        if self.precision not in _HALF:
            raise EncoderError(f"{where}: not a finite number in {self.precision}; are the weights damaged?")
        result = self._attempt(forward, load, part, "fp32")
        if result is None:
            raise EncoderError(f"{where}: not finite in {self.precision}, and fp32 does not fit; lower batch_size")
        if not bool(result.isfinite().all()):
            raise EncoderError(f"{where}: not finite in {self.precision}, nor in fp32; are the weights damaged?")
        self.recoveries.fp32_batches += 1
        return result


@contextmanager
def arithmetic(precision: Precision, device: torch.device) -> Iterator[None]:
    """Compute in `precision` inside the block, one thread at a time, and restore torch's switches after it.

    TF32 in convolutions is on by default in torch; fp32 here means fp32.
    """
    with _FORWARD, _switched(precision == "tf32"):
        half = _HALF.get(precision)
        with torch.autocast(device.type, dtype=half) if half is not None else nullcontext():
            yield


@contextmanager
def _switched(is_tf32: bool) -> Iterator[None]:
    before = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = is_tf32
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def torch_device(name: str) -> torch.device:
    """Return the device called `name`: "auto" (a GPU where there is one), "cpu", "cuda" or "cuda:1".

    Raises:
        InvalidInput: another name.
        EncoderError: a GPU that is not there.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InvalidInput(f"device {name!r} must be auto, cpu, cuda or cuda:N") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise EncoderError(f"device {name!r}: {torch.cuda.device_count()} GPUs are visible to torch; use device=cpu")
    if device.type not in ("cpu", "cuda"):
        raise InvalidInput(f"device {name!r} must be auto, cpu, cuda or cuda:N")
    return device
