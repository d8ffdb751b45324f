"""Finds the published figure for a line of a table."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from focus_eval.errors import InvalidInput
from focus_eval.resources import resource_path

# Samplers of ours that stand for a published line of another name. Most of the paper's numbers come from its public
# code, our `focus_released`; its LongVideoBench "uniform" under LLaVA-Video is `uniform_1fps`.
PUBLISHED_AS = {"focus_released": "focus", "uniform_1fps": "uniform", "aks_dense": "aks_no_prefilter"}


@dataclass(frozen=True)
class AnchorTable:
    """A published table: its lines as texts by column, table number and source with each."""

    name: str
    lines: tuple[Mapping[str, str], ...]

    @property
    def source(self) -> str:
        """E.g. "FOCUS, ICLR 2026, table 2"."""
        numbers = sorted({line["table"] for line in self.lines}, key=lambda entry: (entry == "appendix", entry))
        named = [number if number == "appendix" else f"table {number}" for number in numbers]
        return f"{self.lines[0]['source']}, {' and '.join(named)}"


@cache
def read_anchors(name: str) -> AnchorTable:
    """Return the published table `name` ("by_length", "alpha", ...).

    Raises:
        InvalidInput: no such table.
    """
    path = resource_path("paper") / f"{name}.csv"
    if not path.is_file():
        known = ", ".join(sorted(item.stem for item in resource_path("paper").glob("*.csv")))
        raise InvalidInput(f"no published table {name!r}; there are: {known}")
    with open(path, newline="", encoding="utf-8") as file:
        return AnchorTable(name, tuple(csv.DictReader(file)))


def published_value(line: Mapping[str, str] | None, column: str) -> float | None:
    """Return the figure in `column` of a published line, None where it has none."""
    text = line.get(column, "") if line else ""
    return float(text) if text else None


def published_sampler(sampler: str) -> str:
    """Return the name under which `sampler` was published."""
    return PUBLISHED_AS.get(sampler, sampler)
