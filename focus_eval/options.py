"""Is this a legal value of that option?"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import Field, field, fields
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from focus_eval.errors import InvalidInput, unknown_name

T = TypeVar("T")
_NOT_THAT = object()


def option(default: T, *, above: float | None = None, at_least: float | None = None, at_most: float | None = None) -> T:
    """Declare an option of a sampler: a dataclass field with its default and its range.

    A range applies to numbers only, so an option of type `float | Literal["auto"]` may have one.
    """
    limits = {"above": above, "at least": at_least, "at most": at_most}
    declared: Any = field(
        default=default, metadata={word: limit for word, limit in limits.items() if limit is not None}
    )
    return declared  # type: ignore[no-any-return]


def check_names(owner: str, kind: type, values: Mapping[str, Any]) -> None:
    """Refuse a value for which dataclass `kind` has no field.

    Raises:
        UnknownName: with the nearest option of `owner`.
    """
    known = [declared.name for declared in fields(kind)]
    for name in values:
        if name not in known:
            raise unknown_name(f"option of {owner}:", name, known)


def checked_values(owner: str, instance: Any) -> dict[str, Any]:
    """Return the options of dataclass `instance` in their declared types: an int becomes a float where one is declared.

    Raises:
        InvalidInput: a value of another type or outside its range.
    """
    hints = _hints(instance.__class__)
    values = {}
    for declared in fields(instance):
        given = getattr(instance, declared.name)
        value = _typed(given, hints[declared.name])
        if value is _NOT_THAT or not _is_within(declared, value):
            raise _refusal(owner, declared, hints[declared.name], given)
        values[declared.name] = value
    return values


def values_from_text(owner: str, kind: type, texts: Mapping[str, Any]) -> dict[str, Any]:
    """Return options that came as text ("0.25", "auto", "none", "true") as values of their declared types.

    Values that are not text are returned as they are.

    Raises:
        UnknownName: no such option.
        InvalidInput: a text that is no value of the option's type.
    """
    check_names(owner, kind, texts)
    declared = {one.name: one for one in fields(kind)}
    hints = _hints(kind)
    values = {}
    for name, text in texts.items():
        value = _from_text(text.strip(), hints[name]) if isinstance(text, str) else text
        if value is _NOT_THAT:
            raise _refusal(owner, declared[name], hints[name], text)
        values[name] = value
    return values


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _typed(value: Any, hint: Any) -> Any:
    """Return `value` as one of the types of `hint`, or `_NOT_THAT`."""
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    for member in _members(hint):
        if get_origin(member) is Literal and isinstance(value, str) and value in get_args(member):
            return value
        if member is type(None) and value is None:
            return None
        if member in (bool, str) and isinstance(value, member):
            return value
        if member is int and is_number and isinstance(value, (int, np.integer)):
            return int(value)
        if member is float and is_number and np.isfinite(value):
            return float(value)
    return _NOT_THAT


def _from_text(text: str, hint: Any) -> Any:
    """Return what `text` says as one of the types of `hint`, or `_NOT_THAT`; the narrowest type first."""
    members = _members(hint)
    if type(None) in members and text.lower() in ("none", "null"):
        return None
    if bool in members and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if any(get_origin(member) is Literal and text in get_args(member) for member in members):
        return text
    for number in (int, float):
        if number in members:
            try:
                return number(text)
            except ValueError:
                continue
    return text if str in members else _NOT_THAT


def _is_within(declared: Field[Any], value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return True
    limits = declared.metadata
    above, low, high = limits.get("above", -np.inf), limits.get("at least", -np.inf), limits.get("at most", np.inf)
    return bool(value > above and low <= value <= high)


def _refusal(owner: str, declared: Field[Any], hint: Any, value: Any) -> InvalidInput:
    names = {int: "an integer", float: "a finite number", bool: "true or false", str: "text", type(None): "none"}
    kinds = []
    for member in _members(hint):
        kinds += list(get_args(member)) if get_origin(member) is Literal else [names.get(member, str(member))]
    limits = " and ".join(
        f"{word} {limit:g}" for word, limit in declared.metadata.items() if isinstance(limit, (int, float))
    )
    expected = " or ".join(kinds) + (f" ({limits})" if limits else "")
    return InvalidInput(f"option {declared.name!r} of {owner} must be {expected}, got {value!r}")
