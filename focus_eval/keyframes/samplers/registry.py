"""Lists the samplers and makes one by name.

The built-in samplers are the classes in the files of this package. Other packages add theirs through the entry-point
group `focus_eval.samplers`. `path/to/file.py:Class` names a class in any file.
"""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields

from focus_eval.core.errors import PluginError
from focus_eval.core.options import can_be_written, field_types, make, named_options, parse_named
from focus_eval.core.plugins import Registry, check_derived, classes_in
from focus_eval.keyframes.samplers.base import FrameSampler, check_class


def _check(loaded: object, label: str) -> type[FrameSampler]:
    """Return the loaded class if it is a sampler with a name, a source and defaults for all options.

    Raises PluginError or BrokenContract otherwise, and PluginError for an option that text cannot express.
    """
    kind: type[FrameSampler] = check_derived(loaded, label, base=FrameSampler)
    check_class(kind, label)
    if "name" not in vars(kind) or not hasattr(kind, "source"):
        raise PluginError(f"{label} needs class attributes `name` (its own) and `source`")
    needs_value = [item.name for item in fields(kind) if item.default is item.default_factory is MISSING]
    if "__dataclass_fields__" not in vars(kind) or needs_value:
        raise PluginError(f"{label} must be a frozen dataclass whose options all have defaults")
    try:
        types = field_types(kind)
    except NameError as error:  # e.g. imported under TYPE_CHECKING
        raise PluginError(f"{label}: the type of an option cannot be read: {error}") from error
    for option, hint in types.items():
        if not can_be_written(hint):
            raise PluginError(
                f"{label}: option {option!r} has the type {inspect.formatannotation(hint, kind.__module__)}, "
                "and commands and rows write options as text: let it be a bool, int, float, str or Literal of texts, "
                "perhaps | None; make several options of a list, or a text that `choose` splits"
            )
    return kind


SAMPLERS = Registry(
    "sampler",
    group="focus_eval.samplers",
    built_in=classes_in("focus_eval.keyframes.samplers", base="FrameSampler"),
    check=_check,
    takes_files=True,
)


def sampler_classes() -> dict[str, type[FrameSampler]]:
    """Return every registered sampler class by name, ascending; imports all of them.

    Raises:
        PluginError: a plugin that cannot be imported, is not a sampler, or uses a name twice.
    """
    return {name: SAMPLERS.load(name) for name in SAMPLERS.names()}


def sampler_class(name: str) -> type[FrameSampler]:
    """Return the class of the sampler `name`, written as for `make_sampler`; options in it are ignored.

    Raises:
        UnknownName: no such sampler; the message has the nearest name.
        PluginError: a plugin or file that cannot be used, with the reason.
    """
    return SAMPLERS.load(parse_named(name)[0])


def sampler_name(name: str) -> str:
    """Return a sampler's name in rows and tables, without options; for `FILE.py:Class` the class attribute `name`.

    Raises:
        PluginError: a file that cannot be used, with the reason.
    """
    return sampler_class(name).name if ".py:" in name else parse_named(name)[0]


def make_sampler(name: str, **options: object) -> FrameSampler:
    """Return the sampler `name` with `options`; options that are not given keep their defaults.

    >>> make_sampler("focus:clip_seconds=8", alpha=0.1).options["alpha"]
    0.1

    Args:
        name: a registered name, or `path/to/file.py:Class`; options may follow: `focus:alpha=0.1,clip_seconds=8`.
        options: text is converted to the declared type.

    Raises:
        UnknownName: no such sampler or option; the message has the nearest name.
        InvalidInput: an option of the wrong type or outside its range.
        PluginError: a plugin or file that cannot be used.
        MissingDependency: a package it needs is not installed; the message names the install command.
    """
    name, values = named_options(name, options)
    kind = SAMPLERS.load(name)
    with SAMPLERS.name_missing_extra(name):
        return make(f"sampler {kind.name!r}", kind, values)
