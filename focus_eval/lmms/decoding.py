"""Chooses and decodes the frames of questions."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import BoundedSemaphore, Condition

from loguru import logger
from tqdm import tqdm

from focus_eval.core.errors import AnswerError, FocusEvalError, InvalidInput, RunError
from focus_eval.core.types import FramePolicy
from focus_eval.lmms.frames import FrameBatch, decode_frame_batch, frame_bytes, frames_to_decode
from focus_eval.lmms.protocol import AdapterProtocol, RunContext
from focus_eval.lmms.requests import PendingRequest
from focus_eval.lmms.sources import FrameSource, NeedsQuestions
from focus_eval.lmms.tasks import subtitles_near
from focus_eval.pipeline.selector import Selector
from focus_eval.pipeline.shared_batcher import SharedBatcher
from focus_eval.pipeline.timing import charged_rows
from focus_eval.rows.records import SelectionRow
from focus_eval.video import open_video

GIGABYTE = 1e9


class FrameMemory:
    """Bounds the bytes of decoded frames; batches get their share in order.

    A batch that is larger than the limit is let in alone. The order matters: were a later batch let in first, the
    earlier one, which is answered before it, could wait for room that only the later one would give back.

    Args:
        most_bytes: of decoded frames, those of the batch being answered included.
    """

    def __init__(self, most_bytes: float) -> None:
        self.most_bytes = most_bytes
        # By batch, because its estimate is replaced once its frames are decoded.
        self._held: dict[int, int] = {}
        self._next = 0
        self._is_open = False
        self._changed = Condition()

    @property
    def held_bytes(self) -> int:
        return sum(self._held.values())

    def take(self, batch: int, n_bytes: int) -> None:
        """Wait until earlier batches have their memory and `n_bytes` are free, then reserve them."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_open or (batch == self._next and self._has_room(n_bytes)))
            self._held[batch] = n_bytes
            self._next += 1
            self._changed.notify_all()

    def _has_room(self, n_bytes: int) -> bool:
        # Where nothing is held even too large a batch goes in: it would wait for ever otherwise.
        return not self.held_bytes or self.held_bytes + n_bytes <= self.most_bytes

    def correct(self, batch: int, n_bytes: int) -> None:
        """Set the bytes reserved for `batch` to what its frames take; 0 frees them."""
        with self._changed:
            if n_bytes:
                self._held[batch] = n_bytes
            else:
                self._held.pop(batch, None)
            self._changed.notify_all()

    def open(self) -> None:
        """Release every waiting thread, because the run is ending."""
        with self._changed:
            self._is_open = True
            self._changed.notify_all()


def decoded_bytes(pending: PendingRequest, frame_policy: FramePolicy) -> int:
    """Return what the decoded frames of a question will take, from its selection and the size of its video's frames.

    0 where there is nothing to decode or the file cannot be opened: decoding it will say why.
    """
    if pending.row is None or pending.path is None:
        return 0
    frames, _ = frames_to_decode(pending.row, frame_policy)
    return len(frames) * frame_bytes(pending.path)


def parts_that_fit(
    batch: list[PendingRequest], most_bytes: float, frame_policy: FramePolicy
) -> Iterator[list[PendingRequest]]:
    """Yield `batch` whole where its frames fit into `most_bytes`, else in parts of at most half as much.

    Half, so that a part can be decoded while the one before it is answered. A question too large alone is a part.
    """
    sizes = [decoded_bytes(pending, frame_policy) for pending in batch]
    if sum(sizes) <= most_bytes:
        yield batch
        return
    part: list[PendingRequest] = []
    taken = 0
    for pending, size in zip(batch, sizes, strict=True):
        # The first check keeps a question too large alone from making an empty part.
        if part and taken + size > most_bytes / 2:
            yield part
            part, taken = [], 0
        part.append(pending)
        taken += size
    yield part


class FrameDecoder:
    """Decodes the frames of batches within a bound of memory.

    Args:
        model: is handed each question's frames as soon as they are decoded (`FrameAdapter.ready`).
        memory: of all batches under way.
    """

    def __init__(self, model: AdapterProtocol, context: RunContext, memory: FrameMemory) -> None:
        self._model = model
        self._context = context
        self._options = context.options
        self._memory = memory
        self._room = BoundedSemaphore(2 * (os.cpu_count() or 1))  # more decoders than that are slower, not faster
        self._is_said = False

    def parts(self, batch: list[PendingRequest]) -> list[list[PendingRequest]]:
        """Return the batch, split where it is too large for the memory."""
        parts = list(parts_that_fit(batch, self._memory.most_bytes, self._options.frame_policy))
        if len(parts) > 1 and not self._is_said:
            self._is_said = True
            logger.info(
                f"a batch of {len(batch)} questions is answered in {len(parts)} parts, and others like it: their "
                f"frames take more than decode_gigabytes={self._options.decode_gigabytes:g}"
            )
        return parts

    def decode(self, at: int, batch: list[PendingRequest]) -> None:
        """Decode the frames of the batch numbered `at`, once there is room; a question that fails records why."""
        # Estimated from the header, since room must be there before anything is decoded.
        self._memory.take(at, sum(decoded_bytes(pending, self._options.frame_policy) for pending in batch))
        frame_batches: dict[tuple[str, str, int], FrameBatch] = {}
        with self._room:
            for pending in batch:
                if pending.row is not None and pending.path is not None:
                    self._decode_one(pending, frame_batches)
        # Questions may have failed, and an adapter may have added tensors to the pixels.
        self._memory.correct(at, sum(frame_batch.held_bytes for frame_batch in frame_batches.values()))

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
                    shared=self._context.shared,
                    kept=self._context.kept,
                )
                self._model.ready(frame_batch)
                frame_batches[key] = frame_batch
            pending.frame_batch = frame_batches[key]
            if options.subtitles:
                pending.preface = subtitles_near(pending.document, pending.frame_batch.times_seconds)
        except Exception as error:  # noqa: BLE001 (recorded: one question never ends a run)
            pending.fail(error)
        pending.seconds["decode"] = time.perf_counter() - started


class FrameChooser:
    """Gives every request its selection; each question's failure is its own."""

    def __init__(self, model: AdapterProtocol, context: RunContext, *, quiet: bool) -> None:
        self._model = model
        self._context = context
        self._quiet = quiet

    def choose(self, queue: list[PendingRequest]) -> None:
        """Choose frames for every document of `queue` once, and put the row, or the error, into each request."""
        self._prepare_source(queue)
        self._select(queue)

    def _prepare_source(self, queue: list[PendingRequest]) -> None:
        source = self._context.source
        if not isinstance(source, NeedsQuestions):
            return
        groups: dict[tuple[str, str], list[PendingRequest]] = {}
        for pending in queue:
            # A task without a benchmark has no known order of questions to hold a file against.
            if pending.benchmark is not None:
                groups.setdefault((pending.parts.task, pending.parts.split), []).append(pending)
        for (task, split), group in groups.items():
            question_of, name = group[0].benchmark.question, group[0].benchmark.name
            # All of the split, also under --limit: some published files go by position.
            questions = [question_of(document) for document in self._model.task_dict[task][split]]
            source.prepare(name, questions, asked={pending.question.id for pending in group})

    def _select(self, queue: list[PendingRequest]) -> None:
        source = self._context.source
        if source is None:
            return
        # One selection per document: two requests about it (a repeat) must be shown the same frames.
        first_of: dict[tuple[str, str, int], PendingRequest] = {}
        by_video: dict[Path | None, list[PendingRequest]] = {}
        for pending in queue:
            if first_of.setdefault(pending.parts.key, pending) is not pending:
                continue
            pending.row = None if pending.error is not None else self._context.recorder.earlier_selection(pending)
            if pending.row is None:
                by_video.setdefault(pending.path, []).append(pending)
        with tqdm(total=sum(map(len, by_video.values())), desc="Choosing frames", disable=self._quiet) as progress:
            for path, group in by_video.items():
                self._select_together(source, path, group)
                for pending in group:
                    # Video by video: a killed run keeps the choices that are paid for.
                    if not pending.is_padding:
                        self._context.recorder.selection(pending)
                progress.update(len(group))
        for pending in queue:  # asked again: a repeat, or a copy that keeps ranks in step
            first = first_of[pending.parts.key]
            pending.row, pending.error = first.row, pending.error or first.error

    def _select_together(self, source: FrameSource, path: Path | None, group: list[PendingRequest]) -> None:
        """Choose the frames of one video's questions; a sampler that pulls decodes and embeds each frame once."""
        # Only a sampler that pulls gains from being served together; a replayed selection has nothing to embed.
        if not isinstance(source, Selector) or path is None or len(group) == 1:
            for pending in group:
                self._select_one(pending, source.select)
            return
        # What the threads measure overlaps; charged is the wall clock of all together.
        started = time.perf_counter()
        try:
            reader = open_video(path, backend=self._context.options.backend, kept=self._context.kept)
        except FocusEvalError:
            for pending in group:  # each fails on its own, with its own row
                self._select_one(pending, source.select)
            return
        with reader:
            batcher = SharedBatcher(reader)
            select = partial(source.select, batcher=batcher)
            batcher.run([partial(self._select_one, pending, select) for pending in group])
        with_rows = [(pending, pending.row) for pending in group if pending.row is not None]
        charged = charged_rows([row for _, row in with_rows], time.perf_counter() - started)
        for (pending, _), row in zip(with_rows, charged, strict=True):
            pending.row = row

    def _select_one(self, pending: PendingRequest, select: Callable[..., SelectionRow]) -> None:
        source = self._context.source
        try:
            if pending.error is not None or pending.path is None:
                raise AnswerError(pending.error or "the document has no video")
            pending.row = select(pending.question, pending.path, bucket_of=pending.bucket_of)
            # Now, not when the model refuses: decoding and batching would be in vain.
            self._check_limit(pending)
        except RunError:
            raise
        except Exception as error:  # noqa: BLE001 (recorded: one question never ends a run)
            pending.fail(error)
            if pending.row is None and source is not None:
                pending.row = source.error_row(pending.question, error, bucket_of=pending.bucket_of)

    def _check_limit(self, pending: PendingRequest) -> None:
        row, model, most = pending.row, self._model.model_id, self._context.frames
        if row is None or not (row.keyframes or row.role == "floor" or self._context.options.frame_policy == "aks"):
            raise InvalidInput("no frame chosen")
        if row.scales is not None and not self._model.takes_mixed_sizes:
            raise InvalidInput(f"sampler {row.sampler!r} chose frames of several sizes; {model} can show one size only")
        if row.scales is None and len(row.keyframes) > most:
            raise InvalidInput(f"{len(row.keyframes)} frames chosen, {model} is set to show at most {most}")
