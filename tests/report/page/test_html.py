"""The report's page in a real browser: nothing fetched, nothing logged, filters right, texts escaped."""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
import shutil
import time
from dataclasses import replace

import pytest
from simulated import Simulation, simulate_run, simulated_parts

from focus_eval.report.page.html import render_html, write_html
from focus_eval.report.page.question_browser import CHUNK_QUESTIONS, json_for_script, pack_browser
from focus_eval.report.run import Run, load_run

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def chromium():
    """A real Chromium, or the reason why there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium is installed")
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


class Opened:
    """A page that remembers what it logged and asked for."""

    def __init__(self, chromium, path, **options):
        self.page = chromium.new_page(**options)
        self.problems, self.requests, self.dialogs = [], [], []
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("dialog", lambda dialog: (self.dialogs.append(dialog.message), dialog.dismiss()))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("#detail h3", state="attached")

    def listed(self):
        return self.page.locator("#count").inner_text()

    def pick(self, **values):
        for name, value in values.items():
            self.page.select_option(f"#{name}", value)


@pytest.fixture
def opened(chromium):
    pages = []

    def open_(path, **options):
        one = Opened(chromium, path, **options)
        pages.append(one)
        return one

    yield open_
    for one in pages:
        one.page.close()


@pytest.fixture(scope="session")
def page_file(by_length_run, tmp_path_factory):
    return write_html(by_length_run, tmp_path_factory.mktemp("page") / "report.html", thumbnails=pictures)


def pictures(video, frames):
    from PIL import Image

    images = {}
    for frame in frames:
        buffer = io.BytesIO()
        Image.new("RGB", (64, 36), (frame % 256, 80, 120)).save(buffer, "JPEG")
        images[frame] = buffer.getvalue()
    return images


def by_question(run, sampler):
    return {row.question_id: row for row in run.answers if row.selection_id.startswith(f"{sampler}-")}


def test_the_page_fetches_nothing_and_logs_nothing(opened, page_file):
    one = opened(page_file)
    one.page.locator("#list button").nth(3).click()
    one.page.wait_for_timeout(200)
    assert one.problems == []
    assert [url for url in one.requests if not url.startswith("data:")] == [page_file.as_uri()]


def test_filters_find_what_the_rows_say(opened, page_file, by_length_run):
    one = opened(page_file)
    uniform, topk = by_question(by_length_run, "uniform"), by_question(by_length_run, "topk")
    assert one.listed() == "120 of 120 questions"

    def right(row):
        return row.error is None and row.score >= 0.5

    one.pick(bucket="long")
    assert one.listed() == f"{sum(row.bucket == 'long' for row in uniform.values())} of 120 questions"
    one.pick(verdict="r", series="topk")
    expected = sum(row.bucket == "long" and right(row) for row in topk.values())
    assert one.listed() == f"{expected} of 120 questions"
    one.pick(bucket="", verdict="+", other="uniform")
    only_topk = [key for key in topk if right(topk[key]) and not uniform[key].error and not right(uniform[key])]
    assert one.listed() == f"{len(only_topk)} of 120 questions"
    assert one.page.locator("#list .id").first.inner_text() == only_topk[0]
    one.pick(verdict="d")
    differ = [key for key in topk if not uniform[key].error and right(topk[key]) != right(uniform[key])]
    assert one.listed() == f"{len(differ)} of 120 questions"
    one.pick(verdict="e")
    assert one.listed() == f"{sum(row.error is not None for row in topk.values())} of 120 questions"
    one.page.click("text=Clear")
    one.page.fill("#search", "scene 117")
    one.page.wait_for_function("document.getElementById('count').textContent.startsWith('1 of')")
    assert one.page.locator("#list .id").inner_text() == "q00117"


def test_a_question_shows_timelines_frames_evidence_and_answers(opened, page_file, by_length_run):
    one = opened(page_file)
    one.page.locator("#list button").nth(7).click()
    one.page.wait_for_function("document.querySelector('#detail h3').textContent.includes('scene 7')")
    row = next(row for row in by_length_run.selections if row.question_id == "q00007" and row.sampler == "focus")
    names = one.page.locator("#detail h4").all_inner_texts()
    assert names[:2] == ["focus", "uniform"]
    lane = one.page.locator("#detail .time").first.locator("g").first
    assert lane.locator(".key").count() == len(row.keyframes)
    assert lane.locator(".evidence").count() == len(row.evidence_seconds)
    assert lane.locator(".mean").count() == sum(clip[3] is not None for clip in row.clips)
    section = one.page.locator("#detail .series").first
    assert section.locator(".frames img").count() == len(row.keyframes)
    loaded = "nodes => nodes.every(node => node.complete && node.naturalWidth === 64)"
    one.page.wait_for_timeout(200)
    assert section.locator("img").evaluate_all(loaded)
    answer = by_question(by_length_run, "focus")["q00007"]
    assert answer.answer in section.inner_text()


def test_a_reader_chooses_which_samplers_are_drawn(opened, page_file):
    one = opened(page_file)
    assert one.page.locator("#detail .series").count() == 4
    one.page.locator(".shown button").nth(1).click()
    assert one.page.locator("#detail .series").count() == 3
    assert one.page.locator("#list button").first.locator(".marks span").count() == 3
    one.page.locator(".shown button").nth(1).click()
    assert one.page.locator("#detail .series").count() == 4


def nearest_seconds(row):
    return min(abs(time - moment) for time in row.times_seconds for moment in row.evidence_seconds)


def test_a_question_says_which_option_was_right_and_how_far_the_evidence_was(opened, page_file, by_length_run):
    one = opened(page_file)
    answers = by_question(by_length_run, "focus")
    rows = {row.question_id: row for row in by_length_run.selections if row.sampler == "focus" and not row.error}
    wrong = next(key for key, row in answers.items() if key in rows and row.parsed == "C")
    far = next(key for key, row in rows.items() if nearest_seconds(row) > 2.1)
    near = next(key for key, row in rows.items() if nearest_seconds(row) < 1.9)
    one.page.goto(page_file.as_uri() + f"#q=longvideobench/{wrong}")
    section = one.page.locator("#detail .series").first
    section.locator(".given").filter(has_text="B: A dog (right) / C: A cat (given)").wait_for()
    for key, words in ((far, "No keyframe shows the evidence"), (near, "Evidence in view")):
        one.page.goto(page_file.as_uri() + f"#q=longvideobench/{key}")
        one.page.locator("#detail dd", has_text=key).wait_for()
        assert words in section.inner_text()
        assert f"{nearest_seconds(rows[key]):.1f} s away" in section.inner_text()
    assert section.locator(".pair img").count() == 2


def test_the_questions_that_tell_two_samplers_apart_come_first(opened, page_file, by_length_run):
    one = opened(page_file)
    topk, uniform = by_question(by_length_run, "topk"), by_question(by_length_run, "uniform")
    one.pick(series="topk", other="uniform", order="apart")
    ids = one.page.locator("#list .id").all_inner_texts()
    apart = [topk[key].error is None and topk[key].score != uniform[key].score for key in ids]
    assert 0 < sum(apart) < 120
    assert apart == sorted(apart, reverse=True)
    one.pick(order="long")
    seconds = {row.question_id: row.duration_seconds for row in by_length_run.selections}
    listed = [round(seconds[key]) for key in one.page.locator("#list .id").all_inner_texts()]
    assert listed == sorted((round(value) for value in seconds.values()), reverse=True)[:40]


def test_radii_are_drawn_only_where_they_tell_clips_apart(opened, by_length_run, tmp_path):
    def with_radius(row, radius):
        clips = [[*clip[:4], None if clip[3] is None else radius, clip[5]] for clip in row.clips]
        return replace(row, clips=clips)

    for radius, is_drawn in ((0.01, True), (0.9, False)):
        rows = [with_radius(row, radius) for row in by_length_run.selections if row.question_id == "q00000"]
        answers = [row for row in by_length_run.answers if row.question_id == "q00000"]
        one = opened(write_html(Run("radii", rows, answers), tmp_path / f"{radius}.html"))
        lane = one.page.locator("#detail .time").first.locator("g").first
        assert lane.locator(".mean").count() > 1
        assert (lane.locator(".clip").count() > 0) == is_drawn
        assert ("radii overlap" in one.page.locator(".key-legend").inner_text()) != is_drawn


def test_without_a_match_no_stale_question_stands_there(opened, page_file):
    one = opened(page_file)
    one.page.fill("#search", "nothing like this")
    one.page.wait_for_function("document.getElementById('count').textContent.startsWith('0 of')")
    assert one.page.locator("#detail h3").count() == 0
    assert "No question matches" in one.page.locator("#detail").inner_text()
    one.page.fill("#search", "")
    one.page.wait_for_selector("#detail h3")


def test_an_address_holds_filters_samplers_and_question(opened, page_file):
    one = opened(page_file)
    one.pick(series="topk", verdict="w", order="low", bucket="long")
    one.page.locator("#list button").nth(1).click()
    title, count = one.page.locator("#detail h3").inner_text(), one.listed()
    again = opened(page_file)
    again.page.goto(one.page.url)
    again.page.wait_for_function("document.getElementById('series').value === 'topk'")
    again.page.reload()
    again.page.wait_for_function(f"document.querySelector('#detail h3').textContent === {json.dumps(title)}")
    assert again.listed() == count
    values = {name: again.page.input_value(f"#{name}") for name in ("series", "verdict", "order", "bucket")}
    assert values == {"series": "topk", "verdict": "w", "order": "low", "bucket": "long"}


def test_a_click_on_a_heading_sorts_a_table_by_its_numbers(opened, page_file):
    one = opened(page_file)
    table = one.page.locator("#results table").last
    column = table.locator("thead th").count() - 1
    before = table.locator("tbody tr").all_inner_texts()

    def numbers():
        cells = [row.locator("td, th").nth(column).inner_text() for row in table.locator("tbody tr").all()]
        found = [re.match(r"[-\u2212+]?[\d.]+", text.strip()) for text in cells]
        return [float(one.group().replace("\u2212", "-")) for one in found if one]

    table.locator("thead button").last.click()
    assert numbers() == sorted(numbers())
    table.locator("thead button").last.click()
    assert numbers() == sorted(numbers(), reverse=True)
    table.locator("thead button").last.click()
    assert table.locator("tbody tr").all_inner_texts() == before


def test_a_click_on_a_frame_shows_it_large_and_arrows_go_on(opened, page_file):
    one = opened(page_file)
    frames = one.page.locator("#detail .frames").first.locator(".enlarge")
    frames.nth(1).click()
    shown = one.page.locator("dialog img")
    assert shown.get_attribute("src") == frames.nth(1).locator("img").get_attribute("src")
    one.page.keyboard.press("ArrowRight")
    assert shown.get_attribute("src") == frames.nth(2).locator("img").get_attribute("src")
    one.page.keyboard.press("Escape")
    one.page.wait_for_selector("dialog", state="detached")
    assert frames.nth(2).evaluate("node => node === document.activeElement")


def test_of_many_samplers_the_well_known_ones_are_drawn_first(tmp_path):
    samplers = ("focus_c", "focus_f", "focus_m", "uniform", "random", "topk", "aks", "focus")
    browser = pack_browser(load_run(simulate_run(tmp_path, Simulation(n_questions=3, samplers=samplers))))
    shown = [one["name"] for one in browser.index["series"] if one["shown"]]
    assert shown == ["uniform", "random", "topk", "aks", "focus"]
    assert len(browser.index["series"]) == 8


def test_keys_move_from_question_to_question(opened, page_file):
    one = opened(page_file)
    title = one.page.locator("#detail h3")
    one.page.keyboard.press("/")
    assert one.page.evaluate("document.activeElement.id") == "search"
    one.page.keyboard.press("Tab")
    one.page.locator("#list button").first.focus()
    one.page.keyboard.press("ArrowDown")
    one.page.wait_for_function("document.querySelector('#detail h3').textContent.includes('scene 1?')")
    one.page.keyboard.press("j")
    one.page.wait_for_function("document.querySelector('#detail h3').textContent.includes('scene 2?')")
    one.page.keyboard.press("k")
    one.page.wait_for_function("document.querySelector('#detail h3').textContent.includes('scene 1?')")
    assert "scene 1?" in title.inner_text()
    assert one.page.evaluate("document.activeElement.getAttribute('aria-current')") == "true"


def test_an_address_opens_its_question(opened, page_file):
    one = opened(page_file)
    one.page.goto(page_file.as_uri() + "#q=longvideobench%2Fq00050")
    one.page.reload()
    one.page.wait_for_function("document.querySelector('#detail h3').textContent.includes('scene 50')")


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (820, "dark"), (1360, "light")])
def test_no_width_scrolls_sideways(opened, page_file, width, scheme):
    one = opened(page_file, viewport={"width": width, "height": 850}, color_scheme=scheme)
    assert one.page.evaluate("document.documentElement.scrollWidth") <= width
    one.page.locator("#list button").nth(2).click()
    one.page.wait_for_selector("#detail .time .key")
    assert one.page.evaluate("document.documentElement.scrollWidth") <= width
    assert one.page.locator("#detail").is_visible()
    dark = one.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
    assert dark == (scheme == "dark")
    one.page.click("#theme")
    assert (one.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)") != dark


def test_on_a_phone_a_question_replaces_the_list_and_back_returns(opened, page_file):
    one = opened(page_file, viewport={"width": 390, "height": 844})
    one.page.locator("#list button").nth(2).click()
    one.page.wait_for_selector("#detail .time .key")
    assert not one.page.locator("#list").is_visible()
    one.page.click(".back")
    assert one.page.locator("#list").is_visible()


def test_the_printed_page_has_tables_and_the_question_but_no_controls(opened, page_file):
    one = opened(page_file)
    one.page.emulate_media(media="print")
    assert not one.page.locator("#filters").is_visible()
    assert not one.page.locator("#list").is_visible()
    assert one.page.locator("table").first.is_visible()
    assert one.page.locator("#detail").is_visible()
    assert len(one.page.pdf()) > 20_000


def test_questions_that_are_markup_stay_text(opened, hostile_run, tmp_path):
    one = opened(write_html(hostile_run, tmp_path / "hostile.html"))
    one.page.locator("#list button").nth(4).click()
    one.page.wait_for_function("document.querySelector('#detail h3').textContent.includes('\"quoted\" 4')")
    shown = one.page.locator("#detail h3").inner_text()
    assert shown.startswith('</script><script>alert("4")</script> <img src=x onerror=alert(1)>')
    assert one.page.locator("#detail img").count() == 0
    assert one.page.title().startswith("hostile_&_<b>")
    assert one.dialogs == []
    assert one.problems == []
    assert len([url for url in one.requests if not url.startswith("data:")]) == 1


def test_no_text_of_the_data_ends_a_script_element(hostile_run):
    text = render_html(hostile_run)
    assert "alert(" not in re.sub(r'<script type="application/json".*?</script>', "", text, flags=re.S)
    assert text.count("<script") == text.count("</script>")
    assert json.loads(json_for_script(["</script><!--", "\u2028"])) == ["</script><!--", "\u2028"]


def test_a_chunk_holds_its_questions_whole(by_length_run):
    browser = pack_browser(by_length_run)
    first = json.loads(gzip.decompress(base64.b64decode(browser.chunks[0])))
    assert len(first) == CHUNK_QUESTIONS
    assert len(browser.chunks) == 3
    names = [one["name"] for one in browser.index["series"]]
    row = next(row for row in by_length_run.selections if row.question_id == "q00007" and row.sampler == "topk")
    assert first[7]["series"][names.index("topk")]["frames"] == row.keyframes
    assert first[7]["series"][names.index("topk")]["pulls"] == len(row.pulled_frames)
    assert first[7]["evidence"] == pytest.approx(row.evidence_seconds, abs=0.01)


def details_of(browser):
    return [one for chunk in browser.chunks for one in json.loads(gzip.decompress(base64.b64decode(chunk)))]


def test_a_budget_of_bytes_takes_frames_from_every_question_not_questions(by_length_run):
    budget = 600_000
    few = pack_browser(by_length_run, thumbnails=pictures, thumbnail_bytes=budget)
    details = details_of(few)
    assert few.pictured == 119  # one question has no selection
    assert sum(len(text) for one in details for text in one["pictures"].values()) <= budget
    for one in details:
        assert not one["pictures"] or str(one["evidence_frames"][0]) in one["pictures"]
    link = {"thumbnails": lambda video, frames: {f: f"thumbs/{f}.jpg" for f in frames}, "thumbnail_bytes": 10**12}
    linked = pack_browser(by_length_run, **link)
    for one in details_of(linked):
        frames = {frame for series in one["series"] for frame in series["frames"]}
        assert {int(frame) for frame in one["pictures"]} == frames | (set(one["evidence_frames"]) if frames else set())


def test_the_same_rows_give_the_same_page(demo_run):
    assert render_html(demo_run) == render_html(demo_run)


@pytest.mark.slow
def test_a_page_of_5000_questions_stays_small_and_opens(opened, tmp_path, capsys):
    parts = []
    for benchmark in ("longvideobench", "videomme"):
        what = Simulation(n_questions=2500, samplers=("uniform", "topk", "focus"), k=64, benchmark=benchmark)
        parts += simulated_parts(what)
    run = Run(
        "large",
        [row for _, rows, _ in parts for row in rows],
        [row for _, _, answers in parts for rows in answers.values() for row in rows],
    )
    path = write_html(run, tmp_path / "large.html")
    size = path.stat().st_size / 1e6
    began = time.perf_counter()
    one = opened(path)
    one.page.wait_for_selector("#detail .time .key")
    seconds = time.perf_counter() - began
    began = time.perf_counter()
    one.page.locator("#list button").nth(30).click()
    one.page.wait_for_function("document.querySelector('#detail h3').textContent.includes('scene 30')")
    click = time.perf_counter() - began
    with capsys.disabled():
        print(f"\n5000 questions, 3 samplers: {size:.1f} MB, opens in {seconds:.2f} s, one question in {click:.2f}")
    assert size < 30
    assert one.listed() == "5,000 of 5,000 questions"
    assert one.problems == []
