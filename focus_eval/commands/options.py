"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from focus_eval.errors import InvalidInput

SeedOption = Annotated[int, typer.Option(help="First part of every random generator.")]


def parse_assignments(texts: list[str]) -> dict[str, str]:
    """Return {"alpha": "0.1"} of ["alpha=0.1"].

    Raises:
        InvalidInput: a text without "=", or a name given twice.
    """
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidInput(f"{text!r}: an option is written NAME=VALUE")
        if name in values:
            raise InvalidInput(f"option {name!r} is given twice")
        values[name.strip()] = value.strip()
    return values
