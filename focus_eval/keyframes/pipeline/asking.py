"""Asks a language model for one question, replays stored replies, and counts usage."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from focus_eval.core.errors import AnswerError
from focus_eval.core.types import FloatArray, IntArray, Pixels
from focus_eval.keyframes.llms.registry import Model, Reply, TakesPictureTimes
from focus_eval.keyframes.pipeline.timing import Meter
from focus_eval.keyframes.samplers.asking import MAX_TOKENS
from focus_eval.keyframes.samplers.ledger import LookFn

if TYPE_CHECKING:
    from focus_eval.keyframes.encoders.store import RelevanceStore

# Names in a reply's usage for settings that were left out of the request because the service refuses them.
LEFT_OUT = ("without_temperature", "without_seed")
# Keys of usage that replies may state.
USAGE = ("requests", "input", "output", "dollars", *LEFT_OUT)


class _StoredReply(TypedDict):
    """What the store keeps of a reply, as JSON."""

    text: str
    yes: float | None
    usage: dict[str, float]


class ModelSession:
    """A language model during one question.

    The store keeps replies by model, text, pixels and token limit. A question that was asked before, even in another
    run, is answered from the store without a request; its tokens still count as cost of the method.

    Attributes:
        usage: numbers of "calls", "images" and "replayed" calls of this question, and the sums of `USAGE`. Requests and
            dollars are those of this run; tokens are those of all calls, replayed ones included.
    """

    def __init__(self, model: Model, *, store: RelevanceStore | None, meter: Meter) -> None:
        self._model = model
        self._store = store
        self._meter = meter
        self._lock = Lock()
        self.usage: dict[str, float] = {"calls": 0, "images": 0, "replayed": 0, "requests": 0}

    def ask(self, text: str, images: Sequence[Pixels] = (), *, max_tokens: int = MAX_TOKENS) -> str:
        """Return the text of the model's reply to `text` and `images`. Raises the errors of `Model.ask`."""
        self._count_images(1, images)
        key = self._key("ask", text, images, max_tokens)
        reply = self._stored_reply(key)
        with self._meter.stage("ask"):
            reply = self._stored_or_asked(key, reply, partial(self._model.ask, text, images, max_tokens=max_tokens))
        self._count(reply)
        return reply.text

    def yes(self, text: str, images: Sequence[Pixels]) -> FloatArray:
        """Return the chance of "yes" to `text` for each picture, `(n,)`, NaN if absent. Raises as `Model.ask`."""
        self._count_images(len(images), images)
        keys = [self._key("yes", text, [image], 1) for image in images]
        stored = [self._stored_reply(key) for key in keys]
        with self._meter.stage("ask"), ThreadPoolExecutor(max_workers=self._model.at_once) as pool:
            # The jobs keep the order of the pictures, even if the replies arrive in another order.
            jobs = [
                pool.submit(self._stored_or_asked, key, reply, partial(self._model.yes, text, image))
                for key, reply, image in zip(keys, stored, images, strict=True)
            ]
        # Store and count all replies before raising the first failure.
        for job in jobs:
            if job.exception() is None:
                self._count(job.result())
        replies = [job.result() for job in jobs]
        return np.array([np.nan if reply.yes is None else reply.yes for reply in replies])

    def _stored_or_asked(self, key: str, reply: Reply | None, ask: Callable[[], Reply]) -> Reply:
        """`reply` if there is one, else the result of `ask`, which is stored under `key`."""
        if reply is not None:
            return reply
        try:
            reply = ask()
        except AnswerError as error:
            with self._lock:
                self._spend(error.usage)
            raise
        with self._lock:
            self.usage["requests"] += reply.usage.get("requests", 1)
        if self._store:
            record = {"text": reply.text, "yes": reply.yes, "usage": reply.usage}
            self._store.keep_reply(key, json.dumps(record).encode())
        return reply

    def with_picture_times(self, look: LookFn, clock: FloatArray) -> LookFn:
        """Return `look`, wrapped for a scripted model so that it is told the time of each picture.

        `clock` has the time of every frame in seconds, `(n_frames,)`.
        """
        model = self._model
        if not isinstance(model, TakesPictureTimes):
            return look

        def looked(frames: IntArray, size: int | None) -> list[Pixels]:
            """Return the pictures of `frames` and tell the model the time of each."""
            pictures = look(frames, size)
            for frame, picture in zip(frames.tolist(), pictures, strict=True):
                model.note_time(picture, float(clock[frame]))
            return pictures

        return looked

    def _key(self, kind: str, text: str, images: Sequence[Pixels], max_tokens: int) -> str:
        """The hash under which a reply is stored: of model, kind of request, text, pixels and length."""
        digest = hashlib.sha256()
        for image in images:
            digest.update(json.dumps(image.shape).encode() + image.tobytes())
        content = [self._model.model_id, self._model.revision, kind, text, digest.hexdigest(), max_tokens]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def _stored_reply(self, key: str) -> Reply | None:
        """The reply stored under `key`, with its tokens as usage; None if there is none. Counts replays."""
        stored = self._store.reply(key) if self._store else None
        if stored is None:
            return None
        self.usage["replayed"] += 1
        record: _StoredReply = json.loads(stored)
        # A stored reply was paid for when it was first given: leave out its requests and dollars.
        usage = {name: value for name, value in record["usage"].items() if name in ("input", "output", *LEFT_OUT)}
        return Reply(text=record["text"], yes=record["yes"], usage=usage)

    def _count_images(self, calls: int, images: Sequence[Pixels]) -> None:
        """Add `calls` and the number of `images` to the usage."""
        self.usage["calls"] += calls
        self.usage["images"] += len(images)

    def _count(self, reply: Reply) -> None:
        """Add a reply's tokens and dollars to the usage; requests are counted where they are made."""
        self._spend({name: value for name, value in reply.usage.items() if name != "requests"})

    def _spend(self, usage: Mapping[str, float]) -> None:
        """Add the known fields of `usage` (see `USAGE`) to the session's."""
        for name in USAGE:
            if name in usage:
                self.usage[name] = self.usage.get(name, 0) + usage[name]
