"""Every figure of a finding is derived: of the pages here, and of those in the tool's README and docs.

Those between `<!-- research: NAME -->` and `<!-- end -->` follow from recorded rows, by the functions of figures/; the
tables of field.md and leaderboard.md have marks and tests of their own (test_field.py, test_leaderboard.py).
"""

from __future__ import annotations

import re

import pytest

from research.tests.figures import samplers, worlds
from tests.pages import PAGES as TOOL_PAGES
from tests.pages import ROOT
from tests.test_figures import stated_outside_marks, without_derived

PAGES = (ROOT / "research/README.md", *sorted((ROOT / "research/docs").glob("*.md")))
FIGURES = {**samplers.FIGURES, **worlds.FIGURES}
MARKED = re.compile(r"<!-- research: (\w+) -->\n(.*?)<!-- end -->", re.DOTALL)


def marked():
    pages = (*TOOL_PAGES, *PAGES)
    return [(page.name, *mark) for page in pages for mark in MARKED.findall(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(("page", "name", "text"), marked())
def test_a_marked_figure_follows_from_recorded_rows(page, name, text):
    assert re.findall(r"\d", without_derived(text, FIGURES[name]())) == []


def test_every_derivation_has_its_place():
    assert {name for _, name, _ in marked()} == {*FIGURES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_states_no_measured_figure_outside_marks(page):
    assert stated_outside_marks(page) == []
