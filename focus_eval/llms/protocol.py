"""The protocol of models that are asked: text and pictures go in, a reply with its cost comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar, Protocol, runtime_checkable

from focus_eval.core.errors import AnswerError, InvalidInput
from focus_eval.core.types import Picture


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What a model answered, and what that took.

    Args:
        text: the answer.
        yes: probability in [0, 1] of yes rather than no as its first word; None where it was not asked for.
        usage: "requests", "input" and "output" tokens and "dollars", as far as they are known.
    """

    text: str = ""
    yes: float | None = None
    usage: dict[str, float] = field(default_factory=dict)


class Model(Protocol):
    """A model that is asked; the same question gives the same reply as far as its service allows.

    Attributes:
        model_id: registered name.
        revision: all that can change a reply, as one readable line; part of a selection's identity.
    """

    model_id: ClassVar[str]
    revision: str

    @property
    def at_once(self) -> int:
        """Questions that it answers at once."""
        ...

    @property
    def gmacs_per_token(self) -> float | None:
        """10^9 multiply-adds of one token: one per parameter; None where the number of parameters is not known."""
        ...

    @property
    def tokens_per_image(self) -> int | None:
        """Most tokens of a picture; None where no size limits them."""
        ...

    def ask(self, text: str, images: Sequence[Picture], *, max_tokens: int) -> Reply:
        """Return the reply to `text` and all `images`, RGB uint8 `(height, width, 3)`, together.

        Raises:
            AnswerError: no usable answer; has the attribute `usage` where it is known what was spent.
            RunError: enough is spent.
        """
        ...

    def yes(self, text: str, image: Picture) -> Reply:
        """Return the reply about one picture, with its `yes`. Raises as `ask`."""
        ...

    def price(self, input_tokens: float, output_tokens: float) -> float | None:
        """Return the dollars of so many tokens; None without prices."""
        ...

    def check(self) -> None:
        """Refuse to begin a run that the model cannot serve: no key, a service that is down.

        Raises:
            FocusEvalError: one line that says what to do.
        """
        ...

    def close(self) -> None:
        """Release weights and connections."""
        ...


@runtime_checkable
class StandsIn(Protocol):
    """A scripted model: it has the annotation before it, and answers as well as it was told to.

    Attributes:
        cost_per_token: in forwards of the encoder at hand, where it states no parameters.
    """

    cost_per_token: float

    def for_question(self, query: str, evidence_seconds: Sequence[float], *, reply: str) -> Model:
        """Return the model of one question; `reply` is what it says to a text alone, "" for a list of its own."""
        ...


@runtime_checkable
class SeesTimes(Protocol):
    """A scripted model that must be told of which moment a picture is."""

    def saw(self, picture: Picture, seconds: float) -> None:
        """Remember `picture`, which the sampler looked at."""
        ...


def checked(
    model: str, *, above: float = -inf, at_least: float = -inf, at_most: float = inf, **values: float | None
) -> None:
    """Refuse options out of their range; None is none given.

    Raises:
        InvalidInput: the first that is not within; a number that is none is not.
    """
    limits = {"above": above, "at least": at_least, "at most": at_most}
    said = " and ".join(f"{name} {limit:g}" for name, limit in limits.items() if abs(limit) < inf)
    for name, value in values.items():
        if value is not None and not (above < value and at_least <= value <= at_most):
            raise InvalidInput(f"llm {model}: {name} must be {said}, got {value:g}")


def yes_of(probabilities: Sequence[tuple[str, float]], answer: str) -> float:
    """Return P(yes) / (P(yes) + P(no)) of the first word's `probabilities` by token; case and blanks aside.

    Raises:
        AnswerError: neither is among them.
    """
    mass = {"yes": 0.0, "no": 0.0}
    for token, probability in probabilities:
        word = token.strip(" \t\n\r▁Ġ.,!\"'*").lower()
        if word in mass:
            mass[word] += probability
    if not sum(mass.values()) > 0:
        raise AnswerError(f"asked for yes or no, the model's first word is neither: {answer[:80]!r}")
    return min(1.0, mass["yes"] / sum(mass.values()))
