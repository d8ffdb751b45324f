"""Reads and prepares the next questions while one is answered, in one queue that bounds the memory of their frames.

One thread reads batches into the queue, several threads ("lanes") prepare them and bring them to the model, and the
caller gets them back once they are answered: in order from a local model, as they come from a service.

Lanes prepare the inputs of several batches at once, if the adapter allows it. In a test on two idle cores, a stand-in
model that sleeps for 2.5 s waited 4.5 % of the time, and 10.6 % if its inputs were prepared only once it was free; on
busy cores 26 and 48 % (`results/measured/answers.csv`).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from focus_eval.bench.answering.cell import Cell
from focus_eval.bench.answering.questions import FramedQuestion, ModelReply
from focus_eval.core.errors import RunError
from focus_eval.core.processes import n_cores

# Limit of lanes, since each holds the inputs of the batch that it prepares.
MAX_LANES = 16
# Limit of batches in the queue: `max_bytes` does not limit batches without frames (the wrapper's own sampling).
MAX_BATCHES_IN_WORK = 64

AnsweredBatch = Sequence[tuple[FramedQuestion, ModelReply]]


def own_cores() -> int:
    """Return the number of cores for this process: the usable cores divided by the launcher's local processes."""
    return max(1, n_cores() // int(os.environ.get("LOCAL_WORLD_SIZE") or 1))


def n_lanes(cores: int) -> int:
    """Return the number of threads that bring batches to the model: one waits for its answer, the others prepare."""
    # Use only half of the cores and two more, since decoding and resizing have threads of their own.
    return min(MAX_LANES, cores // 2 + 2)


@dataclass(frozen=True, kw_only=True, eq=False)
class QuestionBatch:
    """Questions of one cell that go to the model together; their frames take `n_bytes`, reserved in the queue."""

    cell: Cell
    questions: Sequence[FramedQuestion]
    n_bytes: int = 0


class Place:
    """The place of one batch in the queue.

    Attributes:
        waited_seconds: time that the batch's thread waited for the model.
        idle_seconds: time that the model waited for the batch.
    """

    def __init__(self, queue: AnswerQueue, batch: QuestionBatch) -> None:
        self.batch: QuestionBatch | None = batch
        self.answered: tuple[Cell, AnsweredBatch] | None = None
        self.is_done = self.has_model = False
        self.waited_seconds = self.idle_seconds = 0.0
        self.n_bytes = batch.n_bytes
        self._queue = queue

    def take_model(self) -> None:
        """Wait until all batches before this one are answered. Raises RunError if the run ends first."""
        if not self.has_model:  # True where a failed batch is asked again, question by question
            arrived_at = time.perf_counter()
            self._wait(0)
            self.has_model = True
            self.idle_seconds = max(0.0, arrived_at - self._queue.model_free_since)

    def wait_until_near(self) -> None:
        """Wait until at most one batch is before this one. Raises RunError if the run ends first."""
        self._wait(1)

    def shrink(self, n_bytes: int) -> None:
        """State that the frames now take `n_bytes` only."""
        self._queue.release(self.n_bytes - n_bytes)
        self.n_bytes = n_bytes

    def _wait(self, n_before: int) -> None:
        started = time.perf_counter()
        self._queue.wait_for_place(self, n_before)
        self.waited_seconds += time.perf_counter() - started


class AnswerQueue:
    """The batches between reading and writing, in order. Thread-safe.

    Args:
        max_bytes: limit for the frames of all batches in it; a batch that needs more goes alone.
        is_ordered: True to return batches in the order of the queue; False to return each as soon as it is answered.

    Attributes:
        is_over: True once the run ends: nothing more is read, and no further batch gets the model.
        model_free_since: when the last batch gave the model back, in seconds of `time.perf_counter`.
    """

    def __init__(self, *, max_bytes: float, is_ordered: bool = True) -> None:
        self.is_over = False
        self.model_free_since = time.perf_counter()
        self._max_bytes = max_bytes
        self._is_ordered = is_ordered
        self._n_bytes = 0
        self._places: deque[Place] = deque()  # one place per batch that the caller has not received yet
        self._unanswered: list[Place] = []
        self._is_filled = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    def reserve(self, n_bytes: int) -> None:
        """Wait until the frames that take `n_bytes` may be read. Raises RunError if the run ends first."""
        with self._changed:
            # Admit an oversized batch when memory is free; it would never fit otherwise.
            self._wait_until(lambda: not self._n_bytes or self._n_bytes + n_bytes <= self._max_bytes)
            self._n_bytes += n_bytes

    def release(self, n_bytes: int) -> None:
        """Free `n_bytes` of those reserved."""
        with self._changed:
            self._n_bytes -= n_bytes
            self._changed.notify_all()

    def put(self, batch: QuestionBatch) -> Place:
        """Append a batch, once there are few enough. Raises RunError if the run ends first."""
        place = Place(self, batch)
        with self._changed:
            self._wait_until(lambda: len(self._unanswered) < MAX_BATCHES_IN_WORK)
            self._places.append(place)
            self._unanswered.append(place)
        return place

    def check_going_on(self) -> None:
        """Raise RunError if the run ends."""
        if self.is_over:
            raise RunError("the run ends before this question")

    def wait_for_place(self, place: Place, n_before: int) -> None:
        """Wait until at most `n_before` unanswered batches are before `place`. Raises RunError if the run ends."""
        with self._changed:
            self._wait_until(lambda: place in self._unanswered[: n_before + 1])

    def leave(self, place: Place) -> None:
        """Take `place`, whose batch is answered or has failed, out of those that wait for the model."""
        with self._changed:
            if place.has_model:
                self.model_free_since = time.perf_counter()
            self._unanswered.remove(place)
            self._n_bytes -= place.n_bytes
            place.is_done, place.batch = True, None
            self._changed.notify_all()

    def end(self, error: BaseException | None = None, *, is_filled: bool = False) -> None:
        """End the run, with `error` if that is its cause; or, with `is_filled`, say that no batch follows."""
        with self._changed:
            self._error = self._error or error
            self._is_filled = self._is_filled or is_filled
            self.is_over = self.is_over or not is_filled or error is not None
            self._changed.notify_all()

    def next_answered(self) -> tuple[Cell, AnsweredBatch] | None:
        """Return the next answered batch; None after the last.

        Raises:
            RunError: the error that ended the run; raised after the batches that a service was still answering.
        """
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._done_place() is not None or (self._is_filled and not self._places))
                place = self._done_place()
                if place is None:
                    break
                self._places.remove(place)
            if place.answered is not None:
                return place.answered
        if self._error is not None:
            raise self._error
        return None

    def _done_place(self) -> Place | None:
        # Without an order, return a finished answer at once: if it waited for a slower one, a kill would lose it.
        places = list(self._places)[:1] if self._is_ordered else self._places
        return next((place for place in places if place.is_done), None)

    def _wait_until(self, is_met: Callable[[], bool]) -> None:
        self._changed.wait_for(lambda: self.is_over or is_met())
        self.check_going_on()


def answer_ahead(
    read: Callable[[AnswerQueue], Iterator[QuestionBatch]],
    answer: Callable[[QuestionBatch, Place], AnsweredBatch],
    *,
    at_once: int | None,
    cores: int,
    max_bytes: float,
) -> Generator[tuple[Cell, AnsweredBatch], None, None]:
    """Yield the batches that `read` yields with their replies: a local model's in order, a service's as they come.

    Args:
        read: reads batches one after another, in a thread; reserves the memory of their frames.
        answer: prepares a batch and asks the model, in a lane; waits for the batch's turn at a local model.
        at_once: questions that a service answers in parallel; None for a local model.
        cores: number of CPU cores for preparing.
        max_bytes: limit for all decoded frames, those of the batches being answered included.

    Raises:
        RunError: a failure of the device, of the service or of the disk. No further batch is sent; those that a service
            is already answering, which cost money, are still yielded.
    """
    queue = AnswerQueue(max_bytes=max_bytes, is_ordered=at_once is None)

    def answer_place(place: Place) -> None:
        try:
            queue.check_going_on()
            assert place.batch is not None
            place.answered = place.batch.cell, answer(place.batch, place)
        except BaseException as error:  # noqa: BLE001 (raised in the caller's thread)
            # End the run before the next batch is sent to the model, which may be what failed.
            queue.end(error)
        finally:
            queue.leave(place)

    def fill(pool: ThreadPoolExecutor) -> None:
        _use_same_device(device)
        error: BaseException | None = None
        try:
            for batch in read(queue):
                pool.submit(answer_place, queue.put(batch))
        except BaseException as raised:  # noqa: BLE001 (raised in the caller's thread)
            error = raised
        queue.end(error, is_filled=True)

    device = _current_device()
    with ThreadPoolExecutor(at_once or n_lanes(cores), "answer", partial(_use_same_device, device)) as pool:
        reading = threading.Thread(target=fill, args=(pool,), name="read", daemon=True)
        reading.start()
        try:
            while (answered := queue.next_answered()) is not None:
                yield answered
        finally:
            # The caller may stop early: waiting threads would keep the pool from ending, and further questions would
            # cost money although nobody takes their answers.
            queue.end()
            reading.join()


def _current_device() -> int | None:
    """The number of this thread's GPU; None if no GPU is in use."""
    torch = sys.modules.get("torch")
    return torch.cuda.current_device() if torch is not None and torch.cuda.is_initialized() else None


def _use_same_device(device: int | None) -> None:
    """Make this thread use the GPU of the thread that started it."""
    if device is not None:
        sys.modules["torch"].cuda.set_device(device)
