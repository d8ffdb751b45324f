"""Asks a model for one question: from the store what is known, and counts what the rest takes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from focus_eval.core.errors import AnswerError
from focus_eval.core.types import FloatArray, IntArray, Picture
from focus_eval.llms.protocol import Model, Reply, SeesTimes
from focus_eval.pipeline.timing import Meter
from focus_eval.samplers.asking import MAX_TOKENS
from focus_eval.samplers.ledger import LookFn

if TYPE_CHECKING:
    from focus_eval.encoders.store import RelevanceStore

# What a row says of the model; tokens and dollars only where the model does.
USAGE = ("requests", "input", "output", "dollars")


class ModelSession:
    """A model as one question asks it.

    The store keeps replies by their content: model, text, pixels and length. A question asked again, by another run
    too, is answered from there; its tokens are counted as the method's cost, and no request is made.

    Attributes:
        usage: "calls", "images" and "replayed" of this question, and the sums of `USAGE`; requests and dollars are
            those really made and spent, tokens those of all calls.
    """

    def __init__(self, model: Model, *, store: RelevanceStore | None, meter: Meter) -> None:
        self._model = model
        self._store = store
        self._meter = meter
        self._lock = Lock()
        self.usage: dict[str, float] = {"calls": 0, "images": 0, "replayed": 0, "requests": 0}

    def ask(self, text: str, images: Sequence[Picture] = (), *, max_tokens: int = MAX_TOKENS) -> str:
        """Return the reply's text. Raises as `Model.ask`."""
        self._ask_about(1, images)
        key = self._key("ask", text, images, max_tokens)
        reply = self._kept(key)
        with self._meter.stage("ask"):
            reply = self._kept_or_asked(key, reply, partial(self._model.ask, text, images, max_tokens=max_tokens))
        self._count(reply)
        return reply.text

    def yes(self, text: str, images: Sequence[Picture]) -> FloatArray:
        """Return the probability of yes about each picture, `(n,)`. Raises as `Model.ask`."""
        self._ask_about(len(images), images)
        keys = [self._key("yes", text, [image], 1) for image in images]
        kept = [self._kept(key) for key in keys]
        with self._meter.stage("ask"), ThreadPoolExecutor(max_workers=self._model.at_once) as pool:
            # One after the other or at once: the replies are those of the pictures, in their order.
            asked = [
                pool.submit(self._kept_or_asked, key, reply, partial(self._model.yes, text, image))
                for key, reply, image in zip(keys, kept, images, strict=True)
            ]
        # All have ended: what was answered is kept and counted before the first failure is raised.
        for done in asked:
            if done.exception() is None:
                self._count(done.result())
        replies = [done.result() for done in asked]
        return np.array([np.nan if reply.yes is None else reply.yes for reply in replies])

    def _kept_or_asked(self, key: str, kept: Reply | None, ask: Callable[[], Reply]) -> Reply:
        if kept is not None:
            return kept
        try:
            reply = ask()
        except AnswerError as error:
            with self._lock:
                self._spend(error.usage)
            raise
        with self._lock:
            self.usage["requests"] += reply.usage.get("requests", 1)
        if self._store:
            said = {"text": reply.text, "yes": reply.yes, "usage": reply.usage}
            self._store.keep_reply(key, json.dumps(said).encode())
        return reply

    def seeing(self, look: LookFn, fps: float) -> LookFn:
        """Return `look`, of which a scripted model learns when its pictures are."""
        model = self._model
        if not isinstance(model, SeesTimes):
            return look

        def looked(frames: IntArray, size: int | None) -> list[Picture]:
            pictures = look(frames, size)
            for frame, picture in zip(frames.tolist(), pictures, strict=True):
                model.saw(picture, frame / fps)
            return pictures

        return looked

    def _key(self, kind: str, text: str, images: Sequence[Picture], max_tokens: int) -> str:
        digest = hashlib.sha256()
        for image in images:
            digest.update(json.dumps(image.shape).encode() + image.tobytes())
        asked = [self._model.model_id, self._model.revision, kind, text, digest.hexdigest(), max_tokens]
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()

    def _kept(self, key: str) -> Reply | None:
        kept = self._store.reply(key) if self._store else None
        if kept is None:
            return None
        self.usage["replayed"] += 1
        said: dict[str, Any] = json.loads(kept)
        # Paid for when it was given.
        usage = {name: value for name, value in said["usage"].items() if name in ("input", "output")}
        return Reply(text=said["text"], yes=said["yes"], usage=usage)

    def _ask_about(self, calls: int, images: Sequence[Picture]) -> None:
        self.usage["calls"] += calls
        self.usage["images"] += len(images)

    def _count(self, reply: Reply) -> None:
        self._spend({name: value for name, value in reply.usage.items() if name != "requests"})

    def _spend(self, usage: Mapping[str, float]) -> None:
        for name in USAGE:
            if name in usage:
                self.usage[name] = self.usage.get(name, 0) + usage[name]
