"""The report's page in a real browser: nothing fetched, nothing logged, filters right, texts escaped."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from focus_eval.bench.report.figures import name_marks
from focus_eval.bench.report.page.browser import pack_browser
from focus_eval.bench.report.page.charts import (
    MAX_LEADING,
    Point,
    headline,
    lead_chart,
    lead_panel,
    panels_of,
    unbeaten,
)
from focus_eval.bench.report.page.html import _recoveries, render_sections, report_tables, write_html
from focus_eval.bench.report.rendering import Table, TableRow, Value, narrowed, notes_once, to_csv
from focus_eval.bench.report.run import Run, load_run, sampler_order
from focus_eval.keyframes.figures import new_figure
from tests.bench.report.simulated import Simulation, simulate_run


def by_question(run, sampler):
    return {row.question_id: row for row in run.answers if row.selection_id.startswith(f"{sampler}-")}


def test_the_page_fetches_nothing_and_logs_nothing(opened, page_file):
    browser = opened(page_file)
    browser.page.locator("#list button").nth(3).click()
    browser.page.wait_for_timeout(200)
    assert browser.problems == []
    assert [url for url in browser.requests if not url.startswith("data:")] == [page_file.as_uri()]


def test_filters_find_what_the_rows_say(opened, page_file, by_length_run):
    browser = opened(page_file)
    uniform, topk = by_question(by_length_run, "uniform"), by_question(by_length_run, "topk")
    assert browser.listed() == "120 of 120 questions"

    def right(row):
        return row.error is None and row.score >= 0.5

    browser.pick(bucket="long")
    assert browser.listed() == f"{sum(row.bucket == 'long' for row in uniform.values())} of 120 questions"
    browser.pick(verdict="r", series="topk")
    expected = sum(row.bucket == "long" and right(row) for row in topk.values())
    assert browser.listed() == f"{expected} of 120 questions"
    browser.pick(bucket="", verdict="+", other="uniform")
    only_topk = [key for key in topk if right(topk[key]) and not uniform[key].error and not right(uniform[key])]
    assert browser.listed() == f"{len(only_topk)} of 120 questions"
    assert browser.page.locator("#list .id").first.inner_text() == only_topk[0]
    browser.pick(verdict="d")
    differ = [key for key in topk if not uniform[key].error and right(topk[key]) != right(uniform[key])]
    assert browser.listed() == f"{len(differ)} of 120 questions"
    browser.pick(verdict="e")
    assert browser.listed() == f"{sum(row.error is not None for row in topk.values())} of 120 questions"
    browser.page.click("text=Clear")
    browser.page.fill("#search", "scene 117")
    browser.page.wait_for_function("document.getElementById('count').textContent.startsWith('1 of')")
    assert browser.page.locator("#list .id").inner_text() == "q00117"


def test_a_question_shows_timelines_frames_evidence_and_answers(opened, page_file, by_length_run):
    browser = opened(page_file)
    browser.page.locator("#list button").nth(7).click()
    browser.page.wait_for_function("document.querySelector('#detail h3').textContent.includes('scene 7')")
    row = next(row for row in by_length_run.selections if row.question_id == "q00007" and row.sampler == "focus")
    names = browser.page.locator("#detail h4").all_inner_texts()
    assert names[:2] == ["focus", "uniform"]
    lane = browser.page.locator("#detail .time").first.locator("g").first
    assert lane.locator(".key").count() == len(row.keyframes)
    assert lane.locator(".evidence").count() == len(row.evidence_seconds)
    assert lane.locator(".mean").count() == sum(clip[3] is not None for clip in row.clips)
    section = browser.page.locator("#detail .series").first
    assert section.locator(".frames img").count() == len(row.keyframes)
    loaded = (
        "section => [...section.querySelectorAll('img')].every(image => image.complete && image.naturalWidth === 64)"
    )
    browser.page.wait_for_function(loaded, arg=section.element_handle())
    answer = by_question(by_length_run, "focus")["q00007"]
    assert answer.answer in section.inner_text()


def test_a_reader_chooses_which_samplers_are_drawn(opened, page_file):
    browser = opened(page_file)
    assert browser.page.locator("#detail .series").count() == 2
    browser.page.locator(".shown button").nth(1).click()
    assert browser.page.locator("#detail .series").count() == 3
    assert browser.page.locator("#list button").first.locator(".marks span").count() == 3
    browser.page.locator(".shown button").nth(1).click()
    assert browser.page.locator("#detail .series").count() == 2


def nearest_seconds(row):
    return min(abs(time - moment) for time in row.times_seconds for moment in row.evidence_seconds)


def test_a_question_says_which_option_was_right_and_how_far_the_evidence_was(opened, page_file, by_length_run):
    browser = opened(page_file)
    answers = by_question(by_length_run, "focus")
    rows = {row.question_id: row for row in by_length_run.selections if row.sampler == "focus" and not row.error}
    wrong = next(key for key, row in answers.items() if key in rows and row.parsed == "C")
    far_key = next(key for key, row in rows.items() if nearest_seconds(row) > 2.1)
    near_key = next(key for key, row in rows.items() if nearest_seconds(row) < 1.9)
    browser.page.goto(page_file.as_uri() + f"#q=longvideobench/{wrong}")
    section = browser.page.locator("#detail .series").first
    section.locator(".given").filter(has_text="B: A dog (right) / C: A cat (given)").wait_for()
    for key, words in ((far_key, "No keyframe shows the evidence"), (near_key, "Evidence in view")):
        browser.page.goto(page_file.as_uri() + f"#q=longvideobench/{key}")
        browser.page.locator("#detail dd", has_text=key).wait_for()
        assert words in section.inner_text()
        assert f"{nearest_seconds(rows[key]):.1f} s away" in section.inner_text()
    assert section.locator(".pair img").count() == 2


def test_the_questions_that_tell_two_samplers_apart_come_first(opened, page_file, by_length_run):
    browser = opened(page_file)
    topk, uniform = by_question(by_length_run, "topk"), by_question(by_length_run, "uniform")
    browser.pick(series="topk", other="uniform", order="apart")
    ids = browser.page.locator("#list .id").all_inner_texts()
    is_different = [topk[key].error is None and topk[key].score != uniform[key].score for key in ids]
    assert 0 < sum(is_different) < 120
    assert is_different == sorted(is_different, reverse=True)
    browser.pick(order="long")
    seconds = {row.question_id: row.duration_seconds for row in by_length_run.selections}
    listed = [round(seconds[key]) for key in browser.page.locator("#list .id").all_inner_texts()]
    assert listed == sorted((round(value) for value in seconds.values()), reverse=True)[:40]


@pytest.mark.slow
def test_radii_are_drawn_only_where_they_tell_clips_apart(opened, by_length_run, tmp_path):
    def with_radius(row, radius):
        clips = [[*clip[:4], None if clip[3] is None else radius, clip[5]] for clip in row.clips]
        return replace(row, clips=clips)

    for radius, is_drawn in ((0.01, True), (0.9, False)):
        rows = [with_radius(row, radius) for row in by_length_run.selections if row.question_id == "q00000"]
        answers = [row for row in by_length_run.answers if row.question_id == "q00000"]
        browser = opened(write_html(Run("radii", rows, answers), tmp_path / f"{radius}.html"))
        lane = browser.page.locator("#detail .time").first.locator("g").first
        assert lane.locator(".mean").count() > 1
        assert (lane.locator(".clip").count() > 0) == is_drawn
        assert ("radii overlap" in browser.page.locator(".key-legend").inner_text()) != is_drawn


def test_without_a_match_no_stale_question_stands_there(opened, page_file):
    browser = opened(page_file)
    browser.page.fill("#search", "nothing like this")
    browser.page.wait_for_function("document.getElementById('count').textContent.startsWith('0 of')")
    assert browser.page.locator("#detail h3").count() == 0
    assert "No question matches" in browser.page.locator("#detail").inner_text()
    browser.page.fill("#search", "")
    browser.page.wait_for_selector("#detail h3")


def test_an_address_holds_filters_samplers_and_question(opened, page_file):
    browser = opened(page_file)
    browser.pick(series="topk", verdict="w", order="low", bucket="long")
    second = browser.page.locator("#list button").nth(1)
    question = second.locator(".ask").inner_text()
    second.click()
    browser.page.locator("#detail h3", has_text=question).wait_for()
    title, count = browser.page.locator("#detail h3").inner_text(), browser.listed()
    reopened = opened(page_file)
    reopened.page.goto(browser.page.url)
    reopened.page.wait_for_function("document.getElementById('series').value === 'topk'")
    reopened.page.reload()
    reopened.page.wait_for_function(f"document.querySelector('#detail h3').textContent === {json.dumps(title)}")
    assert reopened.listed() == count
    values = {name: reopened.page.input_value(f"#{name}") for name in ("series", "verdict", "order", "bucket")}
    assert values == {"series": "topk", "verdict": "w", "order": "low", "bucket": "long"}


def test_a_click_on_a_heading_sorts_a_table_by_its_numbers(opened, page_file):
    browser = opened(page_file)
    table = browser.page.locator("#results table").last
    column = table.locator("thead th").count() - 1
    original_rows = table.locator("tbody tr").all_inner_texts()

    def numbers():
        cells = [row.locator("td, th").nth(column).inner_text() for row in table.locator("tbody tr").all()]
        matches = [re.match(r"[-\u2212+]?[\d.]+", text.strip()) for text in cells]
        return [float(match.group().replace("\u2212", "-")) for match in matches if match]

    table.locator("thead button").last.click()
    assert numbers() == sorted(numbers())
    table.locator("thead button").last.click()
    assert numbers() == sorted(numbers(), reverse=True)
    table.locator("thead button").last.click()
    assert table.locator("tbody tr").all_inner_texts() == original_rows


@pytest.mark.slow
def test_a_click_on_a_frame_shows_it_large_and_arrows_go_on(opened, page_file):
    browser = opened(page_file)
    frames = browser.page.locator("#detail .frames").first.locator(".enlarge")
    frames.nth(1).click()
    image = browser.page.locator("dialog img")
    assert image.get_attribute("src") == frames.nth(1).locator("img").get_attribute("src")
    browser.page.keyboard.press("ArrowRight")
    assert image.get_attribute("src") == frames.nth(2).locator("img").get_attribute("src")
    browser.page.keyboard.press("Escape")
    browser.page.wait_for_selector("dialog", state="detached")
    assert frames.nth(2).evaluate("node => node === document.activeElement")


def test_of_many_samplers_the_well_known_ones_are_drawn_first(tmp_path):
    samplers = ("focus_c", "focus_f", "focus_m", "uniform", "random", "topk", "aks", "focus")
    browser = pack_browser(load_run(simulate_run(tmp_path, Simulation(n_questions=3, samplers=samplers))))
    drawn = [item["name"] for item in browser.index["series"] if item["shown"]]
    assert drawn == ["uniform", "random", "topk", "aks", "focus"]
    assert len(browser.index["series"]) == 8


@pytest.mark.slow
def test_keys_move_from_question_to_question(opened, page_file):
    browser = opened(page_file)
    title = browser.page.locator("#detail h3")
    browser.page.keyboard.press("/")
    assert browser.page.evaluate("document.activeElement.id") == "search"
    browser.page.keyboard.press("Tab")
    browser.page.locator("#list button").first.focus()
    browser.page.keyboard.press("ArrowDown")
    browser.page.wait_for_function("document.querySelector('#detail h3').textContent.includes('scene 1?')")
    browser.page.keyboard.press("j")
    browser.page.wait_for_function("document.querySelector('#detail h3').textContent.includes('scene 2?')")
    browser.page.keyboard.press("k")
    browser.page.wait_for_function("document.querySelector('#detail h3').textContent.includes('scene 1?')")
    assert "scene 1?" in title.inner_text()
    assert browser.page.evaluate("document.activeElement.getAttribute('aria-current')") == "true"


@pytest.mark.slow
def test_an_address_opens_its_question(opened, page_file):
    browser = opened(page_file)
    browser.page.goto(page_file.as_uri() + "#q=longvideobench%2Fq00050")
    browser.page.reload()
    browser.page.wait_for_function("document.querySelector('#detail h3').textContent.includes('scene 50')")


@pytest.mark.parametrize(
    ("width", "scheme"),
    [(390, "light"), *(pytest.param(*at, marks=pytest.mark.slow) for at in ((820, "dark"), (1360, "light")))],
)
def test_no_width_scrolls_sideways(opened, page_file, width, scheme):
    browser = opened(page_file, viewport={"width": width, "height": 850}, color_scheme=scheme)
    assert browser.page.evaluate("document.documentElement.scrollWidth") <= width
    browser.page.locator("#list button").nth(2).click()
    browser.page.wait_for_selector("#detail .time .key")
    assert browser.page.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.page.locator("#detail").is_visible()
    dark = browser.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
    assert dark == (scheme == "dark")
    browser.page.click("#theme")
    assert (browser.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)") != dark


@pytest.mark.parametrize("width", [390, pytest.param(1360, marks=pytest.mark.slow)])
def test_the_first_chart_is_whole_at_the_width_of_a_phone_and_of_a_desk(opened, page_file, width):
    browser = opened(page_file, viewport={"width": width, "height": 844})
    (figure,) = [item for item in browser.page.locator(".lead figure").all() if item.is_visible()]
    box = figure.locator("svg").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    assert figure.evaluate("figure => figure.scrollWidth <= figure.clientWidth")
    # Its texts can be read: an SVG is scaled with its texts.
    assert figure.locator("svg text").first.bounding_box()["height"] >= 9


@pytest.mark.slow
def test_on_a_phone_a_question_replaces_the_list_and_back_returns(opened, page_file):
    browser = opened(page_file, viewport={"width": 390, "height": 844})
    browser.page.locator("#list button").nth(2).click()
    browser.page.wait_for_selector("#detail .time .key")
    assert not browser.page.locator("#list").is_visible()
    browser.page.click(".back")
    assert browser.page.locator("#list").is_visible()


@pytest.mark.slow
def test_the_printed_page_has_tables_and_the_question_but_no_controls(opened, page_file):
    browser = opened(page_file)
    browser.page.emulate_media(media="print")
    assert not browser.page.locator("#filters").is_visible()
    assert not browser.page.locator("#list").is_visible()
    assert browser.page.locator("table").first.is_visible()
    assert browser.page.locator("#detail").is_visible()
    assert len(browser.page.pdf()) > 20_000


def test_questions_that_are_markup_stay_text(opened, hostile_run, tmp_path):
    browser = opened(write_html(hostile_run, tmp_path / "hostile.html"))
    browser.page.locator("#list button").nth(4).click()
    browser.page.wait_for_function("document.querySelector('#detail h3').textContent.includes('\"quoted\" 4')")
    heading = browser.page.locator("#detail h3").inner_text()
    assert heading.startswith('</script><script>alert("4")</script> <img src=x onerror=alert(1)>')
    assert browser.page.locator("#detail img").count() == 0
    assert browser.page.title().startswith("hostile_&_<b>")
    assert browser.dialogs == []
    assert browser.problems == []
    assert len([url for url in browser.requests if not url.startswith("data:")]) == 1


@pytest.mark.slow
def test_a_page_opens_on_the_question_on_which_the_pair_differs_most(opened, by_length_run, tmp_path):
    ids = ("q00002", "q00003")  # both right on the first, one of them on the second
    parts = [
        [row for row in rows if row.question_id in ids] for rows in (by_length_run.selections, by_length_run.answers)
    ]
    browser = opened(write_html(Run("two", *parts), tmp_path / "two.html"))
    browser.page.wait_for_function("document.querySelector('#detail h3').textContent.includes('scene 3')")
    assert browser.page.locator("#list button[aria-current=true] .id").inner_text() == "q00003"


def test_the_first_chart_has_few_samplers_and_the_sentence_the_best_and_uniform(tmp_path):
    names = ("focus_c", "focus_f", "focus_m", "uniform", "random", "topk", "aks", "focus")
    run = load_run(simulate_run(tmp_path, Simulation(n_questions=12, samplers=names)))
    panels = panels_of(run)
    chart = lead_chart(run, panels)
    labels = re.findall(r'aria-label="(\w+): ', chart.svg)
    assert len(labels) == MAX_LEADING < len(names)
    best = max((point for point in lead_panel(run, panels)[1].points), key=lambda point: point.value.ours)
    assert {"uniform", "focus", best.label} <= set(labels)
    sentence = headline(run, panels)
    assert f"with {best.label} {best.value.brief_text} % of the evidence" in sentence
    assert "uniform frames: " in sentence
    assert headline(Run("none", [], []), {}) == ""


@pytest.mark.slow
def test_a_page_begins_with_the_answer_and_every_table_can_be_saved(page_file, by_length_run):
    text = page_file.read_text(encoding="utf-8")
    places = [
        text.index(f'{kind}"') for kind in ('class="headline', 'id="results', 'id="questions', 'id="more', 'id="notes')
    ]
    assert places == sorted(places)
    assert text.count("<table") > 2
    assert text[: text.index('id="more"')].count("<table") == 1
    assert "<details open" not in text
    saved = re.findall(r'download="(.+?)\.csv" href="data:text/csv;base64,(.+?)"', text)
    tables = [narrowed(item) for item in notes_once(report_tables(by_length_run))]
    assert [name for name, _ in saved][: len(tables)] == [item.name for item in tables]
    for (_, content), table in zip(saved, tables, strict=False):
        assert base64.b64decode(content).decode() == to_csv(table)


def test_the_floor_comes_first_and_the_ceiling_last():
    labels = ["oracle [ceiling]", "mine", "focus", "uniform", "blind [floor]"]
    assert sorted(labels, key=sampler_order) == ["blind [floor]", "uniform", "focus", "mine", "oracle [ceiling]"]


def test_unbeaten_are_those_that_find_more_than_all_that_cost_no_more():
    points_by_name = {"free": (0, 20), "worse": (2, 10), "good": (1, 50), "dear": (3, 60), "same": (4, 60)}
    points = [Point(label=name, cost=cost, value=Value(ours=value)) for name, (cost, value) in points_by_name.items()]
    points.append(Point(label="oracle [ceiling]", cost=0, value=Value(ours=100.0)))
    assert [point.label for point in unbeaten(points)] == ["free", "good", "dear"]


@pytest.mark.slow
def test_a_folded_table_shows_the_rows_with_every_word(opened, page_file):
    browser = opened(page_file)
    table = browser.page.locator(".sifted").first
    table.locator("summary").click()
    rows = [text.lower() for text in table.locator("tbody tr").all_inner_texts()]
    table.locator(".sift input").fill("topk")
    expected = sum("topk" in row for row in rows)
    browser.page.wait_for_function(
        "([box, words]) => box.querySelector('[role=status]').textContent === words",
        arg=[table.element_handle(), f"{expected} of {len(rows)} rows"],
    )
    assert table.locator("tbody tr:visible").count() == expected < len(rows)


@pytest.mark.slow
def test_an_enlarged_frame_plays_its_video_from_there_or_says_that_it_is_gone(opened, by_length_run, tmp_path):
    from tests.bench.report.page.conftest import pictures

    rows = [row for row in by_length_run.selections if row.question_id == "q00000"]
    page = write_html(Run("videos", rows, []), tmp_path / "a" / "x.html", thumbnails=pictures, videos=tmp_path / "b c")
    browser = opened(page)
    frame = browser.page.locator("#detail .frames .enlarge").first
    address = frame.get_attribute("data-video")
    assert address.startswith(f"../b%20c/{rows[0].video}#t=")
    frame.click()
    browser.page.locator("dialog >> text=Play from here").click()
    browser.page.locator("dialog p", has_text="The video is no longer at ../b%20c").wait_for()
    assert any(url.endswith(rows[0].video) for url in browser.requests)


@pytest.mark.slow
def test_a_chart_is_one_tab_stop_and_arrows_say_its_points(opened, page_file):
    page = opened(page_file).page
    chart = page.locator("figure:has(.point)").first
    labels = chart.locator(".point").evaluate_all("all => all.map((one) => one.getAttribute('aria-label'))")
    assert len(labels) > 2
    assert chart.locator(".point[tabindex='0']").count() == 1
    chart.locator(".point").first.focus()
    for step in (0, 1, 2):
        assert chart.locator(".told").inner_text() == labels[step]
        page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert chart.locator(".point[tabindex='0']").get_attribute("aria-label") == labels[2]


@pytest.mark.slow
def test_the_first_button_that_says_something_has_the_focus_in_a_large_frame(opened, page_file):
    page = opened(page_file).page
    page.locator("#detail .frames .enlarge").first.press("Enter")
    assert page.evaluate("document.activeElement.textContent") == "Next"


def test_names_in_a_chart_stand_near_their_marks_and_apart():
    costs, recalls = [0.0, 1.33, 0.1, 0.23, 0.4, 0.45], [15.0, 52.1, 54.2, 66.2, 77.9, 75.0]  # the demo's
    marks = [(str(at), *mark) for at, mark in enumerate(zip(costs, recalls, strict=True))]
    axes = new_figure(7, 2.4).subplots()
    axes.plot(costs, recalls)
    axes.set_ylim(0, 100)
    name_marks(axes, marks)
    heights = np.array([text.get_position()[1] for text in axes.texts])
    assert np.abs(heights - np.array(recalls) / 100).max() < 0.2
    assert np.diff(np.sort(heights[2:])).min() > 0.069  # of the four that are close


def test_a_page_of_parts_says_each_heading_once_and_none_that_is_empty():
    table = Table(name="t", title="Samplers", key_titles=("Sampler", "K"), columns=("a",), rows=(
        TableRow(("focus", "8"), (Value(ours=1.0),)), TableRow(("aks", "16"), (Value(ours=2.0),)),
    ))  # fmt: skip
    parts = [("Aks", ["By others."]), ("Samplers", [table]), ("More", [table]), ("", [{"index.html": "All"}])]
    closed = re.findall(r"<details><summary>(.*?)</summary>", render_sections("Aks", parts))
    assert closed == ["Samplers", "More", ""]
    text = render_sections("Aks", parts, n_open=len(parts))
    headings = re.findall(r"<(h\d)>(.*?)</h\d>", text)
    assert headings == [("h1", "Aks"), ("h2", "Samplers"), ("h2", "More"), ("h3", "Samplers")]
    # axe: levels follow each other, and a screen reader tells two regions by their names.
    assert re.findall(r'role="region" aria-label="(.*?)"', text) == ["Samplers", "Samplers, More"]
    assert (
        re.findall(r"<(h\d)>", render_sections("Runs", [("Runs", [table]), ("", [table])], n_open=2))[1:] == ["h2"] * 2
    )
    assert re.findall(r'<th scope="row"><span class="key-text">(\w+)', text) == ["focus", "aks"] * 2


def test_the_page_names_what_an_encoder_repeated():
    assert _recoveries({}) == ""
    text = _recoveries({"blip": {"halved_batches": 1, "fp32_batches": 3}})
    assert text == "blip: 1 batch halved for lack of memory, blip: 3 batches redone in fp32"
