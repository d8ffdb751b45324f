"""The models that samplers ask: their protocol, their list, and how one is made by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar, Protocol, runtime_checkable

from focus_eval.core.errors import AnswerError, FocusEvalError, InvalidInput, PluginError
from focus_eval.core.options import declared_types, make, named_options, named_text, read_options
from focus_eval.core.plugins import Registry, classes_in
from focus_eval.core.types import ExampleReplies, Pixels
from focus_eval.keyframes.rows.identity import effective_arguments
from focus_eval.keyframes.rows.records import forward_gmacs


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
        """Largest number of tokens of a picture; None if the size of pictures is not limited."""
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
        cost_per_token: cost of a token in forwards of the run's encoder, used if `gmacs_per_token` is None.
    """

    cost_per_token: float

    def for_question(self, query: str, evidence_seconds: Sequence[float], *, reply: ExampleReplies) -> Model:
        """Return a copy of the model for one question.

        Args:
            query: text of the question.
            evidence_seconds: annotated times of the evidence.
            reply: replies to texts, as in `FrameSampler.example_reply`. If "", the model answers a text with the words
                of `query`, and pictures with yes or no.
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


_NO_REPLY_CHANGES = ("key", "offline", "parameters", "cost")


def _check(loaded: object, label: str) -> type[Model]:
    """The loaded class if it has the methods of a model to ask; raises PluginError otherwise."""
    if not isinstance(loaded, type) or not all(hasattr(loaded, name) for name in ("ask", "yes", "check", "close")):
        raise PluginError(f"{label} is not a model to ask; see focus_eval.keyframes.llms.registry")
    return loaded


LLMS: Registry[type[Model]] = Registry(
    "llm",
    group="focus_eval.llms",
    built_in=classes_in("focus_eval.keyframes.llms", name_of=lambda facts: str(facts.get("model_id", ""))),
    check=_check,
)


class SupportsModel(Protocol):
    """A sampler that may ask a model, named in its attribute `llm`."""

    name: ClassVar[str]
    needs_llm: ClassVar[bool]


def make_llm(name: str, **options: object) -> Model:
    """Return the model `name` with `options`; options that are not given keep their defaults. Calls no service.

    Args:
        name: a registered name; options may follow, after commas or semicolons: `chat:model=gpt-4o-mini;max_cost=2`.

    Raises:
        UnknownName, InvalidInput: no such model or option, or a value outside its range.
        MissingDependency: a package it needs is not installed; the message names the install command.
    """
    name, values = _named(name, options)
    kind = LLMS.load(name)
    with LLMS.name_missing_extra(name):
        return make(f"llm {name!r}", kind, values)


def _named(text: str, options: dict[str, object]) -> tuple[str, dict[str, object]]:
    """Name and all options of NAME:OPTIONS, with commas or semicolons between options."""
    # Options of a model may be separated by `;`, because within a sampler's options a comma ends the model's text.
    return named_options(text.replace(";", ","), options)


def check_llm(sampler: SupportsModel) -> None:
    """Raise an error if the model of `sampler` is not named, is unknown or has unknown options; makes no model.

    Raises:
        FocusEvalError: as `make_llm`.
    """
    if sampler.needs_llm:
        name, values = _named(_text_of(sampler), {})
        kind = LLMS.load(name)
        read_options(f"llm {name!r}", declared_types(kind), values)


def llm_of(sampler: SupportsModel) -> Model | None:
    """Return the model that `sampler` asks; None if it asks none. Raises as `make_llm`."""
    return make_llm(_text_of(sampler)) if sampler.needs_llm else None


def llm_text(text: str) -> str:
    """Return the model's name and options for rows and tables, without options that cannot change a reply.

    `text` is NAME:OPTIONS as for `make_llm`; "" gives "".
    """
    name, values = _named(text, {})
    arguments = {key: value for key, value in effective_arguments(values).items() if key not in _NO_REPLY_CHANGES}
    return named_text(name, arguments) if name else ""


def llm_identity(sampler: SupportsModel) -> dict[str, str]:
    """Return "llm" (name) and "llm_revision" of the model that `sampler` asks; {} if it asks none.

    If the model cannot be made, the revision is "not here" and the reason; preflight reports the same reason.
    """
    if not sampler.needs_llm:
        return {}
    text = str(getattr(sampler, "llm", ""))
    try:
        model = llm_of(sampler)
        assert model is not None  # `needs_llm` is true
        revision = model.revision
    except FocusEvalError as error:
        revision = f"not here: {error}"
    return {"llm": text.partition(":")[0], "llm_revision": revision}


def llm_token_gmacs(sampler: SupportsModel, encoders: Mapping[str, float]) -> dict[str, float]:
    """Return `token_gmacs` of the model that `sampler` asks; {} if it asks none or it cannot be made."""
    try:
        model = llm_of(sampler)
    except FocusEvalError:  # not raised here: preflight reports these errors
        return {}
    return {} if model is None else token_gmacs(model, encoders)


def token_gmacs(model: Model, encoders: Mapping[str, float]) -> dict[str, float]:
    """Return {"llm_token": cost of a token in 10^9 multiply-adds}; {} if the cost is not known.

    Args:
        encoders: `gmacs` of the run's encoders, needed for a scripted model, which states its cost in their forwards.
    """
    token, forward = model.gmacs_per_token, forward_gmacs(encoders)
    if token is None and isinstance(model, AnswersFromEvidence) and forward:
        token = model.cost_per_token * forward
    return {} if token is None else {"llm_token": token}


def ready_llm(sampler: SupportsModel) -> Model | None:
    """Return the model that `sampler` asks, after checking that it can be reached; None if it asks none.

    Raises:
        FocusEvalError: the model cannot serve a run.
    """
    model = llm_of(sampler)
    if model is not None:
        model.check()
    return model


def _text_of(sampler: SupportsModel) -> str:
    """The option `llm` of `sampler`; raises InvalidInput if it is empty."""
    text = str(getattr(sampler, "llm", ""))
    if not text:
        names = ", ".join(LLMS.names())
        raise InvalidInput(f"sampler {sampler.name!r} asks a model: name it with llm=NAME, one of {names}")
    return text
