"""Figures as files: the same bytes, readable text, distinct styles."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from importlib import resources
from xml.etree import ElementTree

import numpy as np
import pytest

from focus_eval.bench.report.figures import MARK, draw_timelines, page_svg, save_figure
from focus_eval.bench.report.page.charts import draw_panels, panels_of, styles_of_run
from focus_eval.core.errors import InvalidInput
from focus_eval.keyframes.figures import BASELINE, STYLES, THEME, css_variables, draw_sheet, styles_of


def test_a_caption_never_says_sixty_seconds(demo_run):
    row = replace(next(iter(demo_run.selections)), keyframes=[1], times_seconds=[59.996])
    caption = draw_sheet(row, [np.zeros((9, 16, 3), dtype=np.uint8)]).axes[0].get_title()
    assert caption.splitlines()[0] == "1:00.00  #1"


@pytest.mark.slow
def test_the_same_rows_give_the_same_vector(demo_run, tmp_path):
    rows = [row for row in demo_run.selections if row.question_id == "q00007" and row.seed == 0]
    digests = set()
    for number in range(2):
        vector, _ = save_figure(draw_timelines(rows), tmp_path / f"{number}.pdf")
        digests.add(hashlib.sha256(vector.read_bytes()).hexdigest())
    assert len(digests) == 1


def test_timelines_are_of_one_question(demo_run):
    with pytest.raises(InvalidInput, match="one question"):
        draw_timelines(list(demo_run.selections)[:2])


def test_a_question_with_mathematics_in_it_is_drawn_as_text(demo_run, tmp_path):
    row = replace(next(iter(demo_run.selections)), query=r"How much is $5 or $\frac{?")
    assert save_figure(draw_timelines([row]), tmp_path / "x.svg")[0].read_text().count("$5") == 1


def test_no_two_samplers_share_colour_and_mark():
    labels = ["uniform", "focus", "topk", "aks", "random", *(f"mine{number}" for number in range(60))]
    assert len({(style.light, style.marker) for style in styles_of(labels).values()}) == len(labels)
    assert styles_of(["focus"]) == {"focus": STYLES[0]}


def test_page_and_plots_take_their_colours_from_one_place():
    css = css_variables()
    for style in (*STYLES, BASELINE):
        assert f"--{style.colour}: {style.light};" in css
        assert f".{style.colour} {{ --c: var(--{style.colour}); }}" in css
        assert css.count(f"--{style.colour}: {style.dark};") == 2  # the system's dark theme, and the button's
    page = resources.files("focus_eval.bench.report") / "page"
    assert [path.name for path in page.iterdir() if re.search(r"#[0-9a-fA-F]{6}\b", text_of(path))] == []


def text_of(path) -> str:
    return path.read_text() if path.suffix in (".css", ".js", ".j2", ".py") else ""


@pytest.mark.parametrize("name", ["ink", "soft", "right", "wrong", "odd", "accent"])
def test_text_is_readable_on_its_ground_in_both_themes(name):
    for dark in (0, 1):
        for ground in ("page", "card"):
            assert contrast(THEME[name][dark], THEME[ground][dark]) >= 4.5


def contrast(one_colour: str, other_colour: str) -> float:
    """Contrast ratio of WCAG 2, from 1 to 21."""
    high, low = sorted((luminance(one_colour), luminance(other_colour)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    levels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [level / 12.92 if level <= 0.04045 else ((level + 0.055) / 1.055) ** 2.4 for level in levels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_a_selection_without_frames_gets_a_panel_as_high_as_the_others(by_length_run):
    rows = next(iter(questions_of(by_length_run).values()))
    blind = replace(rows[0], sampler="blind", keyframes=[], times_seconds=[], pulled_frames=[], pulled_relevance=[])
    figure = draw_timelines([rows[0], blind, *rows[1:]])
    figure.canvas.draw()
    heights = [axes.get_position().height for axes in figure.axes]
    assert max(heights) - min(heights) < 1e-6
    assert min(heights) > 0.6 / len(heights)


def questions_of(run):
    rows_by_question = {}
    for row in run.selections:
        if row.error is None:
            rows_by_question.setdefault(row.question_id, []).append(row)
    return rows_by_question


def test_a_drawing_for_the_page_has_its_titles_and_colours_and_no_style_of_its_own():
    from matplotlib.figure import Figure

    figure = Figure()
    mark = figure.subplots().plot([1], [0.123456], "o", color=STYLES[0].light)[0]
    mark.set_gid(MARK + "a <b> & c: 1.0 %")
    drawn = page_svg(figure, "Many & much")
    root = ElementTree.fromstring(drawn)
    assert [item.text for item in root.iter() if item.tag.endswith("title")] == ["a <b> & c: 1.0 %"]
    assert root.get("aria-label") == "Many & much"
    assert f"var(--{STYLES[0].colour})" in drawn
    assert STYLES[0].light not in drawn
    assert not any("style" in item.attrib or item.tag.endswith("}style") for item in root.iter())
    ids = [item.attrib["id"] for item in root.iter() if "id" in item.attrib]
    assert all(f"#{name}" in drawn for name in ids)
    assert drawn == page_svg(figure, "Many & much")


def test_the_names_of_axes_fit_beside_each_other_in_a_row_of_panels(demo_run):
    one_k = max(panels_of(demo_run).values(), key=len)
    panels = [replace(panel, k=k) for panel in one_k for k in (4, 8, 16, 32)]
    figure = draw_panels(panels, styles_of_run(demo_run))
    figure.draw_without_rendering()
    drawn = [axes for axes in figure.axes if axes.axison]
    assert len(drawn) == len(panels)
    boxes = [axes.xaxis.label.get_window_extent() for axes in drawn]
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)
    assert sum(axes.get_ylabel() != "" for axes in drawn) == len({(panel.measure, panel.cost) for panel in panels})
