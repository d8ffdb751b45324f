"""Recorded rows, and how pages write their figures."""

from __future__ import annotations

import csv
from decimal import ROUND_HALF_UP, Decimal

from ..pages import ROOT

PUBLISHED, PAPER = ROOT / "results/published", ROOT / "results/paper"


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def table(*lines):
    return [f"| {' | '.join(line)} |" for line in lines]


def rounded(text):
    """One decimal, halves up, as reports print."""
    return str(Decimal(text).quantize(Decimal("0.1"), ROUND_HALF_UP))


def with_interval(row, column):
    """E.g. "5.1 [1.0, 9.2]"."""
    value, low, high = (rounded(row[name]) for name in (column, f"{column} low", f"{column} high"))
    return f"{value} [{low}, {high}]"


def percent(row, column):
    value = float(row[column])
    return f"{value:.2f} %" if value else "0"


def signed(text):
    return text if text.startswith("-") else f"+{text}"
