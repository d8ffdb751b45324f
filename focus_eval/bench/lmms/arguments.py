"""The plugin's arguments: `--model_args` split and checked, and the chooser of frames that they describe."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from focus_eval.bench.answering.choosing import Chooser, SamplerChooser
from focus_eval.bench.answering.replay import ReplayedSelections
from focus_eval.bench.benchmarks.subtitles import SubtitleLayoutOption, SubtitleModeOption
from focus_eval.core.errors import InvalidInput, unknown_name
from focus_eval.core.options import checked_values, declared_types, make, option, read_value
from focus_eval.core.types import AnswerParsing, CoarseSeed, FramePolicy, Timeline
from focus_eval.keyframes.encoders import registry as encoders
from focus_eval.keyframes.encoders.store import RelevanceStore
from focus_eval.keyframes.llms.registry import ready_llm
from focus_eval.keyframes.pipeline.selector import Selector
from focus_eval.keyframes.samplers import registry as samplers

if TYPE_CHECKING:
    from focus_eval.keyframes.encoders.base import Encoder


NATIVE = "native"
OptionsT = TypeVar("OptionsT", bound="SessionOptions")
T = TypeVar("T")
_QUOTED = re.compile(r"""^(['"])(.*)\1$""", re.DOTALL)
_WITH_OPTIONS = ("sampler", "encoder", "selections")
# lmms-eval passes these to every model, beside --model_args; not every wrapper takes all of them.
_FROM_COMMAND_LINE = ("batch_size", "max_batch_size", "device")


@dataclass(frozen=True, kw_only=True)
class SessionOptions:
    """Options of a loaded model that do not depend on the chooser.

    Args:
        decode_gigabytes: memory limit for decoded frames; a batch that needs more is answered in parts.
    """

    decode_gigabytes: float = option(4.0, above=0)

    def __post_init__(self) -> None:
        """Bring the options to their declared types, with InvalidInput for values that cannot be."""
        for name, value in checked_values("--model_args", self).items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, kw_only=True)
class AdapterOptions(SessionOptions):
    """The plugin's own arguments, the same for every model.

    Args:
        sampler: a registered frame sampler, or "native": the wrapper's own sampling, untouched.
        sampler_options: the sampler's options by name, given as `sampler.<option>`.
        encoder: encoder of the samplers that pull relevance.
        encoder_options: the encoder's options by name, given as `encoder.<option>`.
        selections: rows of ours or a published index file to replay instead of choosing.
        selections_options: given as `selections.<option>`: format, unit, field, sampler, allow_missing.
        frames: keyframes per question; None for the wrapper's own number.
        seed: seed of every question's random generator, together with the question.
        coarse_seed: "video" lets the questions of a video share their coarse pulls.
        timeline: "seconds" shows the sampler a video of varying frame rate in equal steps of time.
        query: text of a question for the encoder: "question", "question_and_options" or a template with {question} and
            {options}.
        benchmark: a benchmark's name or the YAML file that declares one, for tasks that focus-eval does not know.
        frame_policy: "exact" feeds the keyframes; "aks" feeds the frames that the AKS evaluation code would feed.
        store: file that keeps computed relevance; "" keeps none.
        record: folder for the rows.
        backend: video reader.
        answer_parsing: parser of the answer in a row: "strict", or "lmms_eval" with its random guess, seeded.
        subtitles: which subtitles a prompt gets: "off" for none, "shown" for those of the shown frames, or "all"; ""
            means "shown" for a task that writes subtitles, and "off" for any other task.
        subtitle_layout: "interleaved" between the pictures, or "block" before the question; "" for the benchmark's.
        max_error_share: largest share of failed questions, 0 to 1; a run with more fails at its end.
        allow_unparsed: true lets lmms-eval's command line end well although no answer could be read.

    Raises:
        InvalidInput: a value of the wrong kind or outside its range.
    """

    sampler: str = ""
    sampler_options: Mapping[str, object] = field(default_factory=dict)
    encoder: str = ""
    encoder_options: Mapping[str, object] = field(default_factory=dict)
    selections: str = ""
    selections_options: Mapping[str, object] = field(default_factory=dict)
    frames: int | None = option(None, at_least=1)
    seed: int = 0
    coarse_seed: CoarseSeed = "question"
    timeline: Timeline = "frames"
    query: str = "question"
    benchmark: str = ""
    frame_policy: FramePolicy = "exact"
    store: str = ""
    record: str = "results/runs/lmms"
    backend: str = "pyav"
    answer_parsing: AnswerParsing = "strict"
    subtitles: SubtitleModeOption = ""
    subtitle_layout: SubtitleLayoutOption = ""
    max_error_share: float = option(0.02, at_least=0, at_most=1)
    allow_unparsed: bool = False

    def __post_init__(self) -> None:
        """Bring the options to their declared types and refuse contradictions, with InvalidInput."""
        super().__post_init__()
        if bool(self.sampler) == bool(self.selections):
            raise InvalidInput(
                "give either sampler=NAME (sampler=native for the wrapper's own sampling) or selections=FILE, not both"
            )
        if self.selections and not Path(self.selections).exists():
            raise InvalidInput(f"selections={self.selections}: no such file or folder")
        if self.sampler == NATIVE and self.frame_policy != "exact":
            raise InvalidInput(
                f"sampler=native leaves the wrapper's own sampling as it is; frame_policy={self.frame_policy} cannot"
            )

    @property
    def is_native(self) -> bool:
        """True if the wrapper samples frames itself."""
        return self.sampler == NATIVE


def split_arguments(
    model: str,
    arguments: Mapping[str, object],
    base: type,
    *,
    kind: type[OptionsT],
    own_options: type | None = None,
    passed_on: tuple[str, ...] = (),
) -> tuple[OptionsT, dict[str, object], object]:
    """Return (options of `kind`, the wrapper's arguments by name, an instance of `own_options` or None).

    Args:
        model: the model's name, for messages.
        arguments: everything in `--model_args`, and batch size and device.
        base: the wrapper's class, whose constructor declares its arguments.
        kind: `AdapterOptions`, or `SessionOptions` if the caller has chosen the frames.
        own_options: a dataclass that declares the adapter's own arguments; None if it has none.
        passed_on: names of further arguments that the wrapper passes on (to an engine).

    Raises:
        UnknownName: an argument that nothing takes; the message has the nearest name.
        InvalidInput: a value is invalid.
    """
    declared_names = [declared.name for declared in fields(kind)]
    plain_names = [name for name in declared_names if not name.endswith("_options")]
    owners = [name for name in _WITH_OPTIONS if f"{name}_options" in declared_names]
    wrapper_parameters = [*constructor_parameters(base), *passed_on]
    adapter_names = [*declared_types(own_options)] if own_options else []
    plugin_arguments: dict[str, object] = {}
    plugin_options: dict[str, dict[str, object]] = {}
    wrapper_arguments: dict[str, object] = {}
    adapter_arguments: dict[str, object] = {}
    for name, value in arguments.items():
        # `--model_args` is a flat list of pairs, so `sampler.alpha` is the option `alpha` of the sampler.
        head, dot, tail = name.partition(".")
        if dot and head in owners:
            plugin_options.setdefault(f"{head}_options", {})[tail] = value
        elif name in plain_names:
            plugin_arguments[name] = value
        elif name in adapter_names:
            adapter_arguments[name] = value
        elif name in wrapper_parameters or name in _FROM_COMMAND_LINE:
            wrapper_arguments[name] = value
        else:
            # If a misspelt name were ignored, a run of hours would use the default.
            known_names = [
                *plain_names,
                *adapter_names,
                *wrapper_parameters,
                *(f"{owner}.<option>" for owner in owners),
            ]
            raise unknown_name(f"argument of {model}:", name, known_names)
    for name in _FROM_COMMAND_LINE:
        # Leave out arguments that the constructor does not take: it would raise an error.
        if name in wrapper_arguments and name not in wrapper_parameters:
            del wrapper_arguments[name]
    adapter_options = make(model, own_options, texts(adapter_arguments)) if own_options else None
    options = make("--model_args", kind, {**texts(plugin_arguments), **plugin_options})
    return options, wrapper_arguments, adapter_options


def constructor_parameters(base: type) -> list[str]:
    """Return the named parameters of a wrapper's constructor, and of its parents if it takes `**kwargs`."""
    names: dict[str, None] = {}
    for base_class in base.__mro__:
        if "__init__" not in vars(base_class) or base_class is object:
            continue
        parameters = inspect.signature(vars(base_class)["__init__"]).parameters.values()
        named_parameters = [
            parameter
            for parameter in parameters
            if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        ]
        names.update(dict.fromkeys(parameter.name for parameter in named_parameters if parameter.name != "self"))
        # Only a constructor with **kwargs passes names on to its parents.
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            break
    return list(names)


def default_of(base: type, parameter: str) -> object:
    """Return the default of the wrapper's constructor for `parameter`; None without a default or such a parameter."""
    for kind in base.__mro__:
        if "__init__" in vars(kind):
            declared = inspect.signature(vars(kind)["__init__"]).parameters.get(parameter)
            if declared is not None:
                return None if declared.default is declared.empty else declared.default
    return None


def texts(options: Mapping[str, object]) -> dict[str, str | None]:
    """Return the options with values as command-line text, outer quotes removed; None stays None.

    lmms-eval has already guessed at types, such as an int where a float is declared. It keeps the quotes that hold
    the commas of `sampler='focus:alpha=0.1,clip_seconds=8'` together.
    """
    return {name: value if value is None else _QUOTED.sub(r"\2", str(value)) for name, value in options.items()}


def number_argument(model: str, arguments: Mapping[str, object], name: str) -> int | None:
    """Return a whole number among a wrapper's arguments; None if it is not given.

    Raises:
        InvalidInput: a value that is not a whole number.
    """
    value = arguments.get(name)
    return None if value is None else read_argument(model, name, int, value)


def read_argument(owner: str, name: str, kind: type[T], value: object) -> T:
    """Return `value`, whose type lmms-eval guessed, converted to the declared type `kind`.

    Raises:
        InvalidInput: a value of another type; the message names `owner` and the argument.
    """
    argument = read_value(owner, name, kind, str(value))
    assert isinstance(argument, kind)
    return argument


def make_chooser(options: AdapterOptions, *, frames: int) -> Chooser | None:
    """Return the chooser that `options` describe, with its encoders loaded; None for the wrapper's own sampling.

    Raises:
        UnknownName: an unknown sampler, encoder or option; the message has the nearest one.
        InvalidInput: a value outside its range, an option without effect, or a sampler that pulls without an encoder.
        FocusEvalError: selections that cannot be replayed, or a model that the sampler asks and that is not there.
    """
    encoder = encoders.read_encoder(options.encoder, texts(options.encoder_options)) if options.encoder else None
    if encoder is None and options.encoder_options:
        raise InvalidInput(f"encoder.{next(iter(options.encoder_options))} is given, but no encoder")
    if options.is_native or options.selections:
        chooser = "sampler=native" if options.is_native else "selections="
        # Refuse sampler options and encoders, because a user would think that they had an effect.
        for name, value in (("sampler options", options.sampler_options), ("encoder", options.encoder)):
            if value:
                raise InvalidInput(f"{chooser} does not choose frames itself; remove the {name}")
        if options.is_native:
            return None
        return ReplayedSelections(Path(options.selections), frames=frames, options=texts(options.selections_options))
    # Check everything before the first encoder loads.
    sampler = samplers.make_sampler(options.sampler, **texts(options.sampler_options))
    scan_encoder = encoders.scan_encoder_of(sampler) if sampler.needs_scan else None
    llm = ready_llm(sampler) if sampler.needs_llm else None
    if sampler.needs_encoder and encoder is None:
        names = ", ".join(encoders.ENCODERS.names())
        raise InvalidInput(f"sampler {options.sampler!r} needs an encoder: set encoder= to one of {names}")
    selector = Selector(
        sampler=sampler,
        encoder=_on_own_device(*encoder) if encoder is not None and sampler.needs_encoder else None,
        scan_encoder=_on_own_device(*scan_encoder) if scan_encoder is not None else None,
        llm=llm,
        k=frames,
        seed=options.seed,
        store=store_of(options),
        backend=options.backend,
        coarse_seed=options.coarse_seed,
        timeline=options.timeline,
        query=options.query,
    )
    return SamplerChooser(selector)


def store_of(options: AdapterOptions) -> RelevanceStore | None:
    """Return the store of relevance that the options name; None without one."""
    return RelevanceStore(Path(options.store)) if options.store else None


def _on_own_device(name: str, options: dict[str, object]) -> Encoder:
    """Make the encoder `name`; on a rank above 0 it gets the rank's own GPU unless `options` name a device."""
    local_rank = os.environ.get("LOCAL_RANK", "0")
    if local_rank != "0" and "device" not in options and "device" in declared_types(encoders.ENCODERS.load(name)):
        import torch

        if torch.cuda.is_available():
            options = {**options, "device": f"cuda:{local_rank}"}
    return encoders.make_encoder(name, **options)
