"""Gives the model to one batch at a time, in order, while threads prepare the next ones."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from threading import Condition
from typing import Any

from focus_eval.core.errors import RunError
from focus_eval.video.decoder import n_cores

# Each holds the inputs of one batch, and its frames within `decode_gigabytes`.
MOST_LANES = 16


def own_cores() -> int:
    """Return the cores of this process: of those it may use, its share among the processes of a launcher."""
    return max(1, n_cores() // int(os.environ.get("LOCAL_WORLD_SIZE") or 1))


def n_lanes(cores: int) -> int:
    """Return the threads that take batches to the model: one waits for its answer, the others decode and prepare."""
    # Two more than half the cores: decoders and resizing have threads of their own.
    return min(MOST_LANES, cores // 2 + 2)


def parts_ahead(cores: int) -> int:
    """Return how many parts of shared frames are decoded ahead (see `frames.SharedFrames`)."""
    # Chosen by `scripts/answer_simulation.py`: more hold less of a video each, fewer leave cores without work.
    return min(3, max(1, cores // 4))


class Turns:
    """The order in which batches get the model."""

    def __init__(self) -> None:
        self._next = 0
        self._done = set[int]()
        self._holder: int | None = None
        self._is_ended = False
        self._free_since = time.perf_counter()
        self._changed = Condition()

    def take(self, at: int) -> float:
        """Wait for the turn of batch `at`; return the seconds that the model stood still for it.

        Raises:
            RunError: the run ends.
        """
        asked = time.perf_counter()
        with self._changed:
            if self._holder == at:  # it asks again: a question of a batch that failed
                return 0.0
            self._wait_for(lambda: self._next == at)
            self._holder = at
            return max(0.0, asked - self._free_since)

    def come_near(self, at: int) -> None:
        """Wait until batch `at` is the next but one at most. Raises RunError where the run ends first."""
        with self._changed:
            self._wait_for(lambda: self._next + 1 >= at)

    def _wait_for(self, may_go_on: Callable[[], bool]) -> None:
        self._changed.wait_for(lambda: self._is_ended or may_go_on())
        if self._is_ended:
            raise RunError("the run ends before this question")

    def give_back(self, at: int) -> None:
        """Let the next batch have the model; also of a batch that never took it."""
        with self._changed:
            self._done.add(at)
            if self._holder == at:
                self._holder, self._free_since = None, time.perf_counter()
            while self._next in self._done:
                self._done.remove(self._next)
                self._next += 1
            self._changed.notify_all()

    def end(self) -> None:
        """Let nobody have the model any more."""
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()


class Turn:
    """The turn of one batch.

    Attributes:
        waited_seconds: that its thread waited for the model.
        idle_seconds: that the model waited for it.
    """

    def __init__(self, turns: Turns, at: int) -> None:
        self._turns, self._at = turns, at
        self.waited_seconds = self.idle_seconds = 0.0

    def take(self) -> None:
        """Wait for the turn. Raises RunError where the run ends first."""
        started = time.perf_counter()
        self.idle_seconds += self._turns.take(self._at)
        self.waited_seconds += time.perf_counter() - started

    def come_near(self) -> None:
        """Wait until no more than one batch is before this one. Raises RunError where the run ends first."""
        started = time.perf_counter()
        self._turns.come_near(self._at)
        self.waited_seconds += time.perf_counter() - started


class OwnProcessors:
    """Copies of a model's processors and tokenizers, one set for each thread that prepares.

    A tokenizer of the package `tokenizers` refuses a change of its padding while another thread encodes.
    """

    def __init__(self) -> None:
        self._spare: SimpleQueue[tuple[dict[str, Any], dict[str, Any]]] = SimpleQueue()

    @contextmanager
    def of(self, model: Any, turn: Turn) -> Iterator[dict[str, Any]]:
        """Give the attributes of `model` that are processors or tokenizers, copied, for the block."""
        originals = {name: value for name, value in vars(model).items() if _is_processor(value)}
        copies = self._copies(originals)
        try:
            yield {name: _nearby(value, turn) for name, value in copies.items()}
        finally:
            self._spare.put((originals, copies))

    def _copies(self, originals: dict[str, Any]) -> dict[str, Any]:
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
    """Wraps a processor so that its inputs go to the device when their turn is near; everything else is its own.

    The device then holds the inputs of two batches, not those of all threads.
    """

    def __init__(self, processor: Any, turn: Turn) -> None:
        self._processor = processor
        self._turn = turn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._processor, name)

    def __call__(self, *args: Any, **options: Any) -> Any:
        inputs = self._processor(*args, **options)
        move = getattr(inputs, "to", None)
        if move is not None:

            def to(*where: Any, **how: Any) -> Any:
                self._turn.come_near()
                return move(*where, **how)

            inputs.to = to
        return inputs


def _nearby(value: Any, turn: Turn) -> Any:
    from transformers import PreTrainedTokenizerBase

    # Of a tokenizer the ids are all there is, and wrappers set its fields.
    return value if isinstance(value, PreTrainedTokenizerBase) else NearbyInputs(value, turn)


def _is_processor(value: Any) -> bool:
    from transformers import BaseImageProcessor, BaseVideoProcessor, PreTrainedTokenizerBase, ProcessorMixin

    return isinstance(value, (BaseImageProcessor, BaseVideoProcessor, PreTrainedTokenizerBase, ProcessorMixin))
