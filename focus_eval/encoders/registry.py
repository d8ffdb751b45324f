"""Lists the encoders, makes one by name, and says what exactly gives relevance."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast

from focus_eval.core.errors import FocusEvalError, InvalidInput, PluginError
from focus_eval.core.options import declared_types, make, named_options, read_options
from focus_eval.core.plugins import Registry, classes_in
from focus_eval.encoders.protocol import AnyScorer


def _check(loaded: Any, label: str) -> Any:
    if not isinstance(loaded, type):
        raise PluginError(f"{label} is not a class")
    if not hasattr(loaded, "close"):
        raise PluginError(f"{label} is not an encoder; see focus_eval.encoders.protocol")
    return loaded


# What of an encoder is asked before it is imported stands in its class as literals: `extra`, the extra that brings its
# packages; `model_type`, what a checkpoint's config must state; `default_checkpoint`; `checkpoints`, the published ones
# by name (see `weights.Checkpoint`); `needs_gpu`.
ENCODERS: Registry[Any] = Registry(
    "encoder", group="focus_eval.encoders", built_in=classes_in("focus_eval.encoders", "focus_eval.llms"), check=_check
)


def make_encoder(name: str, **options: Any) -> AnyScorer:
    """Return the encoder `name` with `options`, the rest at their defaults; its weights load now or at first use.

    Args:
        name: a registered name; options may follow: `clip:checkpoint=clip-vit-large-patch14,device=cpu`.
        options: keyword arguments of the encoder's constructor; text is read in the type that the option declares.

    Raises:
        UnknownName: no such encoder or option; the message has the nearest name.
        InvalidInput: an option of the wrong kind or outside its range.
        MissingDependency: the extra that the encoder needs is not installed; the message names the install command.
        PluginError: a plugin that cannot be loaded or makes no encoder.
    """
    name, values = named_options(name, options)
    kind = ENCODERS.load(name)
    with ENCODERS.naming_extras(name):
        scorer = make(f"encoder {name!r}", kind, values)
    if not all(hasattr(scorer, needed) for needed in ("name", "revision")):
        raise PluginError(f"encoder {name!r}: {kind.__module__}.{kind.__qualname__} has no name or no revision")
    return cast(AnyScorer, scorer)


def read_encoder(name: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the encoder's registered name and its options in their declared types; makes nothing.

    Raises:
        UnknownName, InvalidInput, MissingDependency, PluginError: as `make_encoder`.
    """
    name, values = named_options(name, options)
    return name, read_options(f"encoder {name!r}", declared_types(ENCODERS.load(name)), values)


def encoder_gmacs_of(name: str, options: Mapping[str, Any]) -> dict[str, float]:
    """Return the `gmacs` that `make_encoder(name, **options)` has, without its weights; {} where they are not known."""
    try:
        name, values = read_encoder(name, options)
        made = ENCODERS.load(name)
        return dict(made.gmacs_of(**values)) if hasattr(made, "gmacs_of") else {}
    except FocusEvalError:  # no weights, so no configuration either: preflight says what is missing
        return {}


class MayScan(Protocol):
    """A sampler; one that scans has an option `scan_encoder`."""

    name: ClassVar[str]
    needs_scan: ClassVar[bool]


def scan_encoder_of(sampler: MayScan) -> tuple[str, dict[str, Any]] | None:
    """Return name and options of the encoder that `sampler` scans with; None where it does not scan.

    Raises:
        InvalidInput: none is named.
        UnknownName, MissingDependency, PluginError: as `read_encoder`.
    """
    if not sampler.needs_scan:
        return None
    named = getattr(sampler, "scan_encoder", "")
    if not named:
        raise InvalidInput(
            f"sampler {sampler.name!r} scans with a second, cheap encoder: name it with scan_encoder=NAME, "
            f"one of {', '.join(ENCODERS.names())}"
        )
    return read_encoder(named, {})


def make_scan_encoder(sampler: MayScan) -> AnyScorer | None:
    """Return the encoder that `sampler` scans with; None where it does not scan.

    Raises:
        FocusEvalError: as `scan_encoder_of` and `make_encoder`.
    """
    named = scan_encoder_of(sampler)
    return make_encoder(named[0], **named[1]) if named else None


def encoder_revision(name: str, options: Mapping[str, Any]) -> str:
    """Return the `revision` that `make_encoder(name, **options)` has: what gives relevance, exactly.

    An encoder with a class method `revision_of` says it without loading its weights; any other is made and asked, once
    for each state of the files among its options. "not here" and the reason where it could not be made.
    """
    try:
        name, values = read_encoder(name, options)
        files = [Path(value).expanduser() for value in values.values() if isinstance(value, (str, Path)) and value]
        return _revision(ENCODERS.load(name), name, json.dumps(values, sort_keys=True, default=str), _stamps(files))
    except FocusEvalError as error:  # no run starts from that: preflight says what is missing
        return f"not here: {error}"


@lru_cache(maxsize=256)
def _revision(made: Any, name: str, options: str, stamps: tuple[tuple[str, int, int], ...]) -> str:
    _, values = read_encoder(name, json.loads(options))
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
