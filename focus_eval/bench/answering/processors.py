"""Copies of a model's processors, for threads that prepare the inputs of several batches at once.

A processor takes as long to resize a question's frames as a large GPU takes to answer it, so one thread that did both
would leave the GPU idle for half of the time. The module `ahead` has measured figures.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Protocol, TypedDict, cast

from focus_eval.bench.answering.ahead import Place

if TYPE_CHECKING:
    from transformers import BatchFeature, PreTrainedTokenizerBase


class ProcessorInputs(TypedDict, total=False):
    """The keyword arguments of a processor that are read here; wrappers pass others too."""

    text: str
    images: Sequence[object] | None
    videos: Sequence[object] | None


class Processor(Protocol):
    """A processor of transformers."""

    def __call__(self, *args: object, **options: object) -> BatchFeature: ...


# Processors and tokenizers by the name of the wrapper's attribute.
Processors = dict[str, "Processor | PreTrainedTokenizerBase"]


# Base classes of transformers, by name: importing them takes seconds, and an encoder that answers needs none of them.
_TOKENIZER, _PROCESSORS = "PreTrainedTokenizerBase", ("BaseImageProcessor", "BaseVideoProcessor", "ProcessorMixin")


def _is_of_kind(value: object, *names: str) -> bool:
    """True if `value` is an object of one of the classes `names` of transformers."""
    return any(base.__name__ in names and base.__module__.startswith("transformers.") for base in type(value).__mro__)


class OwnProcessors:
    """Copies of a model's processors and tokenizers, one set for each thread that prepares.

    Threads cannot share a tokenizer of the package `tokenizers`: it refuses a change of its padding while another
    thread encodes.
    """

    def __init__(self) -> None:
        self._spare: SimpleQueue[tuple[Processors, Processors]] = SimpleQueue()

    @contextmanager
    def of(self, model: object, place: Place) -> Iterator[dict[str, object]]:
        """Yield copies of the processors and tokenizers of `model`, by attribute name.

        Processors, but not tokenizers, move their inputs to the device only when `place` is near the model.
        """
        names = [name for name, value in vars(model).items() if _is_of_kind(value, _TOKENIZER, *_PROCESSORS)]
        originals: Processors = {name: vars(model)[name] for name in names}
        copies = self._copies(originals)
        try:
            # A tokenizer is not wrapped: its ids are small, and wrappers set its attributes.
            yield {
                name: value if _is_of_kind(value, _TOKENIZER) else NearbyInputs(cast(Processor, value), place)
                for name, value in copies.items()
            }
        finally:
            self._spare.put((originals, copies))

    def _copies(self, originals: Processors) -> Processors:
        """A spare set of copies of `originals`, or a new one if none is spare or the originals changed."""
        try:
            sources, copies = self._spare.get_nowait()
        except Empty:
            sources, copies = {}, {}
        # The model's processor may have been replaced since the copy was made.
        if sources.keys() == originals.keys() and all(sources[name] is originals[name] for name in sources):
            return copies
        # Copy all in one call, so that a copied processor refers to the copied tokenizer.
        return copy.deepcopy(originals)


class NearbyInputs:
    """Wraps a processor so that its outputs move to the device only when their place is near.

    The device then holds the inputs of two batches, not those of all threads. All other attributes are the processor's.
    """

    def __init__(self, processor: Processor, place: Place) -> None:
        self._processor = processor
        self._place = place

    def __getattr__(self, name: str) -> object:
        """Return the processor's attribute."""
        return getattr(self._processor, name)

    def __call__(self, *args: object, **options: object) -> BatchFeature:
        """Return the processor's inputs; their `to` waits until the place is near."""
        inputs = self._processor(*args, **options)
        move = getattr(inputs, "to", None)
        if move is not None:

            def to(*targets: object, **to_options: object) -> object:
                """Move the inputs to the device once the place is near."""
                self._place.wait_until_near()
                return move(*targets, **to_options)

            vars(inputs)["to"] = to
        return inputs
