"""Scripted model for simulations, which reads the annotation and is right with a set probability."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from copy import copy
from statistics import NormalDist
from typing import ClassVar

import numpy as np

from focus_eval.core.errors import AnswerError, InvalidInput
from focus_eval.core.types import ExampleReplies, Pixels, example_reply_to
from focus_eval.keyframes.llms.registry import Reply, check_limits
from focus_eval.keyframes.samplers.asking import CHARACTERS_A_TOKEN

# Words of a question that are too common to be returned as its key words.
_COMMON = (
    "about after before does from have into show shown shows that then there they this what when where which while "
    "with would"
)


class ScriptedModel:
    """Says yes to pictures within `reach_seconds` of the evidence, no to others, right for a share `accuracy`.

    To a text alone it answers with the sampler's `example_reply`, else with the question's words, one a line; to a text
    with pictures too if the sampler has a reply to that kind of prompt. Because it reads the annotation, rows of a
    sampler that asks it are no measurement.

    Args:
        accuracy: share of pictures that it is right about, from 0.5 (guessing) to below 1.
        reach_seconds: seconds before and after an evidence time in which the evidence is in view.
        tokens_per_image: tokens counted for a picture; a text counts one token for four characters.
        cost: cost of a token in encoder forwards; the default is that of a 7 B model next to BLIP large.
        parameters: size in 10^9 of the model it stands for; if given, replaces `cost`.
        seed: seed of the mistakes.
    """

    model_id: ClassVar[str] = "scripted"
    at_once: ClassVar[int] = 1

    def __init__(
        self,
        *,
        accuracy: float = 0.8,
        reach_seconds: float = 2.0,
        tokens_per_image: int = 256,
        cost: float = 0.04,
        parameters: float | None = None,
        seed: int = 0,
    ) -> None:
        """Check the options; `cost`, that of a token in encoder forwards, is used unless `parameters` is given."""
        if not 0.5 <= accuracy < 1:
            raise InvalidInput(f"llm scripted: accuracy must be at least 0.5 and below 1, got {accuracy}")
        check_limits("scripted", above=0, parameters=parameters)
        check_limits("scripted", at_least=0, reach_seconds=reach_seconds, tokens_per_image=tokens_per_image, cost=cost)
        self.revision = f"accuracy {accuracy:g}, reach {reach_seconds:g} s, {tokens_per_image} tokens, seed {seed}"
        self.cost_per_token, self.gmacs_per_token = cost, parameters
        self._reach, self.tokens_per_image, self._seed = reach_seconds, tokens_per_image, seed
        # The model sees a normal variable of variance 1 with mean +strength (evidence in view) or -strength (not). With
        # this strength, the variable's sign is right with probability `accuracy`.
        self._strength = NormalDist().inv_cdf(accuracy)
        self._evidence: Sequence[float] | None = None
        self._replies: ExampleReplies = ""
        self._words = ""
        self._times: dict[bytes, float] = {}

    def for_question(self, query: str, evidence_seconds: Sequence[float], *, reply: ExampleReplies) -> ScriptedModel:
        """Return a copy that knows the evidence of one question; without `reply`, it answers texts with its words."""
        model = copy(self)
        model._times = {}
        model._evidence = tuple(evidence_seconds)
        words = [word for word in "".join(c if c.isalnum() else " " for c in query).split() if len(word) > 3]
        model._replies = reply
        model._words = "\n".join(dict.fromkeys(w for w in words if w.lower() not in _COMMON.split())) or query
        return model

    def note_time(self, picture: Pixels, seconds: float) -> None:
        """Remember by its pixels that `picture` lies at `seconds` of the video."""
        self._times[_digest(picture)] = seconds

    def ask(self, text: str, images: Sequence[Pixels], *, max_tokens: int) -> Reply:
        """Return the scripted reply to the text; with pictures, by default "yes" if P(yes) of any is above one half."""
        usage = self._usage(text, len(images))
        own_reply = not isinstance(self._replies, str) and example_reply_to(text, self._replies)
        reply = own_reply or ("" if images else example_reply_to(text, self._replies) or self._words)
        if reply:
            return Reply(text=reply, usage={**usage, "output": -(-len(reply) // CHARACTERS_A_TOKEN)})
        brightest = max(float(self.yes(text, image).yes or 0) for image in images)
        return Reply(text="yes" if brightest > 0.5 else "no", usage=usage)

    def yes(self, text: str, image: Pixels) -> Reply:
        """Return a reply with the noisy probability that evidence is in view; equal questions get equal noise.

        Raises:
            AnswerError: no question was set, or the picture has no noted time.
        """
        digest = _digest(image)
        if self._evidence is None or digest not in self._times:
            raise AnswerError("the scripted model knows only pictures of ledger.look, as they are, of one question")
        seconds = self._times[digest]
        is_near = any(abs(seconds - moment) <= self._reach for moment in self._evidence)
        drawn = hashlib.sha256(f"{self._seed} {text} {seconds:.6f} {self._evidence}".encode()).digest()
        noise = np.random.default_rng(int.from_bytes(drawn[:8], "little")).standard_normal()
        made_of_it = (self._strength if is_near else -self._strength) + noise
        yes = 1 / (1 + np.exp(-2 * self._strength * made_of_it))
        return Reply(text="yes" if yes > 0.5 else "no", yes=float(yes), usage=self._usage(text, 1))

    def _usage(self, text: str, n_images: int) -> dict[str, float]:
        """The tokens that a request would take: input tokens of text and pictures, and 1 output token."""
        n_tokens = -(-len(text) // CHARACTERS_A_TOKEN) + n_images * self.tokens_per_image
        return {"requests": 0, "input": n_tokens, "output": 1}

    def price(self, input_tokens: float, output_tokens: float) -> float | None:
        """Return 0.0: nothing is paid."""
        return 0.0

    def check(self) -> None:
        """Do nothing: the model needs no service."""

    def close(self) -> None:
        """Do nothing: the model holds no resources."""


def _digest(picture: Pixels) -> bytes:
    return hashlib.sha256(str(picture.shape).encode() + picture.tobytes()).digest()
