"""Lets a sampler ask a language or vision-language model, and counts calls, pictures and tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Protocol

import numpy as np

from focus_eval.core.errors import AnswerError
from focus_eval.core.types import FloatArray, Pixels, whole_number
from focus_eval.keyframes.samplers.ledger import broken

MAX_TOKENS = 256
# Estimates for plans: a token stands for this many characters of text, or for a square of this many pixels a side.
CHARACTERS_A_TOKEN, PIXELS_A_TOKEN = 4, 28


class LanguageModel(Protocol):
    """A language or vision-language model that a sampler may ask; it returns text and probabilities only."""

    def ask(self, text: str, images: Sequence[Pixels] = (), *, max_tokens: int = MAX_TOKENS) -> str:
        """Return the model's answer to `text` and all `images` together."""
        ...

    def yes(self, text: str, images: Sequence[Pixels]) -> FloatArray:
        """Return the probability in [0, 1] of "yes" against "no" to `text` about each picture alone, `(n,)`."""
        ...


@dataclass
class ModelUsage:
    """A sampler's use of its model: calls, pictures and estimated tokens.

    Args:
        calls: number of texts sent; if the model was asked about each picture alone, one per picture.
        tokens_sent: tokens sent, estimated from characters and pixels.
        tokens_back: upper limit of the tokens of all answers.
    """

    calls: int = 0
    images: int = 0
    tokens_sent: int = 0
    tokens_back: int = 0

    def add(self, text: str, images: Sequence[Pixels], *, max_tokens: int, calls: int = 1) -> None:
        """Add the usage of one `ask`, or of `calls` questions about one picture each."""
        self.calls += calls
        self.images += len(images)
        self.tokens_sent += calls * -(-len(text) // CHARACTERS_A_TOKEN)
        self.tokens_sent += sum(-(-image.shape[0] * image.shape[1] // PIXELS_A_TOKEN**2) for image in images)
        self.tokens_back += calls * max_tokens

    def as_dict(self) -> dict[str, int]:
        """Return the counts by name."""
        return asdict(self)


@dataclass
class CountedModel:
    """The model as a sampler gets it: checks and counts every question, and checks every answer."""

    model: LanguageModel
    usage: ModelUsage = field(default_factory=ModelUsage)

    def ask(self, text: str, images: Sequence[Pixels] = (), *, max_tokens: int = MAX_TOKENS) -> str:
        """Return the model's answer to `text` and all `images` together.

        Args:
            images: RGB uint8, each `(height, width, 3)`, as `ledger.look` gives them.
            max_tokens: limit on the answer's length in tokens.

        Raises:
            BrokenContract: the text is empty, or the pictures do not have that form.
            AnswerError: the model is out of reach, refuses, or returns no text.
        """
        text, images = checked_question(text, images)
        max_tokens = whole_number(max_tokens, "max_tokens")
        self.usage.add(text, images, max_tokens=max_tokens)
        answer = self.model.ask(text, images, max_tokens=max_tokens)
        if not isinstance(answer, str) or not answer.strip():
            raise AnswerError(f"the model answered nothing to {text[:80]!r}")
        return answer

    def yes(self, text: str, images: Sequence[Pixels]) -> FloatArray:
        """Return the probability in [0, 1] that the model answers yes to `text` about each picture alone, `(n,)`.

        Raises:
            BrokenContract, AnswerError: as `ask`; also if the model answers neither yes nor no.
        """
        text, images = checked_question(text, images)
        self.usage.add(text, images, max_tokens=1, calls=len(images))
        values = np.asarray(self.model.yes(text, images), dtype=np.float64)
        if values.shape != (len(images),) or not ((values >= 0) & (values <= 1)).all():
            raise AnswerError(f"{len(images)} probabilities of yes asked, got {values[:8].tolist()}")
        return values


def checked_question(text: str, images: Sequence[Pixels]) -> tuple[str, list[Pixels]]:
    """Return the text and the images of a question, the images as arrays.

    Raises:
        BrokenContract: a text that is empty, or pictures that are not RGB uint8 `(height, width, 3)`.
    """
    if not isinstance(text, str) or not text.strip():
        raise broken("asks", f"what a model is asked is text, got {text!r}")
    images = [np.asarray(image) for image in images]
    for image in images:
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape:
            raise broken("asks", f"a picture is RGB uint8 (height, width, 3), got {image.dtype} {image.shape}")
    return text, images


@dataclass(frozen=True)
class Undeclared:
    """Stand-in for a model or a generator that a sampler declares not to use; any use raises BrokenContract.

    Args:
        message: message of that error: the use, and the declaration that this use needs.
    """

    message: str

    def __getattr__(self, name: str) -> object:
        """Raise BrokenContract."""
        if name.startswith("__"):
            raise AttributeError(name)  # pickle looks for such methods, which is not a use by the sampler
        raise broken("declares", self.message)
