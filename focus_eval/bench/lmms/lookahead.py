"""Decodes and prepares the next questions while one is answered: in order, and within a memory limit.

Questions become batches (one call of the model each). Neighbouring batches about one video become a group, whose
frames are decoded once. The thread that iterates over `LookAhead.run` decides what is decoded and answered next; the
threads of its pool only decode and answer, so that none waits for memory while it holds some.
"""

from __future__ import annotations

import copy
import itertools
import os
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np

from focus_eval.bench.lmms.requests import DecodedFrames, frame_bytes, frames_to_decode, read_frames
from focus_eval.core.errors import FocusEvalError, RunError
from focus_eval.core.processes import n_cores
from focus_eval.core.types import IntArray

if TYPE_CHECKING:
    from focus_eval.bench.lmms.requests import PendingRequest
    from focus_eval.core.types import FramePolicy

# Each holds the inputs of one batch, and its frames within `decode_gigabytes`.
MAX_LANES = 16


def own_cores() -> int:
    """Return the number of cores for this process: the usable cores divided by the launcher's local processes."""
    return max(1, n_cores() // int(os.environ.get("LOCAL_WORLD_SIZE") or 1))


def n_lanes(cores: int) -> int:
    """Return the number of threads that bring batches to the model: one waits for its answer, the others prepare."""
    # Two more than half the cores: decoders and resizing have threads of their own.
    return min(MAX_LANES, cores // 2 + 2)


def n_groups_ahead(cores: int) -> int:
    """Return the number of groups that are decoded ahead of the one being answered."""
    # Chosen in a simulation of 2026-11-23: more hold less of a video each, fewer leave cores without work.
    return min(3, max(1, cores // 4))


class Batch:
    """Questions that go to the model together.

    Args:
        context: of their run (`answering.RunContext`): its options and scan cache.
        requests: the questions.

    Attributes:
        frames: (video path, ascending frame indices) of each question that has frames to decode.
        group: decodes these frames.
        n_bytes: bytes of frames that the batch holds beside those of its group.
        answering: done once the batch is answered; None before it is submitted.
    """

    def __init__(self, context: Any, requests: list[PendingRequest]) -> None:
        self.context = context
        self.requests = requests
        policy = context.options.frame_policy
        frames = [
            (pending.path, np.unique(_indices(pending, policy))) for pending in requests if pending.path is not None
        ]
        self.frames = [(path, indices) for path, indices in frames if indices.size]
        self.group = FrameGroup(self)
        self.n_bytes = 0
        self.answering: Future[None] | None = None

    @property
    def is_answered(self) -> bool:
        """True once the batch is answered, has failed or is cancelled."""
        return self.answering is not None and self.answering.done()

    def result(self) -> None:
        """Wait until a submitted batch is answered, and raise its error, if any."""
        if self.answering is not None:
            self.answering.result()

    def cancel(self) -> bool:
        """Cancel the batch; return False if it is already being answered or answered."""
        return self.answering is None or self.answering.cancel()


class FrameGroup:
    """Batches whose frames are decoded together: a single one, or neighbours about one video.

    Attributes:
        batches: the batches.
        decoding: done once `decoded` is filled; None before it is submitted.
        decoded: frames by video; a video with a frame that cannot be decoded is left out.
        seconds: time spent decoding.
        n_bytes: bytes of these frames; 0 once every batch has taken its own.
    """

    def __init__(self, batch: Batch) -> None:
        self.batches = [batch]
        self.decoding: Future[None] | None = None
        self.decoded: dict[Path, DecodedFrames] = {}
        self.seconds = 0.0
        self._unfed = {batch}
        self._frames: dict[Path, IntArray] = {}
        for path, frames in batch.frames:
            self._frames[path] = np.union1d(self._frames.get(path, frames), frames)
        self._n_questions = Counter(path for path, _ in batch.frames)
        self.n_bytes = sum(frames.size * frame_bytes(path) for path, frames in self._frames.items())

    @property
    def is_decoded(self) -> bool:
        """True once decoding has ended, with success or not."""
        return self.decoding is not None and self.decoding.done()

    def join(self, batch: Batch, max_bytes: float) -> bool:
        """Add `batch` if it has one question, about this group's only video, and all frames fit into `max_bytes`.

        Returns:
            True if the batch was added.
        """
        if len(batch.frames) != 1:
            return False
        ((path, frames),) = batch.frames
        if self._frames.keys() != {path}:
            return False
        union = np.union1d(self._frames[path], frames)
        if union.size * frame_bytes(path) > max_bytes:
            return False
        self._frames[path], self.n_bytes = union, union.size * frame_bytes(path)
        self._n_questions[path] += 1
        self._unfed.add(batch)
        self.batches.append(batch)
        batch.group = self
        return True

    def copied_bytes(self, batch: Batch) -> int:
        """Return the bytes of frames that `batch` copies: those of videos that several questions of the group share."""
        return sum(frames.size * frame_bytes(path) for path, frames in batch.frames if self._n_questions[path] > 1)

    def decode(self) -> None:
        """Decode the frames of all batches, each video in one pass."""
        started, context = time.perf_counter(), self.batches[0].context
        for path, frames in self._frames.items():
            try:
                self.decoded[path] = read_frames(
                    path, frames, backend=context.options.backend, scan_cache=context.scan_cache
                )
            except FocusEvalError:
                continue  # each question decodes its own frames then, and records why it cannot
        self.seconds = time.perf_counter() - started

    def take(self, path: Path, frames: Sequence[int]) -> DecodedFrames | None:
        """Return one question's `frames` of the video at `path`; None if the group could not decode that video."""
        decoded = self.decoded.get(path)
        if decoded is None or (self._n_questions[path] == 1 and np.array_equal(decoded.frames, frames)):
            return decoded
        return decoded.pick(frames)

    @property
    def seconds_per_question(self) -> float:
        """Seconds of decoding, divided among all questions of the group."""
        return self.seconds / max(1, sum(len(batch.requests) for batch in self.batches))

    def release(self, batch: Batch) -> None:
        """Record that `batch` has its frames; after the last one, free the group's frames."""
        self._unfed.discard(batch)
        if not self._unfed:
            self.decoded, self.n_bytes = {}, 0


def decoded_bytes(pending: PendingRequest, frame_policy: FramePolicy) -> int:
    """Return the bytes that the decoded frames of a question will take, from the size of its video's frames.

    Return 0 if there is nothing to decode or the file cannot be opened.
    """
    return _indices(pending, frame_policy).size * frame_bytes(pending.path) if pending.path is not None else 0


def _indices(pending: PendingRequest, frame_policy: FramePolicy) -> IntArray:
    """Return the frame indices to decode for a question; empty without a selection or if the policy fails on it."""
    frames: tuple[int, ...] = ()
    if pending.row is not None:
        # A selection that does not say enough for the policy fails when it is fed, in the question's own row.
        with suppress(FocusEvalError):
            frames, _ = frames_to_decode(pending.row, frame_policy)
    return np.asarray(frames, dtype=np.int64)


def batches_that_fit(
    requests: list[PendingRequest], max_bytes: float, frame_policy: FramePolicy
) -> Iterator[list[PendingRequest]]:
    """Yield `requests` whole if their frames fit into `max_bytes`, else in pieces of at most `max_bytes / 2`.

    Half, so that a piece can be decoded while the one before it is answered. A larger question is a piece alone.
    """
    sizes = [decoded_bytes(pending, frame_policy) for pending in requests]
    if sum(sizes) <= max_bytes:
        yield requests
        return
    piece: list[PendingRequest] = []
    n_bytes = 0
    for pending, size in zip(requests, sizes, strict=True):
        # The first check keeps a question too large alone from making an empty piece.
        if piece and n_bytes + size > max_bytes / 2:
            yield piece
            piece, n_bytes = [], 0
        piece.append(pending)
        n_bytes += size
    yield piece


def frame_groups(batches: Iterable[Batch], *, max_bytes: float) -> Iterator[FrameGroup]:
    """Yield `batches` in groups that are decoded together.

    Args:
        max_bytes: largest size of the frames of a group of several batches; 0 leaves each batch alone.
    """
    group: FrameGroup | None = None
    for batch in batches:
        if group is None or not group.join(batch, max_bytes):
            if group is not None:
                yield group
            group = batch.group
    if group is not None:
        yield group


class LookAhead:
    """Takes batches through three stages, several at a time: decode, prepare, answer.

    - Order: batches are yielded in order. A local model also gets them in order, one at a time (`Turns`).
    - Memory: decoded frames stay within `max_bytes`; a batch that needs more goes alone.
    - Failures: the stages record failures of a question. A `RunError` ends the run: no further batch is sent. Those
      that a service is already answering, which cost money, are still yielded.

    Args:
        prepare: sets the decoded frames of each question of a batch.
        answer: asks the model about a batch, in its turn; None for a service.
        at_once: questions that a service answers in parallel; None for a local model.
        cores: number of CPU cores for decoding and preparing.
        max_bytes: limit for all decoded frames, those of the batches being answered included.
    """

    def __init__(
        self,
        prepare: Callable[[Batch], None],
        answer: Callable[[Batch, Turn | None], None],
        *,
        at_once: int | None,
        cores: int,
        max_bytes: float,
    ) -> None:
        self._prepare, self._answer = prepare, answer
        is_local = at_once is None
        self._turns = Turns() if is_local else None
        self._n_ahead = n_groups_ahead(cores) if is_local else 0
        # One more batch than there are lanes, so that none waits for rows to be written.
        self._max_batches = at_once or n_lanes(cores) + 1
        self._n_threads = at_once or n_lanes(cores) + self._n_ahead
        # More are slower, not faster.
        self._max_decoders = 2 * n_cores()
        self._max_bytes = max_bytes
        # Half of the memory is for groups: those ahead, the one being answered, and one more. The other half is for
        # what questions copy of them. A service is not held up by decoding, and its questions share no frames.
        self._max_group_bytes = max_bytes / 2 / (self._n_ahead + 2) if is_local else 0.0
        self._batches: deque[Batch] = deque()  # in work, or answered and not yet yielded
        self._changed = threading.Event()

    def run(self, batches: Iterable[Batch]) -> Generator[Batch, None, None]:
        """Yield each of `batches` once it is answered, in order.

        Raises:
            RunError: a failure of the device, of the service or of the disk.
        """
        groups = frame_groups(batches, max_bytes=self._max_group_bytes)
        upcoming = next(groups, None)
        ended_by: RunError | None = None
        with ThreadPoolExecutor(self._n_threads, initializer=_same_device()) as pool:
            try:
                while upcoming is not None or self._batches:
                    self._changed.clear()
                    while upcoming is not None and self._has_room(upcoming):
                        self._batches.extend(upcoming.batches)
                        upcoming.decoding = self._submit(pool, upcoming.decode)
                        upcoming = next(groups, None)
                    self._submit_answers(pool)
                    if not self._batches[0].is_answered:
                        self._changed.wait()
                        continue
                    batch = self._batches.popleft()
                    try:
                        batch.result()
                    except RunError as error:
                        ended_by, upcoming = ended_by or error, None
                        # Those that run already are waited for; the others are not asked.
                        self._batches = deque(queued for queued in self._batches if not queued.cancel())
                        continue
                    yield batch
            finally:
                # Also where the caller stops early: threads that wait would keep the pool from ending, and questions
                # whose answers nobody takes would be asked, and paid for.
                if self._turns is not None:
                    self._turns.end()
                pool.shutdown(wait=False, cancel_futures=True)
        if ended_by is not None:
            raise ended_by

    def _submit(self, pool: ThreadPoolExecutor, work: Callable[[], None]) -> Future[None]:
        """Start `work` in a thread; its end wakes the loop."""
        future = pool.submit(work)
        future.add_done_callback(lambda _: self._changed.set())
        return future

    def _has_room(self, group: FrameGroup) -> bool:
        """Return True if there are threads and memory to decode `group` now."""
        batches = self._unanswered()
        groups = {batch.group for batch in batches}
        if len(batches) >= self._max_batches and len(groups) > self._n_ahead:
            return False
        n_decoding = sum(not group_in_work.is_decoded for group_in_work in groups)
        return n_decoding < self._max_decoders and self._fits(group.n_bytes)

    def _fits(self, n_bytes: int) -> bool:
        """Return True if `n_bytes` more fit into memory, or none of it is in use: a large batch goes alone."""
        batches = self._unanswered()
        n_held = sum(batch.n_bytes for batch in batches)
        n_held += sum(group.n_bytes for group in {batch.group for batch in batches})
        # Where nothing is held even too large a group goes in: it would wait for ever otherwise.
        return not n_held or n_held + n_bytes <= self._max_bytes

    def _unanswered(self) -> list[Batch]:
        """Return the batches under way that are not yet answered, in order."""
        return [batch for batch in self._batches if not batch.is_answered]

    def _submit_answers(self, pool: ThreadPoolExecutor) -> None:
        """Submit decoded batches to be answered: in order to a local model, as they are ready to a service."""
        batches = self._unanswered()
        n_answering = sum(batch.answering is not None for batch in batches)
        for batch in batches:
            if batch.answering is not None:
                continue
            if not batch.group.is_decoded:
                if self._turns is not None:
                    return
                continue
            n_bytes = batch.group.copied_bytes(batch)
            if n_answering and (n_answering >= self._max_batches or not self._fits(n_bytes)):
                return
            batch.n_bytes = n_bytes
            turn = self._turns.next_turn() if self._turns is not None else None
            batch.answering = self._submit(pool, partial(self._take_through, batch, turn))
            n_answering += 1

    def _take_through(self, batch: Batch, turn: Turn | None) -> None:
        """Prepare and answer a decoded batch; on a failure of the run, end all turns."""
        try:
            self._prepare(batch)
            # An adapter may have made the frames smaller: there may be room for others.
            self._changed.set()
            self._answer(batch, turn)
        except BaseException:
            # Before the next one gets the model, which may be what failed.
            if self._turns is not None:
                self._turns.end()
            raise
        finally:
            batch.n_bytes = 0
            if turn is not None:
                turn.give_back()


class Turns:
    """The order in which batches get the model; thread-safe.

    Attributes:
        current: number of the turn whose batch has the model, or gets it next.
        ended: numbers of turns that ended before those in front of them.
        is_over: True once the run ends: no further batch gets the model.
        free_since: when the model was last given back, in seconds of `time.perf_counter`.
        changed: guards all of these, and tells of their changes.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self.current = 0
        self.ended = set[int]()
        self.is_over = False
        self.free_since = time.perf_counter()
        self.changed = threading.Condition()

    def next_turn(self) -> Turn:
        """Return a new turn, after all turns returned before."""
        return Turn(self, next(self._numbers))

    def end(self) -> None:
        """End the run: every batch that waits for the model, or asks for it later, fails."""
        with self.changed:
            self.is_over = True
            self.changed.notify_all()


class Turn:
    """The turn of one batch.

    Attributes:
        waited_seconds: time that the batch's thread waited for the model.
        idle_seconds: time that the model waited for the batch.
    """

    def __init__(self, turns: Turns, number: int) -> None:
        self._turns, self._number = turns, number
        self._has_begun = False
        self.waited_seconds = self.idle_seconds = 0.0

    def take(self) -> None:
        """Wait for the turn; return at once where it has begun. Raises RunError if the run ends first."""
        if self._has_begun:  # it asks again: a question of a batch that failed
            return
        arrived_at = time.perf_counter()
        self._wait_until(self._number)
        self._has_begun = True
        self.idle_seconds = max(0.0, arrived_at - self._turns.free_since)

    def wait_until_near(self) -> None:
        """Wait until at most one batch is before this one. Raises RunError if the run ends first."""
        self._wait_until(self._number - 1)

    def give_back(self) -> None:
        """End the turn, begun or not, and pass the model to the next batch."""
        turns = self._turns
        with turns.changed:
            if self._has_begun:
                turns.free_since = time.perf_counter()
            turns.ended.add(self._number)
            while turns.current in turns.ended:
                turns.ended.remove(turns.current)
                turns.current += 1
            turns.changed.notify_all()

    def _wait_until(self, number: int) -> None:
        turns, started = self._turns, time.perf_counter()
        with turns.changed:
            turns.changed.wait_for(lambda: turns.is_over or turns.current >= number)
            if turns.is_over:
                raise RunError("the run ends before this question")
        self.waited_seconds += time.perf_counter() - started


def _same_device() -> Callable[[], None] | None:
    """Return an initialiser that makes a new thread use this thread's GPU; None if no GPU is in use."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return partial(torch.cuda.set_device, torch.cuda.current_device())


class OwnProcessors:
    """Copies of a model's processors and tokenizers, one set for each thread that prepares.

    A tokenizer of the package `tokenizers` refuses a change of its padding while another thread encodes.
    """

    def __init__(self) -> None:
        self._spare: SimpleQueue[tuple[dict[str, Any], dict[str, Any]]] = SimpleQueue()

    @contextmanager
    def of(self, model: Any, turn: Turn) -> Iterator[dict[str, Any]]:
        """Yield copies of the processors and tokenizers of `model`, by attribute name.

        Processors, but not tokenizers, move their inputs to the device only when `turn` is near.
        """
        from transformers import BaseImageProcessor, BaseVideoProcessor, PreTrainedTokenizerBase, ProcessorMixin

        kinds = (BaseImageProcessor, BaseVideoProcessor, PreTrainedTokenizerBase, ProcessorMixin)
        originals = {name: value for name, value in vars(model).items() if isinstance(value, kinds)}
        copies = self._copies(originals)
        try:
            # Of a tokenizer the ids are all there is, and wrappers set its fields.
            yield {
                name: value if isinstance(value, PreTrainedTokenizerBase) else NearbyInputs(value, turn)
                for name, value in copies.items()
            }
        finally:
            self._spare.put((originals, copies))

    def _copies(self, originals: dict[str, Any]) -> dict[str, Any]:
        """Return a spare set of copies of `originals`, or a new one if none is spare or the originals changed."""
        try:
            of, copies = self._spare.get_nowait()
        except Empty:
            of, copies = {}, {}
        # Another processor may have been put into the model since.
        if of.keys() == originals.keys() and all(of[name] is originals[name] for name in of):
            return copies
        # In one call, so that a processor and its tokenizer stay a pair.
        return copy.deepcopy(originals)


class NearbyInputs:
    """Wraps a processor whose outputs move to the device only when their turn is near; other attributes are its own.

    The device then holds the inputs of two batches, not those of all threads.
    """

    def __init__(self, processor: Any, turn: Turn) -> None:
        self._processor = processor
        self._turn = turn

    def __getattr__(self, name: str) -> Any:
        """Return the processor's attribute."""
        return getattr(self._processor, name)

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Return the processor's inputs; their `to` waits until the turn is near."""
        inputs = self._processor(*args, **options)
        move = getattr(inputs, "to", None)
        if move is not None:

            def to(*targets: Any, **to_options: Any) -> Any:
                """Move the inputs to the device once the turn is near."""
                self._turn.wait_until_near()
                return move(*targets, **to_options)

            inputs.to = to
        return inputs
