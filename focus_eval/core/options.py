"""Reads options of plugins from Python, YAML, the command line and `--model_args`.

An option is declared once, as a field of a dataclass or a keyword of a constructor. Its value may come as text ("0.25",
"true", "none"): a boolean is `true` or `false` and nothing else; `none` is None if the option may be None. A plugin
with options is one text too: `focus:alpha=0.1,clip_seconds=8`.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from focus_eval.core.errors import InvalidInput, nearest, unknown_name

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
_NOT_THAT = object()
_TEXTS = tuple[str, ...]
_PLAIN = (bool, int, float, str, type(None))
_NO_LIMITS: Mapping[str, object] = {}
# The name ends at the first colon that `option=` follows: in `peaks.py:Peaks:gap=2` the name is `peaks.py:Peaks`.
_NAME_WITH_OPTIONS = re.compile(r"(?P<name>.+?):(?P<options>[A-Za-z_]\w*=.*)", re.DOTALL)
_NEXT = re.compile(r",(?=\s*[A-Za-z_]\w*\s*=)")


def option(
    default: T,
    *,
    above: float | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    added: bool = False,
) -> T:
    """Declare an option of a sampler: a dataclass field with its default and its range.

    >>> from dataclasses import make_dataclass
    >>> make_dataclass("Options", [("alpha", float, option(0.25, above=0, at_most=1))])().alpha
    0.25

    A range applies to numbers only, so an option of type `float | Literal["auto"]` may have one.

    Args:
        added: True if the sampler had stored rows before it got this option. The option is then left out of a row's id
            while it has its default, so that those rows keep their ids.
    """
    limits = {"above": above, "at least": at_least, "at most": at_most, "added": "later" if added else None}
    return field(default=default, metadata={word: limit for word, limit in limits.items() if limit is not None})


def make(owner: str, kind: Callable[..., T], values: Mapping[str, object]) -> T:
    """Return an instance of `kind`, with text in `values` parsed as the types that its fields or constructor declare.

    Args:
        owner: the plugin in messages, e.g. "sampler 'focus'".

    Raises:
        UnknownName: an option that is not declared; the message has the nearest name.
        InvalidInput: a value has the wrong type or is outside its range, or a required option is missing.
    """
    options = read_options(owner, declared_types(kind), values)
    try:
        inspect.signature(kind).bind(**options)
    except TypeError as error:
        raise InvalidInput(f"{owner}: {error}; its options: {', '.join(declared_types(kind)) or 'none'}") from error
    return kind(**options)


def declared_types(kind: Callable[..., object]) -> dict[str, object]:
    """Return the options of a class by name, with their declared types: its fields, or its constructor's keywords.

    If the constructor accepts `**options`, the fields of the class's `options_type` are included.
    """
    if isinstance(kind, type) and is_dataclass(kind):
        return field_types(kind)
    hints = get_type_hints(kind.__init__ if isinstance(kind, type) else kind)  # type: ignore[misc]
    keyword_kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(kind).parameters.values()
    options = {item.name: hints.get(item.name, Any) for item in parameters if item.kind in keyword_kinds}
    if hasattr(kind, "options_type") and any(item.kind is inspect.Parameter.VAR_KEYWORD for item in parameters):
        options |= field_types(kind.options_type)
    return options


def parse_named(text: str) -> tuple[str, dict[str, str]]:
    """Split `name:option=value,option=value` into the name and its options as text; options are optional.

    A colon or a comma separates only if `option=` follows it. Values may therefore contain commas, and a text without
    any `option=` is the name as a whole.

    Raises:
        InvalidInput: an option that is given twice, or an argument that is not a string.
    """
    if not isinstance(text, str):
        raise InvalidInput(f"a name is text, e.g. 'focus:alpha=0.1', got {text!r}")
    match = _NAME_WITH_OPTIONS.fullmatch(text)
    if match is None:
        return text, {}
    return match["name"], parse_assignments(_NEXT.split(match["options"]))


def named_text(name: str, options: Mapping[str, object]) -> str:
    """Return a plugin's name and options as one text, `name:option=value,option=value`; `parse_named` reads it back.

    True, False and None are written true, false and none; without options the text is the name alone.
    """
    words = {True: "true", False: "false", None: "none"}
    texts = {key: words[item] if item is None or isinstance(item, bool) else item for key, item in options.items()}
    pairs = [f"{key}={item}" for key, item in texts.items()]
    return f"{name}:{','.join(pairs)}" if pairs else name


def named_options(text: str, options: Mapping[str, object]) -> tuple[str, dict[str, object]]:
    """Return the plugin name in `text`, and the options written in it (as text) merged with `options`.

    Raises:
        InvalidInput: an option that is given in both.
    """
    name, written = parse_named(text)
    repeated = {*written} & {*options}
    if repeated:
        option = min(repeated)
        raise InvalidInput(f"option {option!r} of {name!r} is given twice: in {text!r} and as {options[option]!r}")
    return name, {**written, **options}


def parse_assignments(texts: Iterable[str]) -> dict[str, str]:
    """Return the values of texts `NAME=VALUE` by name, unparsed: ["alpha=0.1"] gives {"alpha": "0.1"}.

    Raises:
        InvalidInput: a text without "=", or a name given twice.
    """
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise InvalidInput(f"{text!r}: an option is written NAME=VALUE")
        if name.strip() in values:
            raise InvalidInput(f"option {name.strip()!r} is given twice")
        values[name.strip()] = value.strip()
    return values


def check_names(owner: str, names: Iterable[str], values: Iterable[str]) -> None:
    """Raise UnknownName, with the nearest of `names`, for a value that is not an option of `owner`."""
    options = list(names)
    for name in values:
        if name not in options:
            raise unknown_name(f"option of {owner}:", name, options)


def read_options(owner: str, hints: Mapping[str, object], values: Mapping[str, object]) -> dict[str, Any]:
    """Return `values` in the types that `hints` declare, by option name.

    A text such as "0.25", "auto", "none" or "true" is converted to the declared type; any other value is checked
    against that type. If the declared type is none of number, text, boolean, path and None, the value is not checked.

    Raises:
        UnknownName: an option without a hint.
        InvalidInput: a value that is not of its option's type.
    """
    check_names(owner, hints, values)
    return {name: read_value(owner, name, hints[name], value) for name, value in values.items()}


def read_value(owner: str, name: str, hint: object, value: object) -> object:
    """Return the `value` of option `name` in the type `hint`, parsed if it is text; the range is not checked here.

    Raises:
        InvalidInput: `value` does not have the type `hint`.
    """
    parsed = _from_text(value.strip(), hint) if isinstance(value, str) else _typed(value, hint)
    if parsed is _NOT_THAT:
        raise _refusal(owner, name, hint, value)
    return parsed


def field_types(kind: type) -> dict[str, object]:
    """Return the declared types of the fields that the constructor of dataclass `kind` takes, by name."""
    hints = _hints(kind)
    return {declared.name: hints[declared.name] for declared in fields(kind) if declared.init}


def checked_values(owner: str, instance: DataclassInstance) -> dict[str, object]:
    """Return the options of dataclass `instance` in their declared types: an int becomes a float if one is declared.

    Raises:
        InvalidInput: a value of another type or outside its range.
    """
    hints = _hints(instance.__class__)
    values = {}
    for declared in fields(instance):
        current, hint, limits = getattr(instance, declared.name), hints[declared.name], declared.metadata
        value = _typed(current, hint)
        is_allowed = value is not _NOT_THAT
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            low, high = limits.get("at least", -np.inf), limits.get("at most", np.inf)
            is_allowed = value > limits.get("above", -np.inf) and low <= value <= high
        if not is_allowed:
            raise _refusal(owner, declared.name, hint, current, limits)
        values[declared.name] = value
    return values


@cache
def _hints(kind: type) -> dict[str, object]:
    """The type hints of the class by attribute, cached."""
    return get_type_hints(kind)


def can_be_written(hint: object) -> bool:
    """Return True if every value of the type `hint` can be written as text and read back: no list, no class."""
    return all(_is_plain(member) and member != _TEXTS for member in _members(hint))


def _members(hint: object) -> tuple[object, ...]:
    """The types in a union hint, or a tuple of `hint` alone."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _is_plain(member: object) -> bool:
    """True if this module can parse and check the type `member`: one of `_PLAIN`, a Literal, or a list of texts."""
    return member in _PLAIN or get_origin(member) is Literal or member == _TEXTS


def _typed(value: object, hint: object) -> object:
    """Return `value` as one of the types of `hint`, without parsing text; the marker `_NOT_THAT` if no type fits.

    An int is accepted as a float. A boolean is not accepted as a number, and NaN and infinity are never accepted. If
    `hint` has a type that `_is_plain` rejects, every value is accepted.
    """
    is_boolean = isinstance(value, bool)
    number = value if isinstance(value, (int, float, np.integer, np.floating)) and not is_boolean else None
    for member in _members(hint):
        if not _is_plain(member):
            return value
        if get_origin(member) is Literal and isinstance(value, str) and value in get_args(member):
            return value
        if member is type(None) and value is None:
            return None
        if member == _TEXTS and isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
            return tuple(value)
        if member in (bool, str) and isinstance(value, member):
            return value
        if member is int and isinstance(number, (int, np.integer)):
            return int(number)
        if member is float and number is not None and np.isfinite(number):
            return float(number)
    return _NOT_THAT


def _from_text(text: str, hint: object) -> object:
    """`text` parsed as the narrowest type of `hint` that fits; the marker `_NOT_THAT` if no type fits."""
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
                # Accept "8.0" for an int: a caller that guesses types may have written the 8 of a user that way.
                if number is int and float not in members and re.fullmatch(r"[+-]?\d+\.0+", text):
                    return int(float(text))
    if Path in members:
        return Path(text)
    return text if str in members or not all(_is_plain(member) for member in members) else _NOT_THAT


def _refusal(
    owner: str, name: str, hint: object, value: object, limits: Mapping[str, object] = _NO_LIMITS
) -> InvalidInput:
    """The error for a `value` that is not of the type `hint` or is outside `limits`; it says what is expected."""
    words: dict[object, str] = {
        int: "an integer",
        float: "a finite number",
        bool: "true or false",
        str: "text",
        type(None): "none",
        _TEXTS: "a list of texts",
    }
    kinds = []
    for member in _members(hint):
        kinds += list(get_args(member)) if get_origin(member) is Literal else [words.get(member, str(member))]
    limit = " and ".join(f"{word} {number:g}" for word, number in limits.items() if isinstance(number, (int, float)))
    expected = " or ".join(kinds) + (f" ({limit})" if limit else "")
    hint = nearest(value, {*kinds} - {*words.values()}) if isinstance(value, str) else ""
    return InvalidInput(f"option {name!r} of {owner} must be {expected}, got {value!r}{hint}")
