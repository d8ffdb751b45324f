"""Copies pictures to a device through one reused buffer, and results back, while forwards run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np
import torch

from focus_eval.core.types import Pixels

_STREAM = torch.cuda.Stream
_EVENT = torch.cuda.Event


class Uploader:
    """Copies pictures to a device; on a GPU from pinned memory, on a stream of its own, while a forward runs."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._is_cuda = device.type == "cuda"
        self._lock = threading.Lock()
        # Reuse one buffer: page faults of newly allocated memory take seven times as long as copying a 1080p batch.
        self._buffer = torch.empty(0, dtype=torch.uint8)
        self._stream: torch.cuda.Stream | None = None
        self._is_copied: torch.cuda.Event | None = None

    def upload(self, parts: Sequence[Pixels]) -> list[torch.Tensor]:
        """Copy `parts`, each `(n, h, w, c)`, to the device in order; neighbours of one size become one tensor.

        The call returns when all frames are in the buffer, without waiting for the copy to the device. Work that is
        queued later on the caller's stream waits for the copy.
        """
        with self._lock:
            on_device = self._copy_to_device(self.fill(parts))
        tensors, at = list[torch.Tensor](), 0
        for n, shape in _group_by_size(parts):
            size = n * int(np.prod(shape))
            tensors.append(on_device[at : at + size].view(n, *shape))
            at += size
        return tensors

    def close(self) -> None:
        """Release the buffer and the stream."""
        with self._lock:
            self._buffer = torch.empty(0, dtype=torch.uint8)
            self._stream = self._is_copied = None

    def fill(self, parts: Sequence[Pixels]) -> torch.Tensor:
        """Copy all of `parts` into the buffer and return the filled bytes; valid until the next call."""
        n_bytes = sum(part.nbytes for part in parts)
        if self._is_copied is not None:
            # Wait until the previous batch has left the buffer.
            self._is_copied.synchronize()
        if self._buffer.numel() < n_bytes:
            self._buffer = torch.empty(n_bytes, dtype=torch.uint8, pin_memory=self._is_cuda)
        buffer, at = self._buffer.numpy(), 0
        for part in parts:
            np.copyto(buffer[at : at + part.nbytes].reshape(part.shape), part)
            at += part.nbytes
        return self._buffer[:n_bytes]

    def _copy_to_device(self, filled: torch.Tensor) -> torch.Tensor:
        """The bytes `filled` on the device. On a GPU a separate stream copies them, and the caller's stream waits."""
        if not self._is_cuda:
            return filled.clone()
        if self._stream is None or self._is_copied is None:
            self._stream, self._is_copied = _STREAM(self._device), _EVENT(blocking=True)
        with torch.cuda.stream(self._stream):
            on_device = filled.to(self._device, non_blocking=True)
            self._is_copied.record()
        reader = torch.cuda.current_stream(self._device)
        reader.wait_event(self._is_copied)
        # Tell the allocator that `reader` uses this memory, so that the copy stream does not reuse it early.
        on_device.record_stream(reader)
        return on_device


def start_fetch(tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Start copying `tensor` to the host; return a function that waits for that copy alone and returns it."""
    if tensor.device.type != "cuda":
        return lambda: tensor
    on_host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    on_host.copy_(tensor, non_blocking=True)
    is_copied = _EVENT(blocking=True)
    is_copied.record(torch.cuda.current_stream(tensor.device))

    def result() -> torch.Tensor:
        """Wait for the copy and return the tensor in host memory."""
        is_copied.synchronize()
        return on_host

    return result


def _group_by_size(parts: Sequence[Pixels]) -> list[tuple[int, tuple[int, ...]]]:
    """(number of frames, size `(h, w, c)`) of each run of neighbouring parts with one size."""
    groups: list[tuple[int, tuple[int, ...]]] = []
    for part in parts:
        n, shape = len(part), part.shape[1:]
        if groups and groups[-1][1] == shape:
            n += groups.pop()[0]
        groups.append((n, shape))
    return groups
