"""Reads fields of a document; a wrong field is an error that names it."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import Any

from focus_eval.errors import InvalidInput

LETTERS = string.ascii_uppercase


def letters(n_options: int) -> str:
    """Return the letters of `n_options` options, from A on."""
    return LETTERS[:n_options]


def text_field(document: Mapping[str, Any], name: str, *, benchmark: str) -> str:
    """Return the non-empty text of field `name`, or a number as text.

    Raises:
        InvalidInput: the field is missing, empty or of another kind; names benchmark, field and the document's fields.
    """
    value = document.get(name)
    if isinstance(value, bool) or not isinstance(value, (str, int)) or not str(value).strip():
        raise InvalidInput(
            f"{benchmark}: a document needs the field {name!r} with text, got {value!r}; "
            f"its fields: {', '.join(map(str, document))}"
        )
    return str(value)


def seconds_field(document: Mapping[str, Any], name: str, *, benchmark: str) -> float | None:
    """Return field `name` as seconds above 0, or None where the document has no such field.

    Raises:
        InvalidInput: a value that is not a number above 0.
    """
    value = document.get(name)
    if value is None:
        return None
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise InvalidInput(f"{benchmark}: {name} must be seconds above 0, got {value!r}")
    return seconds


def option_letter(index: int, options: Sequence[str], *, where: str) -> str:
    """Return the letter of option `index`.

    Raises:
        InvalidInput: no such option; the message starts with `where`.
    """
    if not 0 <= index < len(options):
        raise InvalidInput(f"{where}: answer {index} of {len(options)} options")
    return LETTERS[index]


def without_letter(option: str, index: int) -> str:
    """Return option text without its own letter ("B. Candles." at 1 gives "Candles.")."""
    text = option.strip()
    letter = LETTERS[index]
    for mark in (f"{letter}.", f"({letter})", f"{letter})", f"{letter}:"):
        if text.startswith(mark):
            return text[len(mark) :].strip()
    return text
