"""Scores frames with a vision-language model: relevance is its probability of answering yes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import local
from typing import Any, ClassVar

import numpy as np

from focus_eval.core.errors import AnswerError, InvalidInput
from focus_eval.core.types import FloatArray, Pixels, checked_query
from focus_eval.keyframes.encoders.base import Encoder, checked_frames
from focus_eval.keyframes.llms.registry import Model, Reply, make_llm

PROMPT = "{query}\nDoes this picture help to answer the question? Answer yes or no."
# Number of tokens of prompt and question that is assumed when costs are stated.
TEXT_TOKENS = 64


class VlmEncoder(Encoder):
    """Asks a model about each frame; the probability of yes is the relevance.

    The store keeps relevance, so a run can be replayed without asking the model again.

    Args:
        llm: the model, with options after semicolons: `chat:model=gpt-4o-mini;max_cost=2`.
        prompt: text sent with each picture; must contain `{query}`.
    """

    name: ClassVar[str] = "vlm"
    extra: ClassVar[str] = "llm"

    def __init__(self, llm: str, *, prompt: str = PROMPT) -> None:
        """Make the model and check that it can serve; raise InvalidInput for a prompt without {query}."""
        if "{query}" not in prompt:
            raise InvalidInput(f"encoder vlm: prompt needs {{query}}, got {prompt!r}")
        self._model, self._prompt = make_llm(llm), prompt
        self._model.check()
        self._spent = local()
        self.gmacs = _pair_gmacs(self._model)
        self.revision = f"{self._model.model_id} {self._model.revision}, {prompt!r}"

    @classmethod
    def gmacs_of(cls, *, llm: str = "", **_: object) -> dict[str, float]:
        """Return {"fusion": upper bound on the 10^9 multiply-adds of a picture with a text}; {} if not known."""
        return _pair_gmacs(make_llm(llm))

    def embed(self, frames: Pixels) -> Pixels:
        """Return RGB uint8 frames `(n, height, width, 3)` unchanged: the model sees picture and text together."""
        return checked_frames(frames)

    def relevance(self, features: Any, query: str) -> FloatArray:
        """Return the probability of yes about each picture, `(n,)`.

        Raises:
            AnswerError: no usable answer.
        """
        prompt = self._prompt.replace("{query}", checked_query(query))
        self._spent.usage = spent = []

        def yes(picture: Pixels) -> Reply:
            """Return the model's reply about one picture and note its usage, even if the attempt fails."""
            try:
                reply = self._model.yes(prompt, picture)
            except AnswerError as error:
                spent.append(error.usage)
                raise
            spent.append(reply.usage)
            return reply

        with ThreadPoolExecutor(max_workers=self._model.at_once) as pool:
            replies = pool.map(yes, features)
        return np.array([reply.yes for reply in replies], dtype=np.float64)

    def last_usage(self) -> list[dict[str, float]]:
        """Return the usage of each reply in this thread's last `relevance` call."""
        return list(getattr(self._spent, "usage", []))

    def close(self) -> None:
        self._model.close()


def _pair_gmacs(model: Model) -> dict[str, float]:
    """{"fusion": upper bound on the 10^9 multiply-adds of a picture with a text}; {} if it is unknown."""
    if model.gmacs_per_token is None or model.tokens_per_image is None:
        return {}
    return {"fusion": (model.tokens_per_image + TEXT_TOKENS) * model.gmacs_per_token}
