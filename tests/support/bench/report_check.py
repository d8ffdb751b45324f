"""Compute every figure of a report's tables again, from the rows alone, by other code than the report's.

Plain loops over dictionaries; the report's package is not imported. It reads the rows' files by itself, the tables from
report*.csv, and compares number by number.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.bench.independent_costs import Cost, Key, costs_of
from tests.support.bench.independent_formulas import holm, question_weights, sign_flip_p
from tests.support.bench.independent_measures import (
    COUNTS,
    MACRO,
    column_of,
    paired_scores,
    row_counts,
    shown_pairs,
    spread_over_seeds,
)
from tests.support.bench.independent_rows import Rows, belongs, pairs_of, read_run

TOLERANCE = 2e-6


@dataclass
class Checked:
    """What came of checking one folder's tables.

    Args:
        figures: numbers that were computed again.
        wrong: where the report and the rows differ, one line each.
        unknown: columns with numbers that nothing here computes.
    """

    figures: int = 0
    wrong: list[str] = field(default_factory=list)
    unknown: set[str] = field(default_factory=set)

    def compare(self, location: str, printed: str, computed: float | None) -> None:
        """Compare one number of a table, "" being none."""
        self.figures += 1
        if printed == "" or computed is None:
            if printed != "" or computed is not None:
                self.wrong.append(f"{location}: printed {printed!r}, from the rows {computed}")
        elif not math.isclose(float(printed), computed, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            self.wrong.append(f"{location}: printed {printed}, from the rows {computed:.8g}")


def check_report(folder: Path) -> Checked:
    """Check every `report*.csv` in `folder` against the rows of that run."""
    checked, rows = Checked(), read_run(folder)
    costs = costs_of(rows.selections)
    for path in sorted(folder.glob("report*.csv")):
        with open(path, newline="", encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
        if lines and "p (Holm)" in lines[0]:
            _check_comparison(checked, path.stem, lines, rows)
        else:
            for number, line in enumerate(lines, start=1):
                _check_line(checked, f"{path.stem}:{number}", line, rows, costs)
    return checked


def _check_line(
    checked: Checked, location: str, line: Mapping[str, str], rows: Rows, costs: Mapping[Key, Cost]
) -> None:
    """Check one line of a results table; a line without counts is a published one."""
    if not line.get("questions"):
        return
    pairs = [pair for pair in pairs_of(rows) if belongs(pair, line)]
    for title in line:
        if f"{title} low" not in line:
            continue
        inside, metric = column_of(title, pairs, costs)
        if metric is None:
            checked.unknown.add(title)
            continue
        value, low, high = metric(inside)
        if line[title] == "" and value is None:
            continue
        checked.compare(f"{location} {title}", line[title], value)
        if line[f"{title} low"] or low is not None:
            checked.compare(f"{location} {title} low", line[f"{title} low"], low)
            checked.compare(f"{location} {title} high", line[f"{title} high"], high)
        if line[f"{title} published"] and line[f"{title} difference"]:
            difference = value - float(line[f"{title} published"]) if value is not None else None
            checked.compare(f"{location} {title} difference", line[f"{title} difference"], difference)
        if line[f"{title} spread over seeds"]:
            spread = spread_over_seeds(inside, metric)
            checked.compare(f"{location} {title} spread", line[f"{title} spread over seeds"], spread)
    for title, count in zip(COUNTS, row_counts(shown_pairs(line, pairs)), strict=True):
        checked.compare(f"{location} {title}", line[title], count)


def _check_comparison(checked: Checked, location: str, lines: Sequence[Mapping[str, str]], rows: Rows) -> None:
    """Check a table of paired differences: the mean, the questions, p of all sign flips, Holm's."""
    p_values = []
    for number, line in enumerate(lines, start=1):
        place = f"{location}:{number}"
        a, b = (paired_scores(line, line[side], rows) for side in "AB")
        shared_keys = sorted(set(a) & set(b))
        macro = "Within" not in line and line["Benchmark"] in MACRO and all(a[key][2] for key in shared_keys)
        weights = question_weights({key: a[key][2] if macro else "" for key in shared_keys})
        by_video: dict[str, float] = defaultdict(float)
        share: dict[str, float] = defaultdict(float)
        for key in shared_keys:
            by_video[a[key][1]] += weights[key] * (b[key][0] - a[key][0])
            share[a[key][1]] += weights[key]
        checked.compare(f"{place} B-A", line["B − A (points)"], 100 * sum(by_video.values()))
        checked.compare(f"{place} questions", line["Questions"], len(shared_keys))
        better = [sum(sign * (b[key][0] - a[key][0]) > 1e-12 for key in shared_keys) for sign in (-1, 1)]
        checked.figures += 2
        if line["Better A / B"] != f"{better[0]} / {better[1]}":
            checked.wrong.append(f"{place} better: printed {line['Better A / B']}, from the rows {better}")
        p_values.append(sign_flip_p(list(by_video.values()), list(share.values())))
        checked.compare(f"{place} p", line["p"], p_values[-1])
    for number, (line, adjusted) in enumerate(zip(lines, holm(p_values), strict=True), start=1):
        checked.compare(f"{location}:{number} p (Holm)", line["p (Holm)"], adjusted)
