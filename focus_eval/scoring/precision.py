"""In which arithmetic does an encoder run, and what happens when a batch does not fit or is not a number?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Literal

import torch

from focus_eval.errors import InvalidInput, ScorerError

Precision = Literal["fp32", "tf32", "bf16", "fp16"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "tf32", "bf16", "fp16")
_HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")


@dataclass
class Incidents:
    """What went wrong and was mended, counted: for the row, never silent.

    Args:
        halved_batches: batches that did not fit and were tried again at half their size.
        fp32_batches: batches of half precision that were not finite and were computed again in fp32.
    """

    halved_batches: int = 0
    fp32_batches: int = 0

    def as_dict(self) -> dict[str, int]:
        """Return the counts above 0 by name."""
        return {name: count for name, count in asdict(self).items() if count}


class BatchRunner:
    """Runs a forward over `n` frames in batches, in one arithmetic, on one device.

    Args:
        device: where it runs.
        precision: fp32 (what the published runs used; TF32 off, in convolutions too), tf32 (fp32 with TF32 matrix
            products where the GPU has them), bf16, fp16 (weights stay fp32, products are done in half).
        batch_size: most rows at once; halved for good when they do not fit.
    """

    def __init__(
        self, device: torch.device, precision: Precision, batch_size: int, *, incidents: Incidents | None = None
    ) -> None:
        if precision not in PRECISIONS:
            raise InvalidInput(f"precision {precision!r} is none of {', '.join(PRECISIONS)}")
        if batch_size < 1:
            raise InvalidInput(f"batch_size must be at least 1, got {batch_size}")
        self.device = device
        self.precision: Precision = precision
        self.batch_size = batch_size
        self.incidents = Incidents() if incidents is None else incidents

    @property
    def half_dtype(self) -> torch.dtype:
        """Half where the arithmetic is half, else fp32: the type in which image tokens are kept."""
        return _HALF.get(self.precision, torch.float32)

    def run(
        self, forward: Callable[[slice], torch.Tensor], n: int, *, dtype: torch.dtype, rows_per_frame: int = 1
    ) -> torch.Tensor:
        """Return `forward(slice)` over the frames `[0, n)` in batches, joined along the first axis, as `dtype`.

        All batches are queued before the first is looked at, so that a GPU does not wait for the check.

        Args:
            n: frames, at least 1.
            rows_per_frame: rows of the batch that one frame takes (questions, in a text encoder).

        Raises:
            ScorerError: one frame alone does not fit, the device failed, or fp32 gives no finite number either.
        """
        parts: list[tuple[slice, torch.Tensor]] = []
        start = 0
        while start < n:
            part = slice(start, min(n, start + max(1, self.batch_size // rows_per_frame)))
            result = self._attempt(forward, part, self.precision)
            if result is None:
                self._halve(part, rows_per_frame)
                continue
            parts.append((part, result.to(dtype)))
            start = part.stop
        finite = torch.stack([result.isfinite().all() for _, result in parts]).tolist()
        kept = [
            result if is_finite else self._again_in_fp32(forward, part).to(dtype)
            for (part, result), is_finite in zip(parts, finite, strict=True)
        ]
        return kept[0] if len(kept) == 1 else torch.cat(kept)

    def _attempt(
        self, forward: Callable[[slice], torch.Tensor], part: slice, precision: Precision
    ) -> torch.Tensor | None:
        """Return the result, or None where it does not fit into memory."""
        try:
            with torch.inference_mode(), arithmetic(precision, self.device):
                return forward(part)
        except RuntimeError as error:  # torch's out-of-memory and device errors are RuntimeErrors
            if isinstance(error, torch.OutOfMemoryError) or any(text in str(error) for text in _OUT_OF_MEMORY):
                return None
            if type(error).__name__ == "AcceleratorError" or "CUDA error" in str(error):
                line = str(error).strip().splitlines()[0]
                raise ScorerError(f"{self.device} failed: {line}; restart the run, finished rows are kept") from error
            raise

    def _halve(self, part: slice, rows_per_frame: int) -> None:
        size = part.stop - part.start
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        if size == 1:
            raise ScorerError(f"{self.device} has no memory for a batch of 1; free some, or use precision=bf16")
        self.batch_size = size // 2 * rows_per_frame
        self.incidents.halved_batches += 1

    def _again_in_fp32(self, forward: Callable[[slice], torch.Tensor], part: slice) -> torch.Tensor:
        where = f"frames {part.start} to {part.stop - 1} of a batch"
        if self.precision not in _HALF:
            raise ScorerError(f"{where}: not a finite number in {self.precision}; are the weights damaged?")
        result = self._attempt(forward, part, "fp32")
        if result is None:
            raise ScorerError(f"{where}: not finite in {self.precision}, and fp32 does not fit; lower batch_size")
        if not bool(result.isfinite().all()):
            raise ScorerError(f"{where}: not finite in {self.precision}, nor in fp32; are the weights damaged?")
        self.incidents.fp32_batches += 1
        return result


@contextmanager
def arithmetic(precision: Precision, device: torch.device) -> Iterator[None]:
    """Compute in `precision` inside the block, and restore torch's switches after it.

    TF32 in convolutions is on by default in torch; fp32 here means fp32.
    """
    before = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    half = _HALF.get(precision)
    try:
        with torch.autocast(device.type, dtype=half) if half is not None else nullcontext():
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def torch_device(name: str) -> torch.device:
    """Return the device called `name`: "auto" (a GPU where there is one), "cpu", "cuda" or "cuda:1".

    Raises:
        InvalidInput: another name.
        ScorerError: a GPU that is not there.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InvalidInput(f"device {name!r} is none of auto, cpu, cuda, cuda:0, ...") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ScorerError(f"device {name!r}: {torch.cuda.device_count()} GPUs are visible to torch; use device=cpu")
    if device.type not in ("cpu", "cuda"):
        raise InvalidInput(f"device {name!r} is none of auto, cpu, cuda, cuda:0, ...")
    return device
