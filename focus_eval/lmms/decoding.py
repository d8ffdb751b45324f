"""Decodes the frames of the next questions while earlier ones are answered."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from threading import BoundedSemaphore

from loguru import logger

from focus_eval.lmms.arguments import SeamOptions
from focus_eval.lmms.frame_batch import FrameBatch, decode_frame_batch
from focus_eval.lmms.frame_memory import GIGABYTE, FrameMemory, decoded_bytes, parts_that_fit
from focus_eval.lmms.requests import PendingRequest
from focus_eval.lmms.shared_frames import SharedFrames
from focus_eval.lmms.shown_model import ShownModel
from focus_eval.lmms.tasks.subtitles import subtitles_near

# While one batch is answered so many are decoded: an hour-long video may take longer to read than to answer about.
_BATCHES_AHEAD = 2


class FrameDecoder:
    """Decodes batches, several ahead of the answers, within `options.decode_gigabytes`.

    Args:
        model: is handed each question's frames as soon as they are decoded (`FrameSeam.ready`).
        shared: frames that are decoded for several cells together.
    """

    def __init__(self, model: ShownModel, options: SeamOptions, *, shared: SharedFrames | None = None) -> None:
        self._model = model
        self._options = options
        self._shared = shared
        self.memory = FrameMemory(options.decode_gigabytes * GIGABYTE)
        self._room = BoundedSemaphore(2 * (os.cpu_count() or 1))  # more decoders than that are slower, not faster

    def in_order(self, batches: list[list[PendingRequest]]) -> Iterator[list[PendingRequest]]:
        """Yield each batch decoded; its frames count as let go when the next one is asked for.

        A batch whose frames do not fit into the memory comes in several parts.
        """
        # The numbers are the order in which `FrameMemory` lets batches in.
        numbered = enumerate(self._parts(batches))
        with ThreadPoolExecutor(max_workers=_BATCHES_AHEAD) as pool:
            ahead = deque(
                (at, part, pool.submit(self.decode, at, part)) for at, part in islice(numbered, _BATCHES_AHEAD)
            )
            try:
                while ahead:
                    started = time.perf_counter()
                    number, batch, decoding = ahead.popleft()
                    # A question's failure is kept in its request; what is raised here ends the run.
                    decoding.result()
                    waited = time.perf_counter() - started
                    # Before this batch is answered, so that threads decode meanwhile.
                    ahead += [(at, part, pool.submit(self.decode, at, part)) for at, part in islice(numbered, 1)]
                    for pending in batch:
                        pending.seconds["idle"] = waited / len(batch)
                    yield batch
                    # The caller asks for the next batch: it has let go of this one's pixels.
                    self.memory.correct(number, 0)
            finally:
                # Also where the caller stops early: a thread waiting for room would keep the pool from ending.
                self.memory.open()

    def _parts(self, batches: list[list[PendingRequest]]) -> Iterator[list[PendingRequest]]:
        """Yield the batches, those too large for the memory in parts."""
        is_said = False
        for batch in batches:
            parts = list(parts_that_fit(batch, self.memory.most_bytes, self._options.frame_policy))
            if len(parts) > 1 and not is_said:
                is_said = True
                logger.info(
                    f"a batch of {len(batch)} questions is answered in {len(parts)} parts, and others like it: their "
                    f"frames take more than decode_gigabytes={self._options.decode_gigabytes:g}"
                )
            yield from parts

    def decode(self, at: int, batch: list[PendingRequest]) -> None:
        """Decode the frames of the batch numbered `at`, once there is room; a question that fails records why."""
        # Estimated from the header, since room must be there before anything is decoded.
        self.memory.take(at, sum(decoded_bytes(pending, self._options.frame_policy) for pending in batch))
        frame_batches: dict[tuple[str, str, int], FrameBatch] = {}
        with self._room:
            for pending in batch:
                if pending.row is not None and pending.path is not None:
                    self._decode_one(pending, frame_batches)
        # Questions may have failed, and an adapter may have added tensors to the pixels.
        self.memory.correct(at, sum(frame_batch.held_bytes for frame_batch in frame_batches.values()))

    def _decode_one(self, pending: PendingRequest, frame_batches: dict[tuple[str, str, int], FrameBatch]) -> None:
        started = time.perf_counter()
        options, key = self._options, pending.parts.key
        try:
            if pending.row is None or pending.path is None:
                return
            # A document asked twice in one batch is decoded once.
            if key not in frame_batches:
                frame_batch = decode_frame_batch(
                    pending.row,
                    pending.path,
                    frame_policy=options.frame_policy,
                    backend=options.backend,
                    shared=self._shared,
                )
                self._model.ready(frame_batch)
                frame_batches[key] = frame_batch
            pending.frame_batch = frame_batches[key]
            if options.subtitles:
                pending.preface = subtitles_near(pending.document, pending.frame_batch.times_seconds)
        except Exception as error:  # noqa: BLE001 (recorded: one question never ends a run)
            pending.fail(error)
        pending.seconds["decode"] = time.perf_counter() - started
