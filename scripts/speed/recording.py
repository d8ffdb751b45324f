"""Writes measured rows into results/measured, and what docs/performance.md says from them."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from datetime import date
from pathlib import Path

from tests.figures import machine

_ROOT = Path(__file__).resolve().parents[2]
_PAGE = _ROOT / "docs/performance.md"
# Of marked tables; the lines follow from the rows.
_HEADS = {
    "feed": "| a worker whose videos are decoded in | threads | processes | aim |\n|---|---:|---:|---:|\n",
    "feed_decoder": "| processor seconds of selecting from four clips | threads | processes |\n|---|---:|---:|\n",
}


def record(
    name: str, values: Mapping[tuple[str, str], float], *, of_machine: str, command: str, page: Path = _PAGE
) -> None:
    """Write values by (what, unit) to results/measured/NAME.csv, in place of earlier ones, and the page's tables of it.

    Args:
        of_machine: processor and cores, and how busy they were.
        page: with the tables between marks.
    """
    path = _ROOT / "results/measured" / f"{name}.csv"
    with path.open(newline="", encoding="utf-8") as file:
        rows = {(row["what"], row["unit"]): row for row in csv.DictReader(file)}
    provenance = {"machine": of_machine, "date": date.today().isoformat(), "command": command}
    for (subject, unit), value in values.items():
        rows[subject, unit] = {"what": subject, "unit": unit, "value": f"{value:g}", **provenance}
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["what", "value", "unit", *provenance], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows.values())
    text = page.read_text(encoding="utf-8")
    for mark, head in _HEADS.items():
        lines = "".join(f"{line}\n" for line in machine.FIGURES[mark]())
        marked = re.compile(rf"(<!-- figures: {mark} -->\n).*?(<!-- end -->)", re.DOTALL)
        text = marked.sub(lambda match, body=head + lines: match[1] + body + match[2], text)
    page.write_text(text, encoding="utf-8")
