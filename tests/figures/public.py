"""Figures of public selections and answers."""

from __future__ import annotations

import re

from ..pages import ROOT


def field_row(mark, first):
    """Return the cells of the row of docs/field.md's table `mark` that begins with the cell `first`.

    tests/external/test_field.py derives these tables from the public files.
    """
    page = (ROOT / "docs/field.md").read_text(encoding="utf-8")
    part = page.partition(f"<!-- field: {mark} -->")[2].partition("<!-- end -->")[0]
    (row,) = re.findall(rf"^\| {re.escape(first)} \|.*$", part, re.MULTILINE)
    return [cell.strip().removeprefix("+") for cell in row.strip("|").split("|")]


def first_line(start):
    """Return the rest of the line of docs/field.md's first sentences that begins with the bold words `start`."""
    page = (ROOT / "docs/field.md").read_text(encoding="utf-8")
    part = page.partition("<!-- field: first -->")[2].partition("<!-- end -->")[0]
    (rest,) = re.findall(rf"^- \*\*{re.escape(start)}\*\*: (.*)$", part, re.MULTILINE)
    return rest


def first_sentences():
    """Return what the README says before anything else of public answers."""
    eight = first_line("Eight chosen frames do about as well as 32 even ones")
    gains = first_line("Selection pays most with eight frames").removeprefix("AKS less uniform is ")
    best = re.search(
        r"the best of (\d+) variants .* is (\S+) points above .*, \+(\S+ \[.*?\]) on the others .*, (\S+ to \S+)\)",
        first_line("The best of several variants keeps about half of its lead"),
    )
    return [
        f"Eight chosen frames do about as well as 32 even ones: {eight.partition(' points')[0]} points",
        f"Selection pays most with eight frames: {gains.partition(' (')[0]} (AKS less uniform",
        f"The best of {best[1]} variants of one method leads their mean by {best[2]} points; chosen on other videos, "
        f"by {best[3]}, in a single split by {best[4]}",
    ]


def answers():
    """Return the README's sentences on the answers of real models."""
    effects, short, medium = (
        field_row("within", "recall@1"),
        field_row("lengths", "below 180 s"),
        field_row("lengths", "180 to 1200 s"),
    )
    others = field_row("benchmarks", "pooled, where AKS arrived | 32")
    loss = re.sub(r"-(.*) \[-(.*), -(.*)\]", r"\1 [\3, \2]", short[-1])
    return [
        *first_sentences(),
        "With a keyframe within a second of the evidence the same question is right "
        f"{effects[1]} points more often (Qwen2.5-VL-7B, videos of 180 s and more, 22 selections of up to 32 frames, "
        f"20 of one method); where 28 or more were fed, {effects[2]}; between uniform and the authors' AKS-32 alone, "
        f"{effects[3]}.",
        f"On LongVideoBench the authors' AKS-32 loses {loss} points to uniform frames on short videos**, of which "
        f"its one frame a second leaves few candidates, and wins {medium[-1]} at 3 to 20 minutes. On three other "
        f"benchmarks LVU's AKS wins {others[-2].removeprefix('+')} where it arrived (K = 32).",
    ]


FIGURES = {"answers": answers}
