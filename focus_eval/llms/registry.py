"""Lists the models that can be asked, and makes one by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, cast

from focus_eval.core.errors import FocusEvalError, InvalidInput, PluginError
from focus_eval.core.options import declared_types, make, named_options, named_text, read_options
from focus_eval.core.plugins import Registry, classes_in
from focus_eval.llms.protocol import AnswersFromEvidence, Model
from focus_eval.rows.identity import effective_arguments
from focus_eval.rows.records import forward_gmacs

_NO_REPLY_CHANGES = ("key", "offline", "parameters", "cost")


def _check(loaded: Any, label: str) -> Any:
    """Return the loaded class if it has the methods of a model to ask; raise PluginError otherwise."""
    if not isinstance(loaded, type) or not all(hasattr(loaded, name) for name in ("ask", "yes", "check", "close")):
        raise PluginError(f"{label} is not a model to ask; see focus_eval.llms.protocol")
    return loaded


LLMS: Registry[Any] = Registry(
    "llm",
    group="focus_eval.llms",
    built_in=classes_in("focus_eval.llms", name_of=lambda facts: str(facts.get("model_id", ""))),
    check=_check,
)


class SupportsModel(Protocol):
    """A sampler that may ask a model, named in its attribute `llm`."""

    name: ClassVar[str]
    needs_llm: ClassVar[bool]


def make_llm(name: str, **options: Any) -> Model:
    """Return the model `name` with `options`, the rest at their defaults; the service is not called.

    Args:
        name: a registered name; options may follow, after commas or semicolons: `chat:model=gpt-4o-mini;max_cost=2`.

    Raises:
        UnknownName, InvalidInput: no such model or option, or a value outside its range.
        MissingDependency: a package it needs is not installed; the message names the install command.
    """
    name, values = _named(name, options)
    kind = LLMS.load(name)
    with LLMS.name_missing_extra(name):
        return cast(Model, make(f"llm {name!r}", kind, values))


def _named(text: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return name and all options of NAME:OPTIONS, with commas or semicolons between options."""
    # Inside the options of a sampler a comma would end the model's name.
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

    The revision is "not here" and the reason if the model cannot be made; preflight reports that too.
    """
    if not sampler.needs_llm:
        return {}
    text = str(getattr(sampler, "llm", ""))
    try:
        revision = cast(Model, llm_of(sampler)).revision
    except FocusEvalError as error:
        revision = f"not here: {error}"
    return {"llm": text.partition(":")[0], "llm_revision": revision}


def llm_token_gmacs(sampler: SupportsModel, encoders: Mapping[str, float]) -> dict[str, float]:
    """Return `token_gmacs` of the model that `sampler` asks; {} if it asks none or it cannot be made."""
    try:
        model = llm_of(sampler)
    except FocusEvalError:  # preflight says what is missing
        return {}
    return {} if model is None else token_gmacs(model, encoders)


def token_gmacs(model: Model, encoders: Mapping[str, float]) -> dict[str, float]:
    """Return {"llm_token": cost of a token in 10^9 multiply-adds}; {} if the cost is not known.

    Args:
        encoders: `gmacs` of the run's encoders; a scripted model states its cost in their forwards.
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
    """Return the option `llm` of `sampler`; raise InvalidInput if it is empty."""
    text = str(getattr(sampler, "llm", ""))
    if not text:
        names = ", ".join(LLMS.names())
        raise InvalidInput(f"sampler {sampler.name!r} asks a model: name it with llm=NAME, one of {names}")
    return text
