"""docs/field.md: every table and sentence is what `research/scripts/field.py` derives from the public files."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from research.scripts import field

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "research/docs/field.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_every_table_of_the_page_is_what_the_files_give(shared):
    folder = shared("data")
    shared("data/field/lmms_logs")
    for name, derived in field.SECTIONS.items():
        assert f"<!-- field: {name} -->\n{derived(folder)}\n<!-- end -->" in PAGE, name


@pytest.mark.slow
def test_the_tables_behind_sentences_are_what_the_files_give(shared):
    folder = shared("data")
    shared("data/field/lmms_logs")
    for name, derived in field.ROWS.items():
        with (ROOT / f"research/results/field_{name}.csv").open(newline="", encoding="utf-8") as file:
            assert [tuple(row) for row in csv.reader(file)] == derived(folder), name


def test_every_mark_of_the_page_has_its_section():
    assert re.findall(r"<!-- field: (\w+) -->", PAGE) == [*field.SECTIONS]


def test_a_page_without_the_marks_is_refused():
    assert field.put_between("a\n<!-- field: x -->\nold\n<!-- end -->\nb", "x", "new") == (
        "a\n<!-- field: x -->\nnew\n<!-- end -->\nb"
    )
    with pytest.raises(SystemExit, match="no marks for y"):
        field.put_between("a", "y", "new")
