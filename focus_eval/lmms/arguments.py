"""Splits `--model_args` into ours and the wrapper's, and checks them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from focus_eval.core.errors import InvalidInput, unknown_name
from focus_eval.core.options import checked_values, declared_types, make, option, read_value
from focus_eval.core.types import AnswerParsing, CoarseSeed, FramePolicy

NATIVE = "native"
_QUOTED = re.compile(r"""^(['"])(.*)\1$""", re.DOTALL)
_WITH_OPTIONS = ("sampler", "encoder", "selections")
# Given by lmms-eval beside --model_args; which of them a wrapper takes is its own affair.
_FROM_COMMAND_LINE = ("batch_size", "max_batch_size", "device")


@dataclass(frozen=True, kw_only=True)
class AdapterOptions:
    """The plugin's own arguments, the same for every model.

    Args:
        sampler: a registered frame sampler, or "native": the wrapper's own sampling, untouched.
        sampler_options: given as `sampler.<option>`.
        encoder: encoder of the samplers that pull relevance.
        encoder_options: given as `encoder.<option>`.
        selections: rows of ours or a published index file to replay instead of choosing.
        selections_options: given as `selections.<option>`: format, unit, field, sampler, allow_missing.
        frames: keyframes per question; None for the wrapper's own number.
        seed: first part of every question's generator.
        coarse_seed: "video" lets the questions of a video share their coarse pulls.
        query: what of a question the encoder is given: "question", "question_and_options" or a template with
            {question} and {options}.
        benchmark: a benchmark's name or the YAML file that declares one, for tasks that focus-eval does not know.
        subtitles: true puts the subtitles spoken at the shown frames before the question (LongVideoBench).
        frame_policy: "exact" feeds the keyframes; "aks" feeds what the AKS evaluation code would.
        store: file that keeps what was encoded.
        record: folder for the rows.
        backend: video reader.
        answer_parsing: how the answer in a row is read: "strict", or "lmms_eval" with its random guess, seeded.
        decode_gigabytes: most decoded frames held at once; a batch that needs more is answered in parts.
        max_error_share: more failed questions than this share fail the run at its end.

    Raises:
        InvalidInput: a value of the wrong kind or outside its range.
    """

    sampler: str = ""
    sampler_options: Mapping[str, Any] = field(default_factory=dict)
    encoder: str = ""
    encoder_options: Mapping[str, Any] = field(default_factory=dict)
    selections: str = ""
    selections_options: Mapping[str, Any] = field(default_factory=dict)
    frames: int | None = option(None, at_least=1)
    seed: int = 0
    coarse_seed: CoarseSeed = "question"
    query: str = "question"
    benchmark: str = ""
    subtitles: bool = False
    frame_policy: FramePolicy = "exact"
    store: str = ""
    record: str = "results/runs/lmms"
    backend: str = "pyav"
    answer_parsing: AnswerParsing = "strict"
    decode_gigabytes: float = option(4.0, above=0)
    max_error_share: float = option(0.02, at_least=0, at_most=1)

    def __post_init__(self) -> None:
        for name, value in checked_values("--model_args", self).items():
            object.__setattr__(self, name, value)
        self._check_who_chooses()

    def _check_who_chooses(self) -> None:
        # Both or neither: then it is not said who chooses.
        if bool(self.sampler) == bool(self.selections):
            raise InvalidInput(
                "give either sampler=NAME (sampler=native for the wrapper's own sampling) or selections=FILE, not both"
            )
        if self.selections and not Path(self.selections).exists():
            raise InvalidInput(f"selections={self.selections}: no such file or folder")
        if self.sampler == NATIVE and self.subtitles:
            raise InvalidInput("sampler=native does not say which frames it shows; subtitles=true needs their times")
        if self.sampler == NATIVE and self.frame_policy != "exact":
            raise InvalidInput(
                f"sampler=native leaves the wrapper's own sampling as it is; frame_policy={self.frame_policy} cannot"
            )

    @property
    def is_native(self) -> bool:
        """True where the wrapper samples as it always does."""
        return self.sampler == NATIVE


def split_arguments(
    model: str,
    arguments: Mapping[str, Any],
    base: type,
    *,
    own_options: Callable[..., Any] | None = None,
    passed_on: tuple[str, ...] = (),
) -> tuple[AdapterOptions, dict[str, Any], Any]:
    """Return our options, the wrapper's arguments, and those of the adapter itself, as `own_options`.

    Args:
        model: the model's name, for messages.
        arguments: everything in `--model_args`, and batch size and device.
        base: the wrapper's class; its constructor says what it takes.
        own_options: a dataclass that declares the adapter's own arguments; None where it has none.
        passed_on: further names it takes, for what it builds (an engine).

    Raises:
        UnknownName: an argument nobody takes; the message has the nearest name.
        InvalidInput: a value is invalid.
    """
    plain = [declared.name for declared in fields(AdapterOptions) if not declared.name.endswith("_options")]
    theirs = [*constructor_parameters(base), *passed_on]
    extra = [*declared_types(own_options)] if own_options else []
    ours: dict[str, Any] = {}
    wrapper: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for name, value in arguments.items():
        # `--model_args` is a flat list of pairs, so an option carries the name of what it belongs to.
        head, dot, tail = name.partition(".")
        if dot and head in _WITH_OPTIONS:
            ours.setdefault(f"{head}_options", {})[tail] = value
        elif name in plain:
            ours[name] = value
        elif name in extra:
            own[name] = value
        elif name in theirs or name in _FROM_COMMAND_LINE:
            wrapper[name] = value
        else:
            # An ignored typing error would leave the default in force for a run of hours.
            known = [*plain, *extra, *theirs, "sampler.<option>", "encoder.<option>", "selections.<option>"]
            raise unknown_name(f"argument of {model}:", name, known)
    for name in _FROM_COMMAND_LINE:
        # lmms-eval gives these to every model; a constructor that does not take them would fail.
        if name in wrapper and name not in theirs:
            del wrapper[name]
    made = make(model, own_options, texts(own)) if own_options else None
    plain_texts = texts({name: value for name, value in ours.items() if name in plain})
    return make("--model_args", AdapterOptions, {**ours, **plain_texts}), wrapper, made


def constructor_parameters(base: type) -> list[str]:
    """Return the named parameters of a wrapper's constructor, those it passes on to its parents included."""
    names: dict[str, None] = {}
    for kind in base.__mro__:
        if "__init__" not in vars(kind) or kind is object:
            continue
        parameters = inspect.signature(vars(kind)["__init__"]).parameters.values()
        named = [
            parameter
            for parameter in parameters
            if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        ]
        names.update(dict.fromkeys(parameter.name for parameter in named if parameter.name != "self"))
        # Only a constructor with **kwargs passes names on to its parents.
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            break
    return list(names)


def default_of(base: type, parameter: str) -> Any:
    """Return the default of a parameter of the wrapper's constructor; None where it has none."""
    for kind in base.__mro__:
        if "__init__" in vars(kind):
            found = inspect.signature(vars(kind)["__init__"]).parameters.get(parameter)
            if found is not None:
                return None if found.default is found.empty else found.default
    return None


def texts(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as the text they were on the command line, so that their declared types can read them.

    lmms-eval has already guessed at types: 2 where a float is declared, "none" where None is meant. It leaves the
    quotes on that keep the commas of `sampler='focus:alpha=0.1,clip_seconds=8'` together.
    """
    return {name: value if value is None else _QUOTED.sub(r"\2", str(value)) for name, value in options.items()}


def read_argument(owner: str, name: str, kind: Any, value: Any) -> Any:
    """Return an argument in its declared type `kind`; lmms-eval has already guessed at one.

    Raises:
        InvalidInput: a value of another type; names `owner` and the argument.
    """
    return read_value(owner, name, kind, value if value is None else str(value))
