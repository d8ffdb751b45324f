"""Which samplers are there, and how is one made by name?"""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from focus_eval.errors import InvalidInput, SamplerError, unknown_name
from focus_eval.samplers.base import FrameSampler

ENTRY_POINT_GROUP = "focus_eval.samplers"


def sampler_classes() -> dict[str, type[FrameSampler]]:
    """Return every registered sampler class by name: ours, and those of installed plugins.

    Raises:
        SamplerError: a plugin that cannot be imported, is no sampler, or takes a name that is taken.
    """
    return dict(_loaded())


def make_sampler(name: str, **options: Any) -> FrameSampler:
    """Return the sampler `name` with `options`, the rest at their defaults.

    Raises:
        UnknownName: no such sampler or option; the message has the nearest name.
        InvalidInput: an option outside its range.
    """
    classes = _loaded()
    if name not in classes:
        raise unknown_name("sampler", name, classes)
    known = [option.name for option in fields(classes[name])]
    for option in options:
        if option not in known:
            raise unknown_name(f"option of sampler {name!r}:", option, known)
    try:
        return classes[name](**options)
    except TypeError as error:
        raise InvalidInput(f"sampler {name!r}: {error}") from error


@cache
def _loaded() -> dict[str, type[FrameSampler]]:
    classes: dict[str, type[FrameSampler]] = {}
    for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda p: (not p.value.startswith("focus_eval."), p.name)):
        try:
            loaded = point.load()
        except Exception as error:
            raise SamplerError(f"sampler plugin {point.name!r} ({point.value}) cannot be loaded: {error}") from error
        if not (isinstance(loaded, type) and issubclass(loaded, FrameSampler)):
            raise SamplerError(f"sampler plugin {point.name!r} ({point.value}) is no FrameSampler class")
        if point.name in classes:
            raise SamplerError(f"sampler plugin {point.name!r} ({point.value}): the name is taken")
        classes[point.name] = loaded
    return classes
