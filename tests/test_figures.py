"""Every figure of README and docs is derived.

Those between `<!-- figures: NAME -->` and `<!-- end -->` follow from recorded rows, by the functions of tests/figures;
outside marks, pages state no measured figure. Those between `<!-- research: NAME -->` are tested in research/tests.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest

from focus_eval import make_sampler
from focus_eval.bench.benchmarks.registry import read_rates

from .figures import background, installs, machine, worlds
from .figures.background import PULLS
from .pages import PAGES, prose_of

MARKED = re.compile(r"<!-- figures: (\w+) -->\n(.*?)<!-- end -->", re.DOTALL)
FIGURES = {**background.FIGURES, **installs.FIGURES, **machine.FIGURES, **worlds.FIGURES}
# What a page may state is in backticks, in a command, a link or between any marks.
EXEMPT = re.compile(
    r"<!-- (?!end|measured by)[^\n]* -->.*?<!-- end[^\n]*-->|^ {4}\S[^\n]*$|`[^`]*`|\]\([^)]*\)", re.DOTALL | re.M
)
# A decimal, thousands, a share, a size or milliseconds; 95 % is the level of every interval, 80 % the power.
MEASURED = re.compile(
    r"(?<![\w.])(?!95 %|80 % power)(?:\d*\.\d+|\d{1,3}(?:,\d{3})+|\d+ %|± ?\d+|\d+ (?:points|ms|[KMG]i?B))(?!\w)"
)


def marked():
    return [(page.name, *mark) for page in PAGES for mark in MARKED.findall(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("name", PULLS)
def test_the_pulls_on_longvideobench_are_what_the_samplers_count(name, shared):
    videos = Counter(rate.info for rate in read_rates(shared("data/lvb_val_fps.csv")).values())
    if name == "aks_dense":  # every frame; running it over 27 million takes longer than all others together
        assert sum(video.n_frames * count for video, count in videos.items()) == PULLS[name]
        return
    sampler = make_sampler(name.replace(", alpha ", ":alpha="))
    assert sum(sampler.count_pulls(video, k=64) * count for video, count in videos.items()) == PULLS[name]


def without_derived(text, derived):
    """Return a marked text without the derived ones, which must all stand there, and without a table's head."""
    remaining = " ".join(re.sub(r"\A\|.*\n\|[-:|]+\n", "", text).split())
    for derived_text in (" ".join(line.split()) for line in derived):
        assert derived_text in remaining
        remaining = remaining.replace(derived_text, "")
    return remaining


def stated_outside_marks(page):
    """Return the measured figures that a page states outside of marks."""
    return MEASURED.findall(EXEMPT.sub("", prose_of(page)))


@pytest.mark.parametrize(("page", "name", "text"), marked())
def test_a_marked_figure_follows_from_recorded_rows(page, name, text):
    """Each derived text stands between the marks, and no figure stands there beside them."""
    assert re.findall(r"\d", without_derived(text, FIGURES[name]())) == []


def test_every_derivation_has_its_place():
    assert {name for _, name, _ in marked()} == {*FIGURES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_states_no_measured_figure_outside_marks(page):
    assert stated_outside_marks(page) == []
