"""Figures of public selections and answers."""

from __future__ import annotations

import re

from ..pages import ROOT
from .rows import rows_of


def field_row(mark, first):
    """Return the cells of the row of docs/field.md's table `mark` that begins with the cell `first`.

    tests/external/test_field.py derives these tables from the public files.
    """
    page = (ROOT / "docs/field.md").read_text(encoding="utf-8")
    part = page.partition(f"<!-- field: {mark} -->")[2].partition("<!-- end -->")[0]
    (row,) = re.findall(rf"^\| {re.escape(first)} \|.*$", part, re.MULTILINE)
    return [cell.strip().removeprefix("+") for cell in row.strip("|").split("|")]


def ascs(measure):
    """Return by how many points ASCS and AKS differ in `measure` on LongVideoBench at K = 64, as text without sign."""
    (row,) = [
        row
        for row in rows_of(ROOT / "results/published/leaderboard/differences.csv")
        if (row["benchmark"], row["k"], row["name"]) == ("longvideobench", "64", "ASCS")
        and (row["less"], row["measure"]) == ("AKS", measure)
    ]
    value, *ends = (100 * float(row[name]) for name in ("value", "low", "high"))
    low, high = sorted(abs(end) for end in ends)
    return f"{abs(value):.1f} [{low:.1f}, {high:.1f}]"


def answers():
    """Return the README's sentences on the answers of real models."""
    effects, short, medium = (
        field_row("within", "recall@1"),
        field_row("lengths", "below 180 s"),
        field_row("lengths", "180 to 1200 s"),
    )
    others = field_row("benchmarks", "the Qwen2.5-VL-7B logs but LongVideoBench | 32")
    loss = re.sub(r"-(.*) \[-(.*), -(.*)\]", r"\1 [\3, \2]", short[-1])
    return [
        "With a keyframe within a second of the evidence the same question is right "
        f"{effects[1]} points more often (Qwen2.5-VL-7B, LongVideoBench, videos of 180 s and more, 22 selections, 20 "
        f"of them variants of one method); between uniform and the authors' AKS-32 alone, {effects[2]}.",
        f"On LongVideoBench the authors' AKS-32 loses {loss} points to uniform frames on short videos**, where its one "
        f"frame a second leaves too few candidates, and wins {medium[-1]} at 3 to 20 minutes. On three other "
        f"benchmarks LVU's AKS wins {others[-2].removeprefix('+')} (K = 32).",
        f"on LongVideoBench ASCS is {ascs('within 1 s')} points behind the authors' AKS-64 within 1 s of the evidence, "
        f"{ascs('within 5 s')} ahead within 5 s",
    ]


FIGURES = {"answers": answers}
