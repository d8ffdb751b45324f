"""Lists the encoders, makes one by name, and identifies its weights and options."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar, Protocol

from focus_eval.core.errors import FocusEvalError, InvalidInput, PluginError
from focus_eval.core.options import declared_types, make, named_options, read_options
from focus_eval.core.plugins import Registry, check_derived, classes_in
from focus_eval.keyframes.encoders.base import Encoder

ENCODERS: Registry[type[Encoder]] = Registry(
    "encoder",
    group="focus_eval.encoders",
    built_in=classes_in("focus_eval.keyframes.encoders", "focus_eval.keyframes.llms", base="Encoder"),
    check=partial(check_derived, base=Encoder),
)


def make_encoder(name: str, **options: object) -> Encoder:
    """Return the encoder `name` with `options`; options that are not given keep their defaults.

    Its weights load now or at first use.

    >>> encoder = make_encoder("recorded", trace=[0.1, 0.9])
    >>> encoder.relevance_of("talk.mp4", [1, 0], "a slide").tolist()
    [0.9, 0.1]

    Args:
        name: a registered name; options may follow: `clip:checkpoint=clip-vit-large-patch14,device=cpu`.
        options: keyword arguments of the encoder's constructor; text is converted to the declared type.

    Raises:
        UnknownName: no such encoder or option; the message has the nearest name.
        InvalidInput: an option of the wrong kind or outside its range.
        MissingDependency: the extra that the encoder needs is not installed; the message names the install command.
        PluginError: a plugin that cannot be loaded or makes no encoder.
    """
    name, values = named_options(name, options)
    kind = ENCODERS.load(name)
    with ENCODERS.name_missing_extra(name):
        scorer = make(f"encoder {name!r}", kind, values)
    if not scorer.name or not scorer.revision:
        raise PluginError(f"encoder {name!r}: {kind.__module__}.{kind.__qualname__} has no name or no revision")
    return scorer


def read_encoder(name: str, options: Mapping[str, object]) -> tuple[str, dict[str, object]]:
    """Return the encoder's registered name and its options in their declared types, without making the encoder.

    Raises:
        UnknownName, InvalidInput, MissingDependency, PluginError: as `make_encoder`.
    """
    name, values = named_options(name, options)
    return name, read_options(f"encoder {name!r}", declared_types(ENCODERS.load(name)), values)


class SupportsScanning(Protocol):
    """A sampler that may scan, with the encoder named in its attribute `scan_encoder`."""

    name: ClassVar[str]
    needs_scan: ClassVar[bool]


def scan_encoder_of(sampler: SupportsScanning) -> tuple[str, dict[str, object]] | None:
    """Return name and options of the encoder that `sampler` scans with; None if it does not scan.

    Raises:
        InvalidInput: the sampler names no scan encoder.
        UnknownName, MissingDependency, PluginError: as `read_encoder`.
    """
    text = scan_encoder_text(sampler)
    return read_encoder(text, {}) if text else None


def scan_encoder_text(sampler: SupportsScanning) -> str:
    """Return the option `scan_encoder` of `sampler`, e.g. "offline:size=64"; "" if it does not scan.

    The scan encoder's own options are checked only if it has no checkpoints: otherwise the check would import torch.

    Raises:
        InvalidInput: the sampler names no scan encoder.
        UnknownName, MissingDependency, PluginError: as `read_encoder`.
    """
    if not sampler.needs_scan:
        return ""
    text = str(getattr(sampler, "scan_encoder", ""))
    if not text:
        raise InvalidInput(
            f"sampler {sampler.name!r} scans with a second, cheap encoder: name it with scan_encoder=NAME, "
            f"one of {', '.join(ENCODERS.names())}"
        )
    if not ENCODERS.fact(named_options(text, {})[0], "model_type", ""):
        read_encoder(text, {})
    return text


def make_scan_encoder(sampler: SupportsScanning) -> Encoder | None:
    """Return the encoder that `sampler` scans with; None if it does not scan.

    Raises:
        FocusEvalError: as `scan_encoder_of` and `make_encoder`.
    """
    name_and_options = scan_encoder_of(sampler)
    return make_encoder(name_and_options[0], **name_and_options[1]) if name_and_options else None


def encoder_revision(name: str, options: Mapping[str, object]) -> str:
    """Return the `revision` of `make_encoder(name, **options)`; "not here: " and the reason if it cannot be found.

    The result is cached until a file named in the options changes. An encoder class that does not override
    `revision_of` is instantiated to read its revision.
    """
    try:
        name, values = read_encoder(name, options)
        files = [Path(value).expanduser() for value in values.values() if isinstance(value, (str, Path)) and value]
        kind: Any = ENCODERS.load(name)
        return _revision(kind, name, json.dumps(values, sort_keys=True, default=str), _stamps(files))
    except FocusEvalError as error:  # not raised here: preflight reports missing weights before a run starts
        return f"not here: {error}"


@lru_cache(maxsize=256)
def _revision(kind: type[Encoder], name: str, options: str, stamps: tuple[tuple[str, int, int], ...]) -> str:
    """The encoder's `revision`; cached by the options, given as JSON, and the state of the files that they name."""
    _, values = read_encoder(name, json.loads(options))
    with ENCODERS.name_missing_extra(name):
        return str(kind.revision_of(**values))


def _stamps(files: Iterable[Path]) -> tuple[tuple[str, int, int], ...]:
    """(path, bytes, modification time in ns) of each existing file in `files` and in folders among them."""
    stamps = []
    for path in files:
        for file in [path, *sorted(path.iterdir())] if path.is_dir() else [path]:
            if file.exists():
                stat = file.stat()
                stamps.append((str(file), stat.st_size, stat.st_mtime_ns))
    return tuple(stamps)
