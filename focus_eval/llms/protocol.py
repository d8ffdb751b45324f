"""The protocol of models that samplers ask: text and pictures go in, a reply with its usage comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar, Protocol, runtime_checkable

from focus_eval.core.errors import AnswerError, InvalidInput
from focus_eval.core.types import ExampleReplies, Pixels


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A model's answer and its usage.

    Args:
        text: the answer.
        yes: probability in [0, 1] that the first word is yes rather than no; None if not requested.
        usage: "requests", "input" and "output" tokens and "dollars", as far as they are known.
    """

    text: str = ""
    yes: float | None = None
    usage: dict[str, float] = field(default_factory=dict)


class Model(Protocol):
    """A model that is asked; the same question gives the same reply as far as its service allows.

    Attributes:
        model_id: registered name.
        revision: model and every option that can change a reply, as one readable line; part of a selection's identity.
    """

    model_id: ClassVar[str]
    revision: str

    @property
    def at_once(self) -> int:
        """Number of questions that the model answers at the same time."""
        ...

    @property
    def gmacs_per_token(self) -> float | None:
        """10^9 multiply-adds of one token: one per parameter; None if the number of parameters is not known."""
        ...

    @property
    def tokens_per_image(self) -> int | None:
        """Most tokens of a picture; None if its size is not limited."""
        ...

    def ask(self, text: str, images: Sequence[Pixels], *, max_tokens: int) -> Reply:
        """Return the reply to `text` and all `images`, RGB uint8 `(height, width, 3)`, together.

        Raises:
            AnswerError: no usable answer; its attribute `usage` holds the spending, if known.
            RunError: the spending limit is reached.
        """
        ...

    def yes(self, text: str, image: Pixels) -> Reply:
        """Return the reply to a yes-no question `text` about one picture, with `Reply.yes` set. Raises as `ask`."""
        ...

    def price(self, input_tokens: float, output_tokens: float) -> float | None:
        """Return the price of the tokens in dollars; None without prices."""
        ...

    def check(self) -> None:
        """Raise FocusEvalError, with the remedy, if the model cannot serve a run: no key, a service that is down."""
        ...

    def close(self) -> None:
        """Release weights and connections."""
        ...


@runtime_checkable
class AnswersFromEvidence(Protocol):
    """A model that reads the annotation and answers with a set accuracy, for simulations.

    Attributes:
        cost_per_token: cost of a token in encoder forwards, used if `gmacs_per_token` is None.
    """

    cost_per_token: float

    def for_question(self, query: str, evidence_seconds: Sequence[float], *, reply: ExampleReplies) -> Model:
        """Return a copy of the model for one question.

        Args:
            query: text of the question.
            evidence_seconds: annotated times of the evidence.
            reply: answer by text; "" for the words of `query`, or for yes or no to pictures.
        """
        ...


@runtime_checkable
class TakesPictureTimes(Protocol):
    """A scripted model that needs the time of each picture."""

    def note_time(self, picture: Pixels, seconds: float) -> None:
        """Remember that `picture` lies at `seconds` of the video."""
        ...


def check_limits(
    model: str, *, above: float = -inf, at_least: float = -inf, at_most: float = inf, **values: float | None
) -> None:
    """Raise InvalidInput for the first of `values` (option name to number) outside the range or NaN; None passes.

    `model` is the model's registered name, for the message.
    """
    limits = {"above": above, "at least": at_least, "at most": at_most}
    limits_text = " and ".join(f"{name} {limit:g}" for name, limit in limits.items() if abs(limit) < inf)
    for name, value in values.items():
        if value is not None and not (above < value and at_least <= value <= at_most):
            raise InvalidInput(f"llm {model}: {name} must be {limits_text}, got {value:g}")


def yes_of(probabilities: Sequence[tuple[str, float]], answer: str) -> float:
    """Return P(yes) / (P(yes) + P(no)) of the first word; ignores case, blanks and punctuation.

    Args:
        probabilities: (token, probability) of each candidate for the first word.
        answer: the model's text, for the message.

    Raises:
        AnswerError: no candidate is yes or no.
    """
    mass = {"yes": 0.0, "no": 0.0}
    for token, probability in probabilities:
        word = token.strip(" \t\n\r▁Ġ.,!\"'*").lower()
        if word in mass:
            mass[word] += probability
    if not sum(mass.values()) > 0:
        raise AnswerError(f"asked for yes or no, the model's first word is neither: {answer[:80]!r}")
    return min(1.0, mass["yes"] / sum(mass.values()))
