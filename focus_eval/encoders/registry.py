"""Lists the encoders, makes one by name, and says what exactly gives relevance."""

from __future__ import annotations

import importlib
import inspect
import json
import typing
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from focus_eval.core.errors import EncoderError, FocusEvalError, InvalidInput, MissingDependency, unknown_name
from focus_eval.core.options import read_options
from focus_eval.encoders.protocol import AnyScorer

ENTRY_POINT_GROUP = "focus_eval.encoders"

# name -> ("module:Class", the extra that brings what the module imports)
_OURS: dict[str, tuple[str, str]] = {
    "offline": ("focus_eval.encoders.offline:OfflineScorer", "offline"),
    "recorded": ("focus_eval.encoders.recorded:RecordedScorer", ""),
    "blip": ("focus_eval.encoders.blip:BlipScorer", "encoders"),
    "clip": ("focus_eval.encoders.dual_encoder:ClipScorer", "encoders"),
    "siglip": ("focus_eval.encoders.dual_encoder:SiglipScorer", "encoders"),
    "longclip": ("focus_eval.encoders.dual_encoder:LongClipScorer", "encoders"),
    "metaclip2": ("focus_eval.encoders.dual_encoder:MetaClip2Scorer", "encoders"),
    "aimv2": ("focus_eval.encoders.dual_encoder:Aimv2Scorer", "encoders"),
    "siglip2": ("focus_eval.encoders.dual_encoder:Siglip2Scorer", "encoders"),
    "blip2": ("focus_eval.encoders.blip2:Blip2Scorer", "encoders"),
}


def encoder_names() -> list[str]:
    """Return the names of our encoders and of installed plugins, sorted; loads none of them.

    Raises:
        EncoderError: a plugin takes a name that is taken.
    """
    return sorted([*_OURS, *_plugins()])


def make_encoder(name: str, **options: Any) -> AnyScorer:
    """Return the encoder `name` with `options`, the rest at their defaults; its weights load now or at first use.

    Options are the keyword arguments of the encoder's constructor. A string for an option of another type is
    read as on a command line ("8" for an int, "none" for None).

    Raises:
        UnknownName: no such encoder or option; the message has the nearest name.
        InvalidInput: an option of the wrong kind or outside its range.
        MissingDependency: the extra that the encoder needs is not installed; the message names the install command.
        EncoderError: a plugin that cannot be loaded or makes no encoder.
    """
    made = encoder_class(name)
    values = parse_options(name, options)
    try:
        inspect.signature(made).bind(**values)
    except TypeError as error:
        raise InvalidInput(f"encoder {name!r}: {error}; its options: {', '.join(encoder_options(name))}") from error
    try:
        scorer = made(**values)
    except ModuleNotFoundError as error:
        raise _missing(name, error) from error
    if not all(hasattr(scorer, needed) for needed in ("name", "revision", "close")):
        raise EncoderError(f"encoder {name!r}: {made.__module__}.{made.__qualname__} does not make an encoder")
    return typing.cast(AnyScorer, scorer)


def encoder_revision(name: str, options: Mapping[str, Any]) -> str:
    """Return the `revision` that `make_encoder(name, **options)` has: what gives relevance, exactly.

    An encoder with a class method `revision_of` says it without loading its weights; any other is made and asked, once
    for each state of the files among its options. "not here" and the reason where it could not be made.
    """
    try:
        made, values = encoder_class(name), parse_options(name, options)
        files = [Path(value).expanduser() for value in values.values() if isinstance(value, (str, Path)) and value]
        return _revision(made, name, json.dumps(values, sort_keys=True, default=str), _stamps(files))
    except FocusEvalError as error:  # no run starts from that: preflight says what is missing
        return f"not here: {error}"


@lru_cache(maxsize=256)
def _revision(made: Any, name: str, options: str, stamps: tuple[tuple[str, int, int], ...]) -> str:
    values = parse_options(name, json.loads(options))
    if hasattr(made, "revision_of"):
        return str(made.revision_of(**values))
    encoder = make_encoder(name, **values)
    try:
        return encoder.revision
    finally:
        encoder.close()


def _stamps(files: Iterable[Path]) -> tuple[tuple[str, int, int], ...]:
    """Return what changes when one of `files`, or a file in a folder among them, does."""
    found = []
    for path in files:
        for file in [path, *sorted(path.iterdir())] if path.is_dir() else [path]:
            if file.exists():
                stat = file.stat()
                found.append((str(file), stat.st_size, stat.st_mtime_ns))
    return tuple(found)


def encoder_class(name: str) -> type[Any]:
    """Return the class registered as `name`, importing what it needs. Raises as `make_encoder`."""
    plugins = _plugins()
    if name in plugins:
        return _load_plugin(plugins[name])
    if name not in _OURS:
        raise unknown_name("encoder", name, [*_OURS, *plugins])
    module, _, attribute = _OURS[name][0].partition(":")
    try:
        return typing.cast("type[Any]", getattr(importlib.import_module(module), attribute))
    except ModuleNotFoundError as error:
        raise _missing(name, error) from error


def encoder_options(name: str) -> dict[str, inspect.Parameter]:
    """Return the constructor's parameters of the encoder `name` by name, in order. Raises as `make_encoder`."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {
        key: parameter
        for key, parameter in inspect.signature(encoder_class(name)).parameters.items()
        if parameter.kind in kinds
    }


def parse_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return `options` of the encoder `name`, text read as the type its option is annotated with.

    Raises:
        UnknownName: an option the encoder does not have.
        InvalidInput: a value of another type.
    """
    made = encoder_class(name)
    hints = typing.get_type_hints(made if "__init__" not in vars(made) else made.__init__)
    known = {option: hints.get(option, Any) for option in encoder_options(name)}
    return read_options(f"encoder {name!r}", known, options)


@cache
def _plugins() -> dict[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: (entry.name, entry.value)):
        if point.name in _OURS or point.name in found:
            raise EncoderError(f"encoder plugin {point.name!r} ({point.value}): the name is taken")
        found[point.name] = point
    return found


def _load_plugin(point: EntryPoint) -> type[Any]:
    try:
        loaded = point.load()
    except Exception as error:  # a plugin may fail in any way; the error names it
        raise EncoderError(f"encoder plugin {point.name!r} ({point.value}) cannot be loaded: {error}") from error
    if not isinstance(loaded, type):
        raise EncoderError(f"encoder plugin {point.name!r} ({point.value}) is not a class")
    return loaded


def _missing(name: str, error: ModuleNotFoundError) -> Exception:
    if (error.name or "").partition(".")[0] == "focus_eval":  # a mistake of ours, no missing extra
        return error
    extra = _OURS[name][1] if name in _OURS else ""
    if extra:
        return MissingDependency(f'encoder {name!r} needs {error.name}: pip install "focus-eval[{extra}]"')
    return MissingDependency(f"encoder {name!r} needs {error.name}, which is not installed")
