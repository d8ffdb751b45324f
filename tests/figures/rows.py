"""Recorded rows, and how pages write their figures."""

from __future__ import annotations

import csv
from decimal import ROUND_HALF_UP, Decimal

from ..pages import ROOT

PUBLISHED, PAPER = ROOT / "results/published", ROOT / "results/paper"


def rows_of(path):
    """Return the rows of a CSV file as dictionaries of text, by column."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def table(*lines):
    """Return the Markdown lines of a table's rows, each given as its cells."""
    return [f"| {' | '.join(line)} |" for line in lines]


def rounded(text):
    """Return the number rounded to one decimal, halves away from 0, as reports print it."""
    return str(Decimal(text).quantize(Decimal("0.1"), ROUND_HALF_UP))


def with_interval(row, column):
    """Return a column's value and its interval, e.g. "5.1 [1.0, 9.2]"."""
    value, low, high = (rounded(row[name]) for name in (column, f"{column} low", f"{column} high"))
    return f"{value} [{low}, {high}]"


def percent(row, column):
    """Return a percentage with two decimals, and 0 as "0"."""
    value = float(row[column])
    return f"{value:.2f} %" if value else "0"


def signed(text):
    """Return the number with a plus sign unless it has a minus."""
    return text if text.startswith("-") else f"+{text}"
