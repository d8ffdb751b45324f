"""Fills an encoder's batches with frames of several videos.

The questions about one video need only a few frames at a time. Alone they would leave a GPU's batches half empty, and
the GPU would wait while the video is decoded. Here the passes over several videos submit their frames. A batch runs
when it is full, or when every pass waits, so that no more frames can come. A batch that is not full is padded: all
batches have the same size, so that a frame's features do not depend on the other frames in its batch. A pass submits as
many frames at a time as a batch of the default size holds, so that only its last frames need padding or frames of
others. While the device computes a batch, the next one is copied to it and queued.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from focus_eval.core.types import Pixels
from focus_eval.keyframes.encoders.base import Encoder, FrameFeatures

# Batches on the device at a time: one computing, one queued.
_MAX_BATCHES_UNDERWAY = 2


@dataclass(eq=False)
class _Call:
    """Frames that one pass submits.

    `features` holds the results so far, keyed by the position of the first frame of each share in this call.
    """

    encoder: Encoder
    pixels: Pixels
    n_taken: int = 0
    n_served: int = 0
    features: dict[int, FrameFeatures] = field(default_factory=dict)
    seconds: float = 0.0
    error: Exception | None = None

    @property
    def is_served(self) -> bool:
        """True if all frames have features, or the call has failed."""
        return self.error is not None or self.n_served == len(self.pixels)


@dataclass(frozen=True)
class _Share:
    """Part of a call that is in one batch; `start` is the position of its first frame in the call."""

    call: _Call
    start: int
    pixels: Pixels


class BatchPacker:
    """Packs the frames of passes over several videos, each in a thread, into full batches of an encoder."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queue: list[_Call] = []
        self._n_passes = self._n_waiting = self._n_underway = 0
        self._is_queueing = False
        self._last_end = 0.0

    @contextmanager
    def open_pass(self) -> Iterator[None]:
        """Register the block as a pass that may submit frames; a batch that is not full waits for it."""
        with self._changed:
            self._n_passes += 1
        try:
            yield
        finally:
            with self._changed:
                # Wake the others: a batch that is not full may have been waiting for this pass alone.
                self._n_passes -= 1
                self._changed.notify_all()

    def embed(self, encoder: Encoder, pixels: Pixels) -> tuple[FrameFeatures, float]:
        """Return the features of `pixels` `(n, height, width, 3)`, and their share of the batches' seconds.

        Called inside `open_pass`, at most once at a time in each.

        Raises:
            EncoderError, RunError: the encoder's error for these frames.
        """
        call = _Call(encoder, pixels)
        with self._changed:
            self._queue.append(call)
            self._n_waiting += 1
            self._changed.notify_all()
            # No thread is reserved for batches: a waiting pass that finds a ready batch runs it for all passes in it.
            while not call.is_served:
                is_full = self._is_queueing or self._n_underway == _MAX_BATCHES_UNDERWAY
                batch = [] if is_full else self._next_batch()
                if batch:
                    self._run(batch)
                else:
                    self._changed.wait()
        if call.error is not None:
            raise call.error
        # Batches may finish out of order: join the parts by position.
        return _concatenate([call.features[start] for start in sorted(call.features)]), call.seconds

    def _next_batch(self) -> list[_Share]:
        """Take the next batch of frames off the queue; [] if it is better to wait."""
        # Batches hold one encoder's frames; serve the longest-waiting encoder first.
        for encoder in dict.fromkeys(call.encoder for call in self._queue):
            calls = [call for call in self._queue if call.encoder is encoder]
            size = encoder.batch_size
            n_queued = sum(len(call.pixels) - call.n_taken for call in calls)
            # Passes that still decode, or wait for a running batch, will hand in more frames: wait for a full batch.
            if n_queued < size and (self._n_underway or self._n_waiting < self._n_passes):
                continue
            batch: list[_Share] = []
            # A call may be spread over batches, and a batch may hold parts of several calls.
            for call in calls:
                pixels = call.pixels[call.n_taken : call.n_taken + size]
                batch.append(_Share(call, call.n_taken, pixels))
                call.n_taken += len(pixels)
                size -= len(pixels)
                if call.n_taken == len(call.pixels):
                    self._queue.remove(call)
                if not size:
                    break
            return batch
        return []

    def _run(self, batch: list[_Share]) -> None:
        """Run a batch without holding the lock, then give each share its features or error."""
        self._is_queueing = True
        self._n_underway += 1
        started = time.perf_counter()
        try:
            with self._unlocked():
                finish = _queue_batch(batch)
        except BaseException:
            self._n_underway -= 1
            raise
        finally:
            self._is_queueing = False
            # While the device computes, another pass may queue the next batch.
            self._changed.notify_all()
        try:
            with self._unlocked():
                results = finish()
        finally:
            self._n_underway -= 1
        # Charge each pass by its frames. Time in which two batches overlapped is charged to the first batch.
        now = time.perf_counter()
        seconds = (now - max(started, self._last_end)) / sum(len(share.pixels) for share in batch)
        self._last_end = now
        for share, result in zip(batch, results, strict=True):
            self._hand_out(share, result, seconds * len(share.pixels))
        self._changed.notify_all()

    @contextmanager
    def _unlocked(self) -> Iterator[None]:
        """Release the lock for the block, so that other passes can submit frames."""
        self._changed.release()
        try:
            yield
        finally:
            self._changed.acquire()

    def _hand_out(self, share: _Share, result: FrameFeatures | Exception, seconds: float) -> None:
        """Give a share's features, or error, to its call; `seconds` are the share's part of the batch's time."""
        call = share.call
        was_served = call.is_served
        if isinstance(result, Exception):
            call.error = call.error or result
            # Drop the remaining frames of the call, because its pass gets the error in any case.
            if call in self._queue:
                self._queue.remove(call)
        else:
            call.features[share.start] = result
        call.n_served += len(share.pixels)
        call.seconds += seconds
        if call.is_served and not was_served:
            self._n_waiting -= 1


def _queue_batch(batch: list[_Share]) -> Callable[[], list[FrameFeatures | Exception]]:
    """Queue a full batch, padded; return a function that waits and gives each share features or an error."""
    parts, encoder = [share.pixels for share in batch], batch[0].call.encoder
    n, batch_size = sum(map(len, parts)), encoder.batch_size
    # Pad to a constant batch size: kernels depend on the size, so the last bits of relevance would too.
    last = parts[-1][-1:]
    padding = [np.broadcast_to(last, (batch_size - n, *last.shape[1:]))] if n < batch_size else []
    ends = np.cumsum([len(part) for part in parts]).tolist()
    try:
        finish = encoder.queue_parts([*parts, *padding])
    except Exception as error:  # noqa: BLE001 (raised again in the pass it belongs to)
        return partial(_run_one_by_one, batch, error)

    def finish_batch() -> list[FrameFeatures | Exception]:
        """Wait for the batch; return the features of each share, or run the shares alone if it failed."""
        try:
            features = finish()
        except Exception as error:  # noqa: BLE001 (raised again in the pass it belongs to)
            return _run_one_by_one(batch, error)
        return [features[end - len(part) : end] for end, part in zip(ends, parts, strict=True)]

    return finish_batch


def _run_one_by_one(batch: list[_Share], error: Exception) -> list[FrameFeatures | Exception]:
    """Run each share of a failed batch again by itself; return features or the error of each."""
    if len(batch) == 1:
        return [error]
    return [result for share in batch for result in _queue_batch([share])()]


def _concatenate(features: list[FrameFeatures]) -> FrameFeatures:
    if len(features) == 1:
        return features[0]
    if isinstance(features[0], np.ndarray):
        return np.concatenate([part for part in features if isinstance(part, np.ndarray)])
    # Features that are no arrays are tensors, so torch is loaded already and this import costs nothing.
    import torch

    return torch.cat([part for part in features if isinstance(part, torch.Tensor)])
